"""Tests of ros_rl.sim.walk_env: what is drawn holds in the physics, falls, pushes, and going on from a state."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.sim.walk_env import NOMINAL, Conditions, WalkVectorEnv, uneven_ground, walk


def env_of(count: int = 4, conditions: Conditions = NOMINAL) -> WalkVectorEnv:
    return WalkVectorEnv(walk(), count, conditions)


def test_the_trot_alone_walks_where_it_is_told():
    env = env_of(3)
    env.tell([[0.5, 0.0, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    env.reset(seed=0)
    velocity = []
    for _ in range(150):
        _, reward, terminated, _, info = env.step(np.zeros((3, 12)))
        assert not terminated.any()
        velocity.append(info["velocity"])
    mean = np.mean(velocity[50:], axis=0)
    assert 0.25 < mean[0, 0] < 0.65 and 0.25 < mean[1, 2] < 0.65
    np.testing.assert_allclose(mean[2], 0.0, atol=0.01)
    assert (info["rho"] < 0.35).all()
    assert reward[2] > 0.14, "standing still as told is worth nearly all there is"


def test_rho_is_tilt_or_height_above_the_ground():
    env = env_of(4, replace(NOMINAL, uneven=0.5))
    env.reset(seed=0)
    half = np.deg2rad(45.0) / 2
    env.copies.qpos[:, 3:7] = [1.0, 0.0, 0.0, 0.0]
    env.copies.qpos[:, 2] = 0.5
    env.copies.qpos[0, 3:7] = [np.cos(half), np.sin(half), 0.0, 0.0]
    env.copies.qpos[1, 2] = 0.12
    ground = uneven_ground().height(*env.copies.qpos[2, :2])
    env.copies.qpos[2, 2] = ground + 0.195
    rho = env.instability()
    np.testing.assert_allclose(rho[:2], [0.75, 1.0], atol=1e-9)
    assert rho[2] == pytest.approx(0.5, abs=0.3)  # the mean below the hips is not quite the height below the trunk
    assert rho[3] == 0.0
    np.testing.assert_array_equal(env.judge()[1], [False, True, False, False])


def test_friction_and_load_are_those_of_the_copy():
    conditions = replace(NOMINAL, friction=(0.3, 1.2), load=(0.0, 3.0), uneven=0.5)
    env = env_of(6, conditions)
    env.reset(seed=3)
    weight = []
    for copy, (friction, load) in enumerate(env._physics):
        model = env.copies._batch.get_model(copy)
        assert (model.geom_friction[:, 0] == friction).all()
        weight.append(model.body_subtreemass[0] - load)
        assert model.body_subtreemass[0] == pytest.approx(mujoco.mj_getTotalmass(model))
    np.testing.assert_allclose(weight, weight[0])
    assert len(set(env._physics[:, 0])) == 6


def test_a_robot_on_ice_slips():
    distances = []
    for friction in (0.05, 1.0):
        env = env_of(1, replace(NOMINAL, friction=(friction, friction)))
        env.tell([0.5, 0.0, 0.0])
        env.reset(seed=0)
        distances.append(sum(env.step(np.zeros((1, 12)))[4]["velocity"][0, 0] for _ in range(100)))
    assert distances[0] < 0.5 * distances[1]


def test_late_commands_arrive_late():
    env = env_of(3, replace(NOMINAL, delay=2))
    env.reset(seed=0)
    env._delay[:] = [0, 1, 2]
    env._late_targets[:] = 0.0
    rows = np.tile(np.arange(1.0, 5.0)[None, :, None], (3, 1, 12)) * 1e-3
    sent = []
    command = env.copies.command
    env.copies.command = lambda target, copies: (sent.append(target.copy()), command(target, copies))
    env._target[:] = 0.0
    env._limits.apply = lambda wanted, *_: wanted
    env._follow(rows, None)
    np.testing.assert_allclose(np.array(sent)[:, :, 0] * 1e3, [[1, 0, 0], [2, 1, 0], [3, 2, 1], [4, 3, 2]])


def test_a_push_changes_the_velocity_by_what_it_says():
    env = env_of(2, replace(NOMINAL, spread=False))
    env.reset(seed=0)
    before = env.copies.qvel.copy()
    env.push(np.array([[0.5, 0.0], [0.0, -0.3]]))
    np.testing.assert_allclose(env.copies.qvel[:, :2] - before[:, :2], [[0.5, 0.0], [0.0, -0.3]])
    np.testing.assert_array_equal(env.copies.qvel[:, 2:], before[:, 2:])
    env.step(np.zeros((2, 12)))
    assert env.velocity[0, 0] > 0.1


def test_pushes_and_new_commands_come_in_training():
    env = env_of(8, Conditions())
    env.reset(seed=0)
    commands, kicks = {tuple(row) for row in env.command}, 0
    for _ in range(300):
        before = env._next_push.copy()
        _, _, terminated, truncated, _ = env.step(np.zeros((8, 12)))
        kicks += (env._next_push > before).sum()
        if (over := terminated | truncated).any():
            env.reset(options={"reset_mask": over})
        commands |= {tuple(row) for row in env.command}
    assert len(commands) > 12 and kicks > 8
    assert (np.array(list(commands)) <= walk().velocity_limit[1]).all() and (np.array(list(commands)) >= walk().velocity_limit[0]).all()
    with pytest.raises(UserError, match="draws its commands"):
        env.tell([0.5, 0.0, 0.0])


def test_a_fall_terminates_and_the_episode_begins_anew():
    env = env_of(2)
    env.tell([0.5, 0.0, 0.0])
    env.reset(seed=0)
    env.copies.qpos[0, 3:7] = [np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0]  # on its side
    _, _, terminated, truncated, info = env.step(np.zeros((2, 12)))
    np.testing.assert_array_equal(terminated, [True, False])
    assert info["rho"][0] >= 1.0 and not truncated.any()
    kept = env.copies.qpos[1].copy()
    observation, info = env.reset(options={"reset_mask": terminated})
    assert info["rho"][0] < 0.2 and env.walker.clock[0] == env.walker.settling
    np.testing.assert_array_equal(env.copies.qpos[1], kept)
    assert np.isfinite(observation).all()


def test_time_and_the_edge_of_the_ground_truncate():
    env = WalkVectorEnv(walk(), 2, replace(NOMINAL, uneven=0.5), max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(np.zeros((2, 12)))[3].all() for _ in range(3)] == [False, False, True]
    env.reset(seed=0)
    env.copies.qpos[:, 0] += 9.4
    np.testing.assert_array_equal(env.judge()[2], [False, env.copies.qpos[1, 0] > 9.5])
    env.copies.qpos[:, 0] += 2.0
    np.testing.assert_array_equal(env.judge()[2], [False, True])  # flat ground has no edge


def test_it_goes_on_from_a_state_bit_for_bit():
    draw = np.random.default_rng(0)
    env = env_of(4, Conditions())
    env.reset(seed=1)
    for _ in range(80):
        env.step(draw.uniform(-0.2, 0.2, (4, 12)))
    state, actions = env.state(), draw.uniform(-0.2, 0.2, (40, 4, 12))
    other = env_of(4, Conditions())
    other.reset(seed=9)
    other.restore(state)
    for action in actions:
        ours, theirs = env.step(action), other.step(action)
        for one, two in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one, two)


def test_copies_go_their_own_way_by_their_seeds():
    env, alone = env_of(3, replace(Conditions(), uneven=0.0)), env_of(1, replace(Conditions(), uneven=0.0))
    first, _ = env.reset(seed=5)
    second, _ = alone.reset(seed=6)
    np.testing.assert_array_equal(first[1], second[0])
    for _ in range(20):
        first, second = env.step(np.full((3, 12), 0.1))[0], alone.step(np.full((1, 12), 0.1))[0]
    np.testing.assert_array_equal(first[1], second[0])
    assert not np.array_equal(first[0], first[1])

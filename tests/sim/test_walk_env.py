"""Tests of ros_rl.sim.walk_env: what is drawn holds in the physics, falls, pushes, and going on from a state."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.sim.goals.quadruped import attitude, ground_below
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
    (ground,) = ground_below(uneven_ground(), env.copies.qpos[2:3, :2], attitude(env.copies.qpos[2:3, 3:7])[2])
    assert ground > 0.01
    env.copies.qpos[2, 2] = ground + 0.195
    rho = env.instability()
    np.testing.assert_allclose(rho, [0.75, 1.0, 0.5, 0.0], atol=1e-9)
    np.testing.assert_array_equal(env.judge()[1], [False, True, False, False])


def test_half_of_the_copies_have_uneven_ground_below_them():
    env = env_of(4, replace(NOMINAL, uneven=0.5))
    data, places = mujoco.MjData(env.copies.mj), np.array([[3.0, 2.0], [-4.0, 0.5], [0.0, -6.0]])
    found = np.empty((4, 3))
    for copy in range(4):
        model = env.copies._batch.get_model(copy)
        mujoco.mj_forward(model, data)
        for number, place in enumerate(places):
            found[copy, number] = 1.0 - mujoco.mj_ray(
                model, data, [*place, 1.0], [0.0, 0.0, -1.0], None, 1, -1, np.zeros(1, np.int32), None
            )
    bumps = uneven_ground().height(*places.T)
    assert bumps.min() > 0.01
    np.testing.assert_allclose(found, [np.zeros(3), np.zeros(3), bumps, bumps], atol=1e-6)


def test_the_reward_is_what_is_written():
    """One term a copy, of a robot that stands upright above the ground and was told to stand: 0.15 where nothing is wrong."""
    env = env_of(8)
    env.reset(seed=0)
    env.copies.qpos[:, 2:7], env.copies.qvel[:], env.copies.actuator_force = [0.5, 1.0, 0.0, 0.0, 0.0], 0.0, np.zeros((8, 12))
    env.copies.qvel[1, :2] = 0.12, -0.16
    env.copies.qvel[2, 5] = 0.25
    env._off[3] = 0.0, 0.08, -0.12
    env.walker.action[4] = 0.5
    env._changed[5] = 2.0
    env.copies.qpos[6, 3:7] = [np.cos(np.deg2rad(15.0)), 0.0, np.sin(np.deg2rad(15.0)), 0.0]
    env.copies.actuator_force[7] = 10.0
    lost = 1.0 - np.exp(-1.0)
    expected = [0.0, 0.5 * lost, 0.25 * lost, 0.75 * lost, 0.02 * 12 * 0.25, 0.02, 0.3 * 0.25, 2e-5 * 12 * 100.0]
    np.testing.assert_allclose(env.judge()[0], 0.15 - 0.1 * np.array(expected), atol=1e-9)
    env.walker.velocity[:] = [0.12, -0.16, 0.0]
    np.testing.assert_allclose(env.judge()[0][:2], [0.15 - 0.05 * lost, 0.15], atol=1e-9)  # by the velocity that is walked at


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


def test_in_training_a_push_that_is_due_comes_at_the_end_of_a_step():
    conditions = replace(NOMINAL, push=1.0)
    env, other = env_of(16, conditions), env_of(16, conditions)
    env.reset(seed=0)
    other.reset(seed=1)
    other.restore(env.state())
    env._next_push[:], other._next_push[:] = 1, 1000
    (*_, info), (*_, calm) = env.step(np.zeros((16, 12))), other.step(np.zeros((16, 12)))
    change = env.copies.qvel - other.copies.qvel
    np.testing.assert_array_equal(change[:, 2:], 0.0)
    size, angle = np.linalg.norm(change[:, :2], axis=1), np.arctan2(change[:, 1], change[:, 0])
    assert size.max() <= 1.0 and size.max() > 0.7 and size.min() < 0.4
    assert set(np.floor(angle / (np.pi / 2))) == {-2.0, -1.0, 0.0, 1.0}
    np.testing.assert_allclose(np.linalg.norm((info["velocity"] - calm["velocity"])[:, :2], axis=1), size)
    np.testing.assert_array_equal(env._off, other._off)
    assert (env._next_push > 70).all()


def test_episodes_differ_in_how_late_commands_are_and_in_where_they_go():
    env = env_of(48, replace(Conditions(), uneven=0.0))
    env.reset(seed=0)
    assert set(env._delay) == {0, 1, 2}
    zero = env.command == 0.0
    assert 0.25 < zero.mean() < 0.5, "three in ten parts, and one robot in ten stands: 0.37"
    assert 0 < zero.all(axis=1).sum() < 12 and (~zero).all(axis=1).sum() > 0


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


@pytest.mark.parametrize("command", [[0.5, 0.0], [np.nan, 0.0, 0.0], np.zeros((3, 3))])
def test_a_command_that_is_none_is_refused(command):
    with pytest.raises(UserError, match=r"finite and of shape \(3,\) or \(2, 3\)"):
        env_of(2).tell(command)


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

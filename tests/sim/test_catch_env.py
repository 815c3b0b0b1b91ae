"""Tests of ros_rl.sim.catch_env: where episodes begin, what is worth something, and going on from a state."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.sim.catch_env import CatchVectorEnv, catch
from ros_rl.sim.walk_env import NOMINAL, Conditions, WalkVectorEnv, walk

VARIED = Conditions(uneven=0.5, push=0.0, commands=False)


@pytest.fixture(scope="module")
def walking() -> WalkVectorEnv:
    """Six robots that trot ahead, the last three on uneven ground, in the middle of a stride."""
    env = WalkVectorEnv(walk(), 6, replace(NOMINAL, uneven=0.5))
    env.tell([0.5, 0.0, 0.0])
    env.reset(seed=0)
    for _ in range(47):
        env.step(np.zeros((6, 12)))
    return env


def env_of(walking: WalkVectorEnv, copies: int = 8, conditions: Conditions = VARIED, steps: int = 80) -> CatchVectorEnv:
    return CatchVectorEnv(catch(), walking.copies.snapshot(), walking.uneven, 0.15, copies, conditions, steps)


def test_episodes_begin_in_states_of_the_same_ground_and_go_on_from_what_joints_were_told(walking):
    env, states = env_of(walking), walking.copies.snapshot()
    env.reset(seed=0)
    began = env.copies.snapshot()
    which = [int(np.flatnonzero((states == state).all(axis=1))[0]) for state in began]
    assert set(which[:4]) <= {0, 1, 2} and set(which[4:]) <= {3, 4, 5} and len(set(which)) > 2
    joints = env.copies.model
    told, measured = env.copies.ctrl[:, joints.actuators].copy(), env.copies.qpos[:, joints.qpos]
    np.testing.assert_array_equal(env.walker.posture, measured)
    env.step(np.zeros((8, 15)))
    step = np.array([joint.velocity for joint in joints.spec.joints]) / 50.0  # of one action, within the guard's limits
    assert (np.abs(env.copies.ctrl[:, joints.actuators] - told) <= step + 1e-9).all(), "no target jumps, nobody stands up first"
    assert len({tuple(row) for row in env._physics}) == 8, "friction and load are drawn anew"


def test_standing_still_is_worth_most_moving_less_and_a_fall_costs(walking):
    env = env_of(walking, 3, NOMINAL)
    env.reset(seed=0)
    env.copies.qpos[:, 2], env.copies.qpos[:, 3:7], env.copies.qvel[:] = 0.28, [1.0, 0.0, 0.0, 0.0], 0.0
    env.copies.qvel[1, 0], env.copies.qpos[2, 2] = 1.0, 0.1
    reward, terminated, truncated, info = env.judge()
    torque = 0.1 * 1e-5 * np.square(env.copies.actuator_force).sum(axis=1)
    np.testing.assert_allclose(reward + torque, 0.1 * np.array([1.5, 0.5 + np.exp(-4.0), -5.0 - 0.17 / 0.15]), atol=1e-9)
    assert terminated.tolist() == [False, False, True] and not truncated.any()
    np.testing.assert_allclose(info["rho"], [0.0, 0.0, 0.17 / 0.15])
    env.walker.action[0, :3], env._changed[0] = 0.5, 0.3
    np.testing.assert_allclose(env.judge()[0][0] - reward[0], -0.1 * (0.02 * 3 * 0.25 + 0.01 * 0.3), atol=1e-9)


def test_the_trot_steps_where_the_action_says_and_an_episode_ends_in_time(walking):
    env = env_of(walking, 2, NOMINAL, steps=60)
    env.reset(seed=0)
    action, velocity = np.zeros((2, 15)), []
    action[:, 13] = [0.3, -0.3]
    for _ in range(60):
        _, _, terminated, truncated, info = env.step(action)
        assert not terminated.any()
        velocity.append(info["velocity"])
    mean = np.mean(velocity[20:], axis=0)
    assert 0.2 < mean[0, 1] < 0.45 and -0.45 < mean[1, 1] < -0.2
    assert truncated.all()


def test_it_goes_on_bit_for_bit_from_a_state_it_was_in(walking):
    env, draw = env_of(walking), np.random.default_rng(0)
    env.reset(seed=1)
    for _ in range(7):
        env.step(draw.uniform(-0.2, 0.2, (8, 15)))
    state, action = env.state(), draw.uniform(-0.2, 0.2, (8, 15))
    expected = env.step(action)[0], env.reset()[0]
    other = env_of(walking)
    other.reset(seed=5)
    other.restore(state)
    np.testing.assert_array_equal(other.step(action)[0], expected[0])
    np.testing.assert_array_equal(other.reset()[0], expected[1])

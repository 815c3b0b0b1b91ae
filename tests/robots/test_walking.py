"""Tests of ros_rl.robots.walking: the velocity's limits, what is seen, and targets that do not jump."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from ros_rl.robots.spec import load_robot
from ros_rl.robots.walking import Catcher, Mirror, Walker
from ros_rl.sim.catch_env import catch
from ros_rl.sim.walk_env import NOMINAL, WalkVectorEnv, walk

ROBOT = load_robot("quadruped")


def walker_of(count: int = 2) -> Walker:
    walker = Walker(walk(), ROBOT, count)
    walker.begin(slice(None), np.tile(ROBOT.home, (count, 1)))
    return walker


def test_the_velocity_follows_the_command_within_its_limits():
    walker, settings = walker_of(1), walk()
    seen = []
    for _ in range(100):
        walker.listen(np.array([[9.0, -9.0, 0.3]]))
        seen.append(walker.velocity[0].copy())
    assert np.abs(np.diff(seen, axis=0)).max(axis=0) == pytest.approx(settings.acceleration_limit / settings.rate)
    np.testing.assert_allclose(seen[-1], [settings.velocity_limit[1, 0], settings.velocity_limit[0, 1], 0.3])


def test_it_stands_up_without_a_jump_and_stands_until_it_is_told_to_walk():
    walker = walker_of(1)
    walker.begin([0], ROBOT.home[None] + 0.1)
    rows = np.concatenate([walker.stand_up()[0] for _ in range(walker.settling)])
    np.testing.assert_array_equal(rows[0], ROBOT.home + 0.1)
    assert np.abs(np.diff(rows, axis=0)).max() < 0.01
    on = np.concatenate([walker.walk_on(np.zeros((1, 12)))[0] for _ in range(20)])
    assert np.ptp(on, axis=0).max() == 0.0
    assert np.abs(on[0] - rows[-1]).max() < 1e-4


def test_a_correction_is_reached_in_equal_steps_and_cut_to_its_range():
    walker = walker_of(1)
    walker.clock[:] = walker.settling
    still = walker.walk_on(np.zeros((1, 12)))[0, 0]
    action = np.full((1, 12), -3.0)
    first, second = walker.walk_on(action)[0] - still, walker.walk_on(action)[0] - still
    np.testing.assert_allclose(first, np.outer([-0.25, -0.5, -0.75, -1.0], np.full(12, walk().correction)), atol=1e-12)
    np.testing.assert_allclose(second, -walk().correction, atol=1e-12)
    np.testing.assert_array_equal(walker.action, -1.0)


def test_it_sees_gravity_in_its_own_axes_and_the_clock_turn_once_in_a_stride():
    walker = walker_of(3)
    walker.clock[:] = walker.settling + np.array([0, 5, 20])
    turns = Rotation.random(3, rng=0)
    quat = turns.as_quat()[:, [3, 0, 1, 2]]
    seen = walker.observation(quat, np.ones((3, 3)), np.tile(ROBOT.home + 0.2, (3, 1)), np.full((3, 12), 2.0))
    assert seen.shape == (3, 47)
    np.testing.assert_allclose(seen[:, 3:6], turns.inv().apply([0.0, 0.0, -1.0]), atol=1e-12)
    np.testing.assert_allclose(seen[:, 6:18], 0.2)
    np.testing.assert_allclose(seen[:, -2:], [[0, 1], [1, 0], [0, 1]], atol=1e-9)  # 20 actions of 50 Hz are a stride of 2.5 Hz


def test_it_goes_on_from_a_state_it_was_in():
    walker = walker_of()
    walker.clock[:] = walker.settling
    draw = np.random.default_rng(0)
    for _ in range(5):
        walker.listen(np.array([[0.5, 0.0, 0.2], [-0.2, 0.1, 0.0]]))
        walker.walk_on(draw.uniform(-1, 1, (2, 12)))
    state, action = walker.state(), draw.uniform(-1, 1, (2, 12))
    expected = walker.walk_on(action)
    other = walker_of()
    other.restore(state)
    np.testing.assert_array_equal(other.walk_on(action), expected)


@pytest.mark.parametrize("velocity", [(0.5, 0.0, 0.0), (-0.2, 0.1, 0.0), (0.3, 0.0, -0.4)])
def test_what_catches_a_robot_goes_on_in_the_stride_that_its_legs_are_in(velocity):
    walker, catcher = walker_of(20), Catcher(catch(), ROBOT, 20)
    walker.clock[:], walker.velocity[:] = walker.settling + np.arange(20), velocity
    rows = walker.walk_on(np.zeros((20, 12)))
    catcher.go_on(np.arange(20), rows[:, 0], (rows[:, 1] - rows[:, 0]) * ROBOT.control_rate)
    late = (catcher.clock - np.arange(20)) % 20  # the joints of a robot follow their targets two actions' times late
    assert np.abs(late - 2).max() <= 1


def test_what_catches_a_robot_chooses_the_velocity_of_its_trot_and_is_not_told_any():
    catcher, walker, settings = Catcher(catch(), ROBOT, 1), Walker(catch(), ROBOT, 1), catch()
    action = np.concatenate([np.full(12, 0.1), [0.5, -1.0, 0.0]])[None]
    for count in range(1, 6):
        catcher.listen(np.ones((1, 3)))
        walker.listen(action[:, 12:] * settings.velocity_limit[1])
        np.testing.assert_array_equal(catcher.walk_on(action), walker.walk_on(action[:, :12]))
        largest = settings.acceleration_limit * count / settings.rate
        expected = np.clip(action[0, 12:] * settings.velocity_limit[1], -largest, largest)
        np.testing.assert_allclose(catcher.velocity[0], expected)
    np.testing.assert_allclose(catcher.velocity, [[0.75, -1.2, 0.0]])
    catcher.walk_on(np.full((1, 15), 7.0))
    assert (catcher.velocity <= settings.velocity_limit[1]).all() and (catcher.action == 1.0).all()


HALF_STRIDE = 10  # actions


def test_in_the_mirror_joint_targets_are_those_of_the_other_side_half_a_stride_later():
    gait = replace(walk().gait, phase=np.array([0.003, 0.503, 0.503, 0.003]), duty=0.61)  # no period at which a foot is set down or lifted
    walker, mirror, draw = Walker(replace(walk(), gait=gait), ROBOT, 2), Mirror(ROBOT.joint_names), np.random.default_rng(0)
    walker.clock[:] = walker.settling + 3, walker.settling + 3 + HALF_STRIDE
    walker.velocity[:] = [[0.5, 0.2, -0.6], [0.5, -0.2, 0.6]]
    for _ in range(25):
        action = draw.uniform(-1.0, 1.0, (1, 12))
        one, other = walker.walk_on(np.concatenate([action, mirror.action(action)]))
        np.testing.assert_allclose(mirror.action(one), other, atol=1e-12)
    assert np.abs(one - other).max() > 0.1
    assert ROBOT.joint_names[3] == "FR_hip_joint"
    np.testing.assert_array_equal(mirror.action(np.eye(12)[:1]), -np.eye(12)[3:4])


def test_in_the_mirror_robots_are_caught_on_the_other_side():
    gait = replace(walk().gait, phase=np.array([0.003, 0.503, 0.503, 0.003]), duty=0.61)
    catcher, mirror, draw = Catcher(replace(catch(), gait=gait), ROBOT, 2), Mirror(ROBOT.joint_names), np.random.default_rng(0)
    catcher.clock[:] = 3, 3 + HALF_STRIDE
    for _ in range(25):
        action = draw.uniform(-1.0, 1.0, (1, 15))
        one, other = catcher.walk_on(np.concatenate([action, mirror.action(action)]))
        np.testing.assert_allclose(mirror.action(one), other, atol=1e-12)
    np.testing.assert_array_equal(catcher.velocity[0] * [1.0, -1.0, -1.0], catcher.velocity[1])


def test_in_the_mirror_is_seen_what_a_robot_sees_that_did_all_in_the_mirror():
    """Two robots, one the mirror image of the other, on a plane: the simulation itself says what each sees."""
    environment, mirror = WalkVectorEnv(walk(), 2, replace(NOMINAL, spread=False)), Mirror(ROBOT.joint_names)
    environment.tell(np.array([[0.5, 0.2, -0.6], [0.5, -0.2, 0.6]]))
    draw = np.random.default_rng(0)
    environment.reset(seed=[0, 0])
    walker = environment.walker
    walker.clock[:] = walker.settling, walker.settling + HALF_STRIDE
    pose, speed = environment.copies.qpos[0].copy(), environment.copies.qvel[0].copy()
    speed[:6] += [0.1, 0.3, 0.0, 0.5, -0.4, 0.3]
    pose[3:7] = [np.cos(0.1), np.sin(0.1), 0.0, 0.0]
    joints = environment.copies.model
    for name, flip in (("qpos", [1, -1, 1, 1, -1, 1, -1]), ("qvel", [1, -1, 1, -1, 1, -1])):
        rows, first = getattr(environment.copies, name), pose if name == "qpos" else speed
        rows[:] = first
        rows[1, : len(flip)] *= flip
        rows[1, getattr(joints, name)] = mirror.action(first[None, getattr(joints, name)])[0]
    seen = []
    for _ in range(8):
        action = draw.uniform(-0.3, 0.3, (1, 12))
        observation, *_ = environment.step(np.concatenate([action, mirror.action(action)]))
        seen.append(observation)
    one, other = np.stack(seen, axis=1)
    off, size = np.abs(mirror.observation(one) - other).max(axis=0), np.abs(one).max(axis=0)
    assert (off < 0.1 * size).all(), "MuJoCo's solver and the inertia of the trunk are not quite symmetric; signs and places are right"
    np.testing.assert_array_equal(mirror.observation(mirror.observation(one)), one)

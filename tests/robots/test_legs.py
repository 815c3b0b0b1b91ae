"""Tests of ros_rl.robots.legs: leg kinematics against Pinocchio, and the cycle of a foot."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.legs import LEGS, legs_of, stacked, step_cycle
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot

ROBOT = load_robot("quadruped")
SLICES = {leg: slice(3 * index, 3 * index + 3) for index, leg in enumerate(LEGS)}


def random_legs(count: int) -> list[np.ndarray]:
    """Joint positions, shape (12,), with the feet below the hips."""
    random = np.random.default_rng(0)
    return [random.uniform([-0.6, 0.2, -2.4] * 4, [0.6, 1.4, -1.0] * 4) for _ in range(count)]


@pytest.mark.parametrize("leg", LEGS)
def test_leg_kinematics_invert_the_robot_model(leg):
    model, legs = RobotModel(ROBOT), legs_of(ROBOT)
    for joints in random_legs(50):
        foot = model.frame_pose(f"{leg}_foot", joints).position
        np.testing.assert_allclose(legs[leg].joints(foot), joints[SLICES[leg]], atol=1e-9)


def test_a_foot_out_of_reach_stretches_the_leg():
    leg = legs_of(ROBOT)["FL"]
    joints = leg.joints(leg.hip + [0.0, leg.offset, -1.0])
    assert np.isfinite(joints).all()
    assert joints[2] == 0.0


@pytest.mark.parametrize("leg", LEGS)
def test_torques_balance_a_load_on_the_foot(leg):
    model, legs = RobotModel(ROBOT), legs_of(ROBOT)
    for joints in random_legs(20):
        upwards = model.jacobian(f"{leg}_foot", joints)[2, 6:][SLICES[leg]]
        np.testing.assert_allclose(legs[leg].torques(joints[SLICES[leg]], 30.0), -30.0 * upwards, atol=1e-9)


def test_other_robots_are_refused():
    with pytest.raises(UserError, match=r"FL_hip_joint.*robot 'arm' has joint1"):
        legs_of(load_robot("arm"))


def test_a_foot_on_the_ground_goes_backwards_at_a_constant_speed_and_returns_through_the_air():
    phase, duty = np.linspace(0.0, 1.0, 1001), 0.6
    moved, swing = step_cycle(phase, np.tile([0.2, -0.1], (1001, 1)), 0.05, duty)
    ground = phase < duty - 1e-9
    assert (swing[ground] == 0).all() and (np.diff(swing[~ground][:-1]) > 0).all()
    np.testing.assert_allclose(moved[ground], np.outer(0.5 - phase[ground] / duty, [0.2, -0.1, 0.0]), atol=1e-12)
    np.testing.assert_allclose(moved[0], [0.1, -0.05, 0.0], atol=1e-12)
    np.testing.assert_allclose(moved[1000], moved[0], atol=1e-12)  # a stride later
    np.testing.assert_allclose(moved[800], [0.0, 0.0, 0.05], atol=1e-9)  # in the middle of its swing
    assert np.abs(np.diff(moved, axis=0)).max() < 1e-3  # without a jump


@pytest.mark.parametrize("leg", LEGS)
def test_the_foot_is_where_the_robot_model_has_it(leg):
    model, joints = RobotModel(ROBOT), np.array(random_legs(20))
    feet = legs_of(ROBOT)[leg].foot(joints[:, SLICES[leg]])
    np.testing.assert_allclose(feet, [model.frame_pose(f"{leg}_foot", pose).position for pose in joints], atol=1e-9)


def test_stacked_legs_do_what_each_of_them_does():
    legs = legs_of(ROBOT)
    joints = np.array(random_legs(5)).reshape(5, 4, 3)
    model = RobotModel(ROBOT)
    feet = np.array([[model.frame_pose(f"{leg}_foot", row.ravel()).position for leg in LEGS] for row in joints])
    np.testing.assert_allclose(stacked(legs.values()).joints(feet), joints, atol=1e-9)
    torques = [
        [leg.torques(part, load) for leg, part, load in zip(legs.values(), row, [10.0, 20.0, 30.0, 40.0], strict=True)] for row in joints
    ]
    np.testing.assert_allclose(stacked(legs.values()).torques(joints, np.array([10.0, 20.0, 30.0, 40.0])), torques, atol=1e-12)

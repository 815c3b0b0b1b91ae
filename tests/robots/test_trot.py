"""Tests of ros_rl.robots.trot: feet on the ground move as the ground does below the robot, and the legs carry its weight."""

import numpy as np
import pinocchio as pin
import pytest

from ros_rl.robots.legs import LEGS
from ros_rl.robots.model import GRAVITY, RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.robots.trot import Trot
from ros_rl.sim.walk_env import walk

ROBOT = load_robot("quadruped")
GAIT = walk().gait
VELOCITY = np.array([0.5, -0.1, 0.6])


def test_feet_on_the_ground_move_against_the_velocity_and_those_in_the_air_carry_nothing():
    trot, step = Trot(GAIT, ROBOT), 1e-6
    strides = np.linspace(0.0, 1.0, 200, endpoint=False) + 1e-3
    feet, loads = trot.feet(strides, VELOCITY)
    moved = (trot.feet(strides + step * GAIT.frequency, VELOCITY)[0] - feet) / step
    ground = np.isclose(feet[..., 2], GAIT.stance[:, 2], atol=1e-12)
    against = -(VELOCITY[:2] + VELOCITY[2] * np.stack([-GAIT.stance[:, 1], GAIT.stance[:, 0]], axis=1))
    for leg in range(4):
        touching = ground[:, leg]
        assert touching.mean() == pytest.approx(GAIT.duty, abs=0.02)
        np.testing.assert_allclose(moved[touching, leg, :2], np.tile(against[leg], (touching.sum(), 1)), atol=1e-6)
    assert (loads[~ground] == 0).all()
    np.testing.assert_allclose(loads.sum(axis=1), GRAVITY * pin.computeTotalMass(RobotModel(ROBOT).pin))


def test_the_targets_bring_the_feet_to_their_places_when_the_joints_give_way_under_the_load():
    trot, model = Trot(GAIT, ROBOT), RobotModel(ROBOT)
    stiffness = np.array([joint.stiffness for joint in ROBOT.joints])
    for strides in (0.1, 0.4, 0.8):
        feet, loads = trot.feet(np.array(strides), VELOCITY)
        targets = trot.targets(np.array(strides), VELOCITY)
        torques = np.zeros(12)
        places = targets.copy()
        for _ in range(50):  # the joints bend until the springs balance the load
            torques = sum(-load * model.jacobian(f"{leg}_foot", places)[2, 6:] for leg, load in zip(LEGS, loads, strict=True))
            places = targets - torques / stiffness
        found = [model.frame_pose(f"{leg}_foot", places).position for leg in LEGS]
        np.testing.assert_allclose(found, feet, atol=1e-6)


def test_many_robots_get_what_each_of_them_gets():
    trot = Trot(GAIT, ROBOT)
    strides, velocity = np.array([0.1, 0.7, 1.3]), np.array([VELOCITY, [0.0, 0.0, 0.0], [-0.3, 0.2, -0.4]])
    together = trot.targets(np.tile(strides, (4, 1)).T, velocity[:, None])
    assert together.shape == (3, 4, 12)
    alone = [trot.targets(stride, speed) for stride, speed in zip(strides, velocity, strict=True)]
    np.testing.assert_allclose(together, np.tile(np.array(alone)[:, None], (1, 4, 1)), atol=1e-12)

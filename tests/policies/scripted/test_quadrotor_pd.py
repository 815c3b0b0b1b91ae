"""Tests of ros_rl.policies.scripted.quadrotor_pd: allocation against MuJoCo, hovering in MuJoCo."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.scripted.quadrotor_pd import QuadrotorPd, allocation, attitude
from ros_rl.robots.spec import load_robot

ROBOTS = {"quadrotor_pd": "quadrotor", "quadrotor_wrench_pd": "quadrotor_wrench"}


@pytest.mark.parametrize("robot", ROBOTS.values())
def test_allocation_inverts(robot):
    effect = allocation(load_robot(robot))
    assert np.abs(effect[:2]).max() < 1e-12
    np.testing.assert_allclose(effect[2:] @ np.linalg.pinv(effect[2:]), np.eye(4), atol=1e-12)


@pytest.mark.parametrize("robot", ROBOTS.values())
def test_allocation_is_what_the_simulation_does(robot):
    spec = load_robot(robot)
    simulation = MujocoRobot(spec, "floor")
    command = np.array([3.0, 0.1, -0.2, 0.05]) if robot == "quadrotor_wrench" else np.array([1.0, 2.0, 3.5, 5.0])
    simulation.write(JointCommand(spec.joint_names, command, 0.0))
    mujoco.mj_forward(simulation.model.mj, simulation.data)
    np.testing.assert_allclose(allocation(spec) @ command, simulation.data.qfrc_actuator, atol=1e-9)


def test_attitude_points_the_thrust_and_the_heading():
    rotation = attitude(np.array([1.0, -2.0, 9.0]), 0.7)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) > 0.0
    np.testing.assert_allclose(np.cross(rotation[:, 2], [1.0, -2.0, 9.0]), 0.0, atol=1e-12)
    heading = np.array([np.cos(0.7), np.sin(0.7), 0.0])
    assert abs(rotation[:, 1] @ heading) < 1e-12
    assert rotation[:, 0] @ heading > 0.9


@pytest.mark.parametrize(("bundle", "robot"), ROBOTS.items())
def test_flies_to_its_target_and_stays(play, bundle, robot):
    def displace(simulation, stamp):
        if stamp < 0.0:
            simulation.data.qpos[:7] = [2.0, -1.5, 0.6, np.cos(1.2), 0.0, 0.0, np.sin(1.2)]

    run = play(bundle, robot, "floor", 8.0, disturb=displace)
    assert np.allclose(run.seen[0].base_position, [2.0, -1.5, 0.6])
    np.testing.assert_allclose(run.seen[-1].base_position, [0.0, 0.0, 1.0], atol=2e-3)
    np.testing.assert_allclose(np.abs(run.seen[-1].base_quat), [1.0, 0.0, 0.0, 0.0], atol=2e-3)
    assert np.linalg.norm(run.seen[-1].base_velocity) < 5e-3


def test_too_few_thrusters_are_refused():
    robot = load_robot("quadrotor")
    with pytest.raises(UserError, match="do not make thrust along z and torques"):
        QuadrotorPd(load_bundle("quadrotor_pd"), replace(robot, joints=robot.joints[:3]))

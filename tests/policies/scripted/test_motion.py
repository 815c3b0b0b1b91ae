"""Tests of ros_rl.policies.scripted.motion."""

from dataclasses import replace

import numpy as np
import pinocchio as pin

from ros_rl.policies.scripted.motion import PEAK, SteadyStateTrim, angle_between, between, duration, quintic
from ros_rl.robots.model import Pose
from ros_rl.robots.spec import load_robot


def test_quintic_starts_and_ends_at_rest():
    grid = np.linspace(0.0, 1.0, 10001)
    speed = np.gradient([quintic(s) for s in grid], grid)
    assert (quintic(-1.0), quintic(0.0), quintic(1.0), quintic(2.0)) == (0.0, 0.0, 1.0, 1.0)
    assert max(speed[0], speed[-1]) < 1e-6
    assert np.isclose(speed.max(), PEAK, atol=1e-6)


def test_motion_is_straight_and_turns_evenly():
    start = Pose(np.array([0.1, 0.2, 0.3]), np.eye(3))
    end = Pose(np.array([0.5, 0.0, 0.3]), pin.exp3(np.array([0.0, 1.0, 0.0])))
    half = between(start, end, 0.5)
    np.testing.assert_allclose(half.position, [0.3, 0.1, 0.3])
    np.testing.assert_allclose(half.rotation, pin.exp3(np.array([0.0, 0.5, 0.0])), atol=1e-12)
    np.testing.assert_allclose(between(start, end, 1.0).rotation, end.rotation, atol=1e-12)
    assert np.isclose(angle_between(start.rotation, end.rotation), 1.0)


def test_duration_keeps_the_speed_of_what_is_slower():
    start = Pose(np.zeros(3), np.eye(3))
    end = Pose(np.array([0.3, 0.0, 0.0]), pin.exp3(np.array([0.0, 0.0, 1.0])))
    assert np.isclose(duration(start, end, speed=0.1, turn=10.0), 3.0 * PEAK)
    assert np.isclose(duration(start, end, speed=10.0, turn=0.5), 2.0 * PEAK)


def test_trim_removes_sag_but_neither_lag_nor_grip():
    """Joints that follow with their lag and hang 10 mrad low end where they are wanted; a moving one is not pushed ahead."""
    robot = load_robot("arm")
    lag = np.array([joint.damping / joint.stiffness for joint in robot.joints])
    dt, sag = 0.005, np.full(8, 0.01)
    for speed in (0.0, 0.2):
        trim = SteadyStateTrim(robot, gain=4.0, limit=0.05)
        actual, wanted = robot.home.copy(), robot.home
        for tick in range(1000):
            wanted = robot.home + speed * tick * dt * (np.arange(8) < 7)
            command = trim.command(wanted, actual - sag, dt)
            actual += (command - actual) * -np.expm1(-dt / lag)
        np.testing.assert_allclose((command - wanted)[:7], sag[:7], rtol=0.02)
        assert command[7] == wanted[7]


def test_trim_is_limited():
    robot = load_robot("arm")
    trim = SteadyStateTrim(robot, gain=4.0, limit=0.05)
    for _ in range(1000):
        command = trim.command(robot.home + 0.1, robot.home, 0.01)
    np.testing.assert_allclose((command - robot.home)[:7], 0.15)


def test_trim_does_not_ask_for_more_than_the_joints_have():
    robot = load_robot("arm")
    trim = SteadyStateTrim(robot, gain=4.0, limit=0.05)
    for _ in range(1000):
        command = trim.command(robot.upper, robot.upper - 1.0, 0.01)
    np.testing.assert_array_equal(command, robot.upper)


def test_trim_leaves_joints_that_slide_alone():
    """One joint that turns and one that slides, neither of which is a gripper, are short of where they are wanted."""
    arm = load_robot("arm")
    robot = replace(arm, joints=(arm.joints[0], replace(arm.joints[1], kind="prismatic")), gripper=None)
    trim = SteadyStateTrim(robot, gain=4.0, limit=0.05)
    wanted = robot.home + 0.1
    for _ in range(1000):
        command = trim.command(wanted, robot.home, 0.01)
    np.testing.assert_allclose(command - wanted, [0.05, 0.0])

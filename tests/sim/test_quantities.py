"""Tests of ros_rl.sim.quantities."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.sim.quantities import check_name, quantity


def observe(spec, **fields) -> Observation:
    zero = np.zeros(len(spec.measured_names))
    return Observation(**({"stamp": 0.0, "joint_position": zero, "joint_velocity": zero, "joint_effort": zero} | fields))


def turned(axis: int, angle: float) -> np.ndarray:
    quat = np.array([np.cos(angle / 2), 0.0, 0.0, 0.0])
    quat[1 + axis] = np.sin(angle / 2)
    return quat


def test_joints_are_read_by_name():
    spec = load_robot("cartpole")
    observation = observe(spec, joint_position=np.array([1.0, 2.0]), joint_velocity=np.array([3.0, 4.0]))
    assert quantity("joint_position.pole", spec)(observation) == 2.0
    assert quantity("joint_velocity.slider", spec)(observation) == 3.0


@pytest.mark.parametrize("axis", [0, 1])
def test_tilt_is_the_angle_to_the_vertical(axis):
    spec = load_robot("quadrotor")
    assert quantity("tilt", spec)(observe(spec, base_quat=turned(axis, 0.7))) == pytest.approx(0.7)


def test_turning_is_no_tilt():
    spec = load_robot("quadrotor")
    assert quantity("tilt", spec)(observe(spec, base_quat=turned(2, 2.0))) == pytest.approx(0.0, abs=1e-7)


def test_command_error_is_measured_in_the_heading_frame():
    """Heading +y and moving along +y at the commanded forward speed is no error."""
    spec = load_robot("quadrotor")
    seen = {"base_quat": turned(2, np.pi / 2), "base_velocity": np.array([0.0, 0.3, 0.1])}
    assert quantity("command_error", spec)(observe(spec, **seen, command=np.array([0.3, 0.0, 0.0]))) == pytest.approx(0.0, abs=1e-12)
    assert quantity("command_error", spec)(observe(spec, **seen, command=np.array([0.0, 0.4, 0.0]))) == pytest.approx(0.5)


def test_turn_error():
    spec = load_robot("quadrotor")
    observation = observe(spec, base_gyro=np.array([9.0, 9.0, 0.2]), command=np.array([0.0, 0.0, 0.5]))
    assert quantity("turn_error", spec)(observation) == pytest.approx(0.3)


def test_the_base_is_read_from_the_simulator_where_there_is_no_odometry():
    spec = load_robot("quadruped")
    height = quantity("base_position.z", spec)
    assert height(observe(spec, privileged={"base_pose": np.array([0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0])})) == 0.3
    with pytest.raises(UserError, match="the observation has no base_position, which the task reads"):
        height(observe(spec))


def test_tool_moves_as_forward_kinematics_says():
    spec = load_robot("arm")
    model, step = RobotModel(spec), 1e-6
    velocity = np.linspace(-0.5, 0.5, len(spec.measured_names))
    here, there = (model.frame_pose(spec.tool_frame, q).position for q in (spec.home, spec.home + velocity * step))
    observation = observe(spec, joint_position=spec.home, joint_velocity=velocity)
    assert quantity("tool_position.z", spec)(observation) == pytest.approx(here[2])
    assert quantity("tool_speed", spec)(observation) == pytest.approx(np.linalg.norm(there - here) / step, rel=1e-4)


def test_distance_of_objects():
    spec = load_robot("arm")
    privileged = {"cup": np.array([0.0, 0, 0, 1, 0, 0, 0]), "saucer": np.array([0.3, 0.4, 0, 1, 0, 0, 0])}
    assert quantity("distance.cup.saucer", spec)(observe(spec, privileged=privileged)) == pytest.approx(0.5)
    with pytest.raises(UserError, match="unknown object or joint in the simulator state 'cop'"):
        quantity("distance.cop.saucer", spec)(observe(spec, privileged={"saucer": privileged["saucer"]}))


def test_the_opening_of_a_gripper_goes_from_closed_to_open():
    spec = load_robot("arm")
    opening = quantity("gripper_opening", spec)
    for position, expected in ((spec.gripper.closed, 0.0), (spec.gripper.open, 1.0), (0.01, 0.25)):
        joints = spec.home.copy()
        joints[spec.joint_names.index(spec.gripper.joint)] = position
        assert opening(observe(spec, joint_position=joints)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("robot", "name", "message"),
    [
        ("cartpole", "gripper_opening", "robot 'cartpole' has no gripper in its robot.yaml"),
        ("cartpole", "joint_position.pool", "unknown joint 'pool', did you mean 'pole'"),
        ("cartpole", "tilt", "has no floating base with an IMU"),
        ("quadrotor", "tool_speed", "has no tool frame on a fixed base"),
    ],
)
def test_what_a_robot_cannot_measure_is_refused(robot, name, message):
    with pytest.raises(UserError, match=message):
        quantity(name, load_robot(robot))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tlt", "did you mean 'tilt'"),
        ("tilt.x", "needs 0 names after 'tilt'"),
        ("distance.a", "needs 2 names"),
        ("base_position.w", "needs x, y or z"),
    ],
)
def test_malformed_names(name, message):
    with pytest.raises(ValueError, match=message):
        check_name(name)

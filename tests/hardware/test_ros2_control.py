"""Tests of ros_rl.hardware.ros2_control with a link that carries messages nowhere."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import JointCommand, Observation, Robot
from ros_rl.hardware.ros2_control import Ros2ControlRobot, command_interface
from ros_rl.robots.spec import DeviceUnit, load_robot

ARM = load_robot("arm")
QUADROTOR = load_robot("quadrotor")
CARTPOLE = load_robot("cartpole")


class Link:
    """Drives its joints in reverse order; answers with one observation."""

    controller = "/test_controller"

    def __init__(self, spec, position=None):
        count = len(spec.measured_names)
        self.joints = spec.joint_names[::-1]
        position = spec.home if position is None else np.array(position, dtype=float)
        self.observation: Observation | None = Observation(1.5, position, np.zeros(count), np.zeros(count))
        self.sent: list[tuple[tuple[str, ...], np.ndarray, float]] = []
        self.closed = 0

    def controller_joints(self, timeout):
        return self.joints

    def wait_newer(self, stamp, timeout):
        return self.observation if self.observation is not None and self.observation.stamp != stamp else None

    def latest(self):
        return self.observation

    def send(self, names, values, stamp):
        assert not self.closed
        self.sent.append((names, values, stamp))

    def close(self):
        self.closed += 1


def connected(spec, position=None) -> tuple[Ros2ControlRobot, Link]:
    link = Link(spec, position)
    robot = Ros2ControlRobot(spec, link)
    robot.connect()
    return robot, link


def test_it_is_a_robot():
    assert isinstance(connected(ARM)[0], Robot)


@pytest.mark.parametrize(
    ("robot", "asked", "interface"),
    [
        (ARM, "auto", "joint_trajectory"),
        (ARM, "forward_command", "forward_command"),
        (CARTPOLE, "auto", "forward_command"),
        (CARTPOLE, "forward_command", "forward_command"),
    ],
)
def test_command_interface(robot, asked, interface):
    assert command_interface(robot, asked) == interface


def test_a_trajectory_of_efforts_is_refused():
    with pytest.raises(UserError, match=r"robot 'cartpole' takes effort commands.*use forward_command"):
        command_interface(CARTPOLE, "joint_trajectory")


@pytest.mark.parametrize("joints", [ARM.joint_names[:-1], (*ARM.joint_names, "joint8"), (*ARM.joint_names[:-1], "finger")])
def test_c2_a_controller_of_other_joints_is_refused_with_both_lists(joints):
    link = Link(ARM)
    link.joints = joints
    with pytest.raises(UserError) as caught:
        Ros2ControlRobot(ARM, link).connect()
    assert (
        str(caught.value) == f"controller '/test_controller' drives {', '.join(joints)}; robot 'arm' commands {', '.join(ARM.joint_names)}"
    )
    assert not link.sent


def test_a_robot_that_does_not_answer_is_a_fault():
    link = Link(ARM)
    link.observation = None
    robot = Ros2ControlRobot(ARM, link, timeout=0.5)
    with pytest.raises(RobotFault, match=r"no joint state with joint1, .* came within 0\.5 s"):
        robot.connect()
    with pytest.raises(RobotFault, match="has sent no joint state"):
        robot.read()
    robot.stop()
    assert not link.sent


def test_a_robot_that_falls_silent_is_a_fault():
    robot, _ = connected(ARM)
    robot.write(JointCommand(ARM.joint_names, ARM.home, 1.5))
    with pytest.raises(RobotFault, match=r"sent no joint state for 10 s after 1\.500 s"):
        robot.step()


def test_a_measurement_that_comes_while_the_command_is_still_being_sent_is_its_answer():
    robot, link = connected(ARM)
    send = link.send

    def send_and_be_answered(*command):
        send(*command)
        link.observation = replace(link.observation, stamp=1.6)

    link.send = send_and_be_answered
    robot.write(JointCommand(ARM.joint_names, ARM.home, 1.5))
    robot.step()
    assert robot.read().stamp == 1.6


def test_c3_commands_are_mapped_by_name_to_the_controller():
    robot, link = connected(ARM)
    values = ARM.home + np.arange(8) / 1000
    order = np.random.default_rng(0).permutation(8)
    robot.write(JointCommand(ARM.joint_names, values, 1.5))
    sent = robot.write(JointCommand(tuple(ARM.joint_names[index] for index in order), values[order], 1.5, "test"))
    for names, got, stamp in link.sent:
        assert dict(zip(names, got, strict=True)) == dict(zip(ARM.joint_names, values, strict=True))
        assert stamp == 1.5
    assert (sent.joint_names, sent.stamp, sent.source) == (ARM.joint_names, 1.5, "test")
    np.testing.assert_array_equal(sent.values, values)


@pytest.mark.parametrize(
    "command",
    [
        JointCommand(ARM.joint_names, np.where(np.arange(8) == 3, np.nan, 0.0), 1.5),
        JointCommand(ARM.joint_names[1:], np.zeros(7), 1.5),
        JointCommand(ARM.joint_names, np.zeros(7), 1.5),
    ],
)
def test_c1_c2_a_bad_command_is_not_sent(command):
    robot, link = connected(ARM)
    with pytest.raises(UserError):
        robot.write(command)
    assert not link.sent


def test_stop_holds_the_measured_position():
    robot, link = connected(ARM, ARM.home - 0.01)
    robot.stop()
    names, values, _ = link.sent[-1]
    assert dict(zip(names, values, strict=True)) == dict(zip(ARM.joint_names, ARM.home - 0.01, strict=True))


def test_stop_sends_hold_in_other_modes():
    robot, link = connected(QUADROTOR)
    robot.stop()
    np.testing.assert_array_equal(link.sent[-1][1], [joint.hold for joint in QUADROTOR.joints[::-1]])


def test_c1_a_measured_position_that_is_not_finite_is_never_sent():
    robot, link = connected(ARM, np.full(8, np.nan))
    robot.stop()
    guarded = GuardedRobot(robot, Guard(ARM))
    guarded.connect()
    with pytest.raises(RobotFault, match="there is no target to hold"):
        guarded.write(JointCommand(ARM.joint_names, ARM.home, 1.5))
    guarded.estop("test")
    assert not link.sent


def test_close_stops_the_robot_and_may_be_called_twice():
    robot, link = connected(QUADROTOR)
    robot.close()
    robot.close()
    assert (len(link.sent), link.closed) == (1, 1)


def test_c4_a_robot_that_counts_in_mixed_units_is_held_where_it_is():
    """joint1 in degrees, the gripper in percent of its 40 mm, the rest in rad."""
    devices = {"joint1": DeviceUnit("degree", 180 / np.pi, 0.0), "finger_joint1": DeviceUnit("percent", 2500.0, 0.0)}
    spec = replace(ARM, joints=tuple(replace(joint, device=devices.get(joint.name)) for joint in ARM.joints))
    position = ARM.home.copy()
    position[[0, 7]] = [90.0, 50.0]
    robot, link = connected(spec, position)
    np.testing.assert_allclose(robot.read().joint_position[[0, 1, 7]], [1.570796, ARM.home[1], 0.02], atol=1e-6)
    robot.stop()
    guarded = GuardedRobot(robot, Guard(spec))
    guarded.connect()
    guarded.write(None)
    for _, values, _ in link.sent:
        np.testing.assert_allclose(values, position[::-1])
    sent = guarded.write(JointCommand(spec.joint_names, np.where(np.arange(8) == 0, 1.6, robot.read().joint_position), 1.5))
    assert sent.values[0] == pytest.approx(np.pi / 2 + 2.175 / 200)
    assert link.sent[-1][1][-1] == pytest.approx(90 + np.degrees(2.175 / 200))

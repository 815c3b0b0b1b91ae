"""Tests of ros_rl.nodes.teleop_node and of the takeover in ros_rl.nodes.safety_node: devices on one side, joint commands on the other."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Twist, TwistStamped
from harness import run_node, value
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from sensor_msgs.msg import Joy as JoyMessage
from std_msgs.msg import Bool, String
from std_srvs.srv import SetBool, Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes.messages import CLAIM_QOS, COMMAND_QOS, to_trajectory
from ros_rl.nodes.teleop_node import TeleopNode
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.teleop.mapping import CartesianMapping

ARM = load_robot("arm")
COUNT = len(ARM.joints)
AWAY = np.where(np.array(ARM.joint_names) == "finger_joint1", 0.0, 0.5)
LONG = 10.0  # s; nothing is lost because a machine is busy


class Stage:
    """The arm with its circling policy, joint commands and safety status overheard, and a leader arm in a test's hand."""

    def __init__(self, ros, bringup="arm", **arguments):
        self.ros = ros
        if bringup == "arm":
            arguments = {"tasks": "arm_circle", **arguments}
        arguments = {"teleop_timeout": LONG, "use_sim_time": "false", **arguments}
        self.commands = ros.hear(JointTrajectory, "joint_command")
        self.statuses = ros.hear(DiagnosticStatus, "safety/status")
        self._leader = ros.probe.create_publisher(JointState, "leader/joint_states", COMMAND_QOS)
        self._switch = ros.probe.create_publisher(Bool, "leader/engaged", COMMAND_QOS)
        self.nodes = ros.up(bringup, **arguments)
        ros.until(lambda: self.commands, "for the policy to act")
        if arguments.get("teleop") == "leader":  # a switch has to be seen let go before it counts
            session = self.nodes["teleop_node"]._session
            ros.until(lambda: (self.lead(ARM.home[:COUNT], switch=False), not session._blocked)[1])

    @property
    def control(self):
        return value(self.statuses[-1], "control") if self.statuses else ""

    def lead(self, position, switch=True):
        """Shows where the leader is and whether its switch is pressed."""
        self._leader.publish(JointState(name=list(ARM.joint_names), position=list(position)))
        self._switch.publish(Bool(data=switch))

    def until_control(self, control, again=lambda: None):
        """Runs on until somebody has control, doing something `again` and again."""

        def reached():
            again()
            return self.control == control

        self.ros.until(reached, f"for '{control}', it is '{self.control}'")

    def until_held(self, *reasons, again=lambda: None):
        """Runs on until the robot is held for one of the reasons."""

        def held():
            again()
            return self.control == "hold" and any(reason in self.statuses[-1].message for reason in reasons)

        self.ros.until(held, f"for {reasons}")

    def more(self, count, again=lambda: None):
        """Runs on until that many joint commands more have come, and returns them as an array."""
        seen = len(self.commands)

        def come():
            again()
            return len(self.commands) >= seen + count

        self.ros.until(come, "for commands")
        return values(self.commands[seen:])


def values(commands):
    return np.array([command.points[0].positions for command in commands])


@pytest.fixture
def calibration(tmp_path):
    path = tmp_path / "leader.yaml"
    path.write_text("robot: arm\njoints:\n" + "".join(f"  {name}: {{range: [-4.0, 4.0]}}\n" for name in ARM.joint_names))
    return path


def test_c6_a_leader_half_a_radian_away_takes_over_and_gives_back_without_a_jump(ros, calibration):
    stage = Stage(ros, lockstep=True, teleop="leader", calibration=calibration, device_timeout=LONG, on_release="hand_back")
    stage.more(20)
    leader = np.clip(values(stage.commands)[-1] + AWAY, ARM.lower, ARM.upper)
    stage.until_control("teleop", lambda: stage.lead(leader))
    np.testing.assert_allclose(stage.more(10, lambda: stage.lead(leader))[-1], leader, atol=1e-12)
    stage.until_control("policy", lambda: stage.lead(leader, switch=False))
    stage.more(20)
    steps = np.abs(np.diff(values(stage.commands), axis=0))
    assert (steps <= ARM.velocity * ARM.period + 1e-9).all()
    assert steps.max() > 0.5 * (ARM.velocity * ARM.period).min()  # it did go somewhere
    controls = list(dict.fromkeys(value(status, "control") for status in stage.statuses))
    assert [control for control in controls if control != "hold"] == ["policy", "takeover", "teleop", "hand_back"]
    for status in stage.statuses:
        assert value(status, "intervention") == str(value(status, "control") != "policy").lower()
    sources = list(dict.fromkeys(command.header.frame_id for command in stage.commands))
    assert sources == ["arm_circle", "teleop:leader"]
    assert stage.commands[-1].header.frame_id == "arm_circle"
    stamps = [(command.header.stamp.sec, command.header.stamp.nanosec) for command in stage.commands]
    assert stamps == sorted(stamps)


def test_letting_go_and_losing_the_device_hold_the_robot_and_the_policy_takes_nothing_back(ros, calibration):
    stage = Stage(ros, teleop="leader", calibration=calibration, device_timeout=2.0, teleop_timeout=4.0)
    diagnostics = ros.diagnostics()
    leader = np.clip(ARM.home[:COUNT] + AWAY, ARM.lower, ARM.upper)
    stage.until_control("teleop", lambda: stage.lead(leader))
    stage.until_held("dead-man switch of 'leader' is released", again=lambda: stage.lead(ARM.home[:COUNT], switch=False))
    np.testing.assert_allclose(stage.more(50, lambda: stage.lead(ARM.home[:COUNT], switch=False))[1:], [leader] * 49, atol=1e-6)
    stage.until_control("teleop", lambda: stage.lead(leader))
    stage.until_held("leader has been silent for more than 2 s")  # unplugged
    ros.until(lambda: "leader has been silent for more than 2 s" in diagnostics("teleop_node").message)
    np.testing.assert_allclose(stage.more(50)[1:], [leader] * 49, atol=1e-6)
    stage.until_control("teleop", lambda: stage.lead(leader))
    beyond = np.where(np.arange(COUNT) == 1, 5.0, leader)
    stage.until_held("the leader's 'joint2' reads 5.0000, outside of its range -4 to 4", again=lambda: stage.lead(beyond))
    stage.until_control("teleop", lambda: stage.lead(leader))
    ros.executor.remove_node(stage.nodes["teleop_node"])  # its process dies, and says no more
    stage.until_held("'leader' is lost", "'leader' has sent no command")
    np.testing.assert_allclose(stage.more(50)[1:], [leader] * 49, atol=1e-6)
    assert all(command.header.frame_id == "teleop:leader" for command in stage.commands[-100:])


def test_a_robot_whose_observations_cease_is_held_though_the_device_lives(ros, calibration):
    stage = Stage(ros, teleop="leader", calibration=calibration, device_timeout=2.0)
    leader = ARM.home[:COUNT]
    stage.until_control("teleop", lambda: stage.lead(leader))
    assert ros.call(SetBool, "sim/pause", SetBool.Request(data=True)).success
    node = stage.nodes["teleop_node"]
    ros.until(lambda: (stage.lead(leader), node._last.claim == "holding")[1])
    assert "no observation has been answered for more than 2 s" in node._last.problem


def test_what_was_pressed_while_the_node_was_inactive_takes_nothing_over(ros, calibration):
    stage = Stage(ros, teleop="leader", calibration=calibration, device_timeout=LONG)
    leader, node = ARM.home[:COUNT], stage.nodes["teleop_node"]
    stage.until_control("teleop", lambda: stage.lead(leader))
    timers = len(list(node.timers))
    ros.change("teleop_node", "deactivate")
    stage.until_control("hold", lambda: stage.lead(leader))
    ros.change("teleop_node", "activate")
    ros.until(lambda: (stage.lead(leader), "pressed since before it was looked at" in (node._last.problem or ""))[1])
    assert (node._last.claim, len(list(node.timers))) == ("released", timers)
    ros.until(lambda: (stage.lead(leader, switch=False), node._last.problem is None)[1])
    stage.until_control("teleop", lambda: stage.lead(leader))


def test_the_first_of_two_devices_keeps_control(ros, calibration):
    stage = Stage(ros, teleop="leader", calibration=calibration, device_timeout=LONG)
    leader = np.clip(ARM.home[:COUNT] + AWAY, ARM.lower, ARM.upper)
    stage.until_control("teleop", lambda: stage.lead(leader))
    options = {"robot": "arm", "device": "twist", "device_timeout": LONG}
    overrides = [Parameter(key, value=value) for key, value in options.items()]
    ros.add(TeleopNode(namespace="/test", parameter_overrides=overrides, cli_args=["--ros-args", "-r", "__node:=teleop_twist"]))
    twists = ros.probe.create_publisher(TwistStamped, "teleop/twist", COMMAND_QOS)
    message = TwistStamped()
    message.twist.linear.x = 1.0

    def both():
        twists.publish(message)
        stage.lead(leader)

    def refused():
        both()
        return "'twist' is refused, 'leader' has control" in stage.statuses[-1].message

    ros.until(refused)
    np.testing.assert_allclose(stage.more(50, both)[1:], [leader] * 49, atol=1e-9)
    assert value(stage.statuses[-1], "device") == "leader"


BAD = {
    "c1 not finite": (lambda names, home: (names, [float("nan"), *home[1:]]), "the command for joint1 is not finite"),
    "c2 a joint is missing": (lambda names, home: (names[1:], home[1:]), "joint names do not match: got joint2"),
    "c2 a joint is misspelt": (lambda names, home: (("joint_1", *names[1:]), home), "joint names do not match: got joint_1"),
}


def test_c1_c2_what_no_device_of_ours_would_send_is_rejected_whole_and_the_robot_held(ros):
    stage = Stage(ros)
    claims = ros.probe.create_publisher(String, "teleop/engaged", CLAIM_QOS)
    actions = ros.probe.create_publisher(JointTrajectory, "teleop/action", COMMAND_QOS)
    states = ros.hear(JointState, "joint_states")

    def send(names, positions):
        claims.publish(String(data=json.dumps({"device": "theirs", "state": "engaged"})))
        message = to_trajectory(JointCommand(tuple(names), np.array(positions), 0.0, "theirs"), "position")
        message.header.stamp = states[-1].header.stamp
        actions.publish(message)

    ros.until(lambda: states)
    home = ARM.home[:COUNT]
    for spoil, reason in BAD.values():
        stage.until_control("teleop", lambda: send(ARM.joint_names, home))
        names, positions = spoil(ARM.joint_names, home)
        stage.until_held(
            f"a command of 'theirs' is rejected: {reason}", again=lambda names=names, positions=positions: send(names, positions)
        )
        np.testing.assert_allclose(stage.more(20)[1:], [home] * 19, atol=1e-6)
    assert np.isfinite(values(stage.commands)).all()
    claims.publish(String(data="engaged"))
    diagnostics = ros.diagnostics()
    ros.until(lambda: 'expected {"device": name, "state": claim}' in diagnostics("safety_node").message)


def test_a_gamepad_moves_the_tool_while_its_dead_man_button_is_held(ros):
    stage = Stage(ros, teleop="joy", device_timeout=LONG)
    pad = ros.probe.create_publisher(JoyMessage, "joy", COMMAND_QOS)
    model = RobotModel(ARM)

    def push(dead_man):
        pad.publish(JoyMessage(axes=[0.0, 1.0] + [0.0] * 6, buttons=[0, 0, 0, 0, 0, dead_man, 0, 0]))

    ros.until(lambda: (push(0), not stage.nodes["teleop_node"]._session._blocked)[1])

    def tool(command):
        return model.frame_pose(ARM.tool_frame, np.append(command, ARM.home[COUNT:])).position

    stage.until_control("teleop", lambda: push(1))
    began = tool(stage.more(1)[-1])
    ros.until(lambda: (push(1), tool(stage.commands[-1].points[0].positions)[0] > began[0] + 0.06)[1], "for the tool to move")
    path = np.array([tool(command) for command in values(stage.commands)])
    path = path[path[:, 0] > path[-1, 0] - 0.03]  # what was heard before may be of the ramp
    assert np.ptp(path[:, 1:], axis=0).max() < 0.005
    stage.until_control("hold", lambda: push(0))
    held = stage.more(30, lambda: push(0))
    np.testing.assert_allclose(held[1:], [held[-1]] * 29, atol=1e-6)


def test_a_walking_robot_is_driven_by_cmd_vel_and_stands_when_let_go(ros):
    heard = ros.hear(Twist, "cmd_vel")
    stage = Stage(ros, "quadruped", teleop="joy", device_timeout=LONG, linear_speed=0.3, angular_speed=1.0)
    pad = ros.probe.create_publisher(JoyMessage, "joy", COMMAND_QOS)

    def push(dead_man):
        pad.publish(JoyMessage(axes=[-1.0, 1.0, 0.0, 1.0] + [0.0] * 4, buttons=[0, 0, 0, 0, 0, dead_man, 0, 0]))

    ros.until(lambda: (push(0), not stage.nodes["teleop_node"]._session._blocked)[1])
    ros.until(lambda: (push(1), heard)[1])
    assert (heard[-1].linear.x, heard[-1].linear.y, heard[-1].angular.z) == pytest.approx(
        (0.3 * 0.5**0.5, -0.3 * 0.5**0.5, 1.0)
    )  # 0.3 m/s on the diagonal
    ros.until(lambda: (push(0), heard[-1].linear.x == 0.0)[1])
    assert all(message.linear.x > 0.2 for message in heard[:-1])  # silent before and after: `cmd_vel` may have other authors
    assert heard[-1].angular.z == 0.0
    ros.until(lambda: (push(1), heard[-1].linear.x > 0.0)[1])
    ros.change("teleop_node", "deactivate")
    ros.until(lambda: heard[-1].linear.x == 0.0)
    ros.until(lambda: stage.statuses)
    assert {value(status, "control") for status in stage.statuses} == {"policy"}  # its policy goes on walking


def test_a_scripted_demonstrator_takes_the_robot_without_a_person(ros):
    stage = Stage(ros, lockstep=True, teleop="scripted", demonstrator="arm_circle", tasks="arm_circle")
    stage.until_control("teleop")
    stage.more(50)
    assert stage.commands[-1].header.frame_id == "teleop:scripted"
    assert stage.statuses[-1].message == "active"
    # It answers every observation once: the commands are those of consecutive control periods.
    stamps = [command.header.stamp.sec + command.header.stamp.nanosec * 1e-9 for command in stage.commands[-40:]]
    np.testing.assert_allclose(np.diff(stamps), ARM.period, atol=1e-8)
    assert ros.call(Trigger, "sim/reset").success
    ros.until(lambda: stage.commands[-1].header.stamp.sec + stage.commands[-1].header.stamp.nanosec * 1e-9 < stamps[0])
    stage.more(20)
    stage.until_control("teleop")
    assert value(stage.statuses[-1], "teleop_rejected") == "0"


def test_a_demonstrator_s_commands_go_through_the_safety_filter_in_lock_step(ros):
    stage = Stage(ros, "cartpole", lockstep=True, filter="simplex", teleop="scripted", demonstrator="cartpole_lqr")
    stage.until_control("teleop")
    stage.more(30)
    assert {command.header.frame_id for command in stage.commands[-20:]} <= {"teleop:scripted", "safety"}
    stamps = [command.header.stamp.sec + command.header.stamp.nanosec * 1e-9 for command in stage.commands[-20:]]
    np.testing.assert_allclose(np.diff(stamps), load_robot("cartpole").period, atol=1e-8)
    assert value(stage.statuses[-1], "teleop_rejected") == "0"


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("device:=keyboard", "the keyboard needs a terminal of its own: run 'ros-rl teleop keyboard BRINGUP'"),
        ("device:=mouse", "unknown value of device 'mouse'"),
        ("device:=twist -p on_release:=hand_back", "on_release:=hand_back is not for twist"),
        ("device:=leader", "the parameter 'calibration' is empty"),
        ("robot:=cartpole", "robot 'cartpole' has no tool_frame in its robot.yaml, so that no tool can be moved"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_code_2(domain, argument, problem):
    result = run_node("teleop_node", *argument.split(" -p "))
    assert result.returncode == 2
    assert problem in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_terminal_of_a_keyboard_is_as_before_after_kill_term(domain):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "ros_rl.nodes", "teleop_node", "--ros-args", "-p", "device:=keyboard", "-r", "__ns:=/test"]
    node = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        assert node.stdout is not None
        assert b"forward, back" in node.stdout.readline()
        # The device is opened anew when the session begins: for a moment the terminal is as before.
        deadline = time.monotonic() + 60
        while termios.tcgetattr(theirs)[3] & (termios.ECHO | termios.ICANON):
            assert time.monotonic() < deadline, "waited 60 s in vain for a terminal without echo"
            time.sleep(0.01)
        node.send_signal(signal.SIGTERM)
        assert node.wait(timeout=60) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        node.kill()
        node.wait()
        node.stdout.close()
        os.close(ours)
        os.close(theirs)


def test_the_teleoperation_node_gives_its_device_back(ros):
    stage = Stage(ros, teleop="joy")
    node = stage.nodes["teleop_node"]
    assert isinstance(node._make_mapping(ARM), CartesianMapping)
    ros.change("teleop_node", "deactivate", "cleanup")
    assert node.device is None
    ros.change("teleop_node", "configure", "activate")
    assert node.device is not None

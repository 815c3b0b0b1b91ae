"""Tests of ros_rl.nodes.hardware_node on servos behind a pseudo-terminal."""

import time

import numpy as np
import pytest
from harness import value
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes.base import ERROR, WARN
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.messages import COMMAND_QOS, from_time, to_trajectory

pytest.importorskip("rustypot", reason="rustypot is not installed: pip install -e '.[servo]'")

from fake_servos import FEETECH, IDS, FakeServos, damaged, write_robot

JOINTS = ("pan", "lift", "jaw")


@pytest.fixture
def servos():
    bus = FakeServos()
    bus.follow = True
    yield bus
    bus.close()


def hardware_node(folder, servos, **parameters) -> HardwareNode:
    """Returns a node that is as patient as a busy machine may need it."""
    given = {"robot": str(write_robot(folder)), "backend": "servo_bus", "servo_port": servos.port, "servo_timeout": 2.0, "max_age": 10.0}
    return HardwareNode(namespace="/test", parameter_overrides=[Parameter(n, value=v) for n, v in (given | parameters).items()])


def commands(ros):
    """Returns a function that commands a position of the first joint, in answer to the newest observation."""
    states = ros.hear(JointState, "joint_states", COMMAND_QOS)
    publisher = ros.probe.create_publisher(JointTrajectory, "joint_command", COMMAND_QOS)

    def send(pan: float) -> None:
        if states:
            stamp = from_time(states[-1].header.stamp)
            publisher.publish(to_trajectory(JointCommand(JOINTS, np.array([pan, 0.0, 1.5]), stamp, "test"), "position"))

    return send


def test_s3_a_bus_that_fails_stops_the_node_and_the_servos_hold_until_a_new_activation(servos, ros, tmp_path):
    node = ros.add(hardware_node(tmp_path, servos))
    status, send = ros.diagnostics(), commands(ros)

    def reaches(pan, tick):
        send(pan)
        return abs(servos.goals()[0] - tick) <= 1

    ros.until(lambda: reaches(0.5, 2374), "for the first goal")
    ros.until(lambda: value(status("hardware_node"), "state") == "ok")
    assert value(status("hardware_node"), "lost") == "0"
    assert value(status("hardware_node"), "alarms") == ""

    servos.spoil = lambda servo, packet: damaged(packet) if servo == 2 else packet
    ros.until(lambda: status("hardware_node").level == ERROR, "for the fault")
    assert "5 measurements in a row were lost: joint 'lift' (servo 2) gives no sound answer" in status("hardware_node").message
    with node._lock:  # it has been stopped
        goals, written = servos.goals(), len(servos.written)
    for _ in range(20):
        send(-0.5)
        ros.executor.spin_once(timeout_sec=0.01)
    assert servos.goals() == goals and len(servos.written) == written, "nothing is commanded after a fault"

    servos.spoil = None
    ros.change("hardware_node", "deactivate", "activate")
    assert abs(servos.goals()[0] - goals[0]) <= 1, "it starts from where it is"
    ros.until(lambda: reaches(0.2, 2178), "for a goal after the fault")
    ros.until(lambda: int(value(status("hardware_node"), "lost") or 0) >= 5)


def test_a_measurement_ages_from_when_the_positions_were_asked_for(servos, ros, tmp_path):
    node = ros.add(hardware_node(tmp_path, servos))
    with node._lock:
        before, now, after = time.monotonic(), node._robot_time(), time.monotonic()
    assert before <= now <= after


def test_an_emergency_stop_names_the_servo_that_does_not_acknowledge_it_and_stops_the_others(servos, ros, tmp_path):
    servos.follow = False
    node = ros.add(hardware_node(tmp_path, servos))
    status, send = ros.diagnostics(), commands(ros)

    def leads():
        send(0.5)
        return servos.goals()[0] > 2060

    ros.until(leads, "for a goal ahead of where the arm is")
    servos.spoil = lambda servo, packet: damaged(packet) if servo == 7 else packet
    answer = ros.call(Trigger, "estop")
    assert not answer.success
    assert "joint 'jaw' (servo 7)" in answer.message and "did not acknowledge the stop" in answer.message
    ros.until(lambda: status("hardware_node").level == ERROR)
    with node._lock:
        assert servos.goals() == [2048, 2048, 2048]
    servos.spoil = None


def test_an_alarm_is_a_warning_and_torque_that_was_lost_comes_back_with_the_next_activation(servos, ros, tmp_path):
    ros.add(hardware_node(tmp_path, servos))
    status, send = ros.diagnostics(), commands(ros)

    def reaches(tick):
        send(0.5)
        return abs(servos.goals()[0] - tick) <= 1

    ros.until(lambda: reaches(2374), "for the goal")
    servos.alarm = {7: 0x20}
    ros.until(lambda: send(0.5) or status("hardware_node").message == "alarm: jaw 0x20", "for the alarm")
    assert status("hardware_node").level == WARN
    servos.alarm = {}
    ros.change("hardware_node", "deactivate")
    for servo, tick in zip(IDS, (1900, 2222, 1700), strict=True):
        servos.put(servo, FEETECH.torque, 0)
        servos.put(servo, FEETECH.position, tick)
    ros.change("hardware_node", "activate")
    assert [servos.get(servo, FEETECH.torque) for servo in IDS] == [1, 1, 1]
    assert all(abs(goal - tick) <= 1 for goal, tick in zip(servos.goals(), (1900, 2222, 1700), strict=True))


@pytest.mark.parametrize("release", [True, False])
def test_the_torque_stays_on_at_the_end_unless_it_is_to_be_released(servos, ros, tmp_path, release):
    node = ros.add(hardware_node(tmp_path, servos, release_torque=release))
    assert [servos.get(servo, FEETECH.torque) for servo in IDS] == [1, 1, 1]
    ros.remove(node)
    assert [servos.get(servo, FEETECH.torque) for servo in IDS] == [int(not release)] * 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"servo_port": ""}, "backend servo_bus needs the servo_port"),
        ({"lockstep": True}, "lockstep is for simulations"),
        ({"servo_timeout": 0.03, "max_age": 0.1}, "servo_timeout must be at most max_age / 5, 0.02 s, got 0.03"),
        ({"robot": "arm"}, "robot 'arm' has no servos"),
    ],
)
def test_what_does_not_fit_a_servo_bus_is_refused(servos, ros, tmp_path, parameters, message):
    with pytest.raises(UserError, match=message):
        ros.add(hardware_node(tmp_path, servos, **parameters))

"""Tests of ros_rl.nodes.safety_node: the filter that the parameters name acts on every command, and says what it did."""

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from harness import value
from trajectory_msgs.msg import JointTrajectory

from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes.messages import COMMAND_QOS, to_trajectory
from ros_rl.safety.interface import SafetyReport


class Halving:
    """Halves every action."""

    reads = ()

    def reset(self):
        pass

    def filter(self, observation, action, distribution=None):
        return action / 2, SafetyReport(True, {"margin": 0.25})

    def fallback(self):
        return None


@pytest.fixture
def send(ros):
    """Gives a test a function that proposes an effort for the cart and returns what the safety node makes of it."""
    publisher, commands = (
        ros.probe.create_publisher(JointTrajectory, "policy/action", COMMAND_QOS),
        ros.hear(JointTrajectory, "joint_command"),
    )

    def ask(effort):
        ros.until(publisher.get_subscription_count)
        commands.clear()
        publisher.publish(to_trajectory(JointCommand(("slider",), np.array([effort]), 0.5, "test"), "effort"))
        ros.until(lambda: commands)
        return commands[-1].points[0].effort[0]

    return ask


def test_without_a_filter_an_action_passes_and_the_status_says_so(ros, send):
    status = ros.hear(DiagnosticStatus, "safety/status")
    ros.up("cartpole", without=("hardware_node", "policy_node", "task_node"))
    assert send(3.0) == 3.0
    count = len(status)
    ros.until(lambda: len(status) > count + 1)
    assert (status[-1].name, status[-1].level, status[-1].message) == ("none", DiagnosticStatus.OK, "active")
    assert value(status[-1], "interventions") == "0"
    ros.change("safety_node", "deactivate")
    ros.until(lambda: status[-1].message == "inactive")


def test_the_filter_of_that_name_acts_and_its_interventions_are_counted(ros, send, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.safety_node.make_filter", lambda *arguments: Halving())
    status = ros.hear(DiagnosticStatus, "safety/status")
    ros.up("cartpole", without=("hardware_node", "policy_node", "task_node"))
    assert send(3.0) == 1.5
    ros.until(lambda: status and value(status[-1], "interventions") == "1")
    assert value(status[-1], "margin") == "0.25"

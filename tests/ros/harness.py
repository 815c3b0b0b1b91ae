"""Runs nodes of the stack for a test, in its own process or in others, and watches them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile

from ros_rl.bringup import Graph, graph
from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes.base import StackNode
from ros_rl.nodes.composed_node import make
from ros_rl.nodes.hardware_node import HardwareNode

PATIENCE = 60.0  # s until a condition that should soon hold counts as failed; generous, machines are busy
DEEP = QoSProfile(depth=10_000)
STEPS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
}


class Ros:
    """The nodes of a test, all in one executor that runs only while the test waits for something."""

    def __init__(self) -> None:
        self.probe = Node("probe", namespace="/test")
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.probe)
        self.nodes: list[StackNode] = []

    def add(self, node: StackNode, start: bool = True) -> StackNode:
        """Runs a node until the test ends; started as its parameters say."""
        self.nodes.append(node)
        self.executor.add_node(node)
        if start:
            node.autostart()
        return node

    def up(self, bringup: str, without: tuple[str, ...] = ("task_node",), **arguments: object) -> dict[str, Any]:
        """Starts nodes of a bring-up in this process and returns them by name."""
        described = graph_of(bringup, **arguments)
        made = {}
        for node in described.nodes:
            if node.executable not in without:
                made[node.executable] = self.add(make(node.executable, dict(node.parameters), described.namespace))
        return made

    def remove(self, node: StackNode) -> None:
        """Ends a node as the end of its process would."""
        self.nodes.remove(node)
        self.executor.remove_node(node)
        node.end()
        node.destroy_node()

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Runs all nodes until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited {PATIENCE:g} s in vain {what}"
            self.executor.spin_once(timeout_sec=0.05)

    def hear(self, kind: type, topic: str, qos: QoSProfile = DEEP) -> list[Any]:
        """Returns a list that grows by the messages on a topic."""
        heard: list[Any] = []
        self.probe.create_subscription(kind, topic, heard.append, qos)
        return heard

    def call(self, kind: type, name: str, request: Any = None) -> Any:
        """Calls a service and returns its answer."""
        client = self.probe.create_client(kind, name)
        self.until(client.service_is_ready, f"for the service {name}")
        future = client.call_async(request or kind.Request())
        self.until(future.done, f"for an answer of {name}")
        self.probe.destroy_client(client)
        return future.result()

    def change(self, node: str, *steps: str) -> None:
        """Takes a node through steps of its lifecycle."""
        for step in steps:
            assert self.call(ChangeState, f"{node}/change_state", ChangeState.Request(transition=Transition(id=STEPS[step]))).success, step

    def diagnostics(self) -> Callable[[str], DiagnosticStatus]:
        """Returns a function that gives the newest status of a node, an empty one before the first."""
        heard = self.hear(DiagnosticArray, "diagnostics")

        def newest(name: str) -> DiagnosticStatus:
            found = [status for array in heard for status in array.status if status.name.rpartition("/")[2] == name]
            return found[-1] if found else DiagnosticStatus()

        return newest

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.end()
        self.executor.shutdown()
        for node in [*self.nodes, self.probe]:
            node.destroy_node()


def graph_of(bringup: str, **arguments: object) -> Graph:
    """Returns the graph of a bring-up in the namespace of the tests; values as on the command line."""
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in arguments.items()}
    return graph(bringup, {"namespace": "test", **words})


def value(status: DiagnosticStatus, key: str) -> str:
    """Returns one value of a diagnostic status, an empty one if it has none."""
    return next((pair.value for pair in status.values if pair.key == key), "")


@dataclass(frozen=True, eq=False)
class Tick:
    """What the hardware node sent in one control period: the guard's state, the stamp and positions measured before, and the values."""

    state: str
    stamp: float
    measured: np.ndarray
    sent: np.ndarray


def watch(hardware: HardwareNode) -> list[Tick]:
    """Returns a list that grows by what a hardware node in this process sends to its robot."""
    assert hardware.robot is not None
    robot, ticks = hardware.robot, []
    write = robot.write

    def spy(command: JointCommand | None) -> JointCommand:
        before = robot.robot.read()
        sent = write(command)
        ticks.append(Tick(robot.report.state, before.stamp, before.joint_position[: len(sent.values)], sent.values))
        return sent

    robot.write = spy  # type: ignore[method-assign]
    return ticks


def run_node(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a node as a process of its own to its end."""
    command = [sys.executable, "-m", "ros_rl.nodes", name, "--ros-args", "-r", "__ns:=/test"]
    command += [word for argument in arguments for word in ("-p", argument)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE)

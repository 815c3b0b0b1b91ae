"""Plays a recorded episode through a node graph and watches where the robot goes."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from ros_rl.bringup import Graph
from ros_rl.errors import RobotFault
from ros_rl.nodes.base import start_ros
from ros_rl.nodes.launcher import SILENCE, GraphProcesses
from ros_rl.nodes.messages import RECORDER_QOS, JointReader, from_time
from ros_rl.nodes.starter import NodeStarter, held_back
from ros_rl.robots.spec import RobotSpec

_POLL = 0.1  # s


class Watcher(Node):
    """Follows where the robot is, and when the recording began to be played.

    Attributes:
        positions: of the measured joints by stamp (s), since time last jumped back.
        began: the robot's time less that of the recording, s; None before the recording is played.
        heard: when the robot last said something new, s on the monotonic clock.
    """

    def __init__(self, spec: RobotSpec, namespace: str):
        """Opens the subscriptions."""
        super().__init__("replay", namespace=namespace)
        self.positions: dict[float, np.ndarray] = {}
        self.began: float | None = None
        self.heard = time.monotonic()
        self._newest = -np.inf
        self._joints = JointReader(spec.measured_names)
        self.create_subscription(JointState, "joint_states", self._on_joints, RECORDER_QOS)
        self.create_subscription(DiagnosticArray, "diagnostics", self._on_diagnostics, 10)

    def _on_joints(self, message: JointState) -> None:
        stamp = from_time(message.header.stamp)
        if stamp < self._newest:
            self.positions.clear()
        if stamp != self._newest:
            self.heard = time.monotonic()
        self._newest = stamp
        self.positions.setdefault(stamp, self._joints.read(message)[0])

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            for entry in status.values:
                if status.name.endswith("/policy_node") and entry.key == "began":
                    self.began = float(entry.value)


def play(
    spec: RobotSpec, described: Graph, end: float, from_reset: bool, lockstep: bool, progress: Callable[[float], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Runs a graph whose policy is a recording until that has been played.

    Args:
        spec: the robot.
        described: the graph; its policy node is started once everything it does is seen.
        end: when the recording ends, s, on its own clock.
        from_reset: whether the recording begins with a reset of the simulation.
        lockstep: whether the simulation waits for commands, and so is still in its initial state when the policy starts.
        progress: called with the time in the recording, s.

    Returns:
        stamps (T,) on the recording's clock, s, and positions of the measured joints (T, m).

    Raises:
        RobotFault: the graph ends early or falls silent, or the robot does not get to where the recording begins.
    """
    start_ros()
    watcher = Watcher(spec, described.namespace)
    policy = NodeStarter(watcher, "policy_node")
    reset = watcher.create_client(Trigger, "sim/reset")
    executor = SingleThreadedExecutor()
    executor.add_node(watcher)
    state: dict[str, Any] = {"reset": lockstep or not from_reset}
    try:
        with GraphProcesses(held_back(described, "policy_node"), quiet=True) as running:
            while True:
                executor.spin_once(timeout_sec=_POLL)
                if watcher.positions:
                    policy.start()
                if not state["reset"] and policy.started and reset.service_is_ready():
                    # The policy acts already, so that the first command answers the first observation after the reset.
                    state["reset"] = True
                    watcher.positions.clear()
                    reset.call_async(Trigger.Request())
                began = 0.0 if from_reset else watcher.began
                newest = max(watcher.positions, default=-np.inf)
                if state["reset"] and policy.started and began is not None and watcher.positions:
                    progress(min(newest - began, end))
                    if newest - began >= end:
                        break
                _check(running, watcher)
    finally:
        executor.shutdown(timeout_sec=1.0)
        watcher.destroy_node()
        rclpy.shutdown()
    stamps = np.array(sorted(watcher.positions))
    return stamps - began, np.array([watcher.positions[stamp] for stamp in stamps])


def _check(running: GraphProcesses, watcher: Watcher) -> None:
    code = running.ended()
    if code is None and time.monotonic() - watcher.heard <= SILENCE:
        return
    problem = "the robot fell silent" if code is None else f"the graph ended with exit code {code}"
    raise RobotFault(f"{problem}: {running.last_words}")

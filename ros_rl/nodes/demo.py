"""Runs episodes of a bring-up through the node graph, and records from its topics what happened."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from ros_rl.bringup import Graph
from ros_rl.errors import RobotFault
from ros_rl.nodes.base import start_ros
from ros_rl.nodes.launcher import SILENCE, GraphProcesses
from ros_rl.nodes.messages import RECORDER_QOS, TASK_STATE_QOS, JointReader, from_privileged, from_time
from ros_rl.nodes.starter import NodeStarter, held_back
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.film import Moment, Take

OVER = ("success", "failure", "timeout", "discarded")  # the task states that end an episode


@dataclass(frozen=True)
class EpisodeResult:
    """How one episode went: robot time in s, commands that the guard limited, control deadlines missed."""

    instruction: str
    success: bool
    seconds: float
    limited: int
    overruns: int
    seed: int
    reason: str


class Recorder(Node):
    """Follows the task node's episodes, the hardware node's counts, and the poses to film."""

    def __init__(self, spec: RobotSpec, namespace: str, frame_rate: float, on_change: Callable[[dict[str, Any]], None]):
        """Opens the subscriptions.

        Args:
            spec: the robot.
            namespace: of the graph.
            frame_rate: poses kept per second of robot time.
            on_change: called with every task state.
        """
        super().__init__("demo", namespace=namespace)
        self.results: list[EpisodeResult] = []
        self.takes: list[Take] = []
        self.heard = time.monotonic()
        self._joints = JointReader(spec.measured_names)
        self._frame_rate = frame_rate
        self._on_change = on_change
        self._state: dict[str, Any] = {}
        self._ended: dict[str, Any] | None = None
        self._privileged: dict[str, np.ndarray] = {}
        self._moments: list[Moment] = []
        self._filming = True
        self._frame = -1
        self._last_stamp: float | None = None
        self._counts = {"limited": 0, "overruns": 0}
        self.create_subscription(String, "task/state", self._on_state, TASK_STATE_QOS)
        self.create_subscription(DiagnosticArray, "diagnostics", self._on_diagnostics, 10)
        self.create_subscription(JointState, "sim/privileged", self._on_privileged, RECORDER_QOS)
        self.create_subscription(JointState, "joint_states", self._on_joints, RECORDER_QOS)

    @property
    def sees_robot(self) -> bool:
        """Whether a joint state has come."""
        return self._last_stamp is not None

    def _on_state(self, message: String) -> None:
        self.heard = time.monotonic()
        self._state = json.loads(message.data)
        word = self._state["state"]
        if word == "running":
            self.takes.append(Take(self._state["instruction"], self._moments))
            self._filming = True
        elif word in OVER:
            self._ended = self._state
            self._filming = False
            if self.takes:
                self._cut(self.takes[-1], self._state["seconds"], word == "success")
        self._on_change(self._state)

    def _cut(self, take: Take, seconds: float, success: bool) -> None:
        """Ends a take where its episode ended: word of that comes later than the joint states, in lock-step much later."""
        take.success = success
        while len(take.moments) > 1 and take.moments[-1].stamp > seconds + 1.0 / self._frame_rate:
            take.moments.pop()

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        """Counts run on, so an episode's share is what they grew by until the first report after its end."""
        for status in message.status:
            values = {entry.key: entry.value for entry in status.values}
            if "overruns" not in values or self._ended is None:
                continue
            counts = {name: int(values[name]) for name in self._counts}
            fields: dict[str, Any] = {name: counts[name] - self._counts[name] for name in counts}
            fields |= {name: self._ended[name] for name in ("instruction", "seconds", "seed", "reason")}
            self.results.append(EpisodeResult(success=self._ended["state"] == "success", **fields))
            self._ended, self._counts = None, counts

    def _on_privileged(self, message: JointState) -> None:
        self._privileged = from_privileged(message)

    def _on_joints(self, message: JointState) -> None:
        stamp = from_time(message.header.stamp)
        if stamp != self._last_stamp:  # in lock-step an observation that nobody answers comes again and again
            self.heard = time.monotonic()
        if self._last_stamp is not None and stamp < self._last_stamp:  # a new episode; it may be under way before the task node says so
            self._moments, self._filming, self._frame = [], True, -1
        self._last_stamp = stamp
        frame = int(stamp * self._frame_rate + 1e-6)
        if self._filming and frame > self._frame:
            self._frame = frame
            self._moments.append(Moment(stamp, self._joints.read(message)[0], self._privileged))


def run_episodes(
    spec: RobotSpec,
    described: Graph,
    episodes: int,
    frame_rate: float,
    on_change: Callable[[dict[str, Any]], None],
    log: Callable[[str], None],
) -> tuple[list[EpisodeResult], list[Take]]:
    """Starts the graph, lets the task node run its episodes, and ends it.

    Args:
        spec: the robot.
        described: the graph.
        episodes: how many the task node will run.
        frame_rate: poses kept per second of robot time.
        on_change: called with every task state.
        log: called with the nodes' log when the graph has ended.

    Raises:
        RobotFault: the graph ended early or fell silent.
    """
    start_ros()
    recorder = Recorder(spec, described.namespace, frame_rate, on_change)
    tasks = NodeStarter(recorder, "task_node")
    executor = SingleThreadedExecutor()
    executor.add_node(recorder)
    try:
        with GraphProcesses(held_back(described, "task_node"), quiet=True) as running:
            try:
                while len(recorder.results) < episodes:
                    executor.spin_once(timeout_sec=0.1)
                    if recorder.sees_robot:  # the first episode is filmed from its first moment
                        tasks.start()
                    done = f"after {len(recorder.results)} of {episodes} episodes"
                    if (code := running.ended()) is not None:
                        raise RobotFault(f"the graph ended with exit code {code} {done}")
                    # Composed, the task node has no process of its own.
                    if (process := running.processes.get("task_node")) is not None and process.poll() is not None:
                        raise RobotFault(f"the task node ended {done}")
                    if time.monotonic() - recorder.heard > SILENCE:
                        raise RobotFault(f"nothing came from the graph for {SILENCE:g} s {done}")
            finally:
                running.stop()
                log(running.log.read_text(errors="replace") if running.log.exists() else "")
    finally:
        executor.shutdown(timeout_sec=1.0)
        recorder.destroy_node()
        rclpy.shutdown()
    return recorder.results, recorder.takes

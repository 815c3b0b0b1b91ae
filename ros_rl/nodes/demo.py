"""Runs episodes of a bring-up through the node graph, and records from its topics what happened."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass
class _Timeline:
    """What was seen between two jumps of robot time: when its first joint state was sent, ns of the wall clock, and the poses."""

    sent: int
    moments: list[Moment] = field(default_factory=list)


class Recorder(Node):
    """Follows the task node's episodes, the hardware node's counts, and the poses to film.

    Topics are read at their own pace: on a busy machine joint states come much later than word of the episode that they belong
    to. So what belongs together is told by when it was sent.
    """

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
        self.heard = time.monotonic()
        self._joints = JointReader(spec.measured_names)
        self._frame_rate = frame_rate
        self._on_change = on_change
        self._ended: dict[str, Any] | None = None
        self._ends: list[tuple[int, dict[str, Any]]] = []
        self._privileged: dict[str, np.ndarray] = {}
        self._timelines: list[_Timeline] = []
        self._frame = -1
        self._last_stamp: float | None = None
        self._last_sent = 0
        self._counts = {"limited": 0, "overruns": 0}
        self.create_subscription(String, "task/state", self._on_state, TASK_STATE_QOS)
        self.create_subscription(DiagnosticArray, "diagnostics", self._on_diagnostics, 10)
        self.create_subscription(JointState, "sim/privileged", self._on_privileged, RECORDER_QOS)
        self.create_subscription(JointState, "joint_states", self._on_joints, RECORDER_QOS)

    @property
    def sees_robot(self) -> bool:
        """Whether a joint state has come."""
        return self._last_stamp is not None

    @property
    def behind(self) -> bool:
        """Whether joint states of an episode that is over may still come."""
        return bool(self._ends) and self._last_sent < self._ends[-1][0]

    def takes(self) -> list[Take]:
        """Returns what is to be seen of each episode that is over: the poses from its reset to its end."""
        return [self._take(sent, state) for sent, state in self._ends]

    def _take(self, sent: int, state: dict[str, Any]) -> Take:
        """Returns the time line that ran when word of an episode's end was sent, cut where the episode ended."""
        running = [line.moments for line in self._timelines if line.sent <= sent]
        last = state["seconds"] + 1.0 / self._frame_rate
        moments = [moment for moment in (running[-1] if running else []) if moment.stamp <= last]
        return Take(state["instruction"], moments, state["state"] == "success")

    def _on_state(self, message: String, info: dict[str, int]) -> None:
        self.heard = time.monotonic()
        state = json.loads(message.data)
        if state["state"] in OVER:
            self._ended = state
            self._ends.append((info["source_timestamp"], state))
        self._on_change(state)

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

    def _on_joints(self, message: JointState, info: dict[str, int]) -> None:
        stamp, sent = from_time(message.header.stamp), info["source_timestamp"]
        if stamp != self._last_stamp:  # in lock-step an observation that nobody answers comes again and again
            self.heard = time.monotonic()
        if self._last_stamp is None or stamp < self._last_stamp:
            self._timelines.append(_Timeline(sent))
            self._frame = -1
        self._last_stamp, self._last_sent = stamp, sent
        frame = int(stamp * self._frame_rate + 1e-6)
        if frame > self._frame:
            self._frame = frame
            self._timelines[-1].moments.append(Moment(stamp, self._joints.read(message)[0], self._privileged))


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
                while len(recorder.results) < episodes or recorder.behind:
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
    return recorder.results, recorder.takes()

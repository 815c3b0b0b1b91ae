"""Runs a graph that records, until as many episodes as were asked for are kept."""

import json
import time
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import String

from ros_rl.bringup import Graph
from ros_rl.errors import RobotFault
from ros_rl.nodes.base import start_ros
from ros_rl.nodes.launcher import SILENCE, GraphProcesses
from ros_rl.nodes.messages import TASK_STATE_QOS
from ros_rl.nodes.starter import NodeStarter, held_back

_POLL = 0.1  # s
_SETTLE = 1.0  # s: when this node has found two others, they may not have found each other yet


class Watcher(Node):
    """Follows the recorder and the task node of a graph.

    Attributes:
        recorder: the newest `recorder/status`, empty before the first.
        task: the newest `task/state`.
        moved: when the recorder last had something new, s on the monotonic clock.
    """

    def __init__(self, namespace: str, device: bool):
        """Opens the subscriptions; `device` says whether the graph has one."""
        super().__init__("collect", namespace=namespace)
        self.recorder: dict[str, Any] = {}
        self.task: dict[str, Any] = {}
        self.moved = time.monotonic()
        self._device = device
        self._found: float | None = None  # when device, safety node and recorder were all there, s
        self.create_subscription(String, "recorder/status", self._on_recorder, TASK_STATE_QOS)
        self.create_subscription(String, "task/state", self._on_task, TASK_STATE_QOS)

    @property
    def ready(self) -> bool:
        """Whether an episode that begins now is recorded from its beginning, and commanded."""
        found = bool(self.recorder) and not self.recorder["missing"]
        if self._device:
            found = found and self.count_publishers("teleop/action") > 0 and self.count_subscribers("teleop/action") > 1
        if not found:
            self._found = None
        elif self._found is None:
            self._found = time.monotonic()
        return self._found is not None and time.monotonic() - self._found > _SETTLE

    @property
    def done(self) -> bool:
        """Whether no further episode will come."""
        finished = self.task.get("state") == "finished" and self.recorder.get("state") in ("idle", "committing", "failed")
        # One that cannot be committed does not count: then another one is wanted.
        return bool(self.recorder.get("full") and not self.recorder["waiting"]) or finished

    def _on_recorder(self, message: String) -> None:
        status = json.loads(message.data)
        if any(status[key] != self.recorder.get(key) for key in ("state", "messages", "kept", "discarded")):
            self.moved = time.monotonic()
        self.recorder = status

    def _on_task(self, message: String) -> None:
        self.task, self.moved = json.loads(message.data), time.monotonic()


def collect(described: Graph, waits: bool, on_change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Starts a graph with a recorder and runs it until its episodes are recorded, or until Ctrl-C; what was recorded is then written.

    The first episode begins when the recorder listens, and safety node and device have found each other.

    Args:
        described: the graph.
        waits: whether a person may let the robot wait for as long as they like, and sees what goes wrong.
        on_change: called with `recorder/status` again and again.

    Returns:
        the last `recorder/status` of the run.

    Raises:
        RobotFault: the graph or its recorder ended early or fell silent, or, where no person is there, something was not recorded.
    """
    start_ros()
    watcher = Watcher(described.namespace, any(node.executable == "teleop_node" for node in described.nodes))
    tasks = NodeStarter(watcher, "task_node")
    executor = SingleThreadedExecutor()
    executor.add_node(watcher)
    try:
        with GraphProcesses(held_back(described, "task_node"), quiet=True, terminal=True) as running:
            while not watcher.done:
                executor.spin_once(timeout_sec=_POLL)
                if watcher.recorder:
                    on_change(watcher.recorder)
                if tasks.started or watcher.ready:
                    tasks.start()
                _check(running, watcher, waits)
    except KeyboardInterrupt:
        pass  # by now everything recorded is written
    finally:
        executor.shutdown(timeout_sec=1.0)
        watcher.destroy_node()
        rclpy.shutdown()
    return watcher.recorder


def _check(running: GraphProcesses, watcher: Watcher, waits: bool) -> None:
    kept = f"after {watcher.recorder.get('kept', 0)} episodes"
    problem = ""
    if (code := running.ended()) is not None:
        problem = f"the graph ended with exit code {code} {kept}"
    elif running.processes["recorder_node"].poll() is not None:
        problem = f"the recorder ended {kept}"
    elif not waits and watcher.recorder.get("problem"):  # nobody is there to see it, and the next episode would fare no better
        problem = f"{watcher.recorder['problem']} {kept}"
    elif not waits and time.monotonic() - watcher.moved > 2 * SILENCE:
        cameras = watcher.recorder.get("missing")
        who = f"the cameras {', '.join(cameras)}" if cameras else "the graph"
        problem = f"nothing came from {who} for {2 * SILENCE:g} s {kept}"
    if problem:
        raise RobotFault(f"{problem}: {running.last_words}")

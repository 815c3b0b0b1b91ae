"""Watches a graph that a benchmark has started, from outside."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

from ros_rl.errors import RobotFault
from ros_rl.nodes.launcher import SILENCE

_MOMENT = 0.1  # s


class Watcher(Node):
    """Follows the counts of the hardware node, and calls services; it acts only while it waits for something.

    Attributes:
        counts: ``ticks`` and ``overruns`` of the control loop, as last told; empty before.
        check: called while something is waited for; raises what speaks against it.
    """

    def __init__(self, name: str, namespace: str, **options: Any):
        """Opens the topic."""
        super().__init__(name, namespace=namespace, **options)
        self.counts: dict[str, int] = {}
        self.check: Callable[[], None] = lambda: None
        self.executor_ = SingleThreadedExecutor()
        self.executor_.add_node(self)
        self.create_subscription(DiagnosticArray, "diagnostics", self._on_diagnostics, 10)

    def until(self, condition: Callable[[], object], patience: float, what: str) -> None:
        """Waits for a condition.

        Raises:
            RobotFault: in vain, or the graph has ended.
        """
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise RobotFault(f"waited {patience:g} s in vain for {what}")
            self.wait()

    def wait(self) -> None:
        """Hears what comes next, for a moment at most.

        Raises:
            RobotFault: the graph has ended.
        """
        self.executor_.spin_once(timeout_sec=_MOMENT)
        self.check()

    def call(self, service: str) -> None:
        """Calls a service without arguments.

        Raises:
            RobotFault: it refuses.
        """
        client = self.create_client(Trigger, service)
        self.until(client.service_is_ready, SILENCE, service)
        answer = client.call_async(Trigger.Request())
        self.until(answer.done, SILENCE, service)
        self.destroy_client(client)
        if not answer.result().success:
            raise RobotFault(f"{service}: {answer.result().message}")

    def close(self) -> None:
        """Ends the node."""
        self.executor_.shutdown(timeout_sec=1.0)
        self.destroy_node()

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {entry.key: entry.value for entry in status.values}
            if "overruns" in values:
                self.counts = {key: int(values[key]) for key in ("ticks", "overruns")}


class Load:
    """What processes, and the control loop, do between the beginning and `figures`."""

    def __init__(self, watcher: Watcher, processes: Mapping[str, int]):
        """Begins to count; processes are given by their numbers."""
        self._watcher, self._processes = watcher, processes
        self._counts, self._busy, self._began = dict(watcher.counts), _processor_time(processes), time.monotonic()

    def figures(self) -> dict[str, Any]:
        """Returns the share of a core of every process (``cpu``), control periods (``ticks``) and missed deadlines (``overruns``)."""
        span, busy, counts = time.monotonic() - self._began, _processor_time(self._processes), self._watcher.counts
        return {
            "cpu": {name: round((busy[name] - self._busy[name]) / span, 3) for name in self._processes},
            **{name: counts[name] - self._counts[name] for name in ("ticks", "overruns")},
        }


def _processor_time(processes: Mapping[str, int]) -> dict[str, float]:
    """Returns the processor time that each process has taken, s."""
    found = {}
    for name, number in processes.items():
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found

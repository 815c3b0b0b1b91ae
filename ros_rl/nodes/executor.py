"""Runs nodes with their data path apart from everything else.

rclpy builds its wait set anew for every message, from every entity of every node, and a lifecycle node has about
fourteen services: most of the time of a hop goes there. Here topics are waited for alone, in the calling thread;
services, timers and clients are served by a second thread. Callbacks of one node still run one at a time: its callback
group sees to that across both.
"""

import threading
from collections.abc import Callable, Collection
from typing import Any

from rclpy.event_handler import QoSSubscriptionEventType
from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.waitable import Waitable

_LOOK_AROUND = 0.1  # s between looks at whether to stop, while nothing happens
_KINDS = ("subscriptions", "timers", "clients", "services", "guards", "waitables")


class _View:
    """A node of which an executor sees some kinds of entities only; of its waitables the topic events, or all others."""

    def __init__(self, node: Node, kinds: Collection[str], topic_events: bool = False):
        self._node = node
        self._topic_events = topic_events
        for kind in _KINDS:
            if kind not in kinds:
                setattr(self, kind, ())

    def __getattr__(self, name: str) -> Any:
        seen = getattr(self._node, name)
        return [waitable for waitable in seen if _is_topic_event(waitable) == self._topic_events] if name == "waitables" else seen


def _is_topic_event(waitable: Waitable) -> bool:
    return isinstance(getattr(waitable, "event_type", None), QoSSubscriptionEventType)


class _Executor(SingleThreadedExecutor):
    """Waits for parts of nodes."""

    parts: Collection[_View] = ()

    def get_nodes(self) -> list[Any]:
        return list(self.parts)


def spin_nodes(nodes: Collection[Node], stopped: Callable[[], bool]) -> None:
    """Runs the callbacks of nodes until `stopped`; the data path in this thread."""
    data, events, rest = _Executor(), _Executor(), _Executor()
    for node in nodes:
        rest.add_node(node)  # so that new services wake it
    data.parts = [_View(node, ["subscriptions"]) for node in nodes]
    # Who waits for a topic's QoS events is woken by every message, so they are looked at now and then.
    events.parts = [_View(node, ["waitables"], topic_events=True) for node in nodes]
    rest.parts = [_View(node, ["timers", "clients", "services", "guards", "waitables"]) for node in nodes]

    def serve() -> None:
        while not stopped():
            try:
                rest.spin_once(timeout_sec=_LOOK_AROUND)
                events.spin_once(timeout_sec=0)
            except (ExternalShutdownException, ShutdownException):
                return
            except Exception as error:
                # Such as a lifecycle transition that does not exist. The next request may be an emergency stop.
                get_logger("services").error(f"a request failed: {error}")
            # A callback may have opened topics, or kept a node's data waiting for its callback group.
            data.wake()

    thread = threading.Thread(target=serve, name="services", daemon=True)
    thread.start()
    try:
        while not stopped():
            data.spin_once(timeout_sec=_LOOK_AROUND)
    finally:
        thread.join(2.0)
        for executor in (data, events, rest):
            executor.shutdown(timeout_sec=1.0)

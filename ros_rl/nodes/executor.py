"""Runs nodes with their data path apart from everything else.

rclpy builds its wait set anew for every message, from every entity of every node, and a lifecycle node has about
fourteen services: most of the time of a hop goes there. Here topics are waited for alone, in the calling thread;
services, timers and clients are served by a second thread. Callbacks of one node still run one at a time: its callback
group sees to that across both.
"""

import threading
from collections.abc import Callable, Collection, Iterable

from rclpy.event_handler import QoSSubscriptionEventType
from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.subscription import Subscription
from rclpy.waitable import Waitable

_LOOK_AROUND = 0.1  # s between looks at whether to stop, while nothing happens


def _of_subscription(waitable: Waitable) -> bool:
    return isinstance(getattr(waitable, "event_type", None), QoSSubscriptionEventType)


class _Topics:
    """The subscriptions of a node, for an executor that shall wait for nothing else of it."""

    timers: Collection[object] = ()
    clients: Collection[object] = ()
    services: Collection[object] = ()
    guards: Collection[object] = ()
    waitables: Collection[object] = ()

    def __init__(self, node: Node):
        self._node = node

    @property
    def subscriptions(self) -> Iterable[Subscription]:
        return self._node.subscriptions


class _TopicEvents:
    """The QoS events of a node's subscriptions. Who waits for one is woken by every message, so they are looked at now and then."""

    subscriptions: Collection[object] = ()
    timers: Collection[object] = ()
    clients: Collection[object] = ()
    services: Collection[object] = ()
    guards: Collection[object] = ()

    def __init__(self, node: Node):
        self._node = node

    @property
    def waitables(self) -> Iterable[Waitable]:
        return [waitable for waitable in self._node.waitables if _of_subscription(waitable)]


class _AllButTopics:
    """Everything else of a node."""

    subscriptions: Collection[Subscription] = ()

    def __init__(self, node: Node):
        self._node = node

    @property
    def waitables(self) -> Iterable[Waitable]:
        return [waitable for waitable in self._node.waitables if not _of_subscription(waitable)]

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)


class _Executor(SingleThreadedExecutor):
    """Waits for parts of nodes."""

    parts: Collection[object] = ()

    def get_nodes(self) -> list[object]:
        return list(self.parts)


def spin_nodes(nodes: Collection[Node], stopped: Callable[[], bool]) -> None:
    """Runs the callbacks of nodes until `stopped`; the data path in this thread."""
    data, events, rest = _Executor(), _Executor(), _Executor()
    for node in nodes:
        rest.add_node(node)  # so that new services wake it
    data.parts = [_Topics(node) for node in nodes]
    events.parts = [_TopicEvents(node) for node in nodes]
    rest.parts = [_AllButTopics(node) for node in nodes]

    def serve() -> None:
        while not stopped():
            rest.spin_once(timeout_sec=_LOOK_AROUND)
            events.spin_once(timeout_sec=0)
            # A callback may have opened topics, or kept a node's data waiting for its callback group.
            data.wake()

    thread = threading.Thread(target=_quietly, args=(serve,), name="services", daemon=True)
    thread.start()
    try:
        while not stopped():
            data.spin_once(timeout_sec=_LOOK_AROUND)
    finally:
        thread.join(2.0)
        for executor in (data, events, rest):
            executor.shutdown(timeout_sec=1.0)


def _quietly(run: Callable[[], None]) -> None:
    try:
        run()
    except (ExternalShutdownException, ShutdownException):
        return

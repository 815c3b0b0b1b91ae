"""Runs nodes with their data path apart from everything else.

rclpy builds its wait set anew for every message, from every entity of every node, and a lifecycle node has about
fourteen services: most of the time of a hop goes there. Here topics of the data path are waited for alone, in the
calling thread; services, timers, clients and the clock are served by a second thread. Callbacks of one node still run
one at a time: its callback group sees to that across both.
"""

import threading
from collections.abc import Callable, Collection, Iterable

from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.subscription import Subscription
from rosgraph_msgs.msg import Clock

_LOOK_AROUND = 0.1  # s between looks at whether to stop, while nothing happens


def _is_data(subscription: Subscription) -> bool:
    return subscription.msg_type is not Clock


class _View:
    """The part of a node that an executor waits for."""

    timers: Collection[object] = ()
    clients: Collection[object] = ()
    services: Collection[object] = ()
    guards: Collection[object] = ()
    waitables: Collection[object] = ()

    def __init__(self, node: Node):
        self._node = node

    @property
    def subscriptions(self) -> Iterable[Subscription]:
        return [subscription for subscription in self._node.subscriptions if _is_data(subscription)]


class _Rest:
    """The other part."""

    def __init__(self, node: Node):
        self._node = node

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)

    @property
    def subscriptions(self) -> Iterable[Subscription]:
        return [subscription for subscription in self._node.subscriptions if not _is_data(subscription)]


class _Executor(SingleThreadedExecutor):
    """Waits for parts of nodes."""

    parts: Collection[object] = ()

    def get_nodes(self) -> list[object]:
        return list(self.parts)


def spin_nodes(nodes: Collection[Node], stopped: Callable[[], bool]) -> None:
    """Runs the callbacks of nodes until `stopped`; the data path in this thread."""
    data, rest = _Executor(), _Executor()
    for node in nodes:
        rest.add_node(node)  # so that new services wake it
    data.parts = [_View(node) for node in nodes]
    rest.parts = [_Rest(node) for node in nodes]

    def serve() -> None:
        while not stopped():
            rest.spin_once(timeout_sec=_LOOK_AROUND)
            # A callback may have opened topics, or kept a node's data waiting for its callback group.
            data.wake()

    thread = threading.Thread(target=_quietly, args=(serve,), name="services", daemon=True)
    thread.start()
    try:
        while not stopped():
            data.spin_once(timeout_sec=_LOOK_AROUND)
    finally:
        thread.join(2.0)
        for executor in (data, rest):
            executor.shutdown(timeout_sec=1.0)


def _quietly(run: Callable[[], None]) -> None:
    try:
        run()
    except (ExternalShutdownException, ShutdownException):
        return

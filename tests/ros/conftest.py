"""The stack's nodes in the process of a test, and processes that do not outlive their test."""

import gc
from collections.abc import Callable, Iterator

import pytest

rclpy = pytest.importorskip("rclpy")

from harness import Ros, graph_of  # noqa: E402

from ros_rl.bringup import Graph  # noqa: E402
from ros_rl.nodes.base import start_ros  # noqa: E402
from ros_rl.nodes.launcher import GraphProcesses  # noqa: E402


@pytest.fixture(autouse=True)
def _own_domain(domain: int) -> None:
    """Gives every test a ROS domain of its own."""


@pytest.fixture
def ros(domain: int) -> Iterator[Ros]:
    """Gives a test its nodes."""
    start_ros()
    held = Ros()
    try:
        yield held
    finally:
        held.close()
        rclpy.shutdown()
        gc.collect()  # a node is on the network until its last handle is gone


@pytest.fixture
def processes() -> Iterator[Callable[..., GraphProcesses]]:
    """Gives a test a function that starts nodes of a bring-up as processes."""
    started: list[GraphProcesses] = []

    def start(bringup: str, without: tuple[str, ...] = ("task_node",), **arguments: object) -> GraphProcesses:
        described = graph_of(bringup, **arguments)
        kept = tuple(node for node in described.nodes if node.executable not in without)
        running = GraphProcesses(Graph(described.bringup, described.namespace, kept, described.composed), quiet=True)
        started.append(running)
        return running.__enter__()

    yield start
    for running in started:
        running.__exit__(None, None, None)

"""A ROS domain for each test, the stack's nodes in this process, and processes that do not outlive their test."""

import fcntl
import gc
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

rclpy = pytest.importorskip("rclpy")

from harness import Ros, graph_of  # noqa: E402

from ros_rl.bringup import Graph  # noqa: E402
from ros_rl.nodes.base import start_ros  # noqa: E402
from ros_rl.nodes.launcher import GraphProcesses  # noqa: E402

_COUNT = 100
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
# Workers of one run start far apart: a node of a test that is over may stay on the network until it is collected.
_START = os.getppid() + _WORKER * _COUNT // _WORKERS
_NUMBERS = itertools.cycle(1 + (_START + offset) % _COUNT for offset in range(_COUNT))


@pytest.fixture(autouse=True)
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Takes a ROS domain that no other test has now or had of late, and keeps discovery on this machine."""
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    for number in itertools.islice(_NUMBERS, _COUNT):
        with (Path(tempfile.gettempdir()) / f"ros_rl-test-domain-{number}").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
            yield number
            return
    pytest.fail("all ROS domains for tests are taken")


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

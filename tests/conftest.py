"""ROS domains for tests, and the robots whose files come from a package that may not be there."""

import fcntl
import itertools
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

_COUNT = 100
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
# Workers of one run start far apart: a node of a test that is over may stay on the network until it is collected.
_START = os.getppid() + _WORKER * _COUNT // _WORKERS
_NUMBERS = itertools.cycle(1 + (_START + offset) % _COUNT for offset in range(_COUNT))


_FROM_PACKAGE = ("panda", "ur5", "xarm7", "so101", "go1", "go2")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what is about a robot of example-robot-data, or one of its bundles, where that package is not installed."""
    values = getattr(item, "callspec", None) and item.callspec.params.values()
    if any(isinstance(value, str) and value.split("_")[0] in _FROM_PACKAGE for value in values or ()):
        try:
            distribution("example-robot-data")
        except PackageNotFoundError:
            pytest.skip("example-robot-data is not installed: pip install -e '.[robots]'")


@pytest.fixture
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

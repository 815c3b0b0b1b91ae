"""Tests of ros_rl.nodes.ownership: a name is claimed once, and nobody else can lay a trap where claims are filed."""

import os
import stat
import tempfile

import pytest
from rclpy.node import Node

from ros_rl.errors import UserError
from ros_rl.nodes.ownership import claim


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"ros_rl-{os.getuid()}"


def test_a_name_is_claimed_once_until_it_is_given_back(ros, folder, domain):
    node = Node("claimer", namespace="/test")
    try:
        first = claim(node, 0.0)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert (folder / f"{domain}.test.claimer.lock").read_text() == str(os.getpid())
        with pytest.raises(UserError, match=rf"another /test/claimer runs in this ROS domain \(process {os.getpid()}\)"):
            claim(node, 0.0)
        first.close()
        claim(node, 0.0).close()
    finally:
        node.destroy_node()


def test_a_folder_that_others_may_write_to_is_closed_to_them(ros, folder):
    folder.mkdir()
    folder.chmod(0o777)
    claim(ros.probe, 0.0).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("trap", ["link", "file", "someone else's"])
def test_a_folder_that_is_not_ones_own_is_refused(ros, folder, tmp_path, monkeypatch, trap):
    if trap == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif trap == "file":
        folder.write_text("")
    else:
        number = os.getuid() + 1
        folder = folder.with_name(f"ros_rl-{number}")
        folder.mkdir()
        monkeypatch.setattr(os, "getuid", lambda: number)
    with pytest.raises(UserError, match=f"{folder} is not a folder of this user; remove it, or set TMPDIR"):
        claim(ros.probe, 0.0)

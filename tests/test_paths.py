"""Tests of ros_rl.paths: files are found by name among those that ship, or by path, and written whole."""

from pathlib import Path

import pytest

from ros_rl import paths
from ros_rl.errors import UserError

ROBOTS = "urdf/*/robot.yaml"


def test_the_share_folder_holds_what_ships():
    assert all((paths.share_dir() / folder).is_dir() for folder in ("urdf", "sim", "policies", "launch"))


def test_names_are_sorted_and_without_the_pattern():
    names = paths.names(ROBOTS)
    assert {"arm", "cartpole", "quadrotor", "quadruped"} <= set(names)
    assert names == sorted(names)
    assert "arm_circle" in paths.names("sim/tasks/*.yaml")


def test_hidden_folders_are_left_out(tmp_path, monkeypatch):
    for name in ("b", "a", ".half_written"):
        (tmp_path / "urdf" / name).mkdir(parents=True)
        (tmp_path / "urdf" / name / "robot.yaml").touch()
    monkeypatch.setattr(paths, "share_dir", lambda: tmp_path)
    assert paths.names(ROBOTS) == ["a", "b"]


@pytest.mark.parametrize("name", paths.names(ROBOTS))
def test_every_name_is_found(name):
    assert paths.find("robot", ROBOTS, name) == paths.share_dir() / "urdf" / name / "robot.yaml"


def test_a_path_is_taken_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("mine.yaml", "./mine.yaml", tmp_path / "mine.yaml"):
        assert paths.find("robot", ROBOTS, name) == (tmp_path / "mine.yaml").resolve()


def test_a_name_is_not_taken_for_a_folder_that_happens_to_be_here(tmp_path, monkeypatch):
    (tmp_path / "arm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert paths.find("robot", ROBOTS, "arm") == paths.share_dir() / "urdf" / "arm" / "robot.yaml"


@pytest.mark.parametrize("name", ["amr", "missing.yaml", "./arm", "../urdf/arm", "", "*"])
def test_an_unknown_name_lists_those_that_ship(name):
    with pytest.raises(UserError) as caught:
        paths.find("robot", ROBOTS, name)
    assert str(caught.value).startswith(f"unknown robot '{name}'")
    assert str(caught.value).endswith(f"(known: {', '.join(paths.names(ROBOTS))})")
    assert "did you mean 'arm'?" in str(caught.value) or name not in ("amr", "./arm")


def test_a_file_is_written_whole_over_an_older_one(tmp_path):
    path = tmp_path / "summary.json"
    for data in (b"old", b"new"):
        paths.write_atomically(path, data)
        assert path.read_bytes() == data
        assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_nothing_and_the_older_file(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    path.write_bytes(b"old")

    def fill_the_disk(self, data):
        self.touch()
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_the_disk)
    with pytest.raises(OSError, match="no space left"):
        paths.write_atomically(path, b"new")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"

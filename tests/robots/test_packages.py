"""Tests of ros_rl.robots.packages, beyond what tests of meshes say of the folders around a URDF."""

import os
import sys

import pytest

from ros_rl.robots.packages import candidates, package_of


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for variable in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH"):
        monkeypatch.delenv(variable, raising=False)


def install(site, name: str):
    """Makes a Python package as pip does, with a share folder as cmeel's have; returns that folder."""
    (site / f"{name.replace('-', '_')}-1.0.dist-info").mkdir(parents=True)
    (site / f"{name.replace('-', '_')}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    share = site / "cmeel.prefix" / "share" / name
    share.mkdir(parents=True)
    return share


def test_an_installed_python_package_comes_last(tmp_path, monkeypatch):
    share = install(tmp_path / "site", "robot-data")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"{tmp_path}/old{os.pathsep}{tmp_path}/older")
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path}/new")
    found = candidates("package://robot-data/r/r.urdf", tmp_path / "here" / "robot.yaml")
    assert found[0] == tmp_path / "old/robot-data/r/r.urdf"
    assert found[1] == tmp_path / "older/robot-data/r/r.urdf"
    assert found[2] == tmp_path / "new/share/robot-data/r/r.urdf"
    assert tmp_path / "here/robot-data/r/r.urdf" in found[3:-1]
    assert found[-1] == share / "r/r.urdf"


@pytest.mark.parametrize("reference", ["package://nobody-has-this/r.urdf", "package://", "package:///"])
def test_a_package_that_is_not_installed_is_looked_for_in_folders_alone(tmp_path, reference):
    assert not [path for path in candidates(reference, tmp_path / "robot.yaml") if "cmeel.prefix" in str(path)]


@pytest.mark.parametrize(
    ("reference", "package"),
    [("package://p/a.urdf", "p"), ("model://p", "p"), ("a.urdf", None), ("/p/a.urdf", None), ("file:///p/a.urdf", None)],
)
def test_the_package_of_an_address(reference, package):
    assert package_of(reference) == package


def test_an_address_of_another_kind_means_no_path(tmp_path):
    assert candidates("http://p/a.urdf", tmp_path / "robot.yaml") == []

"""Tests of ros_rl.cli.doctor: a healthy machine passes, and each fault is named with the command that mends it."""

import importlib
import json
import os
import subprocess
from types import SimpleNamespace

import pytest

from ros_rl.cli import doctor
from ros_rl.errors import UserError


def finished(returncode: int, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], returncode, stdout, stderr)


def test_this_machine_passes(capsys):
    assert doctor.Doctor(json=True).run() == 0
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert {"python", "mujoco", "torch", "pin", "rendering", "rclpy", "ROS_DOMAIN_ID", "ROS discovery", "/dev/shm"} <= set(findings)
    assert not [finding for finding in findings.values() if finding["status"] == "fail"]


def test_the_table_shows_the_command_and_a_failure_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: iter([doctor.Finding("rclpy", "fail", "is missing", "pip install rclpy")]))
    assert doctor.Doctor().run() == 1
    assert capsys.readouterr().out.split() == ["fail", "rclpy", "is", "missing", "→", "pip", "install", "rclpy"]


def test_a_warning_is_no_failure(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: iter([doctor.Finding("processor cores", "warn", "1")]))
    assert doctor.Doctor().run() == 0


@pytest.mark.parametrize(
    ("error", "mend"),
    [
        ("No module named 'pinocchio'", "pip install 'pin>="),
        ("libgomp.so.1: cannot open shared object file", "apt-get install -y libgomp1"),
    ],
)
def test_a_dependency_that_cannot_be_imported_is_named_with_what_mends_it(monkeypatch, error, mend):
    real_import = importlib.import_module

    def broken(name: str):
        if name == "pinocchio":
            raise ImportError(error)
        return real_import(name)

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    (failed,) = [finding for finding in doctor.check_dependencies() if finding.status == "fail"]
    assert failed.name == "pin"
    assert error in failed.detail
    assert mend in failed.mend


@pytest.mark.parametrize(
    ("domain", "status"),
    [("", "ok"), ("0", "ok"), ("101", "ok"), ("150", "warn"), ("232", "ok"), ("233", "fail"), ("-1", "fail"), ("a", "fail")],
)
def test_ros_domains(monkeypatch, domain, status):
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    assert doctor.check_domain().status == status


def test_missing_rclpy_is_mended_by_the_wheels(monkeypatch):
    monkeypatch.setattr(doctor, "_run_python", lambda *_: finished(1, stderr="Traceback\nModuleNotFoundError: No module named 'rclpy'\n"))
    monkeypatch.setattr(doctor.Path, "glob", lambda *_: iter(()))
    finding = doctor.check_rclpy()
    assert (finding.status, finding.detail) == ("fail", "ModuleNotFoundError: No module named 'rclpy'")
    assert "ros-jazzy-rclpy" in finding.mend


def test_two_copies_of_ros_are_noticed(monkeypatch):
    monkeypatch.setattr(doctor, "_run_python", lambda *_: finished(0, stdout="rmw_fastrtps_cpp\n"))
    monkeypatch.setattr(doctor, "_is_installed", lambda _: True)
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    assert doctor.check_rclpy().status == "warn"
    monkeypatch.delenv("ROS_DISTRO")
    assert doctor.check_rclpy().status == "ok"


@pytest.mark.parametrize(
    ("error", "flags", "named"),
    [
        ("silence", "0x1049", "firewall"),
        ("silence", "0x49", "ip link set lo multicast on"),
        ("RCLError: failed to initialize rcl", "0x1049", "failed to initialize rcl"),
    ],
)
def test_silence_between_processes_is_explained(monkeypatch, error, flags, named):
    monkeypatch.setattr(doctor, "_run_python", lambda *_: finished(1, stderr=f"{error}\n"))
    monkeypatch.setattr(doctor.Path, "read_text", lambda _: flags)
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE", raising=False)
    finding = doctor.check_discovery()
    assert finding.status == "fail"
    assert named in f"{finding.detail} {finding.mend}"


def test_rendering_that_does_not_work_comes_with_the_packages_to_install(monkeypatch):
    def nothing_renders():
        raise UserError("cannot render")

    monkeypatch.setattr(doctor.gl, "choose_gl", nothing_renders)
    assert "apt-get install" in doctor.check_rendering().mend


def test_a_wrong_choice_of_the_user_is_tried_too(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    finding = doctor.check_rendering()
    assert (finding.status, finding.mend) == ("fail", "unset MUJOCO_GL")


def test_little_shared_memory_is_a_warning(monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=16, f_frsize=1 << 20))
    finding = doctor.check_shared_memory()
    assert (finding.status, finding.detail) == ("warn", "only 16 MiB free for images")

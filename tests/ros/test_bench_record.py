"""Tests of ros_rl.nodes.bench_record: a graph that ends is not measured, and the cameras outlive nobody."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import PATIENCE

from ros_rl.cli.main import main
from ros_rl.nodes.environment import LAUNCHER

CAMERAS = [sys.executable, "-m", "ros_rl.nodes.bench_record", "/test", "10", "front"]


def test_a_graph_that_cannot_start_is_told_by_its_last_words(domain, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["bench", "record", "--folder", str(tmp_path / "file" / "set")]) == 1
    error = capsys.readouterr().err
    assert "recorder_node ended with exit code" in error and "Not a directory" in error


def test_a_robot_that_is_killed_ends_the_measurement(ros, tmp_path):
    words = ["bench", "record", "--robot", "arm", "--seconds", "3000", "--folder", str(tmp_path / "set")]
    bench = subprocess.Popen([sys.executable, "-m", "ros_rl.cli.main", *words], stderr=subprocess.PIPE, text=True)
    try:
        ros.until(lambda: any((tmp_path / "set" / "logs").glob("*.mcap")), "for the recording to begin")
        children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text().split()
        (robot,) = (child for child in children if "hardware_node" in Path(f"/proc/{child}/cmdline").read_text())
        os.kill(int(robot), signal.SIGKILL)
        _, error = bench.communicate(timeout=PATIENCE)
    finally:
        bench.kill()
    assert bench.returncode == 1 and "hardware_node ended with exit code -9" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_cameras_end_when_told_though_a_shell_had_it_ignored(ros, number):
    started = [sys.executable, "-c", f"import os, signal; signal.signal({number:d}, signal.SIG_IGN); os.execv({CAMERAS[0]!r}, {CAMERAS!r})"]
    cameras = subprocess.Popen(started, env={key: text for key, text in os.environ.items() if key != LAUNCHER})
    try:
        ros.until(lambda: ros.probe.count_publishers("camera/front/image_raw") == 1, "for the cameras")
        cameras.send_signal(number)
        assert cameras.wait(PATIENCE) == 0
    finally:
        cameras.kill()


def test_the_cameras_end_with_whoever_started_them(domain):
    subprocess.run(CAMERAS, env=os.environ | {LAUNCHER: "1"}, timeout=PATIENCE, check=True)

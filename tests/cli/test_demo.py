"""Tests of ros_rl.cli.demo: a robot does its task through the whole stack, and what was promised is written."""

import json
import subprocess
import sys

import av
import cv2
import pytest

from ros_rl.cli.main import main

pytest.importorskip("rclpy")

FIELDS = {"instruction": str, "success": bool, "seconds": float, "limited": int, "overruns": int, "seed": int}


@pytest.mark.usefixtures("domain")
def test_an_episode_in_lockstep_is_judged_and_filmed(tmp_path):
    command = [sys.executable, "-m", "ros_rl.cli.main", "demo", "--robot", "cartpole", "--lockstep", "--episodes", "1", "--seed", "4"]
    result = subprocess.run([*command, "--out", str(tmp_path / "demo")], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "1 of 1 succeeded" in result.stdout
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert summary["robot"] == "cartpole"
    (episode,) = summary["episodes"]
    assert {name: type(episode[name]) for name in FIELDS} == FIELDS
    assert (episode["instruction"], episode["success"], episode["seed"]) == ("balance the pole", True, 4)
    assert episode["seconds"] >= 5.0
    with av.open(str(tmp_path / "demo" / "video.mp4")) as video:
        frames = sum(1 for _ in video.decode(video=0))
    assert 0 <= frames - 20 * episode["seconds"] <= 40, "the film ends with the episode, or when word of its end has come"
    height, width, _ = cv2.imread(str(tmp_path / "demo" / "contact_sheet.png")).shape
    assert width > height > 0
    assert (tmp_path / "demo" / "nodes.log").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--robot", "cartpol"], "unknown robot 'cartpol', did you mean 'cartpole'?"),
        (["--episodes", "-1"], "--episodes and --seed are whole numbers from 0 on, got -1 and 5000000"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, capsys, words, message):
    assert main(["demo", *words, "--out", str(tmp_path / "demo")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()

"""Tests of ros_rl.nodes.collect and ros_rl.nodes.replay: demonstrations of a script become a dataset, and are played again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from harness import PATIENCE
from std_msgs.msg import String

from ros_rl.cli.main import main
from ros_rl.cli.replay import Recorded
from ros_rl.data.dataset import Dataset
from ros_rl.data.integrity import check
from ros_rl.errors import RobotFault
from ros_rl.nodes.collect import Watcher, _check
from ros_rl.nodes.parity import in_process
from ros_rl.robots.spec import load_robot

ROS_RL = [sys.executable, "-m", "ros_rl.cli.main"]


@pytest.fixture
def recorded(domain, tmp_path, capfd):
    """A dataset of two episodes of the cart-pole in lock-step, a row for each control period, and the summary of its collection."""
    words = ["collect", "cartpole", str(tmp_path / "set"), "--episodes", "2", "--json", "cameras:=none", "fps:=100", "pause:=0.1"]
    assert main(words) == 0
    return tmp_path / "set", json.loads(capfd.readouterr().out)


def test_an_episode_recorded_in_lock_step_is_replayed_bit_for_bit(recorded, capfd, tmp_path):
    root, summary = recorded
    assert (summary["episodes"], summary["outcomes"], summary["left"]) == (2, {"success": 2}, [])
    assert {name: found["dropped"] for name, found in summary["sources"].items()} == {"joint_states": 0, "action": 0, "teleop": 0}
    assert check(root) == []
    dataset = Dataset.open(root)
    assert [episode.recording["seed"] for episode in dataset.episodes] == [0, 1]
    spec = load_robot("cartpole")
    for number in range(2):
        columns = dataset.columns(number)
        assert columns["stamp"][0].tolist() == [0.0] * 4  # from the reset on
        assert columns["intervention"].all() and columns["proposed"][:, 1].all() and not columns["proposed"][:, 0].any()
        again = Recorded.read(root, number)
        again.save(tmp_path / f"replay{number}", spec.control_rate, spec.command_mode, True)
        played = in_process(spec, "cartpole_balance", number, len(again.stamps), tmp_path / f"replay{number}")
        assert again.compare(played.stamps, played.positions)["max_abs_difference"] == 0.0
        assert np.array_equal(played.commands, again.actions)
    assert main(["replay", str(root), "--episode", "1", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["rows"], report["max_abs_difference"], report["rms"]) == (dataset.episodes[1].length, 0.0, 0.0)


def test_what_is_collected_in_lock_step_is_the_same_again(recorded, tmp_path, capfd):
    words = ["collect", "cartpole", str(tmp_path / "again"), "--episodes", "2", "cameras:=none", "fps:=100", "pause:=0.1"]
    assert main(words) == 0
    for number in range(2):
        one, other = (Dataset.open(root).columns(number) for root in (recorded[0], tmp_path / "again"))
        rows = min(len(one["action"]), len(other["action"]))  # word of the end is some ticks late, now and then
        assert rows > 400
        for key in ("observation.state", "joint_velocity", "action", "teleop_action", "stamp"):
            assert np.array_equal(one[key][:rows], other[key][:rows]), key


def test_ctrl_c_keeps_the_episode_that_runs(domain, tmp_path):
    root = tmp_path / "set"
    words = ["collect", "cartpole", str(root), "--json", "cameras:=none", "lockstep:=false", "web:=true", "web_port:=0"]
    said = tmp_path / "stderr"
    with said.open("w") as errors:
        process = subprocess.Popen([*ROS_RL, *words], stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        _until(lambda: re.findall(r"^ros_rl: see the robot at http://127\.0\.0\.1:\d+/[\w-]+/$", said.read_text(), re.MULTILINE), process)
        _until(lambda: any(path.stat().st_size > 50_000 for path in (root / "logs").glob("*.mcap")), process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, output + said.read_text()
    assert said.read_text().count("see the robot at") == 1
    summary = json.loads(output)
    assert summary["episodes"] >= 1 and summary["left"] == [] and check(root) == []
    episode = Dataset.open(root).episodes[-1]
    assert episode.recording["lockstep"] is False


def test_d1_a_recorder_that_is_killed_ends_the_collection_and_its_log_becomes_an_episode(domain, tmp_path):
    root = tmp_path / "set"
    words = ["collect", "cartpole", str(root), "cameras:=none", "lockstep:=false"]
    process = subprocess.Popen([*ROS_RL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _until(lambda: any(path.stat().st_size > 50_000 for path in (root / "logs").glob("*.mcap")), process)
        os.kill(_recorder_of(process.pid), signal.SIGKILL)
        _, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "recorder_node ended with -9; the robot goes on, and nothing is recorded" in error
    assert f"is not committed; 'ros-rl data repair {root}' makes an episode of it" in error
    before = len(Dataset.open(root).episodes)
    assert main(["data", "repair", str(root)]) == 0
    assert len(Dataset.open(root).episodes) == before + 1


@pytest.mark.parametrize(
    ("attended", "status", "message"),
    [
        (False, {"problem": "recording did not start: No space left on device"}, "No space left on device after 3 episodes"),
        (True, {"problem": "recording did not start: No space left on device"}, None),
        (False, {"missing": ["front", "wrist"]}, "nothing came from the cameras front, wrist for 60 s after 3 episodes"),
        (False, {"missing": []}, "nothing came from the graph for 60 s after 3 episodes"),
        (True, {"missing": ["front"]}, None),
    ],
)
def test_a_collection_without_a_person_ends_where_nothing_more_is_recorded(attended, status, message):
    alive = SimpleNamespace(poll=lambda: None)
    running = SimpleNamespace(ended=lambda: None, processes={"recorder_node": alive}, last_words="good night")
    watcher = SimpleNamespace(recorder={"kept": 3, **status}, moved=time.monotonic() - (1e4 if "missing" in status else 0.0))
    if message is None:
        _check(running, watcher, attended)
    else:
        with pytest.raises(RobotFault, match=f"{message}: good night"):
            _check(running, watcher, attended)


def test_a_collection_is_done_when_as_many_as_were_asked_for_are_committed(ros):
    watcher = Watcher("/test", False)
    for waiting, done in ((1, False), (0, True)):
        status = {"state": "committing", "full": True, "waiting": waiting, "messages": 0, "kept": 2, "discarded": 0}
        watcher._on_recorder(String(data=json.dumps(status)))
        assert watcher.done is done
    watcher.destroy_node()


def _until(condition, process):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _recorder_of(launcher):
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    (found,) = (child for child in children if "recorder_node" in Path(f"/proc/{child}/cmdline").read_text())
    return int(found)

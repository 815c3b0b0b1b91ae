"""Tests of ros_rl.cli.collect: what is brought up, and what the summary says."""

import pytest
from sample_logs import usual, write_log

from ros_rl.cli.collect import summarise, waits
from ros_rl.cli.main import main, parse
from ros_rl.data.convert import Recording, commit_log
from ros_rl.data.dataset import DatasetWriter


def nodes(*words):
    return {node.executable: node.parameters for node in parse("collect", list(words)).graph().nodes}


def test_without_a_device_the_tasks_own_policy_demonstrates_in_lock_step(tmp_path):
    given = nodes("arm", str(tmp_path / "set"), "tasks:=push_button", "--episodes", "3", "fps:=10")
    assert list(given) == ["hardware_node", "safety_node", "task_node", "teleop_node", "recorder_node"]
    assert (given["teleop_node"]["device"], given["teleop_node"]["demonstrator"]) == ("scripted", "arm_pick_place")
    assert given["hardware_node"]["lockstep"] is given["recorder_node"]["lockstep"] is True
    assert (given["recorder_node"]["dataset_episodes"], given["recorder_node"]["fps"]) == (3, 10)
    assert given["task_node"]["episodes"] > 1000  # the recorder says when it is enough: discarded ones are made up for


def test_a_person_needs_no_policy_but_where_it_walks_for_them(tmp_path):
    arm = nodes("arm", str(tmp_path / "set"), "teleop:=joy")
    assert "policy_node" not in arm and arm["hardware_node"]["lockstep"] is False
    for device in ("joy", "browser"):
        assert nodes("quadruped", str(tmp_path / "set"), f"teleop:={device}")["policy_node"]["policy"] == "quadruped_walk"
    assert nodes("arm", str(tmp_path / "set"), "teleop:=joy", "policy:=arm_pick_place")["policy_node"]["policy"] == "arm_pick_place"
    assert "teleop_node" not in nodes("arm", str(tmp_path / "set"), "policy:=arm_pick_place")
    robot = nodes("arm", str(tmp_path / "set"), "mode:=robot", "teleop:=joy")
    assert robot["task_node"]["tasks"] == [""] and "policy_node" not in robot


@pytest.mark.parametrize(
    ("words", "waiting", "page"),
    [
        (["cartpole"], False, False),
        (["arm", "policy:=arm_pick_place"], False, False),
        (["arm", "teleop:=joy"], True, False),
        (["arm", "teleop:=browser"], True, True),
        (["arm", "tasks:=none", "policy:=arm_circle"], True, True),
        (["arm", "mode:=robot", "policy:=arm_circle"], True, True),
        (["arm", "mode:=robot", "policy:=arm_circle", "web:=false"], True, False),
        (["arm", "mode:=robot", "teleop:=joy"], True, False),
        (["arm", "mode:=robot", "teleop:=twist"], True, True),
        (["quadruped", "mode:=robot"], True, True),
    ],
)
def test_where_a_person_begins_an_episode_they_are_waited_for_and_have_something_to_begin_it_with(tmp_path, words, waiting, page):
    described = parse("collect", [words[0], str(tmp_path / "set"), *words[1:]]).graph()
    assert waits(described) is waiting
    assert ("web_node" in {node.executable for node in described.nodes}) is page


def test_a_person_is_asked_before_a_policy_moves_a_robot(tmp_path, monkeypatch, capsys):
    collected = []
    monkeypatch.setattr("ros_rl.nodes.collect.collect", lambda *_: collected.append(True) or {})
    words = ["collect", "quadruped", str(tmp_path / "set"), "mode:=robot"]
    assert main(words) == 2
    assert "a real robot is about to move and nobody can be asked; give --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in (("no", 2), ("yes", 0)):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert main(words) == code
        assert "robot 'quadruped' is moved by 'quadruped_walk' as soon as its graph is up" in capsys.readouterr().out
    assert main([*words, "--yes"]) == 0
    assert main(["collect", "arm", str(tmp_path / "set"), "mode:=robot", "teleop:=joy"]) == 0  # the person moves it
    assert "as soon as" not in capsys.readouterr().out and len(collected) == 3


def test_a_collection_that_ended_before_anything_was_recorded_has_a_summary(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("ros_rl.nodes.collect.collect", lambda *_: {})
    command = parse("collect", ["cartpole", "~/set"])
    assert command.dataset == tmp_path / "set"
    assert command.run() == 0
    assert "0 episodes, 0 rows, 0.0 s: none; discarded 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["arm", "{tmp}/set", "dataset:=x"], "dataset:= is for 'ros-rl up'; here it is the second word"),
        (["arm", "{tmp}/set", "dataset_episodes:=3"], "dataset_episodes:= is for 'ros-rl up'; here write --episodes"),
        (["arm", "{tmp}/set", "--episodes", "-1"], "--episodes is a whole number from 0 on, got -1"),
        (["arm"], "collect"),
        (["leg", "{tmp}/set"], "unknown bring-up 'leg'"),
        (["arm", "{tmp}/set", "fsp:=10"], "unknown argument 'fsp', did you mean 'fps'?"),
        (["arm", "{tmp}/set", "fps:=10", "fps:=20"], "the argument fps is there twice"),
        (["arm", "{tmp}/set", "teleop:=keyboard"], "the keyboard needs a terminal, and standard input is none"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path, capsys):
    assert main(["collect", *(word.format(tmp=tmp_path) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_summary_is_of_the_new_episodes_and_names_what_is_left(tmp_path):
    root = tmp_path / "set"
    spec = Recording.read(write_log(tmp_path / "first.mcap", usual(0.5))).spec
    with DatasetWriter(root, spec) as writer:
        for number, rate in enumerate((30.0, 30.0, 15.0)):
            recording = Recording.read(write_log(tmp_path / f"{number}.mcap", usual(1.0, {"joints": 200.0, "front": rate, "wrist": 30.0})))
            recording.outcome, recording.dropped = ("", "success", "failure")[number], {"front": number}
            commit_log(writer, recording)
    left = write_log(root / "logs" / "cut.mcap", usual(0.5))
    summary = summarise(root, 1)
    assert (summary["episodes"], summary["in_dataset"], summary["outcomes"]) == (2, 3, {"success": 1, "failure": 1})
    front, joints = summary["sources"]["front"], summary["sources"]["joint_states"]
    assert (front["count"], front["dropped"]) == (45, 3) and front["rate"] == pytest.approx(15.0)
    assert front["largest_gap"] == pytest.approx(1 / 15) and joints["largest_gap"] == pytest.approx(0.005)
    assert summary["left"] == [str(left)]
    assert summarise(root, 1, [left])["left"] == []  # an earlier collection left it

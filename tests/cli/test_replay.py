"""Tests of ros_rl.cli.replay: which episode is played on what, and what is refused."""

import numpy as np
import pytest
from sample_episodes import SPEC, make_columns, make_videos

from ros_rl.cli.main import main
from ros_rl.cli.replay import Recorded
from ros_rl.data.dataset import DatasetWriter
from ros_rl.data.features import DatasetSpec
from ros_rl.robots.spec import load_robot

ARM = load_robot("arm")
ABOUT = {"task": "push_button", "seed": 4, "control_rate": 100.0, "command_mode": "position"}


@pytest.fixture
def root(tmp_path):
    spec = DatasetSpec.of(ARM, 10)
    with DatasetWriter(tmp_path / "set", spec) as writer:
        for about in (ABOUT, {}):
            writer.commit(make_columns(5, spec=spec), {}, "lift", recording=about)
    return tmp_path / "set"


def test_in_simulation_an_episode_is_played_from_its_own_reset_and_on_a_robot_from_where_it_stands(root):
    first, second = Recorded.read(root, 0), Recorded.read(root, 1)
    assert first.from_reset({}) and not second.from_reset({})
    given = first.arguments({}, 200.0)
    assert {key: given[key] for key in ("tasks", "seed", "lockstep", "control_rate")} == {
        "tasks": "push_button",
        "seed": "4",
        "lockstep": "true",
        "control_rate": "100.0",
    }
    assert first.arguments({"mode": "robot"}, 200.0) == {"tasks": "none", "robot": "arm", "mode": "robot"}
    assert not first.from_reset({"mode": "robot"}) and not first.from_reset({"tasks": "arm_circle"})
    assert first.arguments({"lockstep": "false"}, 100.0)["lockstep"] == "false"


def test_the_deviation_is_that_of_the_rows_and_names_the_joint(root):
    recorded = Recorded.read(root, 0)
    stamps = np.unique(recorded.stamps)
    order = np.searchsorted(recorded.stamps, stamps)
    assert recorded.compare(stamps, recorded.positions[order])["max_abs_difference"] == 0.0
    moved = recorded.positions[order].copy()
    moved[2, 3] += 0.25
    report = recorded.compare(stamps, moved)
    assert (report["max_abs_difference"], report["joint"], report["at"]) == (pytest.approx(0.25), ARM.measured_names[3], stamps[2])
    assert report["rms"] == pytest.approx(0.25 / np.sqrt(5 * len(ARM.measured_names)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{set}", "--episode", "7"], "has no episode 7, it has 0 to 1"),
        (["{tmp}"], "is no LeRobot dataset"),
        (["{set}", "policy:=arm_circle"], "policy:= is for 'ros-rl up'; here the recording takes its place"),
        (["{set}", "robot:=panda"], "was recorded with another robot: it has arm, the robot panda"),
        (["{set}", "robot:=cartpole"], "was recorded with another robot: it has arm, the robot cartpole"),
        (["{set}", "mode:=robot"], "a real robot is about to move and nobody can be asked; give --yes"),
        (["{set}", "mod:=robot"], "unknown argument 'mod', did you mean 'mode'?"),
        (["{theirs}"], "unknown joint"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(root, tmp_path, capsys, words, message):
    if words == ["{theirs}"]:
        spec = SPEC
        with DatasetWriter(tmp_path / "theirs", spec) as writer:
            writer.commit(make_columns(5, spec=spec), make_videos(5, spec=spec), "lift")
        message = f"was recorded with another commanded joints: it has {', '.join(spec.commanded)}, the robot joint1"
    assert main(["replay", *(word.format(tmp=tmp_path, set=root, theirs=tmp_path / "theirs") for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1

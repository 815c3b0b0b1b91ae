"""Tests of ros_rl.learning.tabletop_bench: the experts do every task of the suite once, and a measurement counts what it should."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ros_rl.errors import UserError
from ros_rl.learning.tabletop_bench import Players, episodes_of, markdown, measure, rows_of
from ros_rl.policies.action_tokens import Ranges
from ros_rl.policies.bundle import load_bundle, save_bundle
from ros_rl.policies.embedded_vla import EmbeddedConfig
from ros_rl.policies.vla import Parameters, VlaModel, spec_for
from ros_rl.robots.spec import load_robot
from ros_rl.sim.tabletop import SPLITS, load_split
from ros_rl.sim.task import load_task, suite_names

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def players():
    players = Players()
    yield players
    players.close()


@pytest.mark.parametrize("row", rows_of(["train", "long_horizon"]), ids=lambda row: row.task)
def test_the_expert_does_it(players, row):
    task, seed = episodes_of(row.items, 1)[0]
    played = players.play(task, seed)
    assert played.state.success, played.state.reason
    assert played.limited <= played.steps // 10


def test_the_experts_say_that_they_are_privileged():
    for name in ("tabletop_blocks", "tabletop_fixtures"):
        assert load_bundle(name).spec.privileged


def test_an_episode_repeats(players):
    row = rows_of(["train"], ["press_button"])[0]
    task, seed = episodes_of(row.items, 1)[0]
    runs = []
    for _ in range(2):
        seen: list[np.ndarray] = []
        players.play(task, seed, lambda step, seen=seen: seen.append(step.observation.joint_position))
        runs.append(np.array(seen))
    np.testing.assert_array_equal(*runs)


def test_episodes_are_spread_over_variants_and_wordings():
    items = [item for item in load_split("train") if item.family == "put_in_bowl"]
    episodes = episodes_of(items, 21)
    assert len({seed for _, seed in episodes}) == 21
    assert {task.name for task, _ in episodes[:3]} == {"put_in_bowl:red", "put_in_bowl:green", "put_in_bowl:blue"}
    assert {task.instruction for task, _ in episodes} == {item.task.instruction for item in items}


def test_a_measurement_counts_successes_and_names_failures(players):
    row = rows_of(["train"], ["press_button"])[0]
    short = replace(row, items=[replace(item, task=replace(item.task, time_limit=0.05)) for item in row.items])
    figures = measure(players, short, 2)
    assert (figures["success_rate"], figures["steps"], figures["variants"], figures["instructions"]) == (0.0, 20, 2, 14)
    assert [entry["task"] for entry in figures["failed"]] == ["press_button:green", "press_button:yellow"]
    assert figures["failed"][0]["reason"] == "time limit of 0.05 s"


def test_a_policy_that_reads_images_is_played_in_every_split(tmp_path):
    """With random weights it does nothing of use; what counts is that its cameras take images, which differ from decision to decision."""
    robot = load_robot("arm")
    torch.manual_seed(0)
    settings = Parameters(2, 0.1, list(robot.joint_names[:-1]), embedded=EmbeddedConfig([32, 32], "words", ["button"], width=32, layers=1))
    state = Ranges(robot.measured_names, np.full(len(robot.measured_names), -3.0), np.full(len(robot.measured_names), 3.0))
    action = Ranges(robot.joint_names, np.full(8, -0.1), np.full(8, 0.1))
    model = VlaModel.new(spec_for(robot, {"front": (128, 128), "hand": (128, 128)}, 2, 0.1), settings, state, action)
    save_bundle(tmp_path / "vla", model.to_bundle("vla", "random", {}, {}))
    players, seen = Players(policy=str(tmp_path / "vla")), []
    for row in rows_of(list(SPLITS), ["press_button", "press_two_buttons"]):
        task, seed = episodes_of(row.items, 1)[0]
        played = players.play(replace(task, time_limit=0.3), seed, lambda step: seen.append(step.observation.images))
        assert played.state.truncated and played.steps == 60
    players.close()
    assert len(seen) == 5 * 60 and all(set(images) == {"front", "hand"} for images in seen)
    assert len({images["hand"].tobytes() for images in seen}) > 10


def test_the_table_has_a_line_for_each_task_and_a_column_for_each_split():
    rows = [
        {"split": "train", "task": "lift", "success_rate": 0.96, "episodes": 50, "mean_duration": 4.0},
        {"split": "unseen_pairings", "task": "lift", "success_rate": 1.0, "episodes": 50, "mean_duration": 6.0},
        {"split": "train", "task": "slide", "success_rate": 1.0, "episodes": 50, "mean_duration": 6.26},
    ]
    assert markdown(rows).splitlines() == [
        "| task | train | unseen pairings | mean duration |",
        "|---|---|---|---|",
        "| `lift` | 96% of 50 | 100% of 50 | 5.0 s |",
        "| `slide` | 100% of 50 | – | 6.3 s |",
    ]


def test_the_page_names_every_task_with_its_variants_and_shows_what_was_measured():
    page = (ROOT / "docs" / "tabletop.md").read_text()
    for family in suite_names():
        assert f"| `{family}` |" in page
        for variant in load_task(family).variants:
            assert variant in page
    assert markdown(json.loads((ROOT / "docs" / "results" / "tabletop.json").read_text())["rows"]) in page


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="unknown task of the suite 'open_draw', did you mean 'open_drawer'"):
        rows_of(["train"], ["open_draw"])
    assert {row.task for row in rows_of(["train", "long_horizon"])} == set(suite_names())

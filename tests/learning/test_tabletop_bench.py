"""Tests of ros_rl.learning.tabletop_bench: the experts do every task of the suite once, and a measurement counts what it should."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ros_rl.errors import UserError
from ros_rl.learning.tabletop_bench import BatchPlayer, SerialPlayer, episodes_of, markdown, measure, player_for, rows_of
from ros_rl.policies.action_tokens import Ranges
from ros_rl.policies.bundle import load_bundle, save_bundle
from ros_rl.policies.embedded_vla import EmbeddedConfig
from ros_rl.policies.vla import Parameters, VlaModel, spec_for
from ros_rl.robots.spec import load_robot
from ros_rl.sim.tabletop import SPLITS, load_split
from ros_rl.sim.task import load_task, suite_names

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experts():
    experts = SerialPlayer(load_robot("arm"))
    yield experts
    experts.close()


@pytest.mark.parametrize("row", rows_of(["train", "long_horizon"]), ids=lambda row: row.task)
def test_the_expert_does_it(experts, row):
    task, seed = episodes_of(row.items, 1)[0]
    played = experts.play(task, seed)
    assert played.success, played.reason
    assert played.limited <= played.steps // 10


def test_the_experts_say_that_they_are_privileged():
    for name in ("tabletop_blocks", "tabletop_fixtures"):
        assert load_bundle(name).spec.privileged


def test_an_episode_repeats(experts):
    row = rows_of(["train"], ["press_button"])[0]
    task, seed = episodes_of(row.items, 1)[0]
    runs = []
    for _ in range(2):
        seen: list[np.ndarray] = []
        experts.play(task, seed, lambda step, seen=seen: seen.append(step.observation.joint_position))
        runs.append(np.array(seen))
    np.testing.assert_array_equal(*runs)


def test_episodes_are_spread_over_variants_and_wordings():
    items = [item for item in load_split("train") if item.family == "put_in_bowl"]
    episodes = episodes_of(items, 21)
    assert len({seed for _, seed in episodes}) == 21
    assert {task.name for task, _ in episodes[:3]} == {"put_in_bowl:red", "put_in_bowl:green", "put_in_bowl:blue"}
    assert {task.instruction for task, _ in episodes} == {item.task.instruction for item in items}


def test_a_measurement_counts_successes_and_names_failures(experts):
    row = rows_of(["train"], ["press_button"])[0]
    short = replace(row, items=[replace(item, task=replace(item.task, time_limit=0.05)) for item in row.items])
    figures = measure(experts, short, 2)
    assert (figures["success_rate"], figures["steps"], figures["variants"], figures["instructions"]) == (0.0, 20, 2, 14)
    assert [entry["task"] for entry in figures["failed"]] == ["press_button:green", "press_button:yellow"]
    assert figures["failed"][0]["reason"] == "time limit of 0.05 s"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A VLA with random weights: it does nothing of use."""
    robot = load_robot("arm")
    torch.manual_seed(0)
    settings = Parameters(2, 0.1, list(robot.joint_names[:-1]), embedded=EmbeddedConfig([32, 32], "words", ["button"], width=32, layers=1))
    state = Ranges(robot.measured_names, np.full(len(robot.measured_names), -3.0), np.full(len(robot.measured_names), 3.0))
    action = Ranges(robot.joint_names, np.full(8, -0.1), np.full(8, 0.1))
    model = VlaModel.new(spec_for(robot, {"front": (128, 128), "hand": (128, 128)}, 2, 0.1), settings, state, action)
    folder = tmp_path_factory.mktemp("bundle") / "vla"
    save_bundle(folder, model.to_bundle("vla", "random", {}, {"digest": "d"}))
    return folder


def test_the_cameras_that_a_policy_reads_take_images_in_every_split(bundle):
    one, seen = SerialPlayer(load_robot("arm"), load_bundle(bundle)), []
    for row in rows_of(list(SPLITS), ["press_button", "press_two_buttons"]):
        task, seed = episodes_of(row.items, 1)[0]
        played = one.play(replace(task, time_limit=0.3), seed, lambda step: seen.append(step.observation.images))
        assert played.reason == "time limit of 0.3 s" and played.steps == 60
    one.close()
    assert len(seen) == 5 * 60 and all(set(images) == {"front", "hand"} for images in seen)
    assert len({images["hand"].tobytes() for images in seen}) > 10


def test_a_vla_does_the_same_many_at_once_as_alone_behind_the_guard(bundle):
    """Its chunks of 0.2 s are whole numbers of frames, so that the images are those of the same moments."""
    alone, together = SerialPlayer(load_robot("arm"), load_bundle(bundle)), player_for(policy=str(bundle), copies=2)
    assert isinstance(together, BatchPlayer) and together.digest == "d"
    episodes = [episode for row in rows_of(["train"], ["press_button", "put_in_bowl"]) for episode in episodes_of(row.items, 4)]
    short = [(replace(task, time_limit=0.9), seed) for task, seed in episodes]
    task, seed = episodes_of(rows_of(["unseen_positions"], ["press_button"])[0].items, 1)[0]
    short.insert(1, (replace(task, time_limit=0.5), seed))  # of the same name, with other starts and another limit
    told: list[int] = []
    found = together.play_all(short, told.append)
    assert found == alone.play_all(short, lambda count: None)
    assert sum(told) == 9 and [one.steps for one in found] == [180, 100, *[180] * 7]
    assert {one.limited for one in found} != {0}
    together.close()
    alone.close()


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

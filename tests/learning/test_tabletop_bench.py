"""Tests of ros_rl.learning.tabletop_bench: the experts do every task of the suite once, and a measurement counts what it should."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.learning.tabletop_bench import Players, episodes_of, measure, rows_of
from ros_rl.policies.bundle import load_bundle
from ros_rl.sim.tabletop import load_split
from ros_rl.sim.task import suite_names


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


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="unknown task of the suite 'open_draw', did you mean 'open_drawer'"):
        rows_of(["train"], ["open_draw"])
    assert {row.task for row in rows_of(["train", "long_horizon"])} == set(suite_names())

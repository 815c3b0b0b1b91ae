"""Tests of ros_rl.learning.vla_results: what was measured of several policies becomes one table, or is refused."""

import json
from pathlib import Path

import pytest

from ros_rl.errors import UserError
from ros_rl.learning.vla_results import gather, main, markdown

ROOT = Path(__file__).parents[2]


def write(folder, stage, seed, rates, episodes=50):
    rows = [{"split": split, "task": task, "success_rate": rate, "failed": []} for (split, task), rate in rates.items()]
    (folder / f"{stage}_{seed}.json").write_text(json.dumps({"episodes": episodes, "digest": f"{stage}{seed}", "rows": rows}))


@pytest.fixture
def folder(tmp_path):
    for seed, rate in (("0", 0.5), ("1", 0.7)):
        write(tmp_path, "bc", seed, {("train", "slide"): rate, ("train", "lift"): 0.1, ("unseen_positions", "slide"): 0.2})
        write(tmp_path, "grpo", seed, {("train", "slide"): rate + 0.2, ("train", "lift"): 0.5, ("unseen_positions", "slide"): 0.3})
    return tmp_path


def test_rates_are_gathered_by_task_and_stage_and_averaged(folder):
    result = gather(folder)
    assert (result["episodes"], result["seeds"]) == (50, ["0", "1"])
    assert result["means"]["train"] == {"bc": [0.3, 0.4], "grpo": [0.6, 0.7]}
    assert result["digests"] == {"bc": ["bc0", "bc1"], "grpo": ["grpo0", "grpo1"]}
    assert markdown(result).splitlines() == [
        "| task | train | unseen positions |",
        "|---|---|---|",
        "| `lift` | 10 → 50 | – |",
        "| `slide` | 60 → 80 | 20 → 30 |",
        "| mean | 35 → 65 | 20 → 30 |",
        "| bc, seed by seed | 30, 40 | 20, 20 |",
        "| grpo, seed by seed | 60, 70 | 30, 30 |",
    ]


def test_what_was_not_measured_alike_is_refused(folder, tmp_path, capsys):
    (folder / "grpo_1.json").rename(folder / "grpo_2.json")
    with pytest.raises(UserError, match="has grpo of the seeds 0, 2, bc of 0, 1"):
        gather(folder)
    (folder / "grpo_2.json").rename(folder / "grpo_1.json")
    write(folder, "grpo", "1", {("train", "slide"): 0.9})
    with pytest.raises(UserError, match="'lift' in the split train was not measured for every stage and seed"):
        gather(folder)
    write(folder, "grpo", "1", {("train", "slide"): 0.9, ("train", "lift"): 0.5, ("unseen_positions", "slide"): 0.3}, episodes=10)
    with pytest.raises(UserError, match="different numbers of episodes, 10, 50"):
        gather(folder)
    (folder / "bc_0.json").write_text("{}")
    assert main([str(folder), str(tmp_path / "out.json")]) == 2
    assert "bc_0.json: holds no figures of ros-rl bench tabletop" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"holds no bc_<seed>.json"):
        gather(tmp_path / "empty")
    assert not (tmp_path / "out.json").exists()


def test_the_page_shows_what_was_measured():
    result = json.loads((ROOT / "docs/results/vla.json").read_text())
    assert markdown(result) in (ROOT / "docs/methods/vla.md").read_text()

"""Tests of ros_rl.learning.vla_results: what was measured of several policies becomes one table, or is refused."""

import json
from pathlib import Path

import pytest

from ros_rl.errors import UserError
from ros_rl.learning.vla_results import gather, main, markdown

ROOT = Path(__file__).parents[2]


def write(folder, stage, seed, rates, episodes=50, tokens="median"):
    failed = [{"task": "slide:left", "instruction": "slide", "seed": 3, "reason": reason} for reason in ("time limit of 15 s", "it fell")]
    rows = [{"split": split, "task": task, "success_rate": rate, "failed": failed} for (split, task), rate in rates.items()]
    (folder / f"{stage}_{seed}.json").write_text(
        json.dumps({"episodes": episodes, "digest": f"{stage}{seed}", "tokens": tokens, "rows": rows})
    )


@pytest.fixture
def folder(tmp_path):
    for seed, rate in (("0", 0.5), ("1", 0.7)):
        write(tmp_path, "bc", seed, {("train", "slide"): rate, ("train", "lift"): 0.1, ("unseen_positions", "slide"): 0.2})
        write(tmp_path, "grpo", seed, {("train", "slide"): rate + 0.2, ("train", "lift"): 0.5, ("unseen_positions", "slide"): 0.3})
    return tmp_path


def test_rates_are_gathered_by_task_and_stage_and_averaged(folder):
    result = gather(folder)
    assert (result["episodes"], result["tokens"], result["seeds"]) == (50, "median", ["0", "1"])
    assert result["means"]["train"] == {"bc": [0.3, 0.4], "grpo": [0.6, 0.7]}
    assert result["summary"]["train"]["bc"] == {"iqm": 0.35, "interval": [0.3, 0.4]}
    assert result["rows"][0]["failed"] == {stage: {"time limit of 15 s": 2, "it fell": 2} for stage in ("bc", "grpo")}
    assert result["digests"] == {"bc": ["bc0", "bc1"], "grpo": ["grpo0", "grpo1"]}
    assert markdown(result).splitlines() == [
        "| task | train | unseen positions |",
        "|---|---|---|",
        "| `lift` | 10 → 50 | – |",
        "| `slide` | 60 → 80 | 20 → 30 |",
        "| mean [95 % interval] | 35 [30, 40] → 65 [60, 70] | 20 [20, 20] → 30 [30, 30] |",
        "| bc, seed by seed | 30, 40 | 20, 20 |",
        "| grpo, seed by seed | 60, 70 | 30, 30 |",
    ]


def test_without_a_second_stage_the_table_is_of_the_first(folder):
    for path in folder.glob("grpo_*.json"):
        path.unlink()
    result = gather(folder)
    assert result["means"]["train"] == {"bc": [0.3, 0.4]} and result["digests"] == {"bc": ["bc0", "bc1"]}
    assert markdown(result).splitlines()[2:] == [
        "| `lift` | 10 | – |",
        "| `slide` | 60 | 20 |",
        "| mean [95 % interval] | 35 [30, 40] | 20 [20, 20] |",
        "| bc, seed by seed | 30, 40 | 20, 20 |",
    ]


def test_of_four_seeds_the_middle_two_count_and_one_has_no_interval(tmp_path):
    write(tmp_path, "bc", "0", {("train", "slide"): 0.1})
    write(tmp_path, "grpo", "0", {("train", "slide"): 0.4})
    assert "| mean | 10 → 40 |" in markdown(gather(tmp_path)).splitlines()
    for seed, rate in enumerate((0.2, 0.3, 1.0), 1):
        write(tmp_path, "bc", seed, {("train", "slide"): rate})
        write(tmp_path, "grpo", seed, {("train", "slide"): 0.4})
    result = gather(tmp_path)
    assert result["summary"]["train"]["bc"]["iqm"] == 0.25 and result["summary"]["train"]["grpo"] == {"iqm": 0.4, "interval": [0.4, 0.4]}
    low, high = result["summary"]["train"]["bc"]["interval"]
    assert 0.1 <= low < 0.25 < high <= 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": None}, "rows, episodes, digest or tokens"),
        ({"episodes": "50"}, "rows, episodes, digest or tokens"),
        ({"episodes": 0}, "rows, episodes, digest or tokens"),
        ({"digest": 7}, "rows, episodes, digest or tokens"),
        ({"rows": {}}, "rows, episodes, digest or tokens"),
        ({"rows": [3]}, "not subscriptable"),
        ({"success_rate": None}, "'slide' in the split 'train': success_rate must be from 0 to 1, got None"),
        ({"success_rate": "0.5"}, "success_rate must be from 0 to 1, got '0.5'"),
        ({"success_rate": float("nan")}, "success_rate must be from 0 to 1, got nan"),
        ({"success_rate": 1.2}, "success_rate must be from 0 to 1, got 1.2"),
        ({"split": "trian"}, "'slide' in the split 'trian': there is no such split"),
        ({"failed": [{"seed": 3}]}, "reason"),
        ({"failed": [{"reason": None}]}, "a failure has no reason"),
        ({"failed": 3}, "not iterable"),
        ({"task": 3}, "has no name"),
    ],
)
def test_a_file_that_the_bench_would_not_write_is_refused(folder, capsys, change, message):
    path = folder / "bc_0.json"
    file = json.loads(path.read_text())
    part = file if set(change) & set(file) else file["rows"][0]
    part.update(change)
    path.write_text(json.dumps(file))
    assert main([str(folder), str(folder / "out.json")]) == 2
    said = capsys.readouterr().err
    assert f"{path}: holds no figures of ros-rl bench tabletop" in said and message in said and said.count("\n") == 1
    assert not (folder / "out.json").exists()


def test_a_file_without_the_number_of_episodes_or_with_a_row_twice_is_refused(folder):
    path = folder / "bc_0.json"
    file = json.loads(path.read_text())
    path.write_text(json.dumps({**file, "rows": [*file["rows"], file["rows"][0]]}))
    with pytest.raises(UserError, match="a task of a split is there twice"):
        gather(folder)
    del file["episodes"]
    path.write_text(json.dumps(file))
    with pytest.raises(UserError, match="'episodes'"):
        gather(folder)


def test_a_policy_that_was_measured_twice_is_no_second_seed(folder):
    (folder / "grpo_1.json").write_text((folder / "grpo_0.json").read_text())
    with pytest.raises(UserError, match=r"grpo_0.json and grpo_1.json are of the same weights, grpo0; measure each policy once"):
        gather(folder)


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
    write(folder, "grpo", "1", {("train", "slide"): 0.9, ("train", "lift"): 0.5, ("unseen_positions", "slide"): 0.3}, tokens="mode")
    with pytest.raises(UserError, match="tokens chosen in different ways, median, mode"):
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

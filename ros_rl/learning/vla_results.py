"""Puts what `ros-rl bench tabletop --policy` measured of several policies, before and after post-training, into one table.

    python -m ros_rl.learning.vla_results out/vla docs/results/vla.json

The folder has a file for each stage and seed, <stage>_<seed>.json, such as bc_0.json and grpo_0.json; without any of grpo the table is
of bc alone.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ros_rl.errors import UserError
from ros_rl.learning.command import run_command
from ros_rl.learning.statistics import bootstrap_interval, interquartile_mean
from ros_rl.learning.training import save_json
from ros_rl.sim.tabletop import SPLITS

STAGES = ("bc", "grpo")


def gather(folder: Path) -> dict[str, Any]:
    """Returns what was measured, by split, task and stage.

    Returns:
        `rows`: for each split and task the success rates of a stage, a number for each seed, and how often episodes `failed` for which
        reason, all seeds together. `means`: of a split's tasks, for each seed. `summary`: of these the interquartile mean over the seeds,
        and from two seeds on its 95 % bootstrap interval.

    Raises:
        UserError: there are no files or one is wrong, files were not measured alike, or two of them are of the same weights.
    """
    files = {stage: paths for stage in STAGES if (paths := sorted(folder.glob(f"{stage}_*.json")))}
    seeds = {stage: [path.stem.removeprefix(f"{stage}_") for path in paths] for stage, paths in files.items()}
    if STAGES[0] not in seeds:
        raise UserError(f"{folder}: holds no {STAGES[0]}_<seed>.json; ros-rl bench tabletop --policy … --out writes them")
    first = seeds[STAGES[0]]
    for stage in files:
        if seeds[stage] != first:
            raise UserError(f"{folder}: has {stage} of the seeds {', '.join(seeds[stage])}, {STAGES[0]} of {', '.join(first)}")
    measured = {stage: [_read(path) for path in paths] for stage, paths in files.items()}
    episodes = {file["episodes"] for of_stage in measured.values() for file in of_stage}
    if len(episodes) > 1:
        raise UserError(f"{folder}: was measured with different numbers of episodes, {', '.join(map(str, sorted(episodes)))}")
    tokens = {file["tokens"] for of_stage in measured.values() for file in of_stage}
    if len(tokens) > 1:
        raise UserError(f"{folder}: was measured with tokens chosen in different ways, {', '.join(sorted(tokens))}")
    rows = _rows(measured, folder)
    means = _means(rows, list(files))
    summary = {split: {stage: _summary(values) for stage, values in of_split.items()} for split, of_split in means.items()}
    digests = {stage: [file["digest"] for file in of_stage] for stage, of_stage in measured.items()}
    twice = [name for name, count in Counter(name for names in digests.values() for name in names if name).items() if count > 1]
    if twice:
        those = [path.name for stage in files for path, name in zip(files[stage], digests[stage], strict=True) if name == twice[0]]
        raise UserError(f"{folder}: {' and '.join(those)} are of the same weights, {twice[0]}; measure each policy once")
    how = {"episodes": episodes.pop(), "tokens": tokens.pop()}
    return how | {"seeds": first, "digests": digests, "rows": rows, "means": means, "summary": summary}


def _rows(measured: dict[str, list[dict[str, Any]]], folder: Path) -> list[dict[str, Any]]:
    """Returns for each split and task the rates of every stage, and the reasons of its failures with their counts."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for stage, of_stage in measured.items():
        for row in (row for file in of_stage for row in file["rows"]):
            key = (row["split"], row["task"])
            entry = found.setdefault(key, {"split": key[0], "task": key[1], **{name: [] for name in measured}, "failed": {}})
            entry[stage].append(row["success_rate"])
            entry["failed"].setdefault(stage, Counter()).update(failure["reason"] for failure in row["failed"])
    seeds = len(measured[STAGES[0]])
    for row in found.values():
        if any(len(row[stage]) != seeds for stage in measured):
            raise UserError(f"{folder}: '{row['task']}' in the split {row['split']} was not measured for every stage and seed")
        row["failed"] = {stage: dict(reasons.most_common()) for stage, reasons in row["failed"].items()}
    return list(found.values())


def _read(path: Path) -> dict[str, Any]:
    """Returns what a file holds: number of episodes, digest, how tokens were chosen, and rows."""
    try:
        file = json.loads(path.read_text(encoding="utf-8"))
        rows, episodes, digest, tokens = file["rows"], file["episodes"], file.get("digest", ""), file.get("tokens", "")
        named = isinstance(digest, str) and isinstance(tokens, str)
        if not (isinstance(rows, list) and rows and isinstance(episodes, int) and episodes > 0 and named):
            raise ValueError("rows, episodes, digest or tokens")
        for row in rows:
            _check(row)
        keys = [(row["split"], row["task"]) for row in rows]
        if len(set(keys)) < len(keys):
            raise ValueError("a task of a split is there twice")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: holds no figures of ros-rl bench tabletop ({error})") from None
    return {"episodes": episodes, "digest": digest, "tokens": tokens, "rows": rows}


def _check(row: dict[str, Any]) -> None:
    """Refuses a row that `ros-rl bench tabletop` would not write."""
    rate, named = row["success_rate"], f"'{row['task']}' in the split '{row['split']}'"
    if not isinstance(row["task"], str):
        raise ValueError(f"task {named} has no name")
    if row["split"] not in SPLITS:
        raise ValueError(f"{named}: there is no such split")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not math.isfinite(rate) or not 0 <= rate <= 1:
        raise ValueError(f"{named}: success_rate must be from 0 to 1, got {rate!r}")
    if not all(isinstance(failure["reason"], str) for failure in row["failed"]):
        raise ValueError(f"{named}: a failure has no reason")


def _means(rows: Sequence[dict[str, Any]], stages: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Returns for each split and stage the mean over its tasks, a number for each seed."""
    means = {}
    for split in [split for split in SPLITS if any(row["split"] == split for row in rows)]:
        of_split = [row for row in rows if row["split"] == split]
        means[split] = {stage: [round(float(mean), 4) for mean in np.mean([row[stage] for row in of_split], axis=0)] for stage in stages}
    return means


def _summary(values: Sequence[float]) -> dict[str, Any]:
    """Returns the interquartile mean of a number for each seed; with two or more also its interval."""
    mean = {"iqm": round(float(interquartile_mean(np.array(values))), 4)}
    return mean if len(values) < 2 else mean | {"interval": [round(end, 4) for end in bootstrap_interval(np.array(values))]}


def markdown(result: dict[str, Any]) -> str:
    """Returns a table: a line for each task, a column for each split, per cent at each stage, as means over the seeds.

    The line over all tasks has the interquartile mean over the seeds, and of several seeds its 95 % bootstrap interval.
    """
    splits, stages = list(result["means"]), list(result["digests"])
    lines = ["| task | " + " | ".join(split.replace("_", " ") for split in splits) + " |", "|---" * (len(splits) + 1) + "|"]
    for task in sorted({row["task"] for row in result["rows"]}):
        of_task = {row["split"]: row for row in result["rows"] if row["task"] == task}
        lines.append(f"| `{task}` | " + " | ".join(_cell(of_task.get(split), stages) for split in splits) + " |")
    name = "mean [95 % interval]" if len(result["seeds"]) > 1 else "mean"
    summaries = (" → ".join(_shown(result["summary"][split][stage]) for stage in stages) for split in splits)
    lines.append(f"| {name} | " + " | ".join(summaries) + " |")
    for stage in stages:
        cells = [", ".join(f"{100 * value:.0f}" for value in result["means"][split][stage]) for split in splits]
        lines.append(f"| {stage}, seed by seed | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(of_stage: dict[str, Any] | None, stages: Sequence[str]) -> str:
    return "–" if of_stage is None else " → ".join(f"{100 * np.mean(of_stage[stage]):.0f}" for stage in stages)


def _shown(summary: dict[str, Any]) -> str:
    shown = f"{100 * summary['iqm']:.0f}"
    return shown if "interval" not in summary else shown + " [{:.0f}, {:.0f}]".format(*(100 * end for end in summary["interval"]))


def main(words: list[str]) -> int:
    """Writes the table of the folder that is named first into the file that is named second, and prints it; returns the exit code."""

    def run() -> None:
        if len(words) != 2:
            raise UserError("name the folder with the figures, and the file to write")
        result = gather(Path(words[0]))
        save_json(Path(words[1]), result)
        print(markdown(result))

    return run_command(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Puts what `ros-rl bench tabletop --policy` measured of policies before and after post-training into one table.

    python -m ros_rl.learning.vla_results out/vla docs/results/vla.json

The folder has a file for each stage and seed, <stage>_<seed>.json, such as bc_0.json and grpo_0.json.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ros_rl.errors import UserError
from ros_rl.learning.command import run_command
from ros_rl.learning.training import save_json
from ros_rl.sim.tabletop import SPLITS

STAGES = ("bc", "grpo")


def gather(folder: Path) -> dict[str, Any]:
    """Returns success rates by split, task and stage, a number for each seed, and their means over tasks.

    Raises:
        UserError: there are none, or stages and seeds were not measured alike.
    """
    files = {stage: sorted(folder.glob(f"{stage}_*.json")) for stage in STAGES}
    seeds = {stage: [path.stem.removeprefix(f"{stage}_") for path in paths] for stage, paths in files.items()}
    first = seeds[STAGES[0]]
    if not first:
        raise UserError(f"{folder}: holds no {STAGES[0]}_<seed>.json; ros-rl bench tabletop --policy … --out writes them")
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    digests: dict[str, list[str]] = {}
    episodes = set()
    for stage, paths in files.items():
        if seeds[stage] != first:
            raise UserError(f"{folder}: has {stage} of the seeds {', '.join(seeds[stage])}, {STAGES[0]} of {', '.join(first)}")
        for path in paths:
            measured = _read(path)
            episodes.add(measured["episodes"])
            digests.setdefault(stage, []).append(measured.get("digest", ""))
            for row in measured["rows"]:
                found.setdefault((row["split"], row["task"]), {}).setdefault(stage, []).append(row["success_rate"])
    rows = [{"split": split, "task": task, **of_stage} for (split, task), of_stage in found.items()]
    for row in rows:
        if any(len(row.get(stage, [])) != len(first) for stage in STAGES):
            raise UserError(f"{folder}: '{row['task']}' in the split {row['split']} was not measured for every stage and seed")
    if len(episodes) > 1:
        raise UserError(f"{folder}: was measured with different numbers of episodes, {', '.join(map(str, sorted(episodes)))}")
    return {"episodes": episodes.pop(), "seeds": first, "digests": digests, "rows": rows, "means": _means(rows)}


def _read(path: Path) -> dict[str, Any]:
    try:
        measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not measured["rows"] or not all({"split", "task", "success_rate"} <= set(row) for row in measured["rows"]):
            raise KeyError("rows")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: holds no figures of ros-rl bench tabletop ({error})") from None
    return measured


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Returns for each split and stage the mean over its tasks, a number for each seed."""
    means = {}
    for split in [split for split in SPLITS if any(row["split"] == split for row in rows)]:
        of_split = [row for row in rows if row["split"] == split]
        means[split] = {stage: [round(float(mean), 4) for mean in np.mean([row[stage] for row in of_split], axis=0)] for stage in STAGES}
    return means


def markdown(result: dict[str, Any]) -> str:
    """Returns a table: a line for each task, a column for each split, per cent before and after, as means over the seeds."""
    splits = list(result["means"])
    lines = ["| task | " + " | ".join(split.replace("_", " ") for split in splits) + " |", "|---" * (len(splits) + 1) + "|"]
    for task in sorted({row["task"] for row in result["rows"]}):
        of_task = {row["split"]: row for row in result["rows"] if row["task"] == task}
        lines.append(f"| `{task}` | " + " | ".join(_cell(of_task.get(split)) for split in splits) + " |")
    lines.append("| mean | " + " | ".join(_cell(result["means"][split]) for split in splits) + " |")
    for stage in STAGES:
        cells = [", ".join(f"{100 * value:.0f}" for value in result["means"][split][stage]) for split in splits]
        lines.append(f"| {stage}, seed by seed | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(of_stage: dict[str, Any] | None) -> str:
    return "–" if of_stage is None else " → ".join(f"{100 * np.mean(of_stage[stage]):.0f}" for stage in STAGES)


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

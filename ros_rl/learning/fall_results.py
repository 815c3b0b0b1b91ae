"""Turns what `ros_rl.learning.fall_ladder` has trained into one table, its claims and its figure."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ros_rl.errors import UserError
from ros_rl.learning.fall_ladder import METHODS, method_named, train
from ros_rl.learning.statistics import bootstrap_interval, interquartile_mean
from ros_rl.learning.training import save_json

_PASSED = 0.8  # of the best mean final return is the threshold
_FALLS = {"halfcheetah": 10.0, "ant": 10.0, "quadruped": 5.0}  # how many times fewer falls than PPO are claimed
_NOISE = 1.2  # by which the order of the ladder may be off


def bench(
    env: str, methods: Sequence[str], seeds: int, steps: int, recovery: str, folder: Path, only_trained: bool = False
) -> tuple[dict[str, Any], list[Path]]:
    """Trains what is missing and writes <folder>/<env>_<recovery>.json and .png; returns the table and the files.

    Raises:
        UserError: a name or number is wrong, or nothing is trained where nothing shall be.
    """
    names = list(methods) or list(METHODS)
    for name in names:
        method_named(name)
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    place = folder / env / recovery
    if only_trained:
        names = [name for name in names if all((place / f"{name}_{seed}.json").is_file() for seed in range(seeds))]
        if not names:
            raise UserError(f"{place} holds no method with {seeds} finished runs; run it without --only-trained")
    runs = {name: [train(env, name, seed, steps, recovery, folder) for seed in range(seeds)] for name in names}
    table = summary(env, runs)
    files = [folder / f"{env}_{recovery}.json", folder / f"{env}_{recovery}.png"]
    save_json(files[0], table)
    _draw(env, runs, table, files[1])
    return table, files


def _column(run: dict[str, Any], name: str) -> np.ndarray:
    return np.array([row[run["columns"].index(name)] for row in run["evaluations"]], float)


def falls_until(run: dict[str, Any], threshold: float) -> tuple[float, bool]:
    """Returns falls and stuck episodes until the return of the policy alone first reaches the threshold, and whether it ever does.

    A run that never does counts all of them.
    """
    falls = _column(run, "falls") + _column(run, "stuck")
    passed = np.flatnonzero(_column(run, "return") >= threshold)
    return (float(falls[passed[0]]), True) if passed.size else (float(falls[-1]), False)


def summary(env: str, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Returns the table: each figure with its runs one by one, their interquartile mean and its 95 % bootstrap interval.

    `threshold` is 80 % of the best mean final return of a method. Falls count episodes that got stuck as well.
    """
    final = {name: [_column(run, "return")[-1] for run in found] for name, found in runs.items()}
    threshold = _PASSED * max(float(np.mean(values)) for values in final.values())
    some = next(iter(runs.values()))[0]
    rows = {}
    for name, found in runs.items():
        until = [falls_until(run, threshold) for run in found]
        per_steps = [1e5 * (_column(run, "falls")[-1] + _column(run, "stuck")[-1]) / run["steps"] for run in found]
        rows[name] = {
            "falls_until_threshold": _figure([falls for falls, _ in until]),
            "passed": [passed for _, passed in until],
            "falls_per_100k_steps": _figure(per_steps),
            "falls": [_column(run, "falls")[-1] for run in found],
            "stuck": [_column(run, "stuck")[-1] for run in found],
            "final_return": _figure(final[name]),
        }
    table = {"env": env, "steps": some["steps"], "recovery": some["recovery"], "seeds": len(next(iter(runs.values())))}
    rescue = next((run["rescue_rate"] for found in runs.values() for run in found if run["rescue_rate"] is not None), None)
    return {**table, "rescue_rate": rescue, "threshold": threshold, "methods": rows, "claims": claims(env, some["recovery"], rows)}


def _figure(values: Sequence[float]) -> dict[str, Any]:
    array = np.array(values, float)
    low, high = bootstrap_interval(array)
    return {"iqm": float(interquartile_mean(array)), "interval": [low, high], "runs": [float(value) for value in array]}


def claims(env: str, recovery: str, rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Holds the table against what is said of SafeExplorer.

    Numbers were set before any training. That all runs of SafeExplorer must reach the threshold was added after a short one.

    Returns:
        for each claim that the trained methods allow to judge: `claim`, what was `measured` and whether it `holds`.
    """
    falls = {name: float(np.median(row["falls_until_threshold"]["runs"])) for name, row in rows.items()}
    found: list[tuple[str, Any, bool]] = []
    if {"ppo", "full"} <= rows.keys():
        times = falls["ppo"] / max(falls["full"], 1.0)
        claim = f"PPO falls at least {_FALLS[env]:g} times as often until the threshold, and all runs of SafeExplorer reach it"
        found.append((claim, round(times, 2), times >= _FALLS[env] and all(rows["full"]["passed"])))
        share = float(np.median(rows["full"]["final_return"]["runs"])) / float(np.median(rows["ppo"]["final_return"]["runs"]))
        found.append(("SafeExplorer's final return is at least 0.95 of PPO's", round(share, 3), share >= 0.95))
    ladder = ["full", "masked_value", "masked", "unmasked"]
    if set(ladder) <= rows.keys():
        counts = [falls[name] for name in ladder]
        ordered = all(one <= _NOISE * other for one, other in itertools.pairwise(counts))
        found.append(("falls grow from SafeExplorer over its ablations to the unmasked gradient, but for 20 %", counts, ordered))
    if {"ppo", "unmasked"} <= rows.keys():
        share = falls["unmasked"] / max(falls["ppo"], 1.0)
        found.append(("the unmasked gradient falls at least 0.3 times as often as PPO", round(share, 3), share >= 0.3))
    if recovery == "weak" and {"full", "unmasked", "recovery_rl"} <= rows.keys():
        passed = {name: rows[name]["passed"] for name in ("full", "unmasked", "recovery_rl")}
        holds = all(passed["full"]) and not (all(passed["unmasked"]) and all(passed["recovery_rl"]))
        found.append(("with the weak recovery all runs of SafeExplorer pass the threshold, and not all of the others", passed, holds))
    return [{"claim": claim, "measured": measured, "holds": bool(holds)} for claim, measured, holds in found]


def markdown(table: dict[str, Any]) -> str:
    """Returns the table as Markdown, a row for each method, then the claims."""
    lines = [
        "| method | falls until the threshold | runs that pass it | falls per 100,000 steps | final return |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, row in table["methods"].items():
        shown = [_with_interval(row[key]) for key in ("falls_until_threshold", "falls_per_100k_steps", "final_return")]
        passed = f"{sum(row['passed'])} of {len(row['passed'])}"
        lines.append(f"| {METHODS[name].label} | {shown[0]} | {passed} | {shown[1]} | {shown[2]} |")
    lines += ["", "| claim | measured | holds |", "| --- | --- | --- |"]
    lines += [f"| {entry['claim']} | {entry['measured']} | {'yes' if entry['holds'] else 'no'} |" for entry in table["claims"]]
    return "\n".join(lines)


def _with_interval(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['iqm']:.0f} ({low:.0f}–{high:.0f})"


def _draw(env: str, runs: dict[str, list[dict[str, Any]]], table: dict[str, Any], path: Path) -> None:
    """Return of the policy alone, and falls so far, over the steps: the mean of each method, its runs as thin lines."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for index, (name, found) in enumerate(runs.items()):
        steps = _column(found[0], "steps")
        for axis, curves in (
            (axes[0], [_column(run, "return") for run in found]),
            (axes[1], [_column(run, "falls") + _column(run, "stuck") for run in found]),
        ):
            colour = f"C{index}"
            for curve in curves:
                axis.plot(steps, curve, color=colour, lw=0.5, alpha=0.5)
            axis.plot(steps, np.mean(curves, axis=0), color=colour, lw=1.8, label=METHODS[name].label)
    axes[0].axhline(table["threshold"], color="grey", lw=0.8, ls="--")
    axes[0].set(xlabel="environment steps", ylabel="return of the policy alone", title=f"{env}, {table['recovery']} recovery")
    axes[1].set(xlabel="environment steps", ylabel="falls and stuck episodes so far")
    axes[1].set_yscale("symlog", linthresh=10.0)
    axes[1].set_ylim(bottom=0.0)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=90)
    plt.close(figure)

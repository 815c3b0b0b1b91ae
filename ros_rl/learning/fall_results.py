"""Turns what `ros_rl.learning.fall_ladder` has trained into one table, its claims and its figure."""

import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ros_rl.errors import UserError, named
from ros_rl.learning.fall_ladder import METHODS, place_of, train
from ros_rl.learning.statistics import bootstrap_interval, interquartile_mean
from ros_rl.learning.training import save_json

_PASSED = 0.8  # of the best mean final return is the threshold, of one above zero
_FALLS = {"halfcheetah": 10.0, "ant": 10.0, "quadruped": 5.0}  # how many times fewer falls than PPO are claimed
_RETURN = 0.95  # of PPO's final return is claimed
_NOISE = 1.2  # by which the order of the ladder may be off


def bench(
    env: str, methods: Sequence[str], seeds: int, steps: int, recovery: str, folder: Path, only_trained: bool = False
) -> tuple[dict[str, Any], list[Path]]:
    """Trains what is missing and writes <folder>/<env>_<recovery>.json and .png; returns the table and the files.

    Raises:
        UserError: a name or number is wrong, nothing is trained where nothing shall be, or what was trained is not comparable.
    """
    names = list(methods) or list(METHODS)
    for name in names:
        named("method", name, METHODS)
    if seeds < 1 or steps < 1:
        raise UserError(f"--seeds and --steps must be at least 1, got {seeds} and {steps}")
    if only_trained:
        done = [
            name
            for name in names
            if all(place_of(env, name, seed, recovery, folder).with_suffix(".json").is_file() for seed in range(seeds))
        ]
        if not done:
            raise UserError(f"{folder / env} holds no method with {seeds} finished runs; run it without --only-trained")
        if left := [name for name in names if name not in done]:
            print(f"left out, for not all of their {seeds} runs are finished: {', '.join(left)}", file=sys.stderr)
        names = done
    runs = {name: [train(env, name, seed, steps, recovery, folder) for seed in range(seeds)] for name in names}
    table = summary(env, recovery, runs)
    files = [folder / f"{env}_{recovery}.json", folder / f"{env}_{recovery}.png"]
    save_json(files[0], table)
    _draw(env, runs, table, files[1])
    return table, files


def _column(run: dict[str, Any], name: str) -> np.ndarray:
    return np.array([row[run["columns"].index(name)] for row in run["evaluations"]], float)


def falls_until(run: dict[str, Any], threshold: float) -> tuple[float, bool]:
    """Returns falls and stuck episodes until the return of the policy alone first reaches the threshold, and whether it ever does.

    A run that never does counts all of them, and so does one that broke down, whatever it had reached before.
    """
    falls = _column(run, "falls") + _column(run, "stuck")
    passed = np.flatnonzero(_column(run, "return") >= threshold)
    return (float(falls[passed[0]]), True) if passed.size and not run["failed"] else (float(falls[-1]), False)


def final_return(run: dict[str, Any]) -> float:
    """Returns what the last evaluation found, the last before its breakdown for a run that broke down; NaN if there was none."""
    returns = _column(run, "return")
    known = returns[np.isfinite(returns)]
    return float(known[-1]) if known.size else math.nan


def summary(env: str, recovery: str, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Returns the table: each figure with its runs one by one, their median, interquartile mean and its 95 % bootstrap interval.

    `threshold` is the best mean final return of a method less a fifth of its size. Falls count episodes that got stuck as well.
    `guard` is what the recovery policy came to and what was spent on it before the runs, which no run counts.
    """
    final = {name: [final_return(run) for run in found] for name, found in runs.items()}
    best = max(float(np.nanmean(values)) for values in final.values())
    threshold = best - (1.0 - _PASSED) * abs(best)
    rows = {}
    for name, found in runs.items():
        until = [falls_until(run, threshold) for run in found]
        per_steps = [1e5 * (_column(run, "falls")[-1] + _column(run, "stuck")[-1]) / run["steps"] for run in found]
        rows[name] = {
            "falls_until_threshold": _figure([falls for falls, _ in until]),
            "passed": [passed for _, passed in until],
            "failed": [run["failed"] for run in found],
            "falls_per_100k_steps": _figure(per_steps),
            "falls": [_column(run, "falls")[-1] for run in found],
            "stuck": [_column(run, "stuck")[-1] for run in found],
            "final_return": _figure(final[name]),
        }
    first = next(iter(runs.values()))
    guard = next((run["guard"] for found in runs.values() for run in found if run["guard"]), None)
    steps = max(run["steps"] for found in runs.values() for run in found)
    table = {"env": env, "steps": steps, "recovery": recovery, "seeds": len(first), "guard": guard}
    return {**table, "threshold": threshold, "methods": rows, "claims": claims(env, recovery, rows)}


def _figure(values: Sequence[float]) -> dict[str, Any]:
    array = np.array(values, float)
    low, high = bootstrap_interval(array)
    middle = {"median": float(np.median(array)), "iqm": float(interquartile_mean(array)), "interval": [low, high]}
    return {**middle, "runs": [float(value) for value in array]}


def claims(env: str, recovery: str, rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Holds the table against what is said of SafeExplorer.

    Numbers were set before any training. That all runs of SafeExplorer must reach the threshold was added after a short one.

    Returns:
        for each claim that the trained methods allow to judge: `claim`, what was `measured` and whether it `holds`.
    """
    falls = {name: max(row["falls_until_threshold"]["median"], 1.0) for name, row in rows.items()}  # ratios with less say nothing
    final = {name: row["final_return"]["median"] for name, row in rows.items()}
    found: list[tuple[str, Any, bool]] = []
    if {"ppo", "full"} <= rows.keys():
        times = falls["ppo"] / falls["full"]
        claim = f"PPO falls at least {_FALLS[env]:g} times as often until the threshold, and all runs of SafeExplorer reach it"
        found.append((claim, round(times, 2), times >= _FALLS[env] and all(rows["full"]["passed"])))
        wanted = final["ppo"] - (1.0 - _RETURN) * abs(final["ppo"])
        holds = final["full"] >= wanted and not any(rows["full"]["failed"])
        measured = f"{final['full']:.0f} beside {final['ppo']:.0f}"
        found.append(("SafeExplorer's final return is at least 0.95 of PPO's, and no run of it breaks down", measured, holds))
    ladder = ["full", "masked_value", "masked", "unmasked"]
    if set(ladder) <= rows.keys():
        counts = [falls[name] for name in ladder]
        ordered = all(one <= _NOISE * other for one, other in itertools.pairwise(counts))
        found.append(("falls grow from SafeExplorer over its ablations to the unmasked gradient, but for 20 %", counts, ordered))
    if {"ppo", "unmasked"} <= rows.keys():
        share = falls["unmasked"] / falls["ppo"]
        found.append(("the unmasked gradient falls at least 0.3 times as often as PPO", round(share, 3), share >= 0.3))
    if env == "ant" and recovery == "weak" and {"full", "unmasked", "recovery_rl"} <= rows.keys():
        passed = {name: rows[name]["passed"] for name in ("full", "unmasked", "recovery_rl")}
        holds = all(passed["full"]) and not (all(passed["unmasked"]) and all(passed["recovery_rl"]))
        found.append(("with the weak recovery all runs of SafeExplorer pass the threshold, and not all of the others", passed, holds))
    return [{"claim": claim, "measured": measured, "holds": bool(holds)} for claim, measured, holds in found]


def markdown(table: dict[str, Any]) -> str:
    """Returns the table as Markdown, a row for each method, then what the recovery policy cost, then the claims.

    A figure is the median of the runs, by which claims are judged; their interquartile mean; and in brackets its 95 % interval.
    """
    lines = [
        "| method | falls until the threshold | runs that pass it | falls per 100,000 steps | final return |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, row in table["methods"].items():
        shown = [_with_interval(row[key]) for key in ("falls_until_threshold", "falls_per_100k_steps", "final_return")]
        passed = f"{sum(row['passed'])} of {len(row['passed'])}"
        broken = "".join(f", one failed at step {failed['steps']}" for failed in row["failed"] if failed)
        lines.append(f"| {METHODS[name].label} | {shown[0]} | {passed}{broken} | {shown[1]} | {shown[2]} |")
    if guard := table["guard"]:
        spent = f"{guard['steps']} steps with {guard['falls']} falls were spent on the recovery policy before, in simulation"
        lines += ["", f"Beside these, {spent}. It rescues {guard['rescue_rate']:.0%}."]
    lines += ["", "| claim | measured | holds |", "| --- | --- | --- |"]
    lines += [f"| {entry['claim']} | {entry['measured']} | {'yes' if entry['holds'] else 'no'} |" for entry in table["claims"]]
    return "\n".join(lines)


def _with_interval(found: dict[str, Any]) -> str:
    median, iqm, low, high = (
        f"{value:.1f}" if abs(value) < 10.0 else f"{value:.0f}" for value in (found["median"], found["iqm"], *found["interval"])
    )
    return f"{median}; {iqm} ({low}–{high})"


def _draw(env: str, runs: dict[str, list[dict[str, Any]]], table: dict[str, Any], path: Path) -> None:
    """Return of the policy alone, and falls so far, over the steps: the mean of each method, its runs as thin lines.

    A run that broke down ends in a cross; the mean is drawn as far as all runs go.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for index, (name, found) in enumerate(runs.items()):
        for axis, columns in ((axes[0], ("return",)), (axes[1], ("falls", "stuck"))):
            curves = [(_column(run, "steps"), np.sum([_column(run, column) for column in columns], axis=0)) for run in found]
            for (steps, curve), run in zip(curves, found, strict=True):
                axis.plot(steps, curve, color=f"C{index}", lw=0.5, alpha=0.5)
                if run["failed"]:
                    axis.plot(steps[-2:], curve[-2:], "x", color=f"C{index}")
            common = min(len(steps) for steps, _ in curves)
            mean = np.mean([curve[:common] for _, curve in curves], axis=0)
            axis.plot(min((steps for steps, _ in curves), key=len), mean, color=f"C{index}", lw=1.8, label=METHODS[name].label)
    axes[0].axhline(table["threshold"], color="grey", lw=0.8, ls="--")
    axes[0].set(xlabel="environment steps", ylabel="return of the policy alone", title=f"{env}, {table['recovery']} recovery")
    axes[1].set(xlabel="environment steps", ylabel="falls and stuck episodes so far")
    axes[1].set_yscale("symlog", linthresh=10.0)
    axes[1].set_ylim(bottom=0.0)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=90)
    plt.close(figure)

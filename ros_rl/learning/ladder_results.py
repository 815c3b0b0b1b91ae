"""Turns what `ros_rl.learning.ladder` has trained into one table and its figures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ros_rl.errors import UserError, named
from ros_rl.learning.goal_tasks import VARIANTS, GoalTask, task_named
from ros_rl.learning.ladder import METHODS, read_result, train
from ros_rl.learning.minimal_weight import SAMPLES, compare
from ros_rl.learning.statistics import bootstrap_interval, interquartile_mean
from ros_rl.learning.training import save_json

_FEWER = ("sac", "simplex", "lagrangian", "autosafe")  # on the tasks beside the cart-pole
_ENDS = 0.1  # part of the training that "first" and "last" are means of
_FALL = "AutoSafe's mean weight falls at low conflict, from the end of the warm-up on"
_GROWTH = "AutoSafe's critic loss at high conflict is at most 1.25 times that at low conflict"


def bench(
    task_name: str, methods: Sequence[str], seeds: int, steps: int, folder: Path, only_trained: bool = False, minimal_weight: bool = False
) -> tuple[dict[str, Any], list[Path]]:
    """Trains what is missing and writes <folder>/<task>.json and its figures; returns the table and the files.

    With `minimal_weight` the table has the weights of the methods that mix beside the least that would do.

    Raises:
        UserError: a name or number is wrong, nothing is trained where nothing shall be, or what was trained is not comparable.
    """
    task = task_named(task_name)
    names = list(methods) or [name for name in METHODS if task.name == "cartpole" or name in _FEWER]
    for name in names:
        named("method", name, METHODS)
    if only_trained:
        files = {name: folder / task.name / f"{name}.json" for name in names}
        if missing := [name for name in methods if not files[name].is_file()]:
            raise UserError(f"{folder / task.name} holds no finished {', '.join(missing)}; run it without --only-trained")
        results = {name: read_result(path) for name, path in files.items() if path.is_file()}
        if not results:
            raise UserError(f"{folder / task.name} holds no finished method; run it without --only-trained")
    else:
        torch.set_num_threads(1)
        results = {name: train(task, name, seeds, steps, folder) for name in names}
    mixing = [name for name in results if METHODS[name].sharpness]
    if minimal_weight and not mixing:
        raise UserError(f"--minimal-weight compares what mixes a safe action in; {', '.join(results)} mixes none")
    _refuse_other_trainings({folder / task.name / f"{name}.json": result for name, result in results.items()})
    table = summary(task, results)
    table["claims"] = claims(table)
    if minimal_weight:
        table["minimal_weight"] = {name: {str(count): compare(task, name, folder, count) for count in SAMPLES} for name in mixing}
    path = folder / f"{task.name}.json"
    save_json(path, table)
    return table, [path, *figures(task, results, table, folder)]


def _refuse_other_trainings(results: dict[Path, dict[str, Any]]) -> None:
    """Methods are compared after equal steps, from equal seeds, beside the same prior."""
    (first, expected), *others = results.items()
    for path, found in others:
        for key in ("steps", "seeds", "prior"):
            if found[key] != expected[key]:
                raise UserError(f"{path} and {first} cannot be in one table: their {key} are {found[key]} and {expected[key]}")


def summary(task: GoalTask, results: dict[str, Any]) -> dict[str, Any]:
    """Returns, for each method and level of conflict, every figure with its runs one by one.

    `return` and `jump` are of the trained policy without noise, the mean of 20 episodes, in each variant of the plant; everything
    else is of the training. Values of runs are summarised by their interquartile mean and its 95 % bootstrap interval. "first" is
    the first tenth of the training after the warm-up, in which nothing is learnt; "last" is its last tenth.
    """
    some = next(iter(results.values()))
    return {
        "task": task.name,
        "steps": some["steps"],
        "seeds": len(set(some["seeds"])),
        "goals": dict(task.goals),
        "prior": some["prior"],
        "methods": {name: {level: _figures(result, level, task.args.warmup) for level in task.goals} for name, result in results.items()},
    }


def _figures(result: dict[str, Any], level: str, warmup: int) -> dict[str, Any]:
    mine = np.array([entry == level for entry in result["levels"]])
    training = {name: np.array(rows)[:, mine] for name, rows in result["training"].items()}
    ends = max(1, round(_ENDS * len(training["violations"])))
    found: dict[str, Any] = {
        **{name: training[name].sum(axis=0).astype(int).tolist() for name in ("violations", "exits", "interventions")},
        "training_jump": _summary(training["jump"].mean(axis=0)),
        "critic_loss_last": _summary(training["critic_loss"][-ends:].mean(axis=0)),
        "training_return_last": _summary(_late_returns(result, mine)),
    }
    for name in ("weight", "sharpness"):
        if name in training:
            learning = training[name][warmup // result["interval"] :]
            found[f"{name}_first"] = _summary(learning[:ends].mean(axis=0))
            found[f"{name}_last"] = _summary(training[name][-ends:].mean(axis=0))
    for variant, figures in result["evaluation"].items():
        per_run = {name: np.array(values)[mine] for name, values in figures.items()}
        found[variant] = {
            "return": _summary(per_run["return"]),
            "jump": _summary(per_run["jump"]),
            "violations": per_run["violations"].tolist(),
            "exits": per_run["exits"].tolist(),
        }
    return found


def _late_returns(result: dict[str, Any], mine: np.ndarray) -> np.ndarray:
    """Returns the mean return of the episodes that ended in the last tenth of the training, for each of some runs; NaN without any."""
    episodes = np.array(result["episodes"])
    late = episodes[episodes[:, 1] > (1 - _ENDS) * result["steps"]]
    return np.array([late[late[:, 0] == run, 2].mean() if (late[:, 0] == run).any() else np.nan for run in np.flatnonzero(mine)])


def _summary(values: np.ndarray) -> dict[str, Any]:
    low, high = bootstrap_interval(values)
    digits = [_rounded(value) for value in (float(interquartile_mean(values)), low, high)]
    return {"iqm": digits[0], "interval": digits[1:], "runs": [_rounded(value) for value in values]}


def _rounded(value: float) -> float | None:
    """Returns four digits of a number, or None for none: JSON has no NaN."""
    return None if np.isnan(value) else float(f"{value:.4g}")


_Claim = tuple[str, Any, bool]  # what is said, what was measured, whether it holds


def claims(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Holds the table against what AutoSafe is said to do; medians over the runs.

    The thresholds are those of the method's description and of the benchmark's plan. The one of 1.25 has no such source: it was
    set after a look at an unfinished training of AutoSafe, and so was that the weight falls from the end of the warm-up on.

    Returns:
        for each claim that the trained methods allow to judge: `claim`, what was `measured`, when its threshold was `set` ("before"
        any training, or "after a look") and whether it `holds`.
    """
    methods, found = table["methods"], list[_Claim]()
    if "sac" in methods and table["task"] == "cartpole":
        fewest = min(count for row in methods["sac"].values() for count in row["violations"])
        found.append(("every run of SAC has more than 20 violations", fewest, fewest > 20))
    if "autosafe" in methods:
        found += _claims_of_violations(table["task"], methods)
        found += _claims_of_autosafe(methods["autosafe"])
        found += _claims_of_returns(methods)
        for name in ("simplex", "cbf"):
            if name in methods:
                found += _claims_of_filter(METHODS[name].label, methods[name], methods["autosafe"])
    late = dict.fromkeys((_FALL, _GROWTH), "after a look")
    return [
        {"claim": claim, "measured": measured, "set": late.get(claim, "before"), "holds": bool(holds)} for claim, measured, holds in found
    ]


def _claims_of_violations(task: str, methods: dict[str, Any]) -> list[_Claim]:
    """None at all; of the quadruped, whose ellipsoid nothing proves, few against SAC's."""
    totals = {name: sum(sum(row["violations"]) for row in methods[name].values()) for name in ("autosafe", "sac") if name in methods}
    if task != "quadruped":
        return [("AutoSafe has no violation in training", totals["autosafe"], totals["autosafe"] == 0)]
    if not totals.get("sac"):
        return []
    share = totals["autosafe"] / totals["sac"]
    return [("AutoSafe's violations in training are at most 0.02 of SAC's", _short([share])[0], share <= 0.02)]


def _claims_of_autosafe(rows: dict[str, Any]) -> list[_Claim]:
    last, losses = _medians(rows, "weight_last"), _medians(rows, "critic_loss_last")
    low, growth = [_medians(rows, f"weight_{end}")[0] for end in ("first", "last")], losses[-1] / losses[0]
    return [
        ("AutoSafe's mean weight at the end grows with conflict", _short(last), bool((np.diff(last) > 0).all())),
        (_FALL, _short(low), low[1] < low[0]),
        (_GROWTH, *_short([growth]), growth <= 1.25),
    ]


def _claims_of_returns(methods: dict[str, Any]) -> list[_Claim]:
    """AutoSafe's return over that of the best of some others, at each level."""
    found = []
    for others, least, claim in (
        (("sac",), 0.95, "AutoSafe's return is at least 0.95 of SAC's"),
        (("sac", "lagrangian"), 1.0, "AutoSafe's return is at least that of the best soft baseline"),
        (("linear", "fixed_half", "fixed_full"), 0.97, "learned p: a return of at least 0.97 of the best fixed p's"),
    ):
        if set(others) <= methods.keys():
            best = np.max([_medians(methods[name], "nominal", "return") for name in others], axis=0)
            share = _medians(methods["autosafe"], "nominal", "return") / best
            found.append((claim, _short(share), bool(share.min() >= least)))
    return found


def _claims_of_filter(label: str, rows: dict[str, Any], autosafe: dict[str, Any]) -> list[_Claim]:
    losses = _medians(rows, "critic_loss_last")
    times = losses[-1] / _medians(autosafe, "critic_loss_last")[-1]
    share = _medians(rows, "nominal", "return")[-1] / _medians(autosafe, "nominal", "return")[-1]
    return [
        (f"{label}: critic loss at high conflict at least 10 times AutoSafe's", *_short([times]), times >= 10),
        (f"{label}: critic loss rises with conflict", _short(losses), bool((np.diff(losses) > 0).all())),
        (f"{label}: return at high conflict below AutoSafe's, its share of it", *_short([share]), share < 1.0),
    ]


def _medians(rows: dict[str, Any], *keys: str) -> np.ndarray:
    """Returns the median over the runs of a figure at each level."""
    found = []
    for row in rows.values():
        for key in keys:
            row = row[key]
        found.append(np.median(row["runs"]))
    return np.array(found)


def _short(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.3g}") for value in values]


def markdown(table: dict[str, Any]) -> str:
    """Returns the table as Markdown: a row for each method, a number for each level of conflict, low to high."""
    variants = [name for name in next(iter(next(iter(table["methods"].values())).values())) if name in VARIANTS]
    heads = [
        "method",
        *(f"return ({name})" for name in variants),
        "violations",
        "steps outside the ellipsoid",
        "action jump",
        "critic loss",
        "λ after the warm-up → last",
        "p, last",
    ]
    lines = [heads, ["---"] * len(heads)]
    for name, levels in table["methods"].items():
        rows = list(levels.values())
        cells = [METHODS[name].label]
        cells += [" / ".join(_with_interval(row[variant]["return"]) for row in rows) for variant in variants]
        cells += [" / ".join(f"{sum(row[count]):,}" for row in rows) for count in ("violations", "exits")]
        cells += [" / ".join(f"{row['training_jump']['iqm']:.2f}" for row in rows)]
        cells += [" / ".join(f"{row['critic_loss_last']['iqm']:.2g}" for row in rows)]
        mixed = [f"{row['weight_first']['iqm']:.2f} → {row['weight_last']['iqm']:.2f}" for row in rows if "weight_first" in row]
        sharp = [f"{row['sharpness_last']['iqm']:.2f}" for row in rows if "sharpness_last" in row]
        lines.append([*cells, " / ".join(mixed) or "–", " / ".join(sharp) or "–"])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    judged = [
        f"| {entry['claim']} | {_plain(entry['measured'])} | {entry['set']} | {'yes' if entry['holds'] else 'no'} |"
        for entry in table["claims"]
    ]
    parts = [text, "", "| claim | measured | threshold set | holds |", "| --- | --- | --- | --- |", *judged]
    return "\n".join([*parts, *_least_weights(table)])


def _least_weights(table: dict[str, Any]) -> list[str]:
    """Returns the lines of the table of weights, none if they were not asked for."""
    found = table.get("minimal_weight", {})
    if not found:
        return []
    names = ["weight", "minimal", "needed", "noise_where_needed"]
    heads = ["method", "samples of an estimate", "λ", "λ*", "steps with λ* > 0", "noise of λ* where it is needed"]
    lines = ["", "| " + " | ".join(heads) + " |", "| " + " | ".join(["---"] * len(heads)) + " |"]
    for method, by_samples in found.items():
        for samples, levels in by_samples.items():
            cells = [" / ".join("–" if row[name] is None else f"{row[name]:.2g}" for row in levels.values()) for name in names]
            lines.append("| " + " | ".join([METHODS[method].label, samples, *cells]) + " |")
    return lines


def _plain(measured: Any) -> str:
    return " / ".join(map(str, measured)) if isinstance(measured, list) else str(measured)


def _with_interval(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['iqm']:.0f} ({low:.0f}–{high:.0f})"


def figures(task: GoalTask, results: dict[str, Any], table: dict[str, Any], folder: Path) -> list[Path]:
    """Draws the ladder, the training and the mixing weight; returns the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    paths = [folder / f"{task.name}_{name}.png" for name in ("ladder", "training", "weight")]
    _draw_ladder(task, table, paths[0])
    _draw_training(task, results, paths[1])
    if not any("weight" in result["training"] for result in results.values()):
        return paths[:2]
    _draw_weight(task, results, paths[2])
    return paths


def _draw_ladder(task: GoalTask, table: dict[str, Any], path: Path) -> None:
    """One panel a figure, one row a method, one mark a level with its interval."""
    import matplotlib.pyplot as plt

    names = list(table["methods"])
    panels = {
        "return": lambda row: row["nominal"]["return"],
        "violations in training": lambda row: _summary(np.array(row["violations"], float)),
        "critic loss at the end": lambda row: row["critic_loss_last"],
        "action jump in training": lambda row: row["training_jump"],
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 1.2 + 0.42 * len(names)), sharey=True, layout="constrained")
    for axis, (title, read) in zip(axes, panels.items(), strict=True):
        for offset, level in zip((-0.22, 0.0, 0.22), task.goals, strict=True):
            rows = [read(table["methods"][name][level]) for name in names]
            middle, ends = np.array([row["iqm"] for row in rows]), np.array([row["interval"] for row in rows])
            spread = np.abs(ends.T - middle)
            axis.errorbar(middle, np.arange(len(names)) + offset, xerr=spread, fmt="o", ms=4, label=f"{level} conflict")
        axis.set_title(title, fontsize=10)
        axis.grid(axis="x", alpha=0.3)
    axes[1].set_xscale("symlog", linthresh=1.0)
    axes[1].set_xlim(left=-0.3)
    axes[2].set_xscale("log")
    axes[0].set_yticks(np.arange(len(names)), [METHODS[name].label for name in names])
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    _save(figure, path)


def _draw_training(task: GoalTask, results: dict[str, Any], path: Path) -> None:
    """Return and critic loss over the steps, a column for each level."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(task.goals), figsize=(13, 6.5), sharex=True, sharey="row", layout="constrained")
    colours = plt.get_cmap("tab20")
    for column, level in enumerate(task.goals):
        for index, (name, result) in enumerate(results.items()):
            mine = np.array([entry == level for entry in result["levels"]])
            style = {"color": colours(index), "label": METHODS[name].label, "lw": 2.2 if name == "autosafe" else 1.1}
            edges, returns = _return_curve(result, mine)
            axes[0, column].plot(edges, returns, **style)
            loss = np.array(result["training"]["critic_loss"])[:, mine]
            steps = result["steps"] - result["interval"] * np.arange(len(loss))[::-1]
            axes[1, column].plot(steps, np.median(loss, axis=1), **style)
        axes[0, column].set_title(f"{level} conflict", fontsize=10)
        axes[1, column].set_xlabel("steps")
        axes[1, column].set_yscale("log")
    axes[0, 0].set_ylabel("return in training, mean of runs")
    axes[1, 0].set_ylabel("critic loss, median of runs")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=4)
    _save(figure, path)


def _return_curve(result: dict[str, Any], mine: np.ndarray, points: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps, and the mean over the runs of each run's mean return of the episodes that ended in the interval before each.

    A run counts where it ended an episode; NaN where none did.
    """
    episodes = np.array(result["episodes"])
    edges = np.linspace(0, result["steps"], points + 1)
    place = np.digitize(episodes[:, 1], edges[1:], right=True)
    sums, counts = np.zeros((len(mine), points)), np.zeros((len(mine), points))
    np.add.at(sums, (episodes[:, 0].astype(int), place), episodes[:, 2])
    np.add.at(counts, (episodes[:, 0].astype(int), place), 1)
    means, ended = sums / np.maximum(counts, 1), (counts > 0) & mine[:, None]
    return edges[1:], np.where(ended.any(axis=0), (means * ended).sum(axis=0) / np.maximum(ended.sum(axis=0), 1), np.nan)


def _draw_weight(task: GoalTask, results: dict[str, Any], path: Path) -> None:
    """AutoSafe's mean weight and sharpness after the warm-up, a line for each run, the mean of a level in bold."""
    import matplotlib.pyplot as plt

    result = results["autosafe"] if "autosafe" in results else next(entry for entry in results.values() if "weight" in entry["training"])
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharex=True, layout="constrained")
    for axis, name in zip(axes, ("weight", "sharpness"), strict=True):
        values, skipped = np.array(result["training"][name]), task.args.warmup // result["interval"]
        steps = result["interval"] * (1 + np.arange(skipped, len(values)))
        values = values[skipped:]
        for index, level in enumerate(task.goals):
            mine = np.array([entry == level for entry in result["levels"]])
            axis.plot(steps, values[:, mine], color=f"C{index}", lw=0.6, alpha=0.5)
            axis.plot(steps, values[:, mine].mean(axis=1), color=f"C{index}", lw=2, label=f"{level} conflict")
        axis.set_xlabel("steps")
    axes[0].set_ylabel("mean weight λ of the safe action")
    axes[1].set_ylabel("mean sharpness p")
    axes[0].legend(fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=80)
    plt.close(figure)

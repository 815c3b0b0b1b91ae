"""An episode at a glance: frames of every camera over time, and plots of what was measured, sent and decided."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ros_rl.data.dataset import Dataset
from ros_rl.data.features import CAMERA_PREFIX

_COLUMNS = 8  # frames in the contact sheet
_LEGEND = 12  # joints that a legend names


def draw(dataset: Dataset, index: int) -> Figure:
    """Returns the picture of an episode.

    Raises:
        OSError: a file of the dataset cannot be read.
    """
    columns, spec = dataset.columns(index), dataset.spec
    rows = len(columns["frame_index"])
    time = columns["timestamp"].astype(float)
    plots = [plot for plot in (_positions, _rates, _decisions, _ages) if plot is not _ages or "age" in columns]
    heights = [1.1] * len(spec.cameras) + [1.6] * len(plots)
    with mpl.rc_context({"font.size": 8}):
        figure = Figure(figsize=(12, 1.2 * sum(heights) + 0.6), layout="constrained")
        grid = figure.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
        shown = np.unique(np.linspace(0, rows - 1, min(_COLUMNS, rows)).round().astype(int))
        for line, key in enumerate(spec.camera_keys):
            _contact_sheet(figure, grid, line, dataset, index, key, shown)
        for line, plot in enumerate(plots, len(spec.cameras)):
            axes = figure.add_subplot(grid[line, :])
            plot(axes, time, columns, dataset)
            axes.margins(x=0.005)
            axes.grid(alpha=0.3)
        axes.set_xlabel("time in the episode, s")
        episode = dataset.episodes[index]
        ending = f", {episode.outcome}" if episode.outcome else ""
        figure.suptitle(
            f"{spec.robot}, episode {index}: {', '.join(episode.tasks)} ({rows} rows, {rows / spec.fps:.1f} s{ending})", fontsize=10
        )
    return figure


def _contact_sheet(figure: Figure, grid: Any, line: int, dataset: Dataset, index: int, key: str, shown: np.ndarray) -> None:
    wanted = set(shown.tolist())
    images = {row: image for row, image in enumerate(dataset.frames(index, key)) if row in wanted}
    for column, row in enumerate(shown):
        axes = figure.add_subplot(grid[line, column])
        axes.imshow(images[int(row)])
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(f"{row / dataset.spec.fps:.2f} s", fontsize=7, pad=2)
        if column == 0:
            axes.set_ylabel(key.removeprefix(CAMERA_PREFIX))


def _positions(axes: Any, time: np.ndarray, columns: dict[str, np.ndarray], dataset: Dataset) -> None:
    """Measured positions, and where commands are positions of the same joints, those too."""
    state, action = columns["observation.state"], columns["action"]
    names = dataset.info["features"]["observation.state"]["names"] or range(state.shape[1])
    commanded = list(dataset.info["features"]["action"]["names"] or [])
    for i, name in enumerate(names):
        (line,) = axes.plot(time, state[:, i], lw=1.2, label=str(name))
        if name in commanded:
            axes.plot(time, action[:, commanded.index(name)], lw=0.9, ls=":", color=line.get_color())
    axes.set_ylabel("state (dotted:\naction)")
    if state.shape[1] <= _LEGEND:
        axes.legend(fontsize=6, ncols=2, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _rates(axes: Any, time: np.ndarray, columns: dict[str, np.ndarray], dataset: Dataset) -> None:
    """How fast the command changes."""
    axes.plot(time, np.gradient(columns["action"], time, axis=0) if len(time) > 1 else columns["action"] * 0, lw=0.8)
    axes.set_ylabel("change of the\naction, 1/s")


def _decisions(axes: Any, time: np.ndarray, columns: dict[str, np.ndarray], dataset: Dataset) -> None:
    """Who acted, what safety did, what was rewarded."""
    for key, label in (("safety_lambda", "safety λ"), ("next.reward", "reward")):
        if key in columns:
            axes.plot(time, columns[key], lw=1.0, label=label)
    if "intervention" in columns:
        axes.fill_between(time, 0, 1, where=columns["intervention"], step="mid", alpha=0.25, color="tab:red", label="intervention")
    for key, colour in (("next.success", "tab:green"), ("next.truncated", "tab:orange")):
        for moment in time[columns[key].astype(bool)] if key in columns else ():
            axes.axvline(moment, color=colour, label=key.removeprefix("next."))
    axes.set_ylabel("decisions")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _ages(axes: Any, time: np.ndarray, columns: dict[str, np.ndarray], dataset: Dataset) -> None:
    """How old the values of each row are."""
    for i, name in enumerate(dataset.info["features"]["age"]["names"]):
        axes.plot(time, 1e3 * columns["age"][:, i], lw=0.8, label=name)
    axes.set_ylabel("age, ms")
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))

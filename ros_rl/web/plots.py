"""Plots of the last seconds, each over a history of fixed length."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ros_rl.robots.spec import RobotSpec
from ros_rl.web.text import set_text, text
from ros_rl.web.view import View

if TYPE_CHECKING:
    import viser

_HEIGHT = 150  # px
_BLUE, _ORANGE, _GREY, _RED, _GREEN, _VIOLET = "#1f77b4", "#ff7f0e", "#b0b6bd", "#d62728", "#2ca02c", "#9467bd"
_COLOURS = (_BLUE, _ORANGE, _GREEN, _RED, _VIOLET, "#8c564b")
_NO_STATUS = "no status"
_MOST_VALUES = 16  # of a status of which every number is plotted


class History:
    """The newest rows of a table, with the time of each."""

    def __init__(self, columns: int, length: int):
        """Starts empty.

        Args:
            columns: values in a row.
            length: rows that are kept.
        """
        self._rows = np.full((length, 1 + columns), np.nan)
        self._count = 0

    def add(self, now: float, values: Sequence[float] | np.ndarray) -> None:
        """Adds a row; the oldest one goes when there are too many."""
        self._rows[self._count % len(self._rows)] = [now, *values]
        self._count += 1

    def clear(self) -> None:
        """Forgets everything."""
        self._count = 0

    def columns(self) -> tuple[np.ndarray, ...]:
        """Returns the times relative to the newest, at most 0 and ascending, then each column of values; all of one length."""
        start = self._count % len(self._rows)
        rows = self._rows[: self._count] if self._count <= len(self._rows) else np.roll(self._rows, -start, axis=0)
        times = rows[:, 0] - rows[-1, 0] if len(rows) else rows[:, 0]
        return (times, *(np.ascontiguousarray(column) for column in rows[:, 1:].T))


class _Chart:
    """A plot on the page; drawn anew when its lines become others."""

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle", seconds: float):
        self._gui = gui
        self._tab = tab
        # Of a plot that begins with a moment or two, the browser never finds the range by itself.
        self._range = (-seconds, 0.0)
        self._title: str | None = None
        self._lines: list[str] = []
        self._handle: Any = None

    def show(self, title: str, times: np.ndarray, lines: Mapping[str, tuple[str, np.ndarray]]) -> None:
        """Shows lines, each with a label, a colour and values."""
        if len(times) < 2:
            return
        data = (times, *(values for _, values in lines.values()))
        if self._handle is not None and (self._title, self._lines) == (title, list(lines)):
            self._handle.data = data
            return
        order = None
        if self._handle is not None:
            order = self._handle.order
            self._handle.remove()
        series = (
            {"label": "s"},
            *({"label": label, "stroke": colour, "width": 1.5, "points": {"show": False}} for label, (colour, _) in lines.items()),
        )
        with self._tab:
            self._handle = self._gui.add_uplot(
                data,
                series,  # type: ignore[arg-type]
                title=title,
                scales={"x": {"time": False, "auto": False, "range": self._range}},
                legend={"show": True, "live": False},
                height=_HEIGHT,
                order=order,
            )
        self._title, self._lines = title, list(lines)

    def hide(self) -> None:
        """Takes the plot away until it is shown again."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


class JointPanel:
    """Position and command of a joint that is chosen, with its limits."""

    period = 0.25  # s
    _SECONDS = 20.0

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle", spec: RobotSpec):
        """Makes room for the plots; they come with the first data."""
        self._spec = spec
        self._all = spec.joints + spec.passive
        self._positions = spec.command_mode == "position"
        self._commanded = False  # whether any command is known
        self._history = History(len(self._all) + len(spec.joints), round(self._SECONDS / self.period))
        with tab:
            self._choice = gui.add_dropdown("joint", spec.measured_names)
        self._position, self._command = (_Chart(gui, tab, self._SECONDS) for _ in range(2))

    def update(self, view: View, now: float) -> None:
        """Adds a moment and draws."""
        if view.joint_position is None:
            return
        row = np.concatenate([view.joint_position, np.zeros(len(self._spec.joints)) if view.command is None else view.command])
        if not np.isfinite(row).all():  # one such value, and the browser never finds a scale for the plot again
            return
        if self._commanded != (view.command is not None):
            self._commanded = view.command is not None
            self._history.clear()
        self._history.add(now, row)
        chosen = self._spec.measured_names.index(self._choice.value)
        joint = self._all[chosen]
        times, *columns = self._history.columns()
        commanded = columns[len(self._all) + chosen] if self._commanded and chosen < len(self._spec.joints) else None
        if joint.kind == "thruster":
            self._position.hide()
        else:
            lines = {"position": (_BLUE, columns[chosen])}
            if self._positions and commanded is not None:
                lines["command"] = (_ORANGE, commanded)
            unit = "m" if joint.kind == "prismatic" else "rad"
            self._position.show(f"{joint.name}, {unit}", times, lines | _limits(times, joint.lower, joint.upper))
        if self._positions or commanded is None:
            self._command.hide()
        else:
            lower, upper = (bound[chosen] for bound in self._spec.command_limits)
            lines = {"command": (_ORANGE, commanded)} | _limits(times, lower, upper)
            self._command.show(f"{joint.name}, commanded {self._spec.command_mode}", times, lines)

    def start_over(self) -> None:
        """Forgets the past."""
        self._history.clear()


def _limits(times: np.ndarray, lower: float, upper: float) -> dict[str, tuple[str, np.ndarray]]:
    return {label: (_GREY, np.full(len(times), bound)) for label, bound in (("lower", lower), ("upper", upper)) if math.isfinite(bound)}


class LoopPanel:
    """How the control loop keeps time, and what the guard did."""

    period = 1.0  # s, as the diagnostics come
    _SECONDS = 300.0
    _COUNTS: Mapping[str, str] = {"limited": _ORANGE, "rejected": _RED, "held": _VIOLET}

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle", spec: RobotSpec):
        """Makes room for the plots; they come with the first data."""
        self._nominal = 1e3 * spec.period
        self._loop = History(2, round(self._SECONDS / self.period))
        self._guard = History(len(self._COUNTS), round(self._SECONDS / self.period))
        self._counts: dict[str, float] | None = None
        self._charts = [_Chart(gui, tab, self._SECONDS) for _ in range(3)]

    def update(self, view: View, now: float) -> None:
        """Adds a moment and draws."""
        counts = {name: _number(view.hardware.get(name, "")) for name in (*self._COUNTS, "overruns")}
        if view.period is None or not all(map(math.isfinite, counts.values())):
            self._counts = None
            return
        before, self._counts = self._counts, counts
        if before is None:
            return
        # Counts start again from 0 with the hardware node.
        more = {name: max(counts[name] - before[name], 0.0) for name in counts}
        self._loop.add(now, [1e3 * view.period, more["overruns"]])
        self._guard.add(now, [more[name] for name in self._COUNTS])
        times, period, overruns = self._loop.columns()
        nominal = np.full(len(times), self._nominal)
        self._charts[0].show("control period, ms", times, {"mean": (_BLUE, period), "nominal": (_GREY, nominal)})
        self._charts[1].show("deadlines missed in 1 s", times, {"missed": (_RED, overruns)})
        times, *columns = self._guard.columns()
        lines = {name: (colour, values) for (name, colour), values in zip(self._COUNTS.items(), columns, strict=True)}
        self._charts[2].show("guard interventions in 1 s", times, lines)

    def start_over(self) -> None:
        """Forgets the past."""
        self._counts = None
        self._loop.clear()
        self._guard.clear()


class SafetyPanel:
    """Every number in the safety node's status, a plot for each; which there are depends on its filter."""

    period = 0.5  # s
    _SECONDS = 60.0

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle"):
        """Adds a line of text; plots come with the first numbers."""
        self._gui, self._tab = gui, tab
        with tab:
            self._text = gui.add_html(text(_NO_STATUS))
        self._histories: dict[str, History] = {}
        self._charts: dict[str, _Chart] = {}

    def update(self, view: View, now: float) -> None:
        """Adds a moment and draws."""
        words = [f"{name} {value}" for name, value in view.safety.items() if not math.isfinite(_number(value))]
        set_text(self._text, " · ".join(words) if view.safety else _NO_STATUS)
        numbers = {name: _number(value) for name, value in view.safety.items()}
        for name in [name for name, value in numbers.items() if math.isfinite(value)]:
            if name not in self._charts:
                if len(self._charts) == _MOST_VALUES:
                    continue
                self._histories[name] = History(1, round(self._SECONDS / self.period))
                self._charts[name] = _Chart(self._gui, self._tab, self._SECONDS)
            self._histories[name].add(now, [numbers[name]])
            times, values = self._histories[name].columns()
            colour = _COLOURS[list(self._charts).index(name) % len(_COLOURS)]
            self._charts[name].show(name, times, {name: (colour, values)})

    def start_over(self) -> None:
        """Forgets the past."""
        for history in self._histories.values():
            history.clear()


def _number(text: str) -> float:
    """Returns a number that was sent as text, nan for anything else."""
    try:
        return float(text)
    except ValueError:
        return math.nan

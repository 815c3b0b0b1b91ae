"""What a page shows: everything known of a robot at one moment, as plain data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


@dataclass(frozen=True, eq=False)
class View:
    """A robot at one moment; what is not known is None or missing.

    Attributes:
        silence: seconds since the last joint state came; None before the first.
        joint_position: of all measured joints in the order of `RobotSpec.measured_names`, shape (n + passive,), rad or m.
        command: the newest command sent to the hardware node in the robot's command mode, shape (n,).
        base_position: of a floating base's root link in the world by odometry, shape (3,), m.
        base_quat: attitude (w, x, y, z) of the IMU's link in the world, shape (4,).
        truth: simulator state by name, as `Observation.privileged`; empty on a robot.
        images: name of a camera to its newest image, shape (height, width, 3), uint8 RGB.
        hardware: values of the hardware node's diagnostics, as text by name.
        trouble: what the hardware node's diagnostics complain of; empty if of nothing.
        period: mean control period over the last second, s.
        safety: values of the safety node's status, as text by name, and its `filter`.
        nodes: name of a node to its lifecycle state.
        task: the newest task state.
        recorder: the newest status of a recorder.
        listening: whether a teleoperation node takes what a page says.
    """

    silence: float | None = None
    joint_position: np.ndarray | None = None
    command: np.ndarray | None = None
    base_position: np.ndarray | None = None
    base_quat: np.ndarray | None = None
    truth: Mapping[str, np.ndarray] = field(default_factory=dict)
    images: Mapping[str, np.ndarray] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    period: float | None = None
    safety: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    task: Mapping[str, object] = field(default_factory=dict)
    recorder: Mapping[str, object] = field(default_factory=dict)
    listening: bool = False


class Panel(Protocol):
    """A part of a page. `period`: seconds between two updates."""

    period: float

    def update(self, view: View, now: float) -> None:
        """Shows a moment; `now` is a monotonic time in s."""

    def start_over(self) -> None:
        """Forgets the past: a page was opened after a time in which nobody looked."""


Report = Callable[[str], None]
Action = Callable[[Report], None]  # returns at once, and reports in words what came of it


@dataclass(frozen=True)
class Actions:
    """What the buttons of a page do.

    Attributes:
        estop: latches the emergency stop.
        release: releases it; sets nothing in motion.
        start: starts policy and task.
        stop: stops both.
        record: begins, ends or judges an episode, given one of the words start, stop, success, failure and discard, and an instruction.
        reset: of the simulation; None where there is none.
        alarm: returns what the person must know before all else, empty if nothing; it may change before each report.
    """

    estop: Action
    release: Action
    start: Action
    stop: Action
    record: Callable[[str, str, Report], None]
    reset: Action | None = None
    alarm: Callable[[], str] = lambda: ""

"""Twists from elsewhere, as MoveIt Servo takes them: whoever publishes them is in control."""

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from ros_rl.errors import UserError, unknown
from ros_rl.hardware.interface import Observation
from ros_rl.teleop.device import Sample

Units = Literal["unitless", "speed_units"]


def check_release(on_release: str) -> None:
    """Refuses to hand the robot back when twists cease.

    Raises:
        UserError: that is what letting go is told to do.
    """
    if on_release == "hand_back":
        raise UserError("on_release:=hand_back is not for twist: a publisher that died would hand the robot to the policy; use hold")


class TwistInput:
    """The device; a node gives it the messages. Messages that stop coming are its dead-man switch."""

    name = "twist"
    has_switch = False

    def __init__(self, frames: Collection[str], units: Units, speed: float, turn: float, timeout: float):
        """
        Args:
            frames: the links that a message may name as its frame.
            units: ``unitless``: from -1 to 1, times `speed` and `turn`; ``speed_units``: m/s and rad/s.
            speed: m/s.
            turn: rad/s.
            timeout: s without a message after which the switch counts as let go.
        """
        self._frames = frames
        self._scale = np.repeat([speed, turn], 3) if units == "unitless" else np.ones(6)
        self._unitless = units == "unitless"
        self._timeout = timeout
        self._sample: Sample | None = None

    def open(self) -> None:
        """Forgets what came before."""
        self._sample = None

    def receive(self, frame: str, twist: Sequence[float], now: float) -> None:
        """Takes a message: its frame (empty: the root link), linear then angular velocity, and when it came, s.

        Raises:
            UserError: it is not finite, names no link, or is beyond 1 and unitless. The switch then counts as let go.
        """
        self._sample = None
        values = np.array(twist, dtype=float)
        if not np.isfinite(values).all():
            raise UserError(f"a twist is rejected, it is not finite: {values.tolist()}")
        if self._unitless and (np.abs(values) > 1.0 + 1e-9).any():
            raise UserError(f"a twist is rejected, unitless means from -1 to 1: {values.tolist()}; or set twist_units:=speed_units")
        if frame and frame not in self._frames:
            raise unknown("frame of a twist", frame, self._frames)
        self._sample = Sample(now, True, twist=values * self._scale, frame=frame)

    def read(self, observation: Observation, now: float) -> Sample | None:
        """Returns the last message, as long as it counts."""
        if self._sample is not None and now - self._sample.stamp > self._timeout:
            return Sample(now, False)
        return self._sample

    def close(self) -> None:
        """Does nothing."""

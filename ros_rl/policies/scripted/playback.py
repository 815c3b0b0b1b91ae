"""Plays recorded commands again."""

from collections.abc import Mapping

import numpy as np
import pydantic

from ros_rl.config import STRICT, Positive
from ros_rl.errors import UserError
from ros_rl.hardware.interface import NANOSECONDS, ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.interface import PolicySpec
from ros_rl.policies.scripted.contents import parameters
from ros_rl.policies.scripted.motion import PEAK, quintic
from ros_rl.robots.spec import CommandMode, RobotSpec

ARRIVAL = 0.1  # rad or m
_STRIDE = NANOSECONDS // 10  # by which a recording that began on its way goes on at most between two observations


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Parameters:
    """Settings of `Playback`.

    Attributes:
        from_reset: commands are due at their recorded stamps, counted from a reset of the simulation. Otherwise the robot is
            first brought to where the recording begins.
        approach: fraction of its velocity limit that the fastest joint reaches on the way there.
        arrival: how near every joint must be to there, rad (m), before the recording is played.
    """

    from_reset: bool
    approach: Positive = 0.2
    arrival: Positive = ARRIVAL


def playback_bundle(
    robot: str, joints: tuple[str, ...], mode: CommandMode, rate: float, stamps: np.ndarray, actions: np.ndarray, from_reset: bool
) -> Bundle:
    """Returns the bundle that plays commands again.

    Args:
        robot: that they were recorded of.
        joints: that they command, in order.
        mode: what they mean.
        rate: how often they are asked for, Hz.
        stamps: when each was sent, ns, shape (rows,).
        actions: the commands, shape (rows, joints).
        from_reset: see `Parameters`.
    """
    stamps, first = np.unique(np.asarray(stamps, dtype=np.int64), return_index=True)
    spec = PolicySpec(robot, joints, (), rate, 1, mode)
    tensors = {"stamps": stamps, "actions": np.asarray(actions, dtype=np.float64)[first]}
    training = {"command": "ros-rl replay", "revision": "", "data": ""}
    return Bundle("recording", "playback", "recorded", spec, {"from_reset": from_reset}, tensors, training)


class Playback:
    """Answers with the recorded command that is due: that of the observation's stamp, bit for bit.

    Between two recorded commands, positions go straight from one to the other; velocities and efforts keep the earlier one.
    Away from a reset, a time without observations is none of the recording's: it goes on where it was.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads parameters, ``stamps`` (rows,) in ns, rising, and ``actions`` (rows, joints).

        Raises:
            UserError: the bundle is incomplete, or a robot without position commands would have to be brought to a place.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        self._parameters = parameters(bundle, Parameters)
        self._stamps, self._actions = bundle.tensors.get("stamps"), bundle.tensors.get("actions")
        rows = 0 if self._stamps is None else len(self._stamps)
        if self._stamps is None or self._actions is None or rows == 0 or self._actions.shape != (rows, len(robot.joints)):
            raise UserError(f"bundle '{bundle.name}' needs tensors 'stamps' (rows,) and 'actions' (rows, {len(robot.joints)})")
        if (np.diff(self._stamps) <= 0).any() or not np.isfinite(self._actions).all():
            raise UserError(f"bundle '{bundle.name}': its stamps must rise and its actions be finite")
        if not self._parameters.from_reset and self.spec.command_mode != "position":
            mend = "it can be replayed from the reset of its own task only"
            raise UserError(f"robot '{robot.name}' takes {self.spec.command_mode} commands, which bring it to no place; {mend}")
        self._straight = self.spec.command_mode == "position"
        self._speed = self._parameters.approach * robot.velocity
        self.reset(0, "")

    def reset(self, seed: int, instruction: str) -> None:
        """Starts anew from wherever the robot is measured next."""
        self._began: int | None = 0 if self._parameters.from_reset else None
        self._first: tuple[int, np.ndarray] | None = None
        self._arrives = 0
        self._seen: int | None = None  # stamp of the last observation, ns
        self._paused = 0  # ns without observations

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the command that is due, in the robot's command mode."""
        now = self._clock(round(observation.stamp * NANOSECONDS))
        values = self._approach(observation, now) if self._began is None else self._at(now - self._began)
        return ActionChunk(self.spec.joint_names, values[None], 1.0 / self.spec.rate, observation.stamp, self._name)

    def report(self) -> Mapping[str, float]:
        """Returns `began` (s), the robot's time less that of the recording; before it is played, when the way to its beginning ends, s."""
        if self._began is not None:
            return {"began": (self._began + self._paused) / NANOSECONDS}
        return {} if self._first is None else {"arrives": (self._arrives + self._paused) / NANOSECONDS}

    def _clock(self, now: int) -> int:
        """Returns the robot's time without that in which nothing was observed, ns."""
        if not self._parameters.from_reset and self._seen is not None:
            self._paused += max(now - self._seen - max(_STRIDE, round(2 * NANOSECONDS / self.spec.rate)), 0)
        self._seen = now
        return now - self._paused

    def _approach(self, observation: Observation, now: int) -> np.ndarray:
        """Returns the next command on the way to the first recorded one."""
        assert self._stamps is not None and self._actions is not None
        measured, goal = observation.joint_position[: len(self._speed)], self._actions[0]
        if self._first is None:
            duration = max(PEAK * float(np.max(np.abs(goal - measured) / self._speed)), 1.0 / self.spec.rate)
            self._first, self._arrives = (now, measured), now + round(duration * NANOSECONDS)
        start, posture = self._first
        progress = (now - start) / (self._arrives - start)
        if progress >= 1.0 and np.abs(measured - goal).max() <= self._parameters.arrival:
            self._began = now - int(self._stamps[0])
        values: np.ndarray = posture + quintic(progress) * (goal - posture)
        return values

    def _at(self, time: int) -> np.ndarray:
        """Returns the command at a time of the recording, ns."""
        assert self._stamps is not None and self._actions is not None
        row = max(int(np.searchsorted(self._stamps, time, side="right")) - 1, 0)
        value: np.ndarray = self._actions[row]
        beyond = time - int(self._stamps[row])
        if not self._straight or beyond <= 0 or row + 1 == len(self._stamps):
            return value
        share = beyond / int(self._stamps[row + 1] - self._stamps[row])
        return value + share * (self._actions[row + 1] - value)

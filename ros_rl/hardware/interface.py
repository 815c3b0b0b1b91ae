"""The types that travel along the data path, and what every robot, simulated or real, offers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from ros_rl.errors import UserError
from ros_rl.robots.spec import RobotSpec

NANOSECONDS = 1_000_000_000


_Stamp = TypeVar("_Stamp", float, np.ndarray)


def quantise(stamp: _Stamp) -> _Stamp:
    """Rounds a time in s, or an array of them, to whole nanoseconds: so it survives the way through a ROS message bit for bit."""
    if isinstance(stamp, np.ndarray):
        return np.rint(stamp * NANOSECONDS) / NANOSECONDS
    return round(stamp * NANOSECONDS) / NANOSECONDS


@dataclass(frozen=True, eq=False)
class Observation:
    """What was measured at one moment.

    Joint arrays have the shape (n + passive,), in the order of `RobotSpec.measured_names`; rad and rad/s (m and m/s
    for prismatic joints), N·m (N). Fields that a robot does not measure are None. Of many simulated copies at once (see
    `ros_rl.sim.observe`), every array has the copies along a leading axis, and `stamp` is an array too.

    Attributes:
        stamp: when it was measured, in s, on the robot's clock (simulated time in simulation).
        base_quat: attitude of the base in the world, (w, x, y, z).
        base_gyro: angular velocity of the base, rad/s, in the IMU frame.
        base_acc: proper acceleration (gravity included, as an IMU reads it), m/s², in the IMU frame.
        base_position: position of the base in the world, m, from an odometry estimate.
        base_velocity: linear velocity of the base, m/s, in the world, from an odometry estimate.
        images: camera name to (height, width, 3) uint8 RGB; `image_stamps` tells when each was taken, s.
        command: target velocity (forward m/s, left m/s, turn rad/s), shape (3,).
        privileged: simulator state that no real robot has: name to float array. Empty outside simulation.
    """

    stamp: float
    joint_position: np.ndarray
    joint_velocity: np.ndarray
    joint_effort: np.ndarray
    base_quat: np.ndarray | None = None
    base_gyro: np.ndarray | None = None
    base_acc: np.ndarray | None = None
    base_position: np.ndarray | None = None
    base_velocity: np.ndarray | None = None
    images: Mapping[str, np.ndarray] = field(default_factory=dict)
    image_stamps: Mapping[str, float] = field(default_factory=dict)
    command: np.ndarray = field(default_factory=lambda: np.zeros(3))
    instruction: str = ""
    privileged: Mapping[str, np.ndarray] = field(default_factory=dict)

    def told(self, command: np.ndarray, instruction: str) -> "Observation":
        """Returns the same measurement with what the robot was told to do."""
        return replace(self, command=command, instruction=instruction)


@dataclass(frozen=True, eq=False)
class JointCommand:
    """One target for every commanded joint, in the robot's command mode.

    Attributes:
        joint_names: the joints that `values` speaks of, in any order; the guard maps them by name.
        values: shape (n,), SI units.
        stamp: stamp of the observation that this command answers, in s.
        source: who made it, for logs and diagnostics.
    """

    joint_names: tuple[str, ...]
    values: np.ndarray
    stamp: float
    source: str = ""

    def in_order_of(self, spec: RobotSpec) -> np.ndarray:
        """Returns the values in the order of a robot's joints, shape (n,).

        Raises:
            UserError: the joints are not those of the robot, or a value is not finite.
        """
        names = spec.joint_names
        order = _order(self.joint_names, names)
        if order is None:
            given = ", ".join(self.joint_names) or "none"
            raise UserError(f"joint names do not match: got {given}; robot '{spec.name}' has {', '.join(names)}")
        if np.shape(self.values) != order.shape:
            raise UserError(f"{len(names)} values are needed, got an array of shape {np.shape(self.values)}")
        values = np.asarray(self.values, dtype=float)[order]
        if not np.isfinite(values).all():
            bad = [name for name, value in zip(names, values, strict=True) if not np.isfinite(value)]
            raise UserError(f"the command for {', '.join(bad)} is not finite")
        return values


@lru_cache(maxsize=256)  # joints come in the same order again and again, up to 500 times a second
def _order(given: tuple[str, ...], wanted: tuple[str, ...]) -> np.ndarray | None:
    """Returns where in `given` each of the wanted names is, or None where the names are not the same."""
    return np.array([given.index(name) for name in wanted], dtype=int) if sorted(given) == sorted(wanted) else None


@dataclass(frozen=True, eq=False)
class ActionChunk:
    """A sequence of commands: `values` has the shape (T, n); row i is due `dt`·i after the observation's `stamp` (s)."""

    joint_names: tuple[str, ...]
    values: np.ndarray
    dt: float
    stamp: float
    source: str = ""

    def __len__(self) -> int:
        return len(self.values)


@runtime_checkable
class Robot(Protocol):
    """A robot to read from and write to. Units are SI on this side; a backend converts to what its hardware speaks."""

    spec: RobotSpec

    def connect(self) -> None:
        """Opens the connection and makes the measured position the target, so that nothing jumps.

        Raises:
            UserError: the robot that answers is not the one in `spec`; both sides are named.
            RobotFault: nothing answers.
        """

    def read(self) -> Observation:
        """Returns the newest measurement. Its arrays are the caller's: the robot does not change them later.

        Raises:
            RobotFault: the robot no longer answers, or its state is not finite.
        """

    def write(self, command: JointCommand) -> JointCommand:
        """Sends a command and returns the one that was really sent."""

    def step(self) -> None:
        """Advances to the next measurement: a simulation by one control period, a real robot by waiting for it.

        Raises:
            RobotFault: none comes, or the simulation diverged; the message names the time and the body.
        """

    def stop(self) -> None:
        """Brings the robot to rest: position control holds where it is, other modes send their `hold` command."""

    def close(self) -> None:
        """Stops the robot and ends the connection. May be called twice."""


@runtime_checkable
class SimulatedRobot(Robot, Protocol):
    """A robot in a simulated world, which can start over."""

    def reset(self, seed: int) -> None:
        """Starts a new episode at stamp 0 in an initial state drawn from `seed`."""

"""The types that travel along the data path, and what every robot, simulated or real, offers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from ros_rl.errors import UserError
from ros_rl.robots.spec import RobotSpec

NANOSECONDS = 1_000_000_000


def quantise(stamp: float) -> float:
    """Rounds a time in s to whole nanoseconds, so that it survives the way through a ROS message bit for bit."""
    return round(stamp * NANOSECONDS) / NANOSECONDS


@dataclass(frozen=True, eq=False)
class Observation:
    """What was measured at one moment.

    Joint arrays have the shape (n + passive,), in the order of `RobotSpec.measured_names`; rad and rad/s (m and m/s
    for prismatic joints), N·m (N). Fields that a robot does not measure are None.

    Attributes:
        stamp: when it was measured, in s, on the robot's clock (simulated time in simulation).
        base_quat: attitude of the base in the world, (w, x, y, z).
        base_gyro: angular velocity of the base, rad/s, in the IMU frame.
        base_acc: proper acceleration (gravity included, as an IMU reads it), m/s², in the IMU frame.
        base_position: position of the base in the world, m, from an odometry estimate.
        base_velocity: linear velocity of the base, m/s, in the world, from an odometry estimate.
        images: camera name to (height, width, 3) uint8 RGB.
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
        if sorted(self.joint_names) != sorted(names) or np.shape(self.values) != (len(names),):
            given = ", ".join(self.joint_names) or "none"
            raise UserError(f"robot '{spec.name}' takes one value for each of {', '.join(names)}; the command is for {given}")
        values = np.asarray(self.values, dtype=float)[[self.joint_names.index(name) for name in names]]
        if not np.isfinite(values).all():
            bad = [name for name, value in zip(names, values, strict=True) if not np.isfinite(value)]
            raise UserError(f"robot '{spec.name}': the command for {', '.join(bad)} is not finite")
        return values


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

    def stop(self) -> None:
        """Brings the robot to rest: position control holds where it is, other modes send their `hold` command."""

    def close(self) -> None:
        """Stops the robot and ends the connection. May be called twice."""


@runtime_checkable
class SimulatedRobot(Robot, Protocol):
    """A robot whose time the caller moves on."""

    def step(self) -> None:
        """Advances the simulation by one control period under the last written command.

        Raises:
            RobotFault: the simulation diverged; the message names the time and the body.
        """

    def reset(self, seed: int) -> None:
        """Starts a new episode at stamp 0 in an initial state drawn from `seed`."""

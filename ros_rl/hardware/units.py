"""Between SI units and what a joint's device counts in: degrees, encoder ticks or percent of the range."""

from dataclasses import dataclass, replace

import numpy as np

from ros_rl.hardware.interface import Observation
from ros_rl.robots.spec import CommandMode, RobotSpec


@dataclass(frozen=True, eq=False)
class UnitScale:
    """Converts joint by joint, so that a vector may mix units; joints whose device speaks SI stay as they are.

    Arrays have the shape (n + passive,), in the order of `RobotSpec.measured_names`. Efforts keep their unit, N·m or N:
    only their sign follows that of the device.

    Attributes:
        rate: device units per rad or m, negative where the device counts against the joint.
        zero: what the device reads at joint position 0.
        mode: of the robot's commands.
    """

    rate: np.ndarray
    zero: np.ndarray
    mode: CommandMode

    @classmethod
    def of(cls, spec: RobotSpec) -> "UnitScale | None":
        """Returns the scale of a robot behind a controller, or None when every device speaks SI."""
        devices = [joint.device for joint in spec.joints + spec.passive]
        if not any(devices):
            return None
        rate = np.array([device.rate if device else 1.0 for device in devices])
        return cls(rate, np.array([device.zero if device else 0.0 for device in devices]), spec.command_mode)

    @classmethod
    def of_servos(cls, spec: RobotSpec) -> "UnitScale":
        """Returns the scale of a robot whose joints have servos."""
        units = [servo.unit for servo in spec.servos]
        return cls(np.array([unit.rate for unit in units]), np.array([unit.zero for unit in units]), spec.command_mode)

    def to_device(self, command: np.ndarray) -> np.ndarray:
        """Converts a command, shape (..., n), from SI to device units."""
        rate, zero = self.rate[: command.shape[-1]], self.zero[: command.shape[-1]]
        if self.mode == "position":
            return command * rate + zero
        return command * (rate if self.mode == "velocity" else np.sign(rate))

    def position(self, device: np.ndarray) -> np.ndarray:
        """Converts a position command back, shape (..., n), from device units to SI."""
        count = device.shape[-1]
        return (device - self.zero[:count]) / self.rate[:count]

    def to_si(self, observation: Observation) -> Observation:
        """Converts the joints of an observation from device units to SI."""
        return replace(
            observation,
            joint_position=(observation.joint_position - self.zero) / self.rate,
            joint_velocity=observation.joint_velocity / self.rate,
            joint_effort=observation.joint_effort * np.sign(self.rate),
        )

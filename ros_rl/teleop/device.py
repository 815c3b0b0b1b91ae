"""What every device offers that a robot can be commanded with."""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from ros_rl.errors import RobotFault
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.model import Pose

Button = Literal["start", "success", "failure", "discard", "hand_back"]
BUTTONS: tuple[Button, ...] = get_args(Button)


class DeviceLost(RobotFault):
    """The device is gone: unplugged, or its terminal was closed."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The state of a device at one moment. At most one of `twist`, `pose` and `joints` is given.

    Attributes:
        stamp: when it was measured, s, on the monotonic clock of this machine.
        engaged: whether its dead-man switch is pressed.
        twist: linear (m/s) then angular (rad/s) velocity of the tool, shape (6,), in the axes of `frame`.
        frame: a link of the robot whose axes the twist is in; empty: the root link.
        pose: where the tool shall go, in the root link.
        joints: what the joints shall do, by name, in the robot's command mode.
        gripper: how far open the gripper shall be, 0 (closed) to 1; None: as it is.
        pressed: the buttons pressed since the last sample.
    """

    stamp: float
    engaged: bool
    twist: np.ndarray | None = None
    frame: str = ""
    pose: Pose | None = None
    joints: JointCommand | None = None
    gripper: float | None = None
    pressed: tuple[Button, ...] = ()


class Device(Protocol):
    """A keyboard, a gamepad, a leader arm, a script."""

    name: str
    has_switch: bool  # whether its dead-man switch can be seen let go; without one it is always engaged

    def open(self) -> None:
        """Makes the device ready, without what was typed or pressed before.

        Raises:
            UserError: it cannot be used here; says what would be right.
        """

    def read(self, observation: Observation, now: float) -> Sample | None:
        """Returns the newest state, None before the first.

        Args:
            observation: the robot's newest, which a scripted demonstrator answers.
            now: s, on the monotonic clock of this machine.

        Raises:
            DeviceLost: the device is gone.
        """

    def close(self) -> None:
        """Gives the device back as it was. May be called twice."""

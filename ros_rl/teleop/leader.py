"""A leader arm: a copy of the robot that a person moves; the robot follows it joint by joint, by name."""

import math
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic

from ros_rl.config import STRICT, Finite, fault, read_yaml
from ros_rl.errors import UserError, closest
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.spec import RobotSpec
from ros_rl.teleop.device import Sample


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class LeaderJoint:
    """How one joint of the leader becomes one of the robot.

    The robot's joint goes to `sign`·(reading − `offset`). With `stretch`, for a grip that has no position of its own, the
    `range` is stretched over the limits of the robot's joint instead, backwards for the sign -1.

    Attributes:
        joint: name of the robot's joint; empty: the same as the leader's.
        sign: -1 where the leader counts against the robot.
        offset: reading of the leader where the robot's joint is 0; rad (m).
        range: least and greatest reading that the leader can give; one outside is a fault of the device.
        stretch: see above.
    """

    range: Annotated[list[Finite], pydantic.Field(min_length=2, max_length=2)]
    joint: str = ""
    sign: Literal[1, -1] = 1
    offset: Finite = 0.0
    stretch: bool = False


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Calibration:
    """The contents of a calibration file: the joints of the leader by its own names."""

    robot: str
    joints: dict[str, LeaderJoint] = field(default_factory=dict)


def read_calibration(path: Path, spec: RobotSpec) -> Calibration:
    """Reads a calibration file.

    Raises:
        UserError: it is missing, or does not fit itself or the robot; the message begins with ``file:line``.
    """
    calibration = read_yaml(path, Calibration)
    if calibration.robot != spec.name:
        raise fault(path, ("robot",), f"the calibration is for robot '{calibration.robot}', this is '{spec.name}'")
    if spec.command_mode != "position":
        raise fault(path, ("robot",), f"robot '{spec.name}' takes commands of {spec.command_mode}, a leader arm tells positions")
    followed: dict[str, str] = {}
    for name, leader in calibration.joints.items():
        joint = leader.joint or name
        if joint not in spec.joint_names:
            known = ", ".join(spec.joint_names)
            raise fault(
                path, ("joints", name), f"robot '{spec.name}' has no joint '{joint}'{closest(joint, spec.joint_names)} (has: {known})"
            )
        if followed.setdefault(joint, name) != name:
            raise fault(path, ("joints", name), f"joint '{joint}' follows '{followed[joint]}' already")
        if leader.range[0] >= leader.range[1]:
            raise fault(path, ("joints", name, "range"), f"the range of '{name}' is empty: {leader.range}")
        limits = spec.joints[spec.joint_names.index(joint)]
        if leader.stretch and not (math.isfinite(limits.lower) and math.isfinite(limits.upper)):
            raise fault(path, ("joints", name, "stretch"), f"joint '{joint}' has no limits to stretch the range over")
        if leader.stretch and leader.offset != 0.0:
            raise fault(path, ("joints", name, "offset"), f"'{name}' is stretched over its range, which leaves nothing for an offset")
    missing = [name for name in spec.joint_names if name not in followed]
    if missing:
        raise fault(path, ("joints",), f"no joint of the leader moves {', '.join(missing)} of robot '{spec.name}'")
    return calibration


class LeaderArm:
    """The device; a node gives it the joint states of the leader's driver.

    The robot follows while they come and the dead-man switch is pressed, whose state has to come again and again too.
    """

    name = "leader"

    def __init__(self, calibration: Calibration, spec: RobotSpec, has_switch: bool):
        """Takes a calibration that fits the robot, and whether there is a switch; without one the leader is always engaged."""
        self._spec = spec
        self._calibration = calibration
        self._names = tuple(leader.joint or name for name, leader in calibration.joints.items())
        self.has_switch = has_switch
        self._switch: tuple[float, bool] | None = None  # when it was told, and whether it is pressed
        self._sample: Sample | None = None

    def open(self) -> None:
        """Forgets what came before."""
        self._sample = self._switch = None

    def switch(self, pressed: bool, now: float) -> None:
        """Takes the state of the dead-man switch, and when it came, s."""
        self._switch = (now, pressed)

    def receive(self, names: Sequence[str], positions: Sequence[float], now: float) -> None:
        """Takes a joint state of the leader, rad (m), in any order, and when it came, s.

        Raises:
            UserError: it lacks a joint, or one is not finite or out of its range. The robot then holds.
        """
        self._sample = None
        if len(names) != len(positions):
            raise UserError(f"the leader tells {len(names)} names and {len(positions)} positions")
        if twice := sorted({name for name in names if list(names).count(name) > 1} & set(self._calibration.joints)):
            raise UserError(f"the leader tells {', '.join(twice)} twice")
        readings = dict(zip(names, positions, strict=True))
        wanted = self._calibration.joints
        missing = [name for name in wanted if name not in readings]
        if missing:
            raise UserError(f"the leader lacks {', '.join(missing)}; it has {', '.join(names) or 'none'}, needed are {', '.join(wanted)}")
        values = np.array([self._follow(name, leader, readings[name]) for name, leader in wanted.items()])
        self._sample = Sample(now, True, joints=JointCommand(self._names, values, now))

    def read(self, observation: Observation, now: float) -> Sample | None:
        """Returns what the last joint state and the switch said; as old as the older of the two."""
        last = self._sample
        if last is None or (self.has_switch and self._switch is None):
            return None
        told, pressed = self._switch if self._switch is not None else (last.stamp, True)
        return Sample(min(last.stamp, told), pressed, joints=last.joints)

    def close(self) -> None:
        """Does nothing: the driver has the device."""

    def _follow(self, name: str, leader: LeaderJoint, reading: float) -> float:
        low, high = leader.range
        if not low <= reading <= high:  # written so that NaN is refused
            raise UserError(f"the leader's '{name}' reads {reading:.4f}, outside of its range {low:g} to {high:g}")
        if not leader.stretch:
            return leader.sign * (reading - leader.offset)
        joint = self._spec.joints[self._spec.joint_names.index(leader.joint or name)]
        share = (reading - low) / (high - low)
        return joint.lower + (joint.upper - joint.lower) * (share if leader.sign > 0 else 1.0 - share)

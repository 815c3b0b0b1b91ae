"""Gamepads and 3D mice: axes and buttons of a ROS joystick driver, by index, to a twist of the tool."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic

from ros_rl.config import STRICT, fault, read_yaml
from ros_rl.errors import UserError, unknown
from ros_rl.hardware.interface import Observation
from ros_rl.teleop.device import BUTTONS, Button, Sample

Direction = Literal["x", "y", "z", "roll", "pitch", "yaw"]
DIRECTIONS: tuple[Direction, ...] = ("x", "y", "z", "roll", "pitch", "yaw")
Index = Annotated[int, pydantic.Field(ge=0)]
_LINGER = 1.0  # s that a device without a dead-man button stays engaged after it was touched, long enough for a gripper to move
Share = Annotated[float, pydantic.Field(ge=0, lt=1)]


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Axis:
    """One axis of the driver and which way it counts."""

    index: Index
    sign: Literal[1, -1] = 1


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class JoyMapping:
    """What the axes and buttons of a device mean.

    Attributes:
        axes: by direction of the tool: x, y, z, roll, pitch, yaw, in the axes of `frame`.
        dead_man: button that must be held; None where the axes spring back: then touching any of them is it, for a second.
        gripper: button that opens a closed gripper and closes an open one.
        open, close: buttons that do one of the two.
        buttons: by what they do: start, success, failure, discard, hand_back.
        deadzone: deflection, as a share of the whole, that still counts as none.
        expo: share of the cube in the response, for a finer touch around the middle.
        frame: link in whose axes the tool moves; empty: the root link.
    """

    axes: dict[Direction, Axis]
    dead_man: Index | None = None
    gripper: Index | None = None
    open: Index | None = None
    close: Index | None = None
    buttons: dict[Button, Index] = field(default_factory=dict)
    deadzone: Share = 0.1
    expo: Share = 0.3
    frame: str = ""

    def deflections(self, axes: Sequence[float]) -> np.ndarray:
        """Returns how far each of `DIRECTIONS` is deflected, from -1 to 1, shape (6,)."""
        raw = np.zeros(len(DIRECTIONS))
        for direction, axis in self.axes.items():
            raw[DIRECTIONS.index(direction)] = axis.sign * axes[axis.index]
        # From 0 at the edge of the dead zone on, so that nothing jumps there.
        live = np.clip((np.abs(raw) - self.deadzone) / (1.0 - self.deadzone), 0.0, 1.0)
        return np.sign(raw) * ((1.0 - self.expo) * live + self.expo * live**3)


# The indices are those of the drivers `joy` (with a gamepad of the Xbox kind) and `spacenav`; both count to the left, up
# and against the clock as positive, as REP 103 does.
MAPPINGS: Mapping[str, JoyMapping] = {
    "gamepad": JoyMapping(
        axes={"x": Axis(1), "y": Axis(0), "z": Axis(4), "roll": Axis(6), "pitch": Axis(7), "yaw": Axis(3)},
        dead_man=5,
        open=1,
        close=0,
        buttons={"start": 7, "success": 3, "failure": 2, "discard": 6, "hand_back": 4},
    ),
    "spacemouse": JoyMapping(
        axes={"x": Axis(0), "y": Axis(1), "z": Axis(2), "roll": Axis(3), "pitch": Axis(4), "yaw": Axis(5)},
        gripper=0,
        buttons={"hand_back": 1},
        deadzone=0.05,
    ),
}


def read_mapping(name: str, frames: Collection[str]) -> JoyMapping:
    """Returns a mapping that ships, or reads one from a YAML file, for a robot with these links.

    Raises:
        UserError: there is no such mapping or file, or a mistake in it, named with its line.
    """
    if name in MAPPINGS:
        return MAPPINGS[name]
    path = Path(name)
    if not path.is_file():
        raise UserError(f"unknown joy_mapping '{name}' (known: {', '.join(sorted(MAPPINGS))}, or a path to a YAML file)")
    mapping = read_yaml(path, JoyMapping)
    indices = {key: getattr(mapping, key) for key in ("dead_man", "gripper", "open", "close")} | dict(mapping.buttons)
    seen: dict[int, str] = {}
    for key, index in indices.items():
        if index is not None and seen.setdefault(index, key) != key:
            where = ("buttons", key) if key in BUTTONS else (key,)
            raise fault(path, where, f"button {index} is '{seen[index]}' already, it cannot be '{key}' too")
    if not mapping.axes:
        raise fault(path, ("axes",), "no axis moves the tool")
    taken: dict[int, str] = {}
    for direction, axis in mapping.axes.items():
        if taken.setdefault(axis.index, direction) != direction:
            raise fault(path, ("axes", direction), f"axis {axis.index} is '{taken[axis.index]}' already, it cannot be '{direction}' too")
    if mapping.gripper is not None and (mapping.open, mapping.close) != (None, None):
        raise fault(path, ("gripper",), "either one button 'gripper', or 'open' and 'close'")
    if mapping.frame and mapping.frame not in frames:
        raise fault(path, ("frame",), str(unknown("frame", mapping.frame, frames)))
    return mapping


class Joy:
    """The device; a node gives it the messages of the driver."""

    name = "joy"
    has_switch = True

    def __init__(self, mapping: JoyMapping, speed: float, turn: float):
        """Takes the mapping, and the speeds at full deflection, m/s and rad/s."""
        self._mapping = mapping
        self._scale = np.repeat([speed, turn], 3)
        self._buttons: tuple[int, ...] | None = None  # of the last message
        self._sample: Sample | None = None
        self._pressed: list[Button] = []
        self._gripper: float | None = None  # asked for since the dead-man switch was pressed
        self._open = True  # what the gripper was told last
        self._touched = -np.inf  # s

    def open(self) -> None:
        """Forgets what came before."""
        self._buttons = self._sample = self._gripper = None
        self._pressed, self._touched, self._open = [], -np.inf, True

    def receive(self, axes: Sequence[float], buttons: Sequence[int], now: float) -> None:
        """Takes a message of the driver; `now` (s) is when it came.

        Raises:
            UserError: it has fewer axes or buttons than the mapping names, or an axis is not finite. The device then counts
                as let go.
        """
        self._sample = None
        mapping = self._mapping
        self._check(axes, buttons)
        deflections = mapping.deflections(axes)
        before = self._buttons if self._buttons is not None else tuple(buttons)
        newly = {index for index, (old, new) in enumerate(zip(before, buttons, strict=False)) if new and not old}
        self._buttons = tuple(buttons)
        self._pressed += [button for button, index in mapping.buttons.items() if index in newly]
        if deflections.any() or {mapping.gripper, mapping.open, mapping.close} & newly:
            self._touched = now
        if "hand_back" in self._pressed:
            self._touched = -np.inf
        engaged = bool(buttons[mapping.dead_man]) if mapping.dead_man is not None else now - self._touched <= _LINGER
        self._grip(newly, engaged)
        self._sample = Sample(now, engaged, twist=deflections * self._scale, frame=mapping.frame, gripper=self._gripper)

    def read(self, observation: Observation, now: float) -> Sample | None:
        """Returns what the last message said, and the buttons pressed since the last call."""
        if self._sample is None:
            return None
        pressed, self._pressed = tuple(self._pressed), []
        last = self._sample
        return Sample(last.stamp, last.engaged, twist=last.twist, frame=last.frame, gripper=last.gripper, pressed=pressed)

    def close(self) -> None:
        """Does nothing: the driver has the device."""

    def _grip(self, newly: set[int], engaged: bool) -> None:
        """Follows the buttons of the gripper, which mean nothing while the dead-man switch is let go, nor later on."""
        mapping = self._mapping
        if not engaged:
            self._gripper = None
        elif {mapping.gripper, mapping.open, mapping.close} & newly:
            self._open = mapping.open in newly or (mapping.gripper in newly and not self._open)
            self._gripper = float(self._open)

    def _check(self, axes: Sequence[float], buttons: Sequence[int]) -> None:
        mapping = self._mapping
        needed = max((axis.index for axis in mapping.axes.values()), default=-1) + 1
        named = [mapping.dead_man, mapping.gripper, mapping.open, mapping.close, *mapping.buttons.values()]
        pushed = max((index for index in named if index is not None), default=-1) + 1
        if len(axes) < needed or len(buttons) < pushed:
            raise UserError(
                f"a joy message has {len(axes)} axes and {len(buttons)} buttons, the mapping needs {needed} and {pushed}; "
                "another device wants another joy_mapping"
            )
        if not np.isfinite(np.asarray(axes, dtype=float)).all():
            raise UserError(f"a joy message has an axis that is not finite: {list(axes)}")

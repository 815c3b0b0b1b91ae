"""What a scripted expert does in a task, in steps that need no words: the plans of task files.

Lengths are in m, places in the world. Places, handles and buttons are those that the expert's bundle names.
"""

from typing import Annotated

import pydantic

from ros_rl.config import STRICT, Finite, Positive

_Vector2 = Annotated[list[Finite], pydantic.Field(min_length=2, max_length=2)]


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Put:
    """Brings an item to a place."""

    item: str
    place: str


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Stack:
    """Puts a block onto another one."""

    item: str
    support: str


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Beside:
    """Puts an item onto the table `offset` (x, y) from another object."""

    item: str
    other: str
    offset: _Vector2


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Lift:
    """Holds an item with its centre at `height`."""

    item: str
    height: Positive


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Push:
    """Pushes a block over the table, away from the robot, until its centre is at `x`."""

    item: str
    x: Finite


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Press:
    """Presses a button and lets go of it."""

    button: str


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Move:
    """Takes a handle and brings its joint to `to`, rad or m."""

    handle: str
    to: Finite


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Wipe:
    """Puts an item down at `start` and drags it to `end` (x, y)."""

    item: str
    start: _Vector2
    end: _Vector2


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Skill:
    """Exactly one of these."""

    put: Put | None = None
    stack: Stack | None = None
    beside: Beside | None = None
    lift: Lift | None = None
    push: Push | None = None
    press: Press | None = None
    move: Move | None = None
    wipe: Wipe | None = None

    def __post_init__(self) -> None:
        if len(self._given()) != 1:
            raise ValueError(f"a step of a plan is exactly one of {', '.join(self.__dataclass_fields__)}")

    @property
    def what(self) -> Put | Stack | Beside | Lift | Push | Press | Move | Wipe:
        """The one that it is."""
        return self._given()[0]

    def _given(self) -> list[Put | Stack | Beside | Lift | Push | Press | Move | Wipe]:
        return [entry for entry in (self.put, self.stack, self.beside, self.lift, self.push, self.press, self.move, self.wipe) if entry]

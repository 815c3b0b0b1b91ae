"""A page in a browser as a device: what the page's server says of the person in front of it."""

from typing import Annotated

import numpy as np
import pinocchio as pin
import pydantic

from ros_rl.config import STRICT, Finite
from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.model import Pose
from ros_rl.teleop.device import Button, DeviceLost, Sample

_Deflection = Annotated[float, pydantic.Field(ge=-1, le=1)]
_Share = Annotated[float, pydantic.Field(ge=0, le=1)]


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class PageState:
    """What a page says, as JSON.

    Attributes:
        engaged: whether its dead-man switch is pressed.
        reason: why it is not, where the person has not let go.
        pose: where the tool shall go, in the root link: x, y, z in m, then the quaternion w, x, y, z; None: nowhere.
        twist: linear then angular velocity in the axes of the root link, from -1 to 1 of the full speed; counts where there is no pose.
        gripper: how far open the gripper shall be, 0 (closed) to 1; None: as it is.
        hand_back: the person gives the robot back.
    """

    engaged: bool
    reason: str = ""
    pose: Annotated[list[Finite], pydantic.Field(min_length=7, max_length=7)] | None = None
    twist: Annotated[list[_Deflection], pydantic.Field(min_length=6, max_length=6)] | None = None
    gripper: _Share | None = None
    hand_back: bool = False

    def to_json(self) -> str:
        """Returns the state as `of_json` reads it."""
        return _STATE.dump_json(self).decode()

    @classmethod
    def of_json(cls, text: str) -> "PageState":
        """Reads a state.

        Raises:
            UserError: it is none; says what is wrong with it.
        """
        try:
            return _STATE.validate_json(text)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise UserError(f"what the page says is rejected, {place}: {first['msg']}") from None


_STATE = pydantic.TypeAdapter(PageState)


class Browser:
    """The device; a node gives it what the page's server says, which it says again and again while the switch is pressed.

    A page that fell silent in that time is lost: the person has to let go and press the switch anew.
    """

    name = "browser"
    has_switch = True

    def __init__(self, speed: float, turn: float, timeout: float):
        """
        Args:
            speed: of the tool at full deflection, m/s.
            turn: of its rotation, rad/s.
            timeout: s of silence after which the page is lost.
        """
        self._scale = np.repeat([speed, turn], 3)
        self._timeout = timeout
        self._said = PageState(False)
        self.open()

    def open(self) -> None:
        """Forgets what came before, but for a switch that is pressed: it has to be let go first."""
        self._lost = self._said.engaged
        self._said, self._came = PageState(False), -np.inf
        self._pressed: list[Button] = []

    def receive(self, text: str, now: float) -> None:
        """Takes what the page says; `now` (s) is when it came.

        Raises:
            UserError: it cannot be read. The switch then counts as let go, until it is.
        """
        self._notice_silence(now)
        try:
            self._said = PageState.of_json(text)
        except UserError:
            self._lost = True
            raise
        self._came = now
        self._lost = self._lost and self._said.engaged
        if self._said.hand_back:
            self._pressed.append("hand_back")

    def read(self, observation: Observation, now: float) -> Sample:
        """Returns what the page said last.

        Raises:
            DeviceLost: it fell silent while its switch was pressed, or was closed.
        """
        self._notice_silence(now)
        if self._lost:
            raise DeviceLost("its page fell silent; let go there, and take over anew")
        said = self._said
        if said.reason:
            raise DeviceLost(said.reason)
        pressed, self._pressed = tuple(self._pressed), []
        pose, twist = _pose(said.pose) if said.pose is not None else None, None
        if pose is None:
            twist = np.array(said.twist or [0.0] * 6) * self._scale
        return Sample(now, said.engaged, twist=twist, pose=pose, gripper=said.gripper, pressed=pressed)

    def close(self) -> None:
        """Does nothing: the page is another process's."""

    def _notice_silence(self, now: float) -> None:
        self._lost = self._lost or (self._said.engaged and not now - self._came <= self._timeout)


def _pose(values: list[float]) -> Pose:
    attitude = pin.Quaternion(*values[3:])
    if attitude.norm() < 0.5:
        raise UserError(f"the attitude to go to is no unit quaternion: {values[3:]}")
    return Pose(np.array(values[:3]), attitude.normalized().toRotationMatrix())

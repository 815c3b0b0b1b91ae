"""Scripted expert for an arm over a table: puts a block somewhere, if it has a gripper, or pushes a button.

It reads the true poses of the objects from the simulator, so it runs in simulation only: to test a bring-up, to make
demonstrations, and as the bound on what a policy that sees only images can reach.
"""

from collections.abc import Iterator

import numpy as np
import pydantic

from ros_rl.config import STRICT
from ros_rl.errors import UserError
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.scripted.arm_program import ArmProgram, Motion, Step, face, heading, raised
from ros_rl.policies.scripted.contents import parameters
from ros_rl.policies.scripted.instruction import parse
from ros_rl.robots.model import Pose
from ros_rl.robots.spec import RobotSpec

_SETTLED = 0.012  # m, in height


@pydantic.dataclasses.dataclass(config=STRICT)
class Place:
    """Where a block goes on or in an object: heights of its centre above that object's origin, m.

    Attributes:
        release: where the gripper opens.
        rest: where the block comes to rest.
        radius: how far from the object's vertical axis it may come to rest.
    """

    release: float
    rest: float
    radius: float


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters(Motion):
    """Settings of `ArmPickPlace` beside those of the motion, m.

    Attributes:
        bowl, block: how a block is put into the bowl, and onto another block.
        button: height of the released button's top above its origin.
        press: how far the button is pushed in.
    """

    bowl: Place
    block: Place
    button: float
    press: float


class ArmPickPlace(ArmProgram):
    """Expert with privileged object poses: a program of straight tool motions that looks again before each of them.

    A block is grasped across the two faces that need the least turn of the tool; when the grasp slips or the block does not
    end up where it should, the program starts over.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the parameters.

        Raises:
            UserError: the bundle is incomplete, or the robot has no tool frame.
        """
        self._parameters = parameters(bundle, Parameters)
        super().__init__(bundle, robot, self._parameters)

    def program(self, instruction: str) -> Iterator[Step]:
        """Returns the program for an instruction.

        Raises:
            UserError: the instruction is none that the expert can carry out, or needs a gripper that the robot lacks.
        """
        self._goal = parse(instruction)
        if self._goal.action == "push":
            return self._push()
        if self._gripper is None:
            raise UserError(f"robot '{self._robot.name}' has no gripper in its robot.yaml, which '{instruction}' needs")
        return self._put(self._parameters.bowl if self._goal.action == "put" else self._parameters.block)

    def _put(self, place: Place) -> Iterator[Step]:
        """Brings the item to its place, again and again until it is there; then stays."""
        fast, slow, clearance = self._parameters.speed, self._parameters.slow, self._parameters.clearance
        while True:
            while self._arrived(place):
                yield self._tool, self._open
            yield from self._pick()
            yield from self._carry(place.release + clearance, fast)
            yield from self._carry(place.release, slow)
            yield from self.wait(self._open)
            yield from self.move(raised(self._tool, clearance), self._open, fast)

    def _pick(self) -> Iterator[Step]:
        """Grasps the item and lifts it."""
        fast, slow, clearance = self._parameters.speed, self._parameters.slow, self._parameters.clearance
        yield from self.move(raised(self.grasp(self._goal.item), clearance), self._open, fast)
        yield from self.move(self.grasp(self._goal.item), self._open, slow)
        yield from self.wait(self._closed)
        yield from self.move(raised(self._tool, clearance), self._closed, fast)

    def _carry(self, height: float, speed: float) -> Iterator[Step]:
        """Brings the item to a height above the origin of what it is put on, m; ends early when it is lost."""
        for step in self.move(self._release(height), self._closed, speed):
            if not self.holds(self._goal.item):
                return
            yield step

    def _push(self) -> Iterator[Step]:
        """Pushes the button with closed fingers, again and again until it went in; then stays above it."""
        pressed = False
        while True:
            yield from self.move(self._over_button(self._parameters.clearance), self._closed, self._parameters.speed)
            while pressed:
                yield self._tool, self._closed
            yield from self.move(self._over_button(-self._parameters.press), self._closed, self._parameters.slow)
            yield from self.wait(self._closed)
            pressed = self._seen["privileged.button_press"][0] > 0.8 * self._parameters.press

    def _release(self, height: float) -> Pose:
        """Returns the tool pose that brings the held item's centre to a height above the origin of what it is put on, m."""
        tool, item, place = self.measured_tool(), self.object(self._goal.item), self.object(self._goal.place)
        yaw = heading(tool.rotation)
        if self._goal.action == "stack":
            yaw += face(place.rotation) - face(item.rotation)
        rotation = self.down(yaw)
        in_tool = tool.rotation.T @ (item.position - tool.position)
        target = place.position + [0.0, 0.0, height]
        return Pose(target - rotation @ in_tool, rotation)

    def _over_button(self, above: float) -> Pose:
        """Returns the tool pose with the fingertip `above` the top of the released button, m."""
        rotation = self.down(self._rest)
        target = self.object(self._goal.item).position + [0.0, 0.0, self._parameters.button + above]
        return Pose(target - rotation @ self._fingertip, rotation)

    def _arrived(self, place: Place) -> bool:
        """Whether the item rests at its place."""
        offset = self.object(self._goal.item).position - self.object(self._goal.place).position
        return bool(np.hypot(offset[0], offset[1]) <= place.radius and abs(offset[2] - place.rest) <= _SETTLED)

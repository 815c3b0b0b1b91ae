"""Scripted expert of the tabletop suite: does what the plan of a task says, whatever the words of its instruction.

It reads the true poses of the objects from the simulator, so it runs in simulation only: to make demonstrations, and as the
bound on what a policy that sees only images can reach. It understands no language: it knows the instructions of the suite
by heart, each with its plan.
"""

from collections.abc import Iterator

import numpy as np
import pydantic

from ros_rl.config import STRICT, Vector3
from ros_rl.errors import UserError, closest, unknown
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.scripted.arm_program import ArmProgram, Motion, Step, face, heading, raised
from ros_rl.policies.scripted.contents import parameters
from ros_rl.robots.model import Pose
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.plan import Beside, Lift, Move, Press, Push, Put, Skill, Stack, Wipe
from ros_rl.sim.tabletop import variants
from ros_rl.sim.task import suite_names

_SETTLED = 0.012  # m, in height
_BEHIND = 0.055  # m, from a block's centre to where the fingers come down before they push it
_TOUCHING = 0.0305  # m, from there to the fingers' centre while they push it


@pydantic.dataclasses.dataclass(config=STRICT)
class Place:
    """Where an item can be put, m.

    Attributes:
        offset: of the item's centre when it rests there; in the axes of the object `of`, else in the world.
        drop: how far above that the gripper opens.
        radius: how far beside it the item may come to rest.
        of: an object.
        handle: a handle that the place moves with.
    """

    offset: Vector3
    drop: float
    radius: float
    of: str | None = None
    handle: str | None = None


@pydantic.dataclasses.dataclass(config=STRICT)
class Handle:
    """What a joint of the scene is moved by.

    Attributes:
        of: object that it is part of.
        grasp: where the tool grasps it (or the fingertip presses it) when its joint is at 0, in the object's axes, m.
        axis: of the joint, in the object's axes.
        tolerance: how near the joint must be brought to where it shall be, rad (m).
        turns: whether the joint turns, about a vertical axis through the grasp.
    """

    of: str
    grasp: Vector3
    axis: Vector3
    tolerance: float
    turns: bool = False


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters(Motion):
    """Settings of `TabletopExpert` beside those of the motion.

    Attributes:
        places: where items can be put.
        handles: joint to its handle; a button is one too.
        half: half an edge of a block, m.
        press: how far a button is pushed in, m.
    """

    places: dict[str, Place]
    handles: dict[str, Handle]
    half: float
    press: float


class TabletopExpert(ArmProgram):
    """Carries out plans, step after step, and repeats a step until it has done what it should."""

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the parameters, and the tasks of the suite that name this bundle.

        Raises:
            UserError: the bundle is incomplete, or the robot has no tool frame or no gripper.
        """
        self._parameters = parameters(bundle, Parameters)
        super().__init__(bundle, robot, self._parameters)
        if self._gripper is None:
            raise UserError(f"robot '{robot.name}' has no gripper in its robot.yaml, which '{bundle.name}' needs")
        self._plans = known_plans(bundle.name, robot.name)

    def program(self, instruction: str) -> Iterator[Step]:
        """Returns the program for an instruction of the suite.

        Raises:
            UserError: it is none.
        """
        if instruction not in self._plans:
            raise UserError(f"'{self._name}' knows no instruction '{instruction}'{closest(instruction, self._plans)}")
        return self._carry_out(self._plans[instruction])

    def _carry_out(self, plan: tuple[Skill, ...]) -> Iterator[Step]:
        opening = self._open
        for skill in plan:
            for step in self._step(skill):
                opening = step[1]
                yield step
        while True:
            yield self._tool, opening

    def _step(self, skill: Skill) -> Iterator[Step]:
        match skill.what:
            case Put(item, place):
                return self._put(item, self._place(place), align=None)
            case Stack(item, support):
                onto = Place([0.0, 0.0, 2.0 * self._parameters.half], drop=0.001, radius=0.015, of=support)
                return self._put(item, onto, align=support)
            case Beside(item, other, offset):
                return self._put(item, Place([*offset, 0.0], drop=0.003, radius=0.02, of=other), align=None, level=True)
            case Lift(item, height):
                return self._lift(item, height)
            case Push(item, x):
                return self._push(item, x)
            case Press(button):
                return self._press(button)
            case Move(handle, to):
                return self._move_handle(handle, to)
            case Wipe(item, start, end):
                return self._wipe(item, np.array(start), np.array(end))

    def _put(self, item: str, place: Place, align: str | None, level: bool = False) -> Iterator[Step]:
        """Brings an item to a place, again and again until it is there.

        Args:
            item: what to bring.
            place: where to.
            align: an object whose faces the item's shall be parallel to.
            level: whether the place's offset is along the world's axes although it is counted from an object.
        """
        fast, slow, clearance = self._motion.speed, self._motion.slow, self._motion.clearance
        while not self._arrived(item, self._rest_of(place, level), place.radius):
            yield from self._pick(item)
            yield from self._carry(item, place, place.drop + clearance, fast, align, level)
            yield from self._carry(item, place, place.drop, slow, align, level)
            yield from self.wait(self._open)
            yield from self.move(raised(self._tool, clearance), self._open, fast)

    def _pick(self, item: str) -> Iterator[Step]:
        """Grasps an item and lifts it."""
        fast, slow, clearance = self._motion.speed, self._motion.slow, self._motion.clearance
        yield from self.move(raised(self.grasp(item), clearance), self._open, fast)
        yield from self.move(self.grasp(item), self._open, slow)
        yield from self.wait(self._closed)
        yield from self.move(raised(self._tool, clearance), self._closed, fast)

    def _carry(self, item: str, place: Place, above: float, speed: float, align: str | None, level: bool) -> Iterator[Step]:
        """Brings a held item to a height above where it shall rest, m; ends early when it is lost."""
        turn = face(self.object(align).rotation) - face(self.object(item).rotation) if align else 0.0
        yield from self._while_held(item, self._bringing(item, self._rest_of(place, level) + [0.0, 0.0, above], turn), speed)

    def _while_held(self, item: str, end: Pose, speed: float) -> Iterator[Step]:
        for step in self.move(end, self._closed, speed):
            if not self.holds(item):
                return
            yield step

    def _bringing(self, item: str, target: np.ndarray, turn: float = 0.0) -> Pose:
        """Returns the tool pose that brings a held item's centre to a place (m, root link's frame), turned by `turn`."""
        tool = self.measured_tool()
        rotation = self.down(heading(tool.rotation) + turn)
        in_tool = tool.rotation.T @ (self.object(item).position - tool.position)
        return Pose(target - rotation @ in_tool, rotation)

    def _lift(self, item: str, height: float) -> Iterator[Step]:
        """Holds an item up, forever."""
        while True:
            yield from self._pick(item)
            target = self.object(item).position.copy()
            target[2] = height - self._origin[2]
            yield from self._while_held(item, self._bringing(item, target), self._motion.speed)
            while self.holds(item):
                yield self._tool, self._closed

    def _push(self, item: str, x: float) -> Iterator[Step]:
        """Pushes a block ahead with closed fingers, again and again until it is there."""
        fast, slow, clearance = self._motion.speed, self._motion.slow, self._motion.clearance
        rotation = self.headed(self._rest)
        while self.object(item).position[0] < x - self._origin[0] - 0.005:
            behind = Pose(self.object(item).position - [_BEHIND, 0.0, 0.0], rotation)
            yield from self.move(raised(behind, clearance), self._closed, fast)
            yield from self.move(behind, self._closed, slow)
            target = behind.position.copy()
            target[0] = x - self._origin[0] - _TOUCHING
            yield from self.move(Pose(target, rotation), self._closed, slow)
            yield from self.move(raised(self._tool, clearance), self._closed, fast)

    def _press(self, button: str) -> Iterator[Step]:
        """Presses a button with closed fingers, again and again until it went in."""
        fast, slow, clearance, depth = self._motion.speed, self._motion.slow, self._motion.clearance, self._parameters.press
        pressed = False
        while not pressed:
            yield from self.move(self._over(button, clearance), self._closed, fast)
            yield from self.move(self._over(button, -depth), self._closed, slow)
            yield from self.wait(self._closed)
            pressed = self._joint(button) > 0.8 * depth
            yield from self.move(self._over(button, clearance), self._closed, fast)

    def _over(self, button: str, above: float) -> Pose:
        """Returns the tool pose with the fingertip `above` the top of the released button, m."""
        pose, handle = self._handle(button)
        rotation = self.headed(self._rest)
        return Pose(pose.position + pose.rotation @ handle.grasp + [0.0, 0.0, above] - rotation @ self._fingertip, rotation)

    def _move_handle(self, name: str, to: float) -> Iterator[Step]:
        """Grasps a handle and brings its joint to where it shall be, again and again until it is there."""
        fast, slow, clearance = self._motion.speed, self._motion.slow, self._motion.clearance
        while abs(self._joint(name) - to) > self._handle(name)[1].tolerance:
            yield from self.move(raised(self._grasp_of(name, self._joint(name)), clearance), self._open, fast)
            yield from self.move(self._grasp_of(name, self._joint(name)), self._open, slow)
            yield from self.wait(self._closed)
            yield from self.move(self._grasp_of(name, to), self._closed, slow)
            yield from self.wait(self._open)
            yield from self.move(raised(self._tool, clearance), self._open, fast)

    def _grasp_of(self, name: str, position: float) -> Pose:
        """Returns the tool pose that grasps a handle whose joint is at `position`."""
        pose, handle = self._handle(name)
        yaw = self._rest + heading(pose.rotation)
        if handle.turns:
            return Pose(pose.position + pose.rotation @ handle.grasp, self.headed(yaw + position * handle.axis[2]))
        return Pose(pose.position + pose.rotation @ (np.array(handle.grasp) + position * np.array(handle.axis)), self.headed(yaw))

    def _wipe(self, item: str, start: np.ndarray, end: np.ndarray) -> Iterator[Step]:
        """Drags an item over the table from one place to another, again and again until it lies there."""
        fast, slow, clearance = self._motion.speed, self._motion.slow, self._motion.clearance
        height = self.object(item).position[2]
        first, last = (np.array([*place, 0.0]) - [*self._origin[:2], -height] for place in (start, end))
        wiped = False
        while not (wiped and self._arrived(item, last, 0.03)):
            yield from self._pick(item)
            yield from self._while_held(item, self._bringing(item, first + [0.0, 0.0, clearance]), fast)
            yield from self._while_held(item, self._bringing(item, first), slow)
            wiped = self.holds(item) and self._arrived(item, first, 0.03)
            yield from self._while_held(item, self._bringing(item, last), slow)
            yield from self.wait(self._open)
            yield from self.move(raised(self._tool, clearance), self._open, fast)

    def _place(self, name: str) -> Place:
        if name not in self._parameters.places:
            raise unknown(f"place of '{self._name}'", name, self._parameters.places)
        return self._parameters.places[name]

    def _rest_of(self, place: Place, level: bool = False) -> np.ndarray:
        """Returns where an item's centre is when it rests at a place, m, root link's frame."""
        offset = np.array(place.offset)
        if place.of is None:
            return offset - self._origin
        pose = self.object(place.of)
        if place.handle is not None:
            offset = offset + self._joint(place.handle) * np.array(self._handle(place.handle)[1].axis)
        turned: np.ndarray = offset if level else pose.rotation @ offset
        return pose.position + turned

    def _handle(self, name: str) -> tuple[Pose, Handle]:
        """Returns the pose of the object that a handle is part of, and the handle."""
        if name not in self._parameters.handles:
            raise unknown(f"handle of '{self._name}'", name, self._parameters.handles)
        handle = self._parameters.handles[name]
        return self.object(handle.of), handle

    def _joint(self, name: str) -> float:
        return float(self._seen[f"privileged.{name}"][0])

    def _arrived(self, item: str, place: np.ndarray, radius: float) -> bool:
        """Whether an item rests at a place."""
        offset = self.object(item).position - place
        return bool(np.hypot(offset[0], offset[1]) <= radius and abs(offset[2]) <= _SETTLED)


def known_plans(bundle: str, robot: str) -> dict[str, tuple[Skill, ...]]:
    """Returns the plan of every instruction of the tasks in the suite that name a bundle for a robot.

    Raises:
        UserError: two tasks have the same instruction but other plans.
    """
    plans: dict[str, tuple[Skill, ...]] = {}
    for name in suite_names():
        if robot not in variants(name)[0].robots or variants(name, robot)[0].policy != bundle:
            continue
        for task in variants(name, robot):
            for text in (task.instruction, *task.paraphrases, *task.unseen.paraphrases):
                if plans.setdefault(text, task.plan) != task.plan:
                    raise UserError(f"{task.path}: '{text}' is the instruction of another task too, which has another plan")
    return plans

"""Scripted expert for an arm over a table: puts a block somewhere, if it has a gripper, or pushes a button.

It reads the true poses of the objects from the simulator, so it runs in simulation only: to test a bring-up, to make
demonstrations, and as the bound on what a policy that sees only images can reach.
"""

from collections.abc import Iterator

import numpy as np
import pinocchio as pin
import pydantic

from ros_rl.config import STRICT, Vector3
from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters
from ros_rl.policies.scripted.instruction import parse
from ros_rl.policies.scripted.motion import SteadyStateTrim, between, duration, quintic, tool_frame
from ros_rl.robots.ik import DifferentialIK
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.spec import RobotSpec

Step = tuple[Pose, float]  # where the tool shall be next, in the root link's frame, and the position of the gripper's joint

_HELD = 0.03  # m, from the tool's to the item's centre: less than the block and a finger measure together
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
class Parameters:
    """Settings of `ArmPickPlace`; lengths in m, times in s.

    Attributes:
        speed: greatest speed of the tool through the air, m/s.
        slow: greatest speed of the tool near objects, m/s.
        turn: greatest turn rate of the tool, rad/s.
        clearance: height of the tool above a grasp or place when it moves sideways.
        fingertip: where in the tool frame the point is that pushes a button.
        grip: time given to the gripper to close or open.
        bowl, block: how a block is put into the bowl, and onto another block.
        button: height of the released button's top above its origin.
        press: how far the button is pushed in.
        trim: gain of the integral action against sagging joints, 1/s.
        trim_limit: largest correction of a joint by it, rad.
        rotation_cost: of the inverse kinematics, m/rad, see `DifferentialIK`.
    """

    speed: float
    slow: float
    turn: float
    clearance: float
    fingertip: Vector3
    grip: float
    bowl: Place
    block: Place
    button: float
    press: float
    trim: float
    trim_limit: float
    rotation_cost: float


class ArmPickPlace:
    """Expert with privileged object poses: a program of straight tool motions that looks again before each of them.

    The tool points down throughout. A block is grasped across the two faces that need the least turn of the tool; when
    the grasp slips or the block does not end up where it should, the program starts over.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the parameters.

        Raises:
            UserError: the bundle is incomplete, or the robot has no tool frame.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        self._parameters = parameters(bundle, Parameters)
        self._fingertip = np.array(self._parameters.fingertip)
        self._dt = 1.0 / self.spec.rate
        self._robot = robot
        self._gripper = robot.joint_names.index(robot.gripper.joint) if robot.gripper else None
        self._open, self._closed = (robot.gripper.open, robot.gripper.closed) if robot.gripper else (0.0, 0.0)
        self._model = RobotModel(robot)
        self._frame = tool_frame(robot)
        self._ik = DifferentialIK(self._model, self._frame, rotation_cost=self._parameters.rotation_cost)
        self._origin = np.array(robot.base_position)
        self._rest = _heading(self._model.frame_pose(self._frame, robot.home).rotation)
        self._observations = ObservationBuilder(self.spec)

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode from wherever the arm is measured next; there is no randomness.

        Raises:
            UserError: the instruction is none that the expert can carry out, or needs a gripper that the robot lacks.
        """
        self._observations.reset()
        self._goal = parse(instruction)
        if self._goal.action != "push" and self._gripper is None:
            raise UserError(f"robot '{self._robot.name}' has no gripper in its robot.yaml, which '{instruction}' needs")
        self._trim = SteadyStateTrim(self._robot, self._parameters.trim, self._parameters.trim_limit)
        if self._goal.action == "push":
            self._program = self._push()
        else:
            self._program = self._put(self._parameters.bowl if self._goal.action == "put" else self._parameters.block)
        self._joints: np.ndarray | None = None

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the joint targets, rad (m)."""
        self._seen = self._observations.build(observation)
        measured = self._seen["joint_position"]
        if self._joints is None:
            self._joints = measured
            self._tool = self._model.frame_pose(self._frame, measured)
        self._tool, opening = next(self._program)
        joints = self._ik.step(self._joints, self._tool, self._dt)
        if self._gripper is not None:
            fingers = self._joints[self._gripper]
            most = self._robot.velocity[self._gripper] * self._robot.period  # as much as the guard lets through at once
            joints[self._gripper] = fingers + np.clip(opening - fingers, -most, most)
        self._joints = joints
        count = len(self.spec.joint_names)
        command = self._trim.command(self._joints[:count], measured[:count], self._dt)
        return ActionChunk(self.spec.joint_names, command[None], self._dt, observation.stamp, self._name)

    def _put(self, place: Place) -> Iterator[Step]:
        """Brings the item to its place, again and again until it is there; then stays."""
        fast, slow, clearance = self._parameters.speed, self._parameters.slow, self._parameters.clearance
        while True:
            while self._arrived(place):
                yield self._tool, self._open
            yield from self._pick()
            yield from self._carry(place.release + clearance, fast)
            yield from self._carry(place.release, slow)
            yield from self._wait(self._open)
            yield from self._move(_raised(self._tool, clearance), self._open, fast)

    def _pick(self) -> Iterator[Step]:
        """Grasps the item and lifts it."""
        fast, slow, clearance = self._parameters.speed, self._parameters.slow, self._parameters.clearance
        yield from self._move(_raised(self._grasp(), clearance), self._open, fast)
        yield from self._move(self._grasp(), self._open, slow)
        yield from self._wait(self._closed)
        yield from self._move(_raised(self._tool, clearance), self._closed, fast)

    def _carry(self, height: float, speed: float) -> Iterator[Step]:
        """Brings the item to a height above the origin of what it is put on, m; ends early when it is lost."""
        for step in self._move(self._release(height), self._closed, speed):
            if not self._holds():
                return
            yield step

    def _push(self) -> Iterator[Step]:
        """Pushes the button with closed fingers, again and again until it went in; then stays above it."""
        pressed = False
        while True:
            yield from self._move(self._over_button(self._parameters.clearance), self._closed, self._parameters.speed)
            while pressed:
                yield self._tool, self._closed
            yield from self._move(self._over_button(-self._parameters.press), self._closed, self._parameters.slow)
            yield from self._wait(self._closed)
            pressed = self._seen["privileged.button_press"][0] > 0.8 * self._parameters.press

    def _move(self, end: Pose, opening: float, speed: float) -> Iterator[Step]:
        """Moves the tool on a straight line, at `speed` (m/s) where it is fastest."""
        start = self._tool
        steps = max(1, round(duration(start, end, speed, self._parameters.turn) / self._dt))
        for step in range(1, steps + 1):
            yield between(start, end, quintic(step / steps)), opening

    def _wait(self, opening: float) -> Iterator[Step]:
        """Leaves the tool where it is while the gripper moves."""
        for _ in range(round(self._parameters.grip / self._dt)):
            yield self._tool, opening

    def _object(self, name: str) -> Pose:
        """Returns where an object is, in the root link's frame."""
        pose = self._seen[f"privileged.{name}"]
        return Pose(pose[:3] - self._origin, pin.Quaternion(*pose[3:]).toRotationMatrix())

    def _measured_tool(self) -> Pose:
        return self._model.frame_pose(self._frame, self._seen["joint_position"])

    def _grasp(self) -> Pose:
        """Returns the tool pose that grasps the item across two of its faces."""
        item = self._object(self._goal.item)
        return Pose(item.position, self._down(_face(item.rotation)))

    def _release(self, height: float) -> Pose:
        """Returns the tool pose that brings the held item's centre to a height above the origin of what it is put on, m."""
        tool, item, place = self._measured_tool(), self._object(self._goal.item), self._object(self._goal.place)
        yaw = _heading(tool.rotation)
        if self._goal.action == "stack":
            yaw += _face(place.rotation) - _face(item.rotation)
        rotation = self._down(yaw)
        in_tool = tool.rotation.T @ (item.position - tool.position)
        target = place.position + [0.0, 0.0, height]
        return Pose(target - rotation @ in_tool, rotation)

    def _over_button(self, above: float) -> Pose:
        """Returns the tool pose with the fingertip `above` the top of the released button, m."""
        rotation = self._down(self._rest)
        target = self._object(self._goal.item).position + [0.0, 0.0, self._parameters.button + above]
        return Pose(target - rotation @ self._fingertip, rotation)

    def _down(self, yaw: float) -> np.ndarray:
        """Returns the rotation of a tool that points down, for the heading nearest to that at home among `yaw` + k·90°."""
        offset = np.remainder(yaw - self._rest + np.pi / 4, np.pi / 2) - np.pi / 4
        cos, sin = np.cos(self._rest + offset), np.sin(self._rest + offset)
        return np.array([[cos, sin, 0.0], [sin, -cos, 0.0], [0.0, 0.0, -1.0]])

    def _holds(self) -> bool:
        """Whether the item is between the fingers."""
        return bool(np.linalg.norm(self._object(self._goal.item).position - self._measured_tool().position) < _HELD)

    def _arrived(self, place: Place) -> bool:
        """Whether the item rests at its place."""
        offset = self._object(self._goal.item).position - self._object(self._goal.place).position
        return bool(np.hypot(offset[0], offset[1]) <= place.radius and abs(offset[2] - place.rest) <= _SETTLED)


def _raised(pose: Pose, height: float) -> Pose:
    return Pose(pose.position + [0.0, 0.0, height], pose.rotation)


def _heading(rotation: np.ndarray) -> float:
    """Returns the angle of a frame's x axis about the vertical, rad."""
    return float(np.arctan2(rotation[1, 0], rotation[0, 0]))


def _face(rotation: np.ndarray) -> float:
    """Returns the angle about the vertical of a cube's most level edges, rad; any of its faces may be down."""
    edge = rotation[:, np.argmin(np.abs(rotation[2]))]
    return float(np.arctan2(edge[1], edge[0]))

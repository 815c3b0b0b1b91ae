"""A scripted arm: a program of straight tool motions, looked at again before each of them, turned into joint targets."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import pinocchio as pin
import pydantic

from ros_rl.config import STRICT, Vector3
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.motion import SteadyStateTrim, between, duration, quintic, tool_frame
from ros_rl.robots.ik import DifferentialIK
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.spec import RobotSpec

Step = tuple[Pose, float]  # where the tool shall be next, in the root link's frame, and the position of the gripper's joint

HELD = 0.03  # m, from the tool's to the item's centre: less than the block and a finger measure together


@pydantic.dataclasses.dataclass(config=STRICT)
class Motion:
    """How the tool moves; lengths in m, times in s.

    Attributes:
        speed: greatest speed of the tool through the air, m/s.
        slow: greatest speed of the tool near objects, m/s.
        turn: greatest turn rate of the tool, rad/s.
        clearance: height of the tool above a grasp or place when it moves sideways.
        fingertip: where in the tool frame the point is that pushes a button.
        grip: time given to the gripper to close or open.
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
    trim: float
    trim_limit: float
    rotation_cost: float


class ArmProgram(ABC):
    """A policy that runs a program: a generator of tool poses and gripper positions, one for each act.

    The tool points down throughout. A subclass gives the program, and may look at what was seen last at any time.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec, motion: Motion):
        """Prepares a robot to be moved.

        Raises:
            UserError: the robot has no tool frame.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        self._motion = motion
        self._fingertip = np.array(motion.fingertip)
        self._dt = 1.0 / self.spec.rate
        self._robot = robot
        self._gripper = robot.joint_names.index(robot.gripper.joint) if robot.gripper else None
        self._open, self._closed = (robot.gripper.open, robot.gripper.closed) if robot.gripper else (0.0, 0.0)
        self._model = RobotModel(robot)
        self._frame = tool_frame(robot)
        self._ik = DifferentialIK(self._model, self._frame, rotation_cost=motion.rotation_cost)
        self._origin = np.array(robot.base_position)
        self._rest = heading(self._model.frame_pose(self._frame, robot.home).rotation)
        self._observations = ObservationBuilder(self.spec)

    @abstractmethod
    def program(self, instruction: str) -> Iterator[Step]:
        """Returns the program for an instruction; it never ends.

        Raises:
            UserError: there is none, or the robot lacks what it needs.
        """

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode from wherever the arm is measured next; there is no randomness.

        Raises:
            UserError: the instruction is none that the expert can carry out, or needs a gripper that the robot lacks.
        """
        self._observations.reset()
        self._program = self.program(instruction)
        self._trim = SteadyStateTrim(self._robot, self._motion.trim, self._motion.trim_limit)
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

    def move(self, end: Pose, opening: float, speed: float) -> Iterator[Step]:
        """Moves the tool on a straight line, at `speed` (m/s) where it is fastest."""
        start = self._tool
        steps = max(1, round(duration(start, end, speed, self._motion.turn) / self._dt))
        for step in range(1, steps + 1):
            yield between(start, end, quintic(step / steps)), opening

    def wait(self, opening: float) -> Iterator[Step]:
        """Leaves the tool where it is while the gripper moves."""
        for _ in range(round(self._motion.grip / self._dt)):
            yield self._tool, opening

    def object(self, name: str) -> Pose:
        """Returns where an object is, in the root link's frame."""
        pose = self._seen[f"privileged.{name}"]
        return Pose(pose[:3] - self._origin, pin.Quaternion(*pose[3:]).toRotationMatrix())

    def measured_tool(self) -> Pose:
        """Returns where the tool is, in the root link's frame."""
        return self._model.frame_pose(self._frame, self._seen["joint_position"])

    def grasp(self, item: str) -> Pose:
        """Returns the tool pose that grasps a block across two of its faces."""
        pose = self.object(item)
        return Pose(pose.position, self.down(face(pose.rotation)))

    def down(self, yaw: float) -> np.ndarray:
        """Returns the rotation of a tool that points down, for the heading nearest to that at home among `yaw` + k·90°."""
        offset = np.remainder(yaw - self._rest + np.pi / 4, np.pi / 2) - np.pi / 4
        return self.headed(self._rest + offset)

    def headed(self, yaw: float) -> np.ndarray:
        """Returns the rotation of a tool that points down, with the heading `yaw`, rad."""
        cos, sin = np.cos(yaw), np.sin(yaw)
        return np.array([[cos, sin, 0.0], [sin, -cos, 0.0], [0.0, 0.0, -1.0]])

    def holds(self, item: str) -> bool:
        """Whether an item is between the fingers."""
        return bool(np.linalg.norm(self.object(item).position - self.measured_tool().position) < HELD)


def raised(pose: Pose, height: float) -> Pose:
    """Returns a pose `height` (m) above another."""
    return Pose(pose.position + [0.0, 0.0, height], pose.rotation)


def heading(rotation: np.ndarray) -> float:
    """Returns the angle of a frame's x axis about the vertical, rad."""
    return float(np.arctan2(rotation[1, 0], rotation[0, 0]))


def face(rotation: np.ndarray) -> float:
    """Returns the angle about the vertical of a cube's most level edges, rad; any of its faces may be down."""
    edge = rotation[:, np.argmin(np.abs(rotation[2]))]
    return float(np.arctan2(edge[1], edge[0]))

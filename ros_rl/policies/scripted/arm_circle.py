"""Draws circles in the air with an arm's tool: a first motion test that reads nothing but joint positions."""

import numpy as np
import pydantic

from ros_rl.config import STRICT
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters, tensor
from ros_rl.policies.scripted.motion import PEAK, SteadyStateTrim, quintic, tool_frame
from ros_rl.robots.ik import DifferentialIK
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.spec import RobotSpec

_LOST = 0.2  # rad: so far from its target, an arm has been held back or moved by hand


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `ArmCircle`.

    Attributes:
        radius: of the circle, m.
        period: of one round, s.
        ramp: time to gain full speed on the circle, s.
        approach: fraction of its velocity limit that the fastest joint reaches on the way to the circle.
        trim: gain of the integral action against sagging joints, 1/s.
        trim_limit: largest correction of a joint by it, rad.
        rotation_cost: of the inverse kinematics, m/rad, see `DifferentialIK`.
    """

    radius: float
    period: float
    ramp: float
    approach: float
    trim: float
    trim_limit: float
    rotation_cost: float


class ArmCircle:
    """Moves all joints from where they are to the top of the circle, then the tool along it without turning.

    The circle stands upright and faces the robot: it lies in the y-z plane of the root link. Joints that do not carry
    the tool, such as a gripper, go to their home position. An arm that was held back starts over from where it is, so
    that it never catches up at full speed.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the parameters and the tensors ``centre``, (3,), in m, and ``rotation``, (3, 3), of the tool in the root link's frame.

        Raises:
            UserError: the bundle is incomplete, the robot has no tool frame, or the circle is out of its reach.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        self._dt = 1.0 / self.spec.rate
        self._parameters = parameters(bundle, Parameters)
        self._centre = tensor(bundle, "centre", (3,))
        self._rotation = tensor(bundle, "rotation", (3, 3))
        self._ik = DifferentialIK(RobotModel(robot), tool_frame(robot), rotation_cost=self._parameters.rotation_cost)
        self._top: np.ndarray = self._ik.solve(robot.home, self.pose(0.0))
        self._joints = self._top
        self._robot = robot
        self._speed = self._parameters.approach * robot.velocity
        self._observations = ObservationBuilder(self.spec)
        self.reset(0, "")

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode from wherever the arm is measured next."""
        self._observations.reset()
        self._first: tuple[float, np.ndarray] | None = None

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the joint targets, rad (m)."""
        measured = self._observations.build(observation)["joint_position"]
        if self._first is None or np.abs(self._joints - measured).max() > _LOST:
            self._first = observation.stamp, measured
            self._joints = measured
            self._trim = SteadyStateTrim(self._robot, self._parameters.trim, self._parameters.trim_limit)
        count = len(self.spec.joint_names)
        start, posture = self._first
        elapsed = observation.stamp - start
        approach = max(PEAK * float(np.max(np.abs(self._top - posture)[:count] / self._speed)), self._dt)
        if elapsed < approach:
            self._joints = posture + quintic(elapsed / approach) * (self._top - posture)
        else:
            self._joints = self._ik.step(self._joints, self.pose(self._angle(elapsed - approach)), self._dt)
        command = self._trim.command(self._joints[:count], measured[:count], self._dt)
        return ActionChunk(self.spec.joint_names, command[None], self._dt, observation.stamp, self._name)

    def pose(self, angle: float) -> Pose:
        """Returns the tool pose on the circle, in the root link's frame; angle 0 is the top."""
        on_circle = self._parameters.radius * np.array([0.0, np.sin(angle), np.cos(angle)])
        return Pose(self._centre + on_circle, self._rotation)

    def _angle(self, elapsed: float) -> float:
        """Returns how far round the tool is, rad; the turn rate grows evenly during the ramp."""
        ramp = self._parameters.ramp
        travelled = elapsed**2 / (2 * ramp) if elapsed < ramp else elapsed - ramp / 2
        return 2 * np.pi * travelled / self._parameters.period

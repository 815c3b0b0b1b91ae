"""Stands and trots on four legs: a clock moves the feet, inverse kinematics in closed form moves the joints."""

from typing import Annotated

import numpy as np
import pinocchio as pin
import pydantic

from ros_rl.config import STRICT
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters, tensor
from ros_rl.robots.legs import JOINTS, legs_of, smooth, step_cycle
from ros_rl.robots.model import GRAVITY, RobotModel
from ros_rl.robots.spec import RobotSpec


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `QuadrupedGait`.

    Attributes:
        frequency: strides per second.
        duty: part of a stride that a foot is on the ground; half at least, so that the robot never flies.
        lift: height of a foot in mid swing, m.
        full_lift_speed: foot speed, m/s, from which feet are lifted fully; slower ones less, at rest not at all.
        settle: time to move from the first measured posture to the stance, s.
    """

    frequency: float
    duty: Annotated[float, pydantic.Field(ge=0.5, lt=1.0)]
    lift: float
    full_lift_speed: float
    settle: float


class QuadrupedGait:
    """Moves the feet by the clock of a trot: backwards at the commanded speed on the ground, forwards through the air.

    The velocity command is limited in size and in rate of change. Without one, the feet stay on the ground and the
    robot stands.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the parameters and these tensors; feet and phases are in the order of `LEGS`.

        ``stance``, (4, 3): feet of the standing robot in the trunk frame, m. ``phase``, (4,): when in the stride a foot's
        stance begins, 0 to 1. ``velocity_limit``, (3,): of the command, m/s and rad/s. ``acceleration_limit``, (3,): m/s²
        and rad/s².

        Raises:
            UserError: the bundle is incomplete, or the robot has other legs.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        self._parameters = parameters(bundle, Parameters)
        self._stance = tensor(bundle, "stance", (4, 3))
        self._phase = tensor(bundle, "phase", (4,))
        self._velocity_limit = tensor(bundle, "velocity_limit", (3,))
        self._step_limit = tensor(bundle, "acceleration_limit", (3,)) / self.spec.rate
        self._legs = legs_of(robot)
        self._weight = GRAVITY * pin.computeTotalMass(RobotModel(robot).pin)
        self._stiffness = np.array([joint.stiffness for joint in robot.joints])
        self._order = np.array([JOINTS.index(name) for name in robot.joint_names])
        self._observations = ObservationBuilder(self.spec)
        self.reset(0, "")

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode from whatever posture is measured next."""
        self._observations.reset()
        self._velocity = np.zeros(3)
        self._first: tuple[float, np.ndarray] | None = None

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the joint targets, rad."""
        seen = self._observations.build(observation)
        if self._first is None:
            self._first = observation.stamp, seen["joint_position"]
        start, posture = self._first
        elapsed = observation.stamp - start
        settled = smooth(np.array(min(1.0, elapsed / self._parameters.settle)))
        if elapsed >= self._parameters.settle:
            wanted = np.clip(seen["command"], -self._velocity_limit, self._velocity_limit)
            self._velocity += np.clip(wanted - self._velocity, -self._step_limit, self._step_limit)
        feet, loads = self._feet((elapsed - self._parameters.settle) * self._parameters.frequency)
        joints = posture + settled * (self._joints(feet, loads) - posture)
        return ActionChunk(self.spec.joint_names, joints[None], 1.0 / self.spec.rate, observation.stamp, self._name)

    def _feet(self, strides: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the feet shall be in the trunk frame, m, shape (4, 3), and what they carry, N, shape (4,).

        Args:
            strides: number of strides since the start.
        """
        settings = self._parameters
        forward, left, turn = self._velocity
        speed = np.column_stack([forward - turn * self._stance[:, 1], left + turn * self._stance[:, 0]])
        stride = speed * settings.duty / settings.frequency
        lifted = np.minimum(1.0, np.linalg.norm(speed, axis=1) / settings.full_lift_speed)
        moved, swing = step_cycle(strides - self._phase, stride, lifted * settings.lift, settings.duty)
        share = np.where(swing > 0.0, 1.0 - lifted, 1.0)
        return self._stance + moved, self._weight * share / share.sum()

    def _joints(self, feet: np.ndarray, loads: np.ndarray) -> np.ndarray:
        """Returns the joint targets, rad, shape (12,), that bring loaded feet to their places.

        A position-controlled joint gives way like a spring; its target is ahead of its place by what the load bends it.
        Without this, feet slip at every touchdown and the robot falls short of the commanded speed.
        """
        angles = [leg.joints(foot) for leg, foot in zip(self._legs.values(), feet, strict=True)]
        torques = [leg.torques(angle, load) for leg, angle, load in zip(self._legs.values(), angles, loads, strict=True)]
        targets: np.ndarray = np.concatenate(angles)[self._order] + np.concatenate(torques)[self._order] / self._stiffness
        return targets

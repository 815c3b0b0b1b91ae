"""Stands and trots on four legs: a clock moves the feet, inverse kinematics in closed form moves the joints."""

from typing import Annotated

import numpy as np
import pydantic

from ros_rl.config import STRICT
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters, tensor
from ros_rl.robots.legs import smooth
from ros_rl.robots.spec import RobotSpec
from ros_rl.robots.trot import Gait, Trot


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
        settings = self._parameters
        gait = settings.frequency, settings.duty, settings.lift, settings.full_lift_speed
        self._trot = Trot(Gait(*gait, tensor(bundle, "stance", (4, 3)), tensor(bundle, "phase", (4,))), robot)
        self._velocity_limit = tensor(bundle, "velocity_limit", (3,))
        self._step_limit = tensor(bundle, "acceleration_limit", (3,)) / self.spec.rate
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
        strides = (elapsed - self._parameters.settle) * self._parameters.frequency
        joints = posture + settled * (self._trot.targets(np.array(strides), self._velocity) - posture)
        return ActionChunk(self.spec.joint_names, joints[None], 1.0 / self.spec.rate, observation.stamp, self._name)

"""Stands and trots on four legs: a clock moves the feet, inverse kinematics in closed form moves the joints."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pinocchio as pin
import pydantic

from ros_rl.config import STRICT
from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters, tensor
from ros_rl.robots.model import GRAVITY, RobotModel
from ros_rl.robots.spec import RobotSpec

LEGS = ("FL", "FR", "RL", "RR")
JOINTS = tuple(f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf"))


@dataclass(frozen=True, eq=False)
class Leg:
    """A leg of three joints: hip (about x), thigh and calf (both about y), with the knee bending backwards.

    Attributes:
        hip: the hip joint in the trunk frame, m, shape (3,).
        offset: the thigh joint's distance to the left of the hip joint, m (negative on the right side).
        thigh, calf: lengths, m.
    """

    hip: np.ndarray
    offset: float
    thigh: float
    calf: float

    def joints(self, foot: np.ndarray) -> np.ndarray:
        """Returns hip, thigh and calf angles, shape (3,), that bring the foot to a place below the hip joint.

        A foot out of reach is taken as far as the stretched leg goes.

        Args:
            foot: position in the trunk frame, m, shape (3,).
        """
        x, y, z = foot - self.hip
        depth = np.sqrt(max(y * y + z * z - self.offset**2, 0.0))  # from the thigh joint to the foot, in the leg's plane
        hip = np.arctan2(z, y) - np.arctan2(-depth, self.offset)
        bend = (x * x + depth * depth - self.thigh**2 - self.calf**2) / (2 * self.thigh * self.calf)
        calf = -np.arccos(np.clip(bend, -1.0, 1.0))
        thigh = np.arctan2(-x, depth) - np.arctan2(self.calf * np.sin(calf), self.thigh + self.calf * np.cos(calf))
        return np.array([np.remainder(hip + np.pi, 2 * np.pi) - np.pi, thigh, calf])

    def torques(self, joints: np.ndarray, load: float) -> np.ndarray:
        """Returns the joint torques, N·m, shape (3,), with which the foot carries a load, N, along the trunk's z axis.

        Args:
            joints: hip, thigh and calf angles, rad, shape (3,).
            load: what the ground pushes up with, N.
        """
        hip, thigh, calf = joints
        knee_to_foot = self.calf * np.sin(thigh + calf)
        back = self.thigh * np.sin(thigh) + knee_to_foot  # how far the foot is behind the thigh joint
        depth = self.thigh * np.cos(thigh) + self.calf * np.cos(thigh + calf)
        side = self.offset * np.cos(hip) + depth * np.sin(hip)
        return -load * np.array([side, back * np.cos(hip), knee_to_foot * np.cos(hip)])


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
        phase = np.remainder(strides - self._phase, 1.0)
        swing = np.clip((phase - settings.duty) / (1.0 - settings.duty), 0.0, 1.0)
        # Ground contact at +stride / 2, lift-off at -stride / 2.
        along = np.where(swing > 0.0, smooth(swing) - 0.5, 0.5 - phase / settings.duty)
        lifted = np.minimum(1.0, np.linalg.norm(speed, axis=1) / settings.full_lift_speed)
        up = lifted * settings.lift * np.sin(np.pi * swing) ** 2
        share = np.where(swing > 0.0, 1.0 - lifted, 1.0)
        return self._stance + np.column_stack([along[:, None] * stride, up]), self._weight * share / share.sum()

    def _joints(self, feet: np.ndarray, loads: np.ndarray) -> np.ndarray:
        """Returns the joint targets, rad, shape (12,), that bring loaded feet to their places.

        A position-controlled joint gives way like a spring; its target is ahead of its place by what the load bends it.
        Without this, feet slip at every touchdown and the robot falls short of the commanded speed.
        """
        angles = [leg.joints(foot) for leg, foot in zip(self._legs.values(), feet, strict=True)]
        torques = [leg.torques(angle, load) for leg, angle, load in zip(self._legs.values(), angles, loads, strict=True)]
        targets: np.ndarray = np.concatenate(angles)[self._order] + np.concatenate(torques)[self._order] / self._stiffness
        return targets


def smooth(progress: np.ndarray) -> np.ndarray:
    """Returns a cycloid from 0 to 1 that starts and ends at rest, for progress from 0 to 1."""
    eased: np.ndarray = progress - np.sin(2 * np.pi * progress) / (2 * np.pi)
    return eased


def legs_of(robot: RobotSpec) -> dict[str, Leg]:
    """Returns the legs by name, measured on the robot's model with every leg stretched down.

    Raises:
        UserError: the robot has other joints than hip, thigh and calf of the legs FL, FR, RL, RR.
    """
    if sorted(JOINTS) != sorted(robot.joint_names):
        raise UserError(f"the gait commands the joints {', '.join(JOINTS)}; robot '{robot.name}' has {', '.join(robot.joint_names)}")
    model = RobotModel(robot)
    stretched = np.zeros(len(robot.measured_names))
    legs = {}
    for name in LEGS:
        hip, thigh, calf, foot = (model.frame_pose(f"{name}_{part}", stretched).position for part in ("hip", "thigh", "calf", "foot"))
        legs[name] = Leg(hip, thigh[1] - hip[1], float(np.linalg.norm(calf - thigh)), float(np.linalg.norm(foot - calf)))
    return legs

"""The trot as a function of time and velocity: where the feet are, and which joint targets bring them there. For many robots at once."""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from ros_rl.robots.legs import JOINTS, legs_of, stacked, step_cycle
from ros_rl.robots.model import GRAVITY, RobotModel
from ros_rl.robots.spec import RobotSpec


@dataclass(frozen=True, eq=False)
class Gait:
    """How the feet move; feet and phases are in the order of `LEGS`.

    Attributes:
        frequency: strides per second.
        duty: part of a stride that a foot is on the ground.
        lift: height of a foot in mid swing, m.
        full_lift_speed: foot speed, m/s, from which feet are lifted fully; slower ones less, at rest not at all.
        stance: feet of the standing robot in the trunk frame, m, shape (4, 3).
        phase: when in the stride a foot's stance begins, 0 to 1, shape (4,).
    """

    frequency: float
    duty: float
    lift: float
    full_lift_speed: float
    stance: np.ndarray
    phase: np.ndarray


class Trot:
    """Moves the feet backwards at the given velocity on the ground, forwards through the air."""

    def __init__(self, gait: Gait, robot: RobotSpec):
        """Measures the robot's legs and weight.

        Raises:
            UserError: the robot has other legs.
        """
        self.gait = gait
        self._legs = stacked(legs_of(robot).values())
        self._weight = GRAVITY * pin.computeTotalMass(RobotModel(robot).pin)
        self._stiffness = np.array([joint.stiffness for joint in robot.joints])
        self._order = np.array([JOINTS.index(name) for name in robot.joint_names])

    def targets(self, strides: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Returns the joint targets, rad, shape (..., 12), in the robot's order, that bring loaded feet to their places.

        A position-controlled joint gives way like a spring; its target is ahead of its place by what the load bends it.
        Without this, feet slip at every touchdown and the robot falls short of the commanded speed.

        Args:
            strides: number of strides since the start, (...).
            velocity: forward m/s, left m/s, turn rad/s, (..., 3).
        """
        feet, loads = self.feet(strides, velocity)
        angles = self._legs.joints(feet)
        torques = self._legs.torques(angles, loads)
        flat = (*angles.shape[:-2], 12)
        targets: np.ndarray = angles.reshape(flat)[..., self._order] + torques.reshape(flat)[..., self._order] / self._stiffness
        return targets

    def feet(self, strides: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the feet shall be in the trunk frame, m, shape (..., 4, 3), and what they carry, N, shape (..., 4)."""
        gait = self.gait
        forward, left, turn = np.moveaxis(np.asarray(velocity)[..., None, :], -1, 0)
        speed = np.stack([forward - turn * gait.stance[:, 1], left + turn * gait.stance[:, 0]], axis=-1)
        stride = speed * gait.duty / gait.frequency
        lifted = np.minimum(1.0, np.sqrt((speed * speed).sum(axis=-1)) / gait.full_lift_speed)
        moved, swing = step_cycle(np.asarray(strides)[..., None] - gait.phase, stride, lifted * gait.lift, gait.duty)
        share = np.where(swing > 0.0, 1.0 - lifted, 1.0)
        return gait.stance + moved, self._weight * share / share.sum(axis=-1, keepdims=True)

"""Four legs of three joints each: their kinematics in closed form, and the cycle of a foot that walks."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ros_rl.errors import UserError
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import RobotSpec

LEGS = ("FL", "FR", "RL", "RR")
JOINTS = tuple(f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf"))


@dataclass(frozen=True, eq=False)
class Leg:
    """A leg of three joints: hip (about x), thigh and calf (both about y), with the knee bending backwards. Or many: see `stacked`.

    Attributes:
        hip: the hip joint in the trunk frame, m, shape (3,).
        offset: the thigh joint's distance to the left of the hip joint, m (negative on the right side).
        thigh, calf: lengths, m.
    """

    hip: np.ndarray
    offset: float | np.ndarray
    thigh: float | np.ndarray
    calf: float | np.ndarray

    def joints(self, foot: np.ndarray) -> np.ndarray:
        """Returns hip, thigh and calf angles, shape (..., 3), that bring the foot to a place below the hip joint.

        A foot out of reach is taken as far as the stretched leg goes.

        Args:
            foot: position in the trunk frame, m, shape (..., 3).
        """
        x, y, z = np.moveaxis(foot - self.hip, -1, 0)
        depth = np.sqrt(np.maximum(y * y + z * z - self.offset**2, 0.0))  # from the thigh joint to the foot, in the leg's plane
        hip = np.arctan2(z, y) - np.arctan2(-depth, self.offset)
        bend = (x * x + depth * depth - self.thigh**2 - self.calf**2) / (2 * self.thigh * self.calf)
        calf = -np.arccos(np.minimum(np.maximum(bend, -1.0), 1.0))
        thigh = np.arctan2(-x, depth) - np.arctan2(self.calf * np.sin(calf), self.thigh + self.calf * np.cos(calf))
        return np.stack([np.remainder(hip + np.pi, 2 * np.pi) - np.pi, thigh, calf], axis=-1)

    def foot(self, joints: np.ndarray) -> np.ndarray:
        """Returns where the foot is in the trunk frame, m, shape (..., 3), for hip, thigh and calf angles, rad, (..., 3)."""
        hip, thigh, calf = np.moveaxis(joints, -1, 0)
        back = self.thigh * np.sin(thigh) + self.calf * np.sin(thigh + calf)
        depth = self.thigh * np.cos(thigh) + self.calf * np.cos(thigh + calf)
        side = self.offset * np.cos(hip) + depth * np.sin(hip)
        down = depth * np.cos(hip) - self.offset * np.sin(hip)
        foot: np.ndarray = self.hip + np.stack([-back, side, -down], axis=-1)
        return foot

    def torques(self, joints: np.ndarray, load: float | np.ndarray) -> np.ndarray:
        """Returns the joint torques, N·m, shape (..., 3), with which the foot carries a load along the trunk's z axis.

        Args:
            joints: hip, thigh and calf angles, rad, shape (..., 3).
            load: what the ground pushes up with, N, shape (...).
        """
        hip, thigh, calf = np.moveaxis(joints, -1, 0)
        knee_to_foot = self.calf * np.sin(thigh + calf)
        back = self.thigh * np.sin(thigh) + knee_to_foot  # how far the foot is behind the thigh joint
        depth = self.thigh * np.cos(thigh) + self.calf * np.cos(thigh + calf)
        side = self.offset * np.cos(hip) + depth * np.sin(hip)
        return -np.asarray(load)[..., None] * np.stack([side, back * np.cos(hip), knee_to_foot * np.cos(hip)], axis=-1)


def stacked(legs: Iterable[Leg]) -> Leg:
    """Returns legs as one, whose attributes have them along the first axis: it takes feet (..., legs, 3), for example."""
    rows = list(legs)
    return Leg(*(np.array([getattr(leg, name) for leg in rows]) for name in ("hip", "offset", "thigh", "calf")))


def step_cycle(phase: np.ndarray, stride: np.ndarray, lift: np.ndarray | float, duty: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns how far feet are from the middle of their stance, m, shape (..., 3), and how far through their swing, 0 to 1, (...).

    A foot goes backwards on the ground at a constant speed, from stride / 2 to -stride / 2, and forwards through the air.

    Args:
        phase: strides since the foot's stance began, (...); only the part behind the point counts.
        stride: of a foot in the plane, m, (..., 2).
        lift: height in mid swing, m.
        duty: part of a stride that a foot is on the ground.
    """
    phase = np.remainder(phase, 1.0)
    swing = np.clip((phase - duty) / (1.0 - duty), 0.0, 1.0)
    along = np.where(swing > 0.0, smooth(swing) - 0.5, 0.5 - phase / duty)
    up = lift * np.sin(np.pi * swing) ** 2
    return np.concatenate([along[..., None] * stride, up[..., None]], axis=-1), swing


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
        raise UserError(f"a robot of four legs has the joints {', '.join(JOINTS)}; robot '{robot.name}' has {', '.join(robot.joint_names)}")
    model = RobotModel(robot)
    stretched = np.zeros(len(robot.measured_names))
    legs = {}
    for name in LEGS:
        hip, thigh, calf, foot = (model.frame_pose(f"{name}_{part}", stretched).position for part in ("hip", "thigh", "calf", "foot"))
        legs[name] = Leg(hip, thigh[1] - hip[1], float(np.linalg.norm(calf - thigh)), float(np.linalg.norm(foot - calf)))
    return legs

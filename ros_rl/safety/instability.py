"""How near a legged robot is to a fall, from what it measures itself."""

import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.legs import JOINTS, LEGS, legs_of
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import RobotSpec
from ros_rl.safety.region import Region

_UNIT = 0.1  # by how much the length of a quaternion may differ from 1: an IMU that has no attitude sends zeros
_POSES, _NOISE = 200, 0.05  # about home, rad: how far robots are reset from it


class Instability:
    """ρ = max(tilt / tilt_limit, drop / drop_limit), at least 0; 1 is a fall.

    The tilt is the angle between the base's z axis and the vertical, of the IMU's attitude. The drop is how far the base is below
    `Region.height`. There is no sensor for that: the lowest foot is taken to be on the ground, so that the height is right as
    long as one foot is, too small in the air, and means little once the robot lies on its side, where the tilt counts.
    """

    def __init__(self, spec: RobotSpec, region: Region):
        """
        Raises:
            UserError: the robot has no IMU on a floating base, or, for a drop, no four legs.
        """
        if not (spec.floating_base and spec.imu_frame):
            raise UserError(f"robot '{spec.name}' has no IMU on a floating base (imu_frame), which its tilt is measured with")
        self.region = region
        self._turned = RobotModel(spec).frame_pose(spec.imu_frame, np.zeros(len(spec.measured_names))).rotation  # IMU to base
        self._spec = spec
        if region.drop_limit is None:
            return
        self._legs = tuple(legs_of(spec).values())
        self._order = np.array([spec.measured_names.index(name) for name in JOINTS])
        home = self._above_feet(np.array([0.0, 0.0, 1.0]), spec.home)
        # The home stance is the one in which the feet touch the ground with the base at `base_position`.
        self._sole = spec.base_position[2] - float(home)
        self._height = region.height or spec.base_position[2]

    def __call__(self, observation: Observation) -> np.ndarray:
        """Returns ρ, shape (...) of the observation's leading axes; NaN where it cannot be told."""
        quat = observation.base_quat
        if quat is None:
            return np.full(observation.joint_position.shape[:-1], np.nan)
        return self._rho(self._up(quat), observation.joint_position)

    def _rho(self, up: np.ndarray, joints: np.ndarray) -> np.ndarray:
        rho = np.arccos(np.clip(up[..., 2], -1.0, 1.0)) / self.region.tilt_limit
        if self.region.drop_limit is not None:
            drop = self._height - self._sole - self._above_feet(up, joints)
            rho = np.maximum(rho, drop / self.region.drop_limit)  # NaN if either is
        return np.maximum(rho, 0.0)

    def height(self, observation: Observation) -> np.ndarray:
        """Returns the estimated height of the base above the ground, m, shape (...); for a region with a drop."""
        assert observation.base_quat is not None
        return self._above_feet(self._up(observation.base_quat), observation.joint_position) + self._sole

    def excluded(self) -> tuple[float, float]:
        """Returns the share of 200 upright poses about home (each joint ± 0.05 rad) outside the region, and their mean ρ."""
        joints = self._spec.home + np.random.default_rng(0).uniform(-_NOISE, _NOISE, (_POSES, len(self._spec.home)))
        rho = self._rho(np.tile([0.0, 0.0, 1.0], (_POSES, 1)), joints)
        return float(np.mean(rho >= self.region.d)), float(rho.mean())

    def _up(self, quat: np.ndarray) -> np.ndarray:
        """Returns the vertical in the base's axes, (..., 3), for the IMU's attitudes (..., 4); NaN for what is no attitude."""
        length = np.linalg.norm(quat, axis=-1, keepdims=True)
        good = np.abs(length - 1.0) <= _UNIT
        w, x, y, z = np.moveaxis(quat / np.where(good, length, np.nan), -1, 0)
        up = np.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)], axis=-1)
        return up @ self._turned.T

    def _above_feet(self, up: np.ndarray, joints: np.ndarray) -> np.ndarray:
        """Returns how high the base is above the lowest foot's centre, m, (...), for verticals (..., 3) and measured joints."""
        legs = joints[..., self._order].reshape(*joints.shape[:-1], len(LEGS), 3)
        feet = np.stack([leg.foot(legs[..., index, :]) for index, leg in enumerate(self._legs)], axis=-2)
        return -np.min(np.sum(feet * up[..., None, :], axis=-1), axis=-1)

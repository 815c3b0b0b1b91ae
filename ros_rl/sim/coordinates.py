"""The state of a robot as a vector of named coordinates: read off an observation, or put into a simulation and read there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ros_rl.errors import UserError, unknown
from ros_rl.hardware.interface import Observation
from ros_rl.robots.spec import RobotSpec

if TYPE_CHECKING:  # a node that only reads observations does not wait for MuJoCo
    import mujoco

    from ros_rl.sim.build import SimModel

_AXES = ("x", "y", "z")
POSITIONS = ("joint_position", "base_position", "base_rotation")  # the kinds that are positions; the others are velocities
_JOINT_KINDS = ("joint_position", "joint_velocity")
# What is read for it. A rotation is the base's rotation vector, rad; base velocity is in the world's axes, gyro in the base's own.
_BASE_KINDS = {
    "base_position": "base_position",
    "base_velocity": "base_velocity",
    "base_rotation": "base_quat",
    "base_gyro": "base_gyro",
}


class Coordinates:
    """The state s of a robot as the deviation of n named coordinates from an equilibrium.

    A name is a kind and a joint or axis, such as ``joint_velocity.slider`` or ``base_rotation.x``. The kinds are joint_position,
    joint_velocity, base_position (m), base_velocity (m/s, world axes), base_rotation (rotation vector, rad) and base_gyro
    (rad/s, the base's axes). An angle of a joint that turns without end deviates by less than half a turn.

    Attributes:
        names: in the order of the vector.
        equilibrium: where the deviation is zero, shape (n,).
        reads: the fields of `Observation` that they come from.
    """

    def __init__(self, spec: RobotSpec, names: Sequence[str], equilibrium: np.ndarray):
        """
        Raises:
            UserError: the robot does not measure one of them, or the equilibrium is turned.
        """
        self.names = tuple(names)
        self.equilibrium = np.array(equilibrium, dtype=float)
        self._kinds = [_check(spec, name) for name in self.names]
        if len(set(self.names)) < len(self.names) or self.equilibrium.shape != (len(self.names),):
            raise UserError(f"{len(self.names)} coordinates need different names and an equilibrium of that shape")
        turned = [name for name, rest in zip(self.names, self.equilibrium, strict=True) if name.startswith("base_rotation") and rest]
        if turned:
            raise UserError(f"{turned[0]}: the base is level at the equilibrium; a rotation vector says how it is turned from there")
        self.reads = tuple(dict.fromkeys(_BASE_KINDS.get(kind, kind) for kind, _ in self._kinds))
        joints = spec.joints + spec.passive
        self._turns = np.array([kind == "joint_position" and joints[index].kind == "continuous" for kind, index in self._kinds])

    def of(self, observation: Observation) -> np.ndarray:
        """Returns the deviation of a robot that was measured, shape (n,).

        Raises:
            UserError: the observation lacks a field.
        """
        fields = {name: getattr(observation, name) for name in self.reads}
        for name, value in fields.items():
            if value is None:
                raise UserError(f"the observation has no {name}, which the state is made of")
        return self._deviation(fields)

    def measure(self, model: "SimModel", data: "mujoco.MjData") -> np.ndarray:
        """Returns the deviation of a simulated robot, shape (n,)."""
        size = len(model.spec.measured_names)
        fields = {"joint_position": np.zeros(size), "joint_velocity": np.zeros(size)}
        fields["joint_position"][model.positioned] = data.qpos[model.qpos]
        fields["joint_velocity"][model.positioned] = data.qvel[model.qvel]
        if model.base_joint is not None:
            pose, velocity = data.qpos[model.free_qpos(model.base_joint)], data.qvel[model.free_qvel(model.base_joint)]
            fields |= {"base_position": pose[:3], "base_quat": pose[3:], "base_velocity": velocity[:3], "base_gyro": velocity[3:]}
        return self._deviation(fields)

    def place(self, model: "SimModel", data: "mujoco.MjData", deviation: np.ndarray) -> None:
        """Moves a simulated robot, which keeps what the coordinates do not speak of."""
        rotation = np.zeros(3)
        for (kind, index), value in zip(self._kinds, self.equilibrium + deviation, strict=True):
            if kind in _JOINT_KINDS:
                place = int(np.flatnonzero(model.positioned == index)[0])
                if kind == "joint_position":
                    data.qpos[model.qpos[place]] = value
                else:
                    data.qvel[model.qvel[place]] = value
                continue
            assert model.base_joint is not None
            if kind == "base_rotation":
                rotation[index] = value
            elif kind == "base_position":
                data.qpos[model.free_qpos(model.base_joint)][index] = value
            else:
                data.qvel[model.free_qvel(model.base_joint)][index + (3 if kind == "base_gyro" else 0)] = value
        if model.base_joint is not None and "base_quat" in self.reads:
            data.qpos[model.free_qpos(model.base_joint)][3:] = quaternion(rotation)

    def _deviation(self, fields: dict[str, np.ndarray]) -> np.ndarray:
        rotation = rotation_vector(fields["base_quat"]) if "base_quat" in self.reads else np.zeros(3)
        values = [rotation[index] if kind == "base_rotation" else fields[kind][index] for kind, index in self._kinds]
        deviation = np.array(values, dtype=float) - self.equilibrium
        turned = np.where(self._turns & np.isfinite(deviation), deviation, 0.0)
        return deviation - 2 * np.pi * np.round(turned / (2 * np.pi))


def rotation_vector(quat: np.ndarray) -> np.ndarray:
    """Returns axis times angle, rad, shape (..., 3), of attitudes (w, x, y, z), (..., 4); the angle is at most half a turn."""
    w, vector = quat[..., :1], np.asarray(quat[..., 1:], dtype=float)
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(length, np.abs(w))
    factor = np.divide(angle, length, out=np.full(length.shape, 2.0), where=length != 0)  # a NaN stays one
    vectors: np.ndarray = np.copysign(factor, w) * vector
    return vectors


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """Returns the attitudes (w, x, y, z), shape (..., 4), of rotation vectors (..., 3), rad."""
    half = np.linalg.norm(rotation, axis=-1, keepdims=True) / 2
    return np.concatenate([np.cos(half), np.sinc(half / np.pi) / 2 * rotation], axis=-1)


def _check(spec: RobotSpec, name: str) -> tuple[str, int]:
    """Returns the kind and the index (of the joint among the measured ones, or of the axis) that a name stands for."""
    kind, _, part = name.partition(".")
    if kind in _JOINT_KINDS:
        joints = [joint.name for joint in spec.joints + spec.passive if joint.kind != "thruster"]
        if part not in joints:
            raise unknown(f"joint of robot '{spec.name}'", part, joints)
        return kind, spec.measured_names.index(part)
    if kind not in _BASE_KINDS:
        raise unknown("coordinate", kind, (*_JOINT_KINDS, *_BASE_KINDS))
    if part not in _AXES:
        raise unknown(f"axis of {kind}", part, _AXES)
    odometry = kind in ("base_position", "base_velocity")
    if not spec.floating_base or not (spec.odometry if odometry else spec.imu_frame):
        raise UserError(f"robot '{spec.name}' has no floating base with {'odometry' if odometry else 'an IMU'}, which '{name}' needs")
    return kind, _AXES.index(part)

"""Numbers read off an observation by name, such as ``tilt`` or ``joint_position.pole``: what tasks speak of.

Observations may have leading axes, as those of a `BatchSim` have; a quantity then has the same.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ros_rl.errors import UserError, closest, unknown
from ros_rl.hardware.interface import Observation
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import RobotSpec

Quantity = Callable[[Observation], np.ndarray]

_AXES = ("x", "y", "z")

# What may be asked for: the name, how many parts follow it (separated by dots), and what it is.
QUANTITIES = {
    "joint_position": (1, "position of a joint, rad or m"),
    "joint_velocity": (1, "velocity of a joint, rad/s or m/s"),
    "base_position": (1, "x, y or z of the base in the world, m"),
    "base_velocity": (1, "x, y or z velocity of the base in the world, m/s"),
    "tilt": (0, "angle between the vertical and the base's z axis, rad"),
    "command_error": (0, "distance between the commanded and the actual horizontal velocity of the base, m/s"),
    "turn_error": (0, "difference between the commanded and the actual turn rate, rad/s"),
    "tool_position": (1, "x, y or z of the tool frame in the robot's root link, m"),
    "tool_speed": (0, "speed of the tool frame, m/s"),
    "gripper_opening": (0, "how far open the gripper is, from 0 (closed) to 1 (open)"),
    "scene_joint": (1, "position of a joint of the scene, rad or m (simulation only)"),
    "distance": (2, "distance between two objects of the scene, m (simulation only)"),
}


def check_name(name: str) -> str:
    """Returns `name` if it has the form of a quantity.

    Raises:
        ValueError: it does not; the message lists what exists.
    """
    kind, *parts = name.split(".")
    if kind not in QUANTITIES:
        raise ValueError(f"has no quantity of that name{closest(kind, QUANTITIES)} (known: {', '.join(QUANTITIES)})")
    if len(parts) != QUANTITIES[kind][0]:
        raise ValueError(f"needs {QUANTITIES[kind][0]} names after '{kind}', separated by dots")
    if kind in ("base_position", "base_velocity", "tool_position") and parts[0] not in _AXES:
        raise ValueError(f"needs x, y or z after '{kind}'")
    return name


def quantity(name: str, spec: RobotSpec) -> Quantity:
    """Returns the function that reads a quantity off an observation of one robot.

    Raises:
        UserError: the robot has no such joint, or no tool, gripper, floating base or IMU to measure it with.
    """
    kind, *parts = check_name(name).split(".")
    if kind in ("joint_position", "joint_velocity"):
        if parts[0] not in spec.measured_names:
            raise unknown("joint", parts[0], spec.measured_names)
        index = spec.measured_names.index(parts[0])
        return lambda observation: getattr(observation, kind)[..., index]
    if kind == "scene_joint":
        return lambda observation: simulator_state(observation, parts[0])[..., 0]
    if kind == "distance":
        return lambda observation: np.linalg.norm(_position(observation, parts[0]) - _position(observation, parts[1]), axis=-1)
    if kind == "tool_position":
        tool, axis = tool_position(spec), _AXES.index(parts[0])
        return lambda observation: tool(observation)[..., axis]
    if kind == "tool_speed":
        return _tool_speed(spec)
    if kind == "gripper_opening":
        return _gripper_opening(spec)
    if not spec.floating_base or not spec.imu_frame:
        raise UserError(f"robot '{spec.name}' has no floating base with an IMU, which '{name}' is measured with")
    if kind in ("base_position", "base_velocity"):
        axis = _AXES.index(parts[0])
        return lambda observation: _base(observation, kind)[..., axis]
    return {"tilt": _tilt, "command_error": _command_error, "turn_error": _turn_error}[kind]


def simulator_state(observation: Observation, name: str) -> np.ndarray:
    """Returns what the simulator says of an object or joint of the scene (see `Observation.privileged`).

    Raises:
        UserError: the observation has none, as on a real robot.
    """
    if name not in observation.privileged:
        raise unknown("object or joint in the simulator state", name, observation.privileged)
    return observation.privileged[name]


def _position(observation: Observation, name: str) -> np.ndarray:
    return simulator_state(observation, name)[..., :3]


def _base(observation: Observation, kind: str) -> np.ndarray:
    """Position or velocity of the base: the true one in simulation, else the odometry's."""
    true = observation.privileged.get({"base_position": "base_pose", "base_velocity": "base_velocity"}[kind])
    return _measured(observation, kind) if true is None else true[..., :3]


def _measured(observation: Observation, name: str) -> np.ndarray:
    value: np.ndarray | None = getattr(observation, name)
    if value is None:
        raise UserError(f"the observation has no {name}, which the task reads")
    return value


def tool_position(spec: RobotSpec) -> Quantity:
    """Returns the function that reads where the tool frame is in the root link, m, shape (..., 3).

    Raises:
        UserError: the robot has no tool, or no fixed base.
    """
    kinematics, frame = RobotModel(spec), _tool_frame(spec)
    return lambda observation: _each(lambda position: kinematics.frame_pose(frame, position).position, observation.joint_position)


def _tool_speed(spec: RobotSpec) -> Quantity:
    kinematics, frame = RobotModel(spec), _tool_frame(spec)
    carried = np.array([spec.measured_names.index(joint) for joint in kinematics.names])

    def speed(position: np.ndarray, velocity: np.ndarray) -> np.floating:
        return np.linalg.norm(kinematics.jacobian(frame, position)[:3] @ velocity[carried])

    return lambda observation: _each(speed, observation.joint_position, observation.joint_velocity)


def _tool_frame(spec: RobotSpec) -> str:
    if spec.tool_frame is None or spec.floating_base:
        raise UserError(f"robot '{spec.name}' has no tool frame on a fixed base, which the tool's position and speed are measured at")
    return spec.tool_frame


def _gripper_opening(spec: RobotSpec) -> Quantity:
    gripper = spec.gripper
    if gripper is None:
        raise UserError(f"robot '{spec.name}' has no gripper in its robot.yaml, which 'gripper_opening' is measured at")
    index = spec.joint_names.index(gripper.joint)
    return lambda observation: gripper.opening(observation.joint_position[..., index])


def _each(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """Calls a function of vectors for each of the leading indices: Pinocchio takes one configuration at a time."""
    shape = arrays[0].shape[:-1]
    values = np.array([function(*(array[index] for array in arrays)) for index in np.ndindex(shape)])
    return values.reshape(shape + values.shape[1:])


def _tilt(observation: Observation) -> np.ndarray:
    quat = _measured(observation, "base_quat")
    x, y = quat[..., 1], quat[..., 2]
    return np.arccos(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0))


def _command_error(observation: Observation) -> np.ndarray:
    quat, velocity = _measured(observation, "base_quat"), _base(observation, "base_velocity")
    w, x, y, z = (quat[..., part] for part in range(4))
    yaw = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    vx, vy = velocity[..., 0], velocity[..., 1]
    cosine, sine = np.cos(yaw), np.sin(yaw)
    forward = cosine * vx + sine * vy
    left = -sine * vx + cosine * vy
    return np.hypot(forward - observation.command[..., 0], left - observation.command[..., 1])


def _turn_error(observation: Observation) -> np.ndarray:
    return np.abs(_measured(observation, "base_gyro")[..., 2] - observation.command[..., 2])

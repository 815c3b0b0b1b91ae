"""Flies a multirotor to a point and hovers there: position control, attitude control, thruster allocation."""

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


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `QuadrotorPd`.

    Attributes:
        target: where to hover in the world, m.
        yaw: heading to hold, rad.
        reach: position errors, m, are cut to this length, which bounds the tilt on the way to a far target.
    """

    target: list[float]
    yaw: float
    reach: float


class QuadrotorPd:
    """Geometric tracking control on SE(3) with a fixed target.

    Source: Lee, Leok, McClamroch, "Geometric tracking control of a quadrotor UAV on SE(3)", CDC 2010, the
    position-controlled flight mode for a target at rest. Gains are per unit of mass and of inertia: squared natural
    frequencies and damping rates.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the tensors ``position`` (1/s²), ``velocity`` (1/s), ``attitude`` (1/s²) and ``rate`` (1/s), each of shape (3,).

        Raises:
            UserError: the bundle is incomplete, or the robot cannot make thrust and all three torques.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        self._parameters = parameters(bundle, Parameters)
        self._position, self._velocity, self._attitude, self._rate = (
            tensor(bundle, name, (3,)) for name in ("position", "velocity", "attitude", "rate")
        )
        model = RobotModel(robot)
        body = model.pin.inertias[1]  # the links are rigidly joined: one body behind the floating base
        self._mass, self._inertia = body.mass, body.inertia
        assert robot.imu_frame is not None  # or the bundle, which reads the IMU, would not have fitted
        self._imu = model.frame_pose(robot.imu_frame, robot.home).rotation
        effect = allocation(robot)[2:]
        if np.linalg.matrix_rank(effect) < 4:
            raise UserError(f"robot '{robot.name}': its thrusters do not make thrust along z and torques about x, y, z independently")
        self._mixer = np.linalg.pinv(effect)
        self._observations = ObservationBuilder(self.spec)

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode; the controller has neither memory nor randomness."""
        self._observations.reset()

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the thruster commands, in the order of the robot's joints."""
        seen = self._observations.build(observation)
        rotation = pin.Quaternion(*seen["base_quat"]).toRotationMatrix()
        rate = self._imu @ seen["base_gyro"]
        force = self._mass * (self._acceleration(seen["base_position"], seen["base_velocity"]) + [0.0, 0.0, GRAVITY])
        wanted = attitude(force, self._parameters.yaw)
        error = wanted.T @ rotation
        tilt = 0.5 * pin.unSkew(error - error.T)
        torque = self._inertia @ (-self._attitude * tilt - self._rate * rate) + np.cross(rate, self._inertia @ rate)
        command = self._mixer @ [force @ rotation[:, 2], *torque]
        return ActionChunk(self.spec.joint_names, command[None], 1.0 / self.spec.rate, observation.stamp, self._name)

    def _acceleration(self, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Returns the acceleration wanted in the world, m/s²."""
        error = np.array(self._parameters.target) - position
        error *= min(1.0, self._parameters.reach / max(float(np.linalg.norm(error)), 1e-9))
        acceleration: np.ndarray = self._position * error - self._velocity * velocity
        return acceleration


def attitude(force: np.ndarray, yaw: float) -> np.ndarray:
    """Returns the rotation (3, 3), base to world, with z along `force` and x as near to the heading `yaw`, rad, as that allows."""
    z = force / np.linalg.norm(force)
    y = np.cross(z, [np.cos(yaw), np.sin(yaw), 0.0])
    y /= np.linalg.norm(y)
    return np.column_stack([np.cross(y, z), y, z])


def allocation(robot: RobotSpec) -> np.ndarray:
    """Returns the matrix (6, n) from thruster commands to force and torque about the centre of mass, in the base's axes.

    Raises:
        UserError: the robot has other joints than thrusters.
    """
    model = RobotModel(robot)
    centre = model.pin.inertias[1].lever
    columns = []
    for joint in robot.joints:
        if joint.frame is None:
            raise UserError(f"robot '{robot.name}': joint '{joint.name}' is no thruster")
        pose = model.frame_pose(joint.frame, robot.home)
        force, torque = pose.rotation @ joint.wrench[:3], pose.rotation @ joint.wrench[3:]
        columns.append(np.concatenate([force, torque + np.cross(pose.position - centre, force)]))
    return np.column_stack(columns)

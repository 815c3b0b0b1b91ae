"""What a robot measures in a simulation: one, or many that are stepped together."""

from typing import Any

import numpy as np

from ros_rl.hardware.interface import Observation, quantise
from ros_rl.sim.build import SimModel
from ros_rl.sim.task import Task


def observe(model: SimModel, data: Any, task: Task | None, forces: bool = True) -> Observation:
    """Returns what the robot measures, without images; its arrays share no memory with the simulation.

    Args:
        model: robot and world.
        data: the simulation: a `mujoco.MjData`, or a `BatchSim`, whose copies are then the leading axis of every array, the
            stamp among them.
        task: gives command and instruction.
        forces: whether accelerations and forces are up to date with the state. Where they are not, `joint_effort` is NaN and
            `base_acc` is None.
    """
    qpos, qvel, sensors = data.qpos, data.qvel, data.sensordata
    shape = qpos.shape[:-1]
    effort = np.full((*shape, len(model.spec.measured_names)), 0.0 if forces else np.nan)
    if forces:
        effort[..., : len(model.spec.joints)] = data.actuator_force[..., model.actuators]
    imu = {name: sensors[..., where].copy() for name, where in model.imu.items() if forces or name != "base_acc"}
    odometry = {}
    if model.spec.odometry and model.base_joint is not None:
        odometry["base_position"] = qpos[..., model.free_qpos(model.base_joint)][..., :3].copy()
        odometry["base_velocity"] = qvel[..., model.free_qvel(model.base_joint)][..., :3].copy()
    command = np.empty((*shape, 3))
    command[:] = task.command if task else 0.0
    return Observation(
        stamp=quantise(data.time),
        joint_position=measured_positions(model, qpos),
        joint_velocity=measured_velocities(model, qvel),
        joint_effort=effort,
        **imu,
        **odometry,
        command=command,
        instruction=task.instruction if task else "",
        privileged=_privileged(model, qpos, qvel),
    )


def measured_positions(model: SimModel, qpos: np.ndarray) -> np.ndarray:
    """Returns the positions of all measured joints, shape (..., n + passive), from MuJoCo's (..., nq); a thruster's is 0."""
    return _spread(model, qpos[..., model.qpos])


def measured_velocities(model: SimModel, qvel: np.ndarray) -> np.ndarray:
    """Returns the velocities of all measured joints, shape (..., n + passive), from MuJoCo's (..., nv); a thruster's is 0."""
    return _spread(model, qvel[..., model.qvel])


def _spread(model: SimModel, values: np.ndarray) -> np.ndarray:
    """Puts values of the joints that have a position, shape (..., p), where they are among all measured joints."""
    if len(model.positioned) == len(model.spec.measured_names):
        return values
    spread = np.zeros((*values.shape[:-1], len(model.spec.measured_names)))
    spread[..., model.positioned] = values
    return spread


def _privileged(model: SimModel, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, np.ndarray]:
    state = {name: qpos[..., model.free_qpos(model.object_joint(name))].copy() for name in model.objects}
    for name, joint in model.scene_joints.items():
        position, velocity = model.mj.jnt_qposadr[joint], model.mj.jnt_dofadr[joint]
        state[name] = np.stack([qpos[..., position], qvel[..., velocity]], axis=-1)
    if model.base_joint is not None:
        state["base_pose"] = qpos[..., model.free_qpos(model.base_joint)].copy()
        state["base_velocity"] = qvel[..., model.free_qvel(model.base_joint)].copy()
    return state

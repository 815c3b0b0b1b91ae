"""The tasks of this package as Gymnasium environments."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from mujoco import mjtStage

from ros_rl.errors import UserError, unknown
from ros_rl.hardware.interface import Observation
from ros_rl.hardware.limits import CommandLimits
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import build
from ros_rl.sim.divergence import HIGHEST_SPEED
from ros_rl.sim.observe import measured_positions, measured_velocities
from ros_rl.sim.task import BatchMonitor, load_task
from ros_rl.sim.vector_env import BatchOfOneEnv, BatchVectorEnv, Judged

_USUAL_RATE = 50.0  # Hz: what learned controllers of arms and legs act at
_FIELDS = ("joint_position", "joint_velocity", "base_quat", "base_gyro", "base_position", "base_velocity", "command")
_STATE = "state"


class TaskVectorEnv(BatchVectorEnv):
    """A task, n times.

    An action is in [-1, 1] for each commanded joint: 0 is the robot's command at rest in its home pose (position mode: the home
    position; else the `hold` command), 1 and -1 are the limits of the command, and it is linear in between. It passes the same
    limits as on the robot (`CommandLimits`), once in a control period, and is held until the next action.

    The observation is what the robot itself measures and is told, joined into one vector; `fields` says where each field of
    `Observation` is in it. With `privileged`, simulator state that no real robot has follows, under names that say so.

    The task's own conditions and rewards judge every step. Success and failure terminate an episode, its time limit truncates it.
    Infos have ``is_success`` and, at an end, ``reason``.

    Attributes:
        task: what is to be done.
        robot: who does it.
        action_rate: Hz, at which actions are taken.
        fields: name to slice of the observation vector.
    """

    def __init__(
        self,
        task: str | Path,
        num_envs: int = 1,
        robot: str | Path | None = None,
        action_rate: float | None = None,
        privileged: bool = False,
        cameras: str | Sequence[str] = (),
        render_mode: str | None = None,
        render_camera: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
    ):
        """Builds the copies.

        Args:
            task: a name, or the path of a task file.
            num_envs: number of copies.
            robot: who does it; None takes the first that the task is for.
            action_rate: Hz, a whole fraction of the robot's control rate; None takes the highest one up to 50 Hz.
            privileged: adds simulator state to the observation: poses of objects, joints of the scene, the true pose and velocity
                of a floating base. A policy that reads it cannot run on a robot.
            cameras: makes the observation a dict of ``state`` and an image for each of these cameras (or of this one), taken at the
                camera's rate.
            render_mode: "rgb_array" or None.
            render_camera: which camera `render` uses; None takes one that follows the robot, else the first of the scene.
            autoreset_mode: what happens after an episode's end.
            threads: how many threads step the copies; None means one per CPU.

        Raises:
            UserError: there is no such task, robot, camera or mode, or they do not fit together.
        """
        self.robot = load_robot(load_task(task).robot if robot is None else robot)
        self.task = load_task(task, self.robot.name)
        self.periods = _periods(self.robot, action_rate, self.task.time_limit)
        self.model = build(self.robot, self.task.scene)
        cameras = (cameras,) if isinstance(cameras, str) else tuple(cameras)
        for camera in cameras:
            if camera not in self.model.cameras:
                raise unknown("camera", camera, self.model.cameras)
        self.action_rate = self.robot.control_rate / self.periods
        self.copies = BatchSim(self.model, num_envs, threads)
        self.cameras = cameras
        self._monitor = BatchMonitor(self.task, self.robot, (num_envs,))
        self._limits = CommandLimits(self.robot)
        self._target = np.zeros((num_envs, len(self.robot.joints)))
        self._rest, self._down, self._up = _action_map(self.robot)
        self._stage = mjtStage.mjSTAGE_VEL if self.robot.imu_frame else mjtStage.mjSTAGE_NONE
        self._seen = self.copies.observe(self.task, forces=False)
        self._names = _field_names(self.robot, self._seen, privileged)
        self.fields, space = _vector_space(self._names, self._seen, self.robot, self.task.time_limit)
        self._bounds = space.low, space.high
        self._taken = {name: np.full(num_envs, -1) for name in cameras}
        sizes = {name: (self.model.cameras[name].height, self.model.cameras[name].width, 3) for name in cameras}
        self._images = {name: np.zeros((num_envs, *size), dtype=np.uint8) for name, size in sizes.items()}
        images = {name: Box(0, 255, size, np.uint8) for name, size in sizes.items()}
        super().__init__(
            self.copies,
            self.model,
            gymnasium.spaces.Dict({_STATE: space, **images}) if images else space,
            Box(-1.0, 1.0, (len(self.robot.joints),), np.float32),
            self.action_rate,
            autoreset_mode,
            render_mode,
            render_camera,
        )

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes; the seed of `reset` gives the state that `MujocoRobot` has for it, later ones are drawn."""
        drawn = (int(self.generator(copy).integers(2**31)) if seed is None else seed for copy, seed in zip(copies, seeds, strict=True))
        self.copies.reset(copies, list(drawn), self.task)
        self._target[copies] = self.robot.rest(measured_positions(self.model, self.copies.qpos[copies]))
        self._monitor.reset(copies)
        for taken in self._taken.values():
            taken[copies] = -1

    def advance(self, actions: np.ndarray, copies: np.ndarray | None) -> None:
        """Holds the command of an action for its control periods, each time within the limits."""
        rows: Any = slice(None) if copies is None else copies
        wanted = self.command(actions[rows])
        count = len(self.robot.joints)
        for period in range(self.periods):
            position = measured_positions(self.model, self.copies.qpos[rows])[:, :count]
            velocity = measured_velocities(self.model, self.copies.qvel[rows])[:, :count]
            target = self._limits.apply(wanted, self._target[rows], position, velocity)
            self._target[rows] = target
            self.copies.command(target, copies)
            self.copies.advance(self.model.substeps, copies, self._stage if period == self.periods - 1 else mjtStage.mjSTAGE_NONE)
        self.copies.check()

    def command(self, actions: np.ndarray) -> np.ndarray:
        """Returns what actions, shape (..., n), ask for before any limit, in the robot's command mode."""
        return self._rest + actions * np.where(actions < 0, self._down, self._up)

    def observe(self) -> Any:
        """Returns the observation vectors, with images a dict of them."""
        self._seen = self.copies.observe(self.task, forces=False)
        state = np.empty((self.num_envs, len(self._bounds[0])), dtype=np.float32)
        for name, where in self.fields.items():
            state[:, where] = _value(self._seen, name)
        np.clip(state, *self._bounds, out=state)
        return {_STATE: state, **self._newest_images()} if self.cameras else state

    def judge(self) -> Judged:
        """Judges by the task's conditions and rewards."""
        now = self._monitor.update(self._seen)
        info: dict[str, Any] = {"is_success": now.success}
        if now.done.any():
            reasons = np.full(self.num_envs, None, dtype=object)
            for copy in np.flatnonzero(now.done):
                reasons[copy] = self._monitor.reason(self._seen, now, copy)
            info |= {"reason": reasons, "_reason": now.done}
        return now.reward, now.terminated, now.truncated, info

    def _newest_images(self) -> dict[str, np.ndarray]:
        for name in self.cameras:
            for copy, stamp in enumerate(np.asarray(self._seen.stamp)):
                due = self.model.cameras[name].frame_index(float(stamp))
                if due > self._taken[name][copy]:
                    self._taken[name][copy] = due
                    self._images[name][copy] = self.picture(copy, name)
        return {name: images.copy() for name, images in self._images.items()}


class TaskEnv(BatchOfOneEnv):
    """A task, once. What actions, observations and ends mean is said at `TaskVectorEnv`."""

    def __init__(
        self,
        task: str | Path,
        robot: str | Path | None = None,
        action_rate: float | None = None,
        privileged: bool = False,
        cameras: str | Sequence[str] = (),
        render_mode: str | None = None,
        render_camera: str | None = None,
    ):
        """Builds the environment; arguments are those of `TaskVectorEnv`, and `render_mode` may be "human" too."""
        vector = TaskVectorEnv(
            task, 1, robot, action_rate, privileged, cameras, None, render_camera, autoreset_mode=AutoresetMode.DISABLED, threads=1
        )
        super().__init__(vector, render_mode)


def _periods(spec: RobotSpec, action_rate: float | None, time_limit: float) -> int:
    """Returns how many control periods an action lasts; none is longer than an episode, `time_limit` in s."""
    if action_rate is None:
        return max(1, math.ceil(spec.control_rate / _USUAL_RATE - 1e-9))
    if isinstance(action_rate, bool) or not isinstance(action_rate, int | float | np.integer | np.floating):
        raise UserError(f"action_rate is {action_rate!r}, it must be a number, in Hz")
    if not 0 < action_rate <= spec.control_rate:
        raise UserError(
            f"action_rate is {action_rate:g} Hz, it must be above 0 and at most {spec.control_rate:g}, the rate of '{spec.name}'"
        )
    if action_rate * time_limit < 1.0 - 1e-9:
        raise UserError(
            f"action_rate is {action_rate:g} Hz, so that an action would last longer than the task's time limit, {time_limit:g} s"
        )
    periods = round(spec.control_rate / action_rate)
    if abs(periods * action_rate - spec.control_rate) > 1e-9 * spec.control_rate:
        raise UserError(
            f"action_rate is {action_rate:g} Hz, which does not divide the control rate of '{spec.name}', {spec.control_rate:g}"
        )
    return periods


def _action_map(spec: RobotSpec) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the command of action 0 and how far it is from there to the limits, down and up, each (n,).

    A joint without a limit turns by at most half a turn either way.
    """
    rest = spec.rest(spec.home)
    lower, upper = spec.command_limits
    lower, upper = np.where(np.isfinite(lower), lower, rest - np.pi), np.where(np.isfinite(upper), upper, rest + np.pi)
    return rest, rest - lower, upper - rest


def _field_names(spec: RobotSpec, seen: Observation, privileged: bool) -> list[str]:
    """Returns what goes into the observation: all that is measured, the command where there is a base to steer."""
    joints = any(joint.kind != "thruster" for joint in spec.joints + spec.passive)
    without = ({"joint_position", "joint_velocity"} if not joints else set()) | ({"command"} if not spec.floating_base else set())
    names = [name for name in _FIELDS if name not in without and getattr(seen, name) is not None]
    return names + [f"privileged.{name}" for name in seen.privileged] * privileged


def _value(seen: Observation, name: str) -> np.ndarray:
    kind, _, entry = name.partition(".")
    value: np.ndarray = getattr(seen, kind)[entry] if entry else getattr(seen, kind)
    return value


def _vector_space(names: list[str], seen: Observation, spec: RobotSpec, time_limit: float) -> tuple[dict[str, slice], Box]:
    """Returns where each field is in the vector, and the vector's space.

    No speed is above `HIGHEST_SPEED`, or the simulation has diverged, so nothing gets further than that speed takes it in an
    episode. Joints with limits get past them by what the contact of a hard stop gives way.
    """
    fields, lows, highs, start = {}, [], [], 0
    far = HIGHEST_SPEED * time_limit + 100.0
    joints = spec.joints + spec.passive
    for name in names:
        size = _value(seen, name).shape[-1]
        high = np.full(size, {"base_quat": 1.0, "joint_velocity": HIGHEST_SPEED, "base_velocity": HIGHEST_SPEED}.get(name, far))
        low = -high
        if name == "base_gyro":
            high, low = np.full(size, 2.0 * HIGHEST_SPEED), np.full(size, -2.0 * HIGHEST_SPEED)  # in turned axes, at most √3 times
        if name == "joint_position":
            lower, upper = np.array([joint.lower for joint in joints]), np.array([joint.upper for joint in joints])
            margin = np.where(np.isfinite(upper - lower), (upper - lower) / 2, 0.0)
            low, high = np.maximum(lower - margin, -far), np.minimum(upper + margin, far)
        fields[name] = slice(start, start + size)
        start += size
        lows.append(low)
        highs.append(high)
    return fields, Box(np.concatenate(lows).astype(np.float32), np.concatenate(highs).astype(np.float32), dtype=np.float32)

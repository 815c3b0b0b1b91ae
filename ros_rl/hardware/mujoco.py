"""A robot simulated in MuJoCo."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

from ros_rl.errors import RobotFault, UserError, unknown
from ros_rl.hardware.interface import JointCommand, Observation, quantise
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim import divergence
from ros_rl.sim.build import SimModel, build
from ros_rl.sim.camera import CameraRenderer
from ros_rl.sim.observe import observe
from ros_rl.sim.reset import hold, reset
from ros_rl.sim.task import Task

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


@dataclass(frozen=True, eq=False)
class Frame:
    """One camera image, shape (height, width, 3), and the simulated time in s at which it was taken."""

    image: np.ndarray
    stamp: float


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything a simulated robot's future depends on: MuJoCo's integration state and the cameras' last frames."""

    physics: np.ndarray
    frames: dict[str, Frame]


class MujocoRobot:
    """A robot in a simulated world, as a `SimulatedRobot`.

    What is read is a function of the integration state alone, so that a robot restored from a snapshot reads, and goes
    on, bit for bit as the one that the snapshot was taken of.
    """

    def __init__(self, spec: RobotSpec, world: Task | str | Path, seed: int = 0, cameras: Sequence[str] = ()):
        """Builds the simulation and puts it into an initial state.

        Args:
            spec: the robot.
            world: a task, which also gives the instruction, the command and the initial states; or the name or path of
                a scene.
            seed: of the initial state.
            cameras: the cameras to take images with, each at its own rate.

        Raises:
            UserError: robot, world and cameras do not fit together.
        """
        self.spec = spec
        self.task = world if isinstance(world, Task) else None
        self.model: SimModel = build(spec, world.scene if isinstance(world, Task) else world)
        for camera in cameras:
            if camera not in self.model.cameras:
                raise unknown("camera", camera, self.model.cameras)
        self.cameras = tuple(cameras)
        self.data = mujoco.MjData(self.model.mj)
        self._renderer = CameraRenderer(self.model)
        self._frames: dict[str, Frame] = {}
        self.reset(seed)

    def connect(self) -> None:
        """Makes the measured position the target."""
        self.stop()

    def read(self) -> Observation:
        """Returns the state of the simulation; an image is as old as its camera's last frame.

        Raises:
            RobotFault: the state is not finite.
        """
        self._check_state()
        frames = self._newest_frames()
        images = {name: frame.image.copy() for name, frame in frames.items()}
        stamps = {name: frame.stamp for name, frame in frames.items()}
        return replace(observe(self.model, self.data, self.task), images=images, image_stamps=stamps)

    def write(self, command: JointCommand) -> JointCommand:
        """Makes a command the target of the next steps and returns it as limited by the actuators.

        Raises:
            UserError: the joints are not those of the robot, or a value is not finite.
        """
        sent = np.clip(command.in_order_of(self.spec), *self.spec.command_limits)
        self.data.ctrl[self.model.actuators] = sent
        return JointCommand(self.spec.joint_names, sent.copy(), command.stamp, command.source)

    def step(self) -> None:
        """Advances the simulation by one control period.

        Raises:
            RobotFault: the simulation diverged; the message names the time and the body.
        """
        mujoco.mj_step(self.model.mj, self.data, self.model.substeps)
        self._check_state()
        # Brings sensors and forces up to the new state; without it they lag by one substep, and more after a restore.
        mujoco.mj_forward(self.model.mj, self.data)

    def reset(self, seed: int) -> None:
        """Starts a new episode at stamp 0 in an initial state drawn from `seed`."""
        reset(self.model, self.data, self.task, seed)
        self._frames = {}

    def stop(self) -> None:
        """Makes the measured position the target; in other modes than position, commands `hold`."""
        hold(self.model, self.data)

    def push(self, velocity: np.ndarray) -> None:
        """Changes the velocity of the floating base in the world by (3,), m/s, as a blow does.

        Raises:
            UserError: the base does not float, or the change is not finite.
        """
        if self.model.base_joint is None:
            raise UserError(f"robot '{self.spec.name}' stands on a fixed base and cannot be pushed")
        if not np.isfinite(velocity).all():
            raise UserError(f"a push changes a velocity by finite numbers, got {np.asarray(velocity).tolist()}")
        self.data.qvel[self.model.free_qvel(self.model.base_joint)][:3] += velocity
        mujoco.mj_forward(self.model.mj, self.data)

    def close(self) -> None:
        """Frees the cameras."""
        self._renderer.close()

    def snapshot(self) -> Snapshot:
        """Returns a copy of the whole state."""
        physics = np.empty(mujoco.mj_stateSize(self.model.mj, _STATE))
        mujoco.mj_getState(self.model.mj, self.data, physics, _STATE)
        return Snapshot(physics, dict(self._frames))

    def restore(self, snapshot: Snapshot) -> None:
        """Goes back to a snapshot of this robot, or of another one built from the same robot and world."""
        mujoco.mj_resetData(self.model.mj, self.data)  # clears the counts of warnings, which are no part of the state
        mujoco.mj_setState(self.model.mj, self.data, snapshot.physics, _STATE)
        mujoco.mj_forward(self.model.mj, self.data)
        self._frames = dict(snapshot.frames)

    def _stamp(self) -> float:
        return quantise(self.data.time)

    def _newest_frames(self) -> dict[str, Frame]:
        now = self._stamp()
        for name in self.cameras:
            camera, last = self.model.cameras[name], self._frames.get(name)
            if last is None or camera.frame_index(now) > camera.frame_index(last.stamp):
                self._frames[name] = Frame(self._renderer.render(self.data, name), now)
        return {name: self._frames[name] for name in self.cameras}

    def _check_state(self) -> None:
        """Raises a RobotFault if the simulation has diverged."""
        warnings = np.column_stack([self.data.warning.lastinfo, self.data.warning.number])
        what = divergence.describe(self.model.mj, self.data.qvel, self.data.qacc, warnings)
        if what:
            raise RobotFault(f"the simulation of '{self.spec.name}' diverged at {self.data.time:.3f} s: {what}")

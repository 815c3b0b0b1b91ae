"""Many copies of one simulation, stepped together on C++ threads."""

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch

from ros_rl.errors import RobotFault
from ros_rl.sim import divergence
from ros_rl.sim.build import SimModel
from ros_rl.sim.reset import measured_positions, reset
from ros_rl.sim.task import Task

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


class BatchSim:
    """n copies of a robot in a world. Each goes bit for bit the way a single `MujocoRobot` goes, at any number of threads.

    Arrays have the copies along their first axis and are views that the next call changes; copy what must stay.

    Attributes:
        model: the model that all copies share.
        qpos: positions in MuJoCo's order, shape (n, nq); `SimModel` says where things are.
        qvel: velocities, shape (n, nv).
        time: simulated time of each copy, s, shape (n,).
        sensordata: shape (n, nsensordata).
        actuator_force: N·m or N, shape (n, nu).
    """

    def __init__(self, model: SimModel, n: int, threads: int | None = None):
        """Starts n copies at MuJoCo's default state; call `reset` for an initial state.

        Args:
            model: robot and world.
            n: number of copies.
            threads: how many threads step them; None means one per CPU.
        """
        self.model = model
        self._batch = Batch(model.mj, n, threads or 0)
        self._scratch = mujoco.MjData(model.mj)
        self.qpos, self.qvel, self.time = (self._batch.bind(name) for name in ("qpos", "qvel", "time"))
        self.sensordata, self.actuator_force, self._qacc = (self._batch.bind(name) for name in ("sensordata", "actuator_force", "qacc"))
        self._batch.forward()

    def __len__(self) -> int:
        return self._batch.nsim

    @property
    def diverged(self) -> np.ndarray:
        """Which copies have blown up and need a reset, shape (n,)."""
        return divergence.wild(self.qvel, self._qacc).any(axis=-1) | self._batch.warning[..., 1].any(axis=-1)

    def step(self, commands: np.ndarray) -> np.ndarray:
        """Advances all copies by one control period.

        Args:
            commands: in the order of `RobotSpec.joints`, shape (n, joints); the actuators limit them.

        Returns:
            the states after the step, as from `snapshot`, shape (n, nstate).

        Raises:
            RobotFault: a copy diverged; the message names copy, time and body. The others have advanced as usual.
        """
        self._batch.ctrl[:, self.model.actuators] = np.clip(commands, *self.model.spec.command_limits)
        self._batch.step(nstep=self.model.substeps, stage=mujoco.mjtStage.mjSTAGE_ACC)
        bad = np.flatnonzero(self.diverged)
        if bad.size:
            copy = int(bad[0])
            what = divergence.describe(self.model.mj, self.qvel[copy], self._qacc[copy], self._batch.warning[copy])
            raise RobotFault(f"copy {copy} of '{self.model.spec.name}' diverged at {self.time[copy]:.3f} s: {what}")
        return self._batch.state.copy()

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[int] | np.ndarray, task: Task | None = None) -> None:
        """Starts new episodes in some copies, each in the initial state that a `MujocoRobot` has for that seed.

        Args:
            copies: indices, shape (k,).
            seeds: one for each, shape (k,).
            task: what the states are drawn from; None puts the robots at home.
        """
        states = np.empty((len(copies), self._batch.nstate))
        for state, seed in zip(states, seeds, strict=True):
            reset(self.model, self._scratch, task, int(seed))
            mujoco.mj_getState(self.model.mj, self._scratch, state, _STATE)
        self.restore(states, copies)

    def place(self, copies: Sequence[int] | np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Starts new episodes in some copies, each in a given state, with its actuators at rest there.

        Args:
            copies: indices, shape (k,).
            qpos: positions in MuJoCo's order, shape (k, nq).
            qvel: velocities, shape (k, nv).
        """
        states = np.empty((len(copies), self._batch.nstate))
        for state, positions, velocities in zip(states, qpos, qvel, strict=True):
            reset(self.model, self._scratch, None, 0)
            self._scratch.qpos[:], self._scratch.qvel[:] = positions, velocities
            self._scratch.ctrl[self.model.actuators] = self.model.spec.rest(measured_positions(self.model, self._scratch))
            mujoco.mj_forward(self.model.mj, self._scratch)
            mujoco.mj_getState(self.model.mj, self._scratch, state, _STATE)
        self.restore(states, copies)

    def snapshot(self, copies: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """Returns everything that the future of the copies (None: of all) depends on, shape (k, nstate)."""
        return self._batch.state.copy() if copies is None else self._batch.state[np.asarray(copies)]

    def restore(self, states: np.ndarray, copies: Sequence[int] | np.ndarray | None = None) -> None:
        """Goes back to states from `snapshot`, shape (k, nstate), in the given copies (None: in all)."""
        copies = np.arange(len(self)) if copies is None else np.asarray(copies)
        self._batch.state[copies] = states
        self._batch.warning[copies] = 0
        self._batch.forward(np.unique(copies))

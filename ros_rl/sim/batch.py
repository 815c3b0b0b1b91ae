"""Many copies of one simulation, stepped together on C++ threads."""

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco import mjtStage
from mujoco.batch import Batch

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import Observation
from ros_rl.sim import divergence
from ros_rl.sim.build import SimModel
from ros_rl.sim.observe import measured_positions, observe
from ros_rl.sim.reset import reset
from ros_rl.sim.task import Task

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION

Copies = Sequence[int] | np.ndarray


class ModelBatch:
    """n copies of one MuJoCo model. Each goes bit for bit the way a single `mujoco.MjData` goes, at any number of threads.

    Arrays have the copies along their first axis and are views that the next call changes; copy what must stay.

    Attributes:
        name: what the model stands for, in messages.
        mj: the model that all copies share.
        ctrl: set-points of the actuators for the next steps, shape (n, nu), to be written to.
        qpos: positions in MuJoCo's order, shape (n, nq).
        qvel: velocities, shape (n, nv).
        time: simulated time of each copy, s, shape (n,).
    """

    def __init__(self, name: str, mj: mujoco.MjModel, n: int, threads: int | None = None, persistent: bool = False):
        """Starts n copies at MuJoCo's default state.

        Args:
            name: what the model stands for, in messages.
            mj: the model.
            n: number of copies.
            threads: how many threads step them; None means one per CPU.
            persistent: keeps a `mujoco.MjData` for each copy, so that `data` gives all that was derived in its last step.

        Raises:
            UserError: there is not a single copy or thread.
        """
        _check_count(f"copies of '{name}'", n)
        if threads is not None:
            _check_count("threads", threads)
        self.name, self.mj = name, mj
        self._batch = Batch(mj, n, threads or 0, persistent)
        self._scratch = mujoco.MjData(mj)
        self.ctrl, self.qpos, self.qvel, self.time = (self._batch.bind(field) for field in ("ctrl", "qpos", "qvel", "time"))
        self._qacc = self._batch.bind("qacc")
        self._batch.forward()

    def __len__(self) -> int:
        return self._batch.nsim

    def bind(self, field: str) -> np.ndarray:
        """Returns a view of a field of `MjData`, shape (n, ...); what is derived from the state is filled in by the next call."""
        return self._batch.bind(field)

    def set_models(self, models: Sequence[mujoco.MjModel]) -> None:
        """Runs each copy on a model of its own from now on: compiled from the same spec, with other masses or friction, or with other
        ground. They are read where they are: set them again after changing one.
        """
        self._batch.set_models(models)

    @property
    def diverged(self) -> np.ndarray:
        """Which copies have blown up and need a reset, shape (n,)."""
        return divergence.wild(self.qvel, self._qacc).any(axis=-1) | self._batch.warning[..., 1].any(axis=-1)

    def advance(self, steps: int, copies: Copies | None = None, stage: mjtStage = mjtStage.mjSTAGE_ACC) -> None:
        """Advances some copies (None: all) by a number of physics steps with the set-points in `ctrl`.

        Args:
            steps: how many physics steps.
            copies: indices, shape (k,).
            stage: up to where sensors and derived fields are brought to the new state: the less, the faster. It makes no
                difference to the future. With mjSTAGE_NONE they are those of the state before the last step.
        """
        self._batch.step(copies, steps, stage)

    def check(self) -> None:
        """Refuses to go on with simulations that have blown up; each goes on being so until it is reset.

        Raises:
            RobotFault: a copy diverged; the message names copy, time and body.
        """
        bad = np.flatnonzero(self.diverged)
        if bad.size:
            copy = int(bad[0])
            what = divergence.describe(self.mj, self.qvel[copy], self._qacc[copy], self._batch.warning[copy])
            raise RobotFault(f"copy {copy} of '{self.name}' diverged at {self.time[copy]:.3f} s: {what}")

    def snapshot(self, copies: Copies | None = None) -> np.ndarray:
        """Returns everything that the future of the copies (None: of all) depends on, shape (k, nstate)."""
        return self._batch.state.copy() if copies is None else self._batch.state[np.asarray(copies)]

    def restore(self, states: np.ndarray, copies: Copies | None = None) -> None:
        """Goes back to states from `snapshot`, shape (k, nstate), in the given copies (None: in all)."""
        copies = np.arange(len(self)) if copies is None else np.asarray(copies)
        self._batch.state[copies] = states
        self._batch.warning[copies] = 0
        self._batch.forward(np.unique(copies))

    def data(self, copy: int) -> mujoco.MjData:
        """Returns a copy's simulation as its last step left it, if the batch is persistent; the next call overwrites it."""
        return self._batch.get_data(copy, self._scratch)

    def copy_into(self, data: mujoco.MjData, copy: int) -> None:
        """Makes a simulation of the same model, to be rendered for example, equal to one of the copies."""
        mujoco.mj_setState(self.mj, data, self._batch.state[copy], _STATE)
        mujoco.mj_forward(self.mj, data)


class BatchSim(ModelBatch):
    """n copies of a robot in a world. Each goes bit for bit the way a single `MujocoRobot` goes.

    Attributes:
        model: the robot in its world; says where things are in the arrays.
        sensordata: shape (n, nsensordata).
        actuator_force: N·m or N, shape (n, nu).
    """

    def __init__(self, model: SimModel, n: int, threads: int | None = None):
        """Starts n copies at MuJoCo's default state; call `reset` for an initial state."""
        super().__init__(model.spec.name, model.mj, n, threads)
        self.model = model
        self.sensordata, self.actuator_force = self.bind("sensordata"), self.bind("actuator_force")
        self._batch.forward()

    def command(self, commands: np.ndarray, copies: Copies | None = None) -> None:
        """Makes commands the set-points of some copies (None: of all), as far as the actuators' limits allow.

        Args:
            commands: in the order of `RobotSpec.joints`, shape (k, joints).
            copies: indices, shape (k,).
        """
        lower, upper = self.model.spec.command_limits
        rows = slice(None) if copies is None else np.asarray(copies)[:, None]
        self.ctrl[rows, self.model.actuators] = np.minimum(np.maximum(commands, lower), upper)

    def step(self, commands: np.ndarray) -> np.ndarray:
        """Advances all copies by one control period.

        Args:
            commands: in the order of `RobotSpec.joints`, shape (n, joints); the actuators limit them.

        Returns:
            the states after the step, as from `snapshot`, shape (n, nstate).

        Raises:
            RobotFault: a copy diverged; the message names copy, time and body. The others have advanced as usual.
        """
        self.command(commands)
        self.advance(self.model.substeps)
        self.check()
        return self.snapshot()

    def observe(self, task: Task | None = None, forces: bool = True) -> Observation:
        """Returns what the robots measure, see `ros_rl.sim.observe.observe`."""
        return observe(self.model, self, task, forces)

    def reset(self, copies: Copies, seeds: Copies, task: Task | None = None) -> None:
        """Starts new episodes in some copies, each in the initial state that a `MujocoRobot` has for that seed.

        Args:
            copies: indices, shape (k,).
            seeds: one for each, shape (k,).
            task: what the states are drawn from; None puts the robots at home.

        Raises:
            UserError: see `ros_rl.sim.reset.reset`.
        """
        states = np.empty((len(copies), self._batch.nstate))
        for state, seed in zip(states, seeds, strict=True):
            reset(self.model, self._scratch, task, int(seed))
            mujoco.mj_getState(self.mj, self._scratch, state, _STATE)
        self.restore(states, copies)

    def place(self, copies: Copies, qpos: np.ndarray, qvel: np.ndarray) -> None:
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
            self._scratch.ctrl[self.model.actuators] = self.model.spec.rest(measured_positions(self.model, self._scratch.qpos))
            mujoco.mj_forward(self.mj, self._scratch)
            mujoco.mj_getState(self.mj, self._scratch, state, _STATE)
        self.restore(states, copies)


def _check_count(what: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise UserError(f"{number!r} {what} were asked for, it must be a whole number from 1 on")

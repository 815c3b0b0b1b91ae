"""Gymnasium's HalfCheetah-v5 and Ant-v5 on many copies of one simulation: the same models, rewards, ends and seeds.

Source: `gymnasium.envs.mujoco.half_cheetah_v5` and `ant_v5`, with their default arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from mujoco import mjtStage

from ros_rl.errors import UserError
from ros_rl.robots.spec import Camera
from ros_rl.sim.batch import ModelBatch
from ros_rl.sim.build import quieten_mujoco
from ros_rl.sim.vector_env import BatchOfOneEnv, Judged, KeptVectorEnv

_ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
FRAME_SKIP = 5
_RESET_NOISE = 0.1
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
_TRACK = Camera("track", "torso", 480, 480, 45.0, 20.0)


@dataclass(frozen=True, eq=False)
class _World:
    """A model and the camera in it."""

    mj: mujoco.MjModel
    cameras: Mapping[str, Camera]


def _load(file: str) -> mujoco.MjModel:
    quieten_mujoco()
    return mujoco.MjModel.from_xml_path(str(_ASSETS / file))


class _LocomotionVectorEnv(KeptVectorEnv):
    """What both have in common: initial states, actuation, the time limit; positions along the track are not observed."""

    _kept = (*KeptVectorEnv._kept, "_before", "_action")
    _before: np.ndarray

    def __init__(
        self,
        model: mujoco.MjModel,
        name: str,
        unseen: int,
        extra: int,
        num_envs: int,
        max_episode_steps: int | None,
        render_mode: str | None,
        autoreset_mode: AutoresetMode | str,
        threads: int | None,
        persistent: bool = False,
    ):
        self.copies = ModelBatch(name, model, num_envs, threads, persistent)
        self.dt = model.opt.timestep * FRAME_SKIP
        unlimited = max_episode_steps in (None, -1)
        if not unlimited and not (isinstance(max_episode_steps, int | np.integer) and max_episode_steps >= 1):
            raise UserError(f"max_episode_steps must be a whole number from 1 on, or -1 for no limit, got {max_episode_steps!r}")
        self._episode_steps = np.inf if unlimited else max_episode_steps
        self._unseen = unseen
        self._action = np.zeros((num_envs, model.nu))
        seen = model.nq - unseen + model.nv + extra
        low, high = model.actuator_ctrlrange.T.astype(np.float32)
        super().__init__(
            self.copies,
            _World(model, {_TRACK.name: _TRACK}),
            Box(-np.inf, np.inf, (seen,), np.float64),
            Box(low, high, dtype=np.float32),
            1.0 / self.dt,
            autoreset_mode,
            render_mode,
        )

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes near the model's initial state, each drawn from its copy's own generator as Gymnasium draws it."""
        states = np.empty((len(copies), mujoco.mj_stateSize(self.copies.mj, _STATE)))
        mujoco.mj_resetData(self.copies.mj, self._posed)
        for state, copy in zip(states, copies, strict=True):
            draw = self.generator(copy)
            self._posed.qpos = self.copies.mj.qpos0 + draw.uniform(-_RESET_NOISE, _RESET_NOISE, self.copies.mj.nq)
            self._posed.qvel = _RESET_NOISE * draw.standard_normal(self.copies.mj.nv)
            mujoco.mj_getState(self.copies.mj, self._posed, state, _STATE)
        self.copies.restore(states, copies)
        self._elapsed[copies] = 0

    def advance(self, actions: np.ndarray, copies: np.ndarray | None) -> None:
        """Applies the actions as set-points of the actuators, which cut them to their range."""
        rows: Any = slice(None) if copies is None else copies
        self._action = actions.copy()
        self._elapsed[rows] += 1
        self.copies.ctrl[rows] = actions[rows]
        # Contact forces and body positions stay those of the state before the last step, as Gymnasium has them.
        self.copies.advance(FRAME_SKIP, copies, mjtStage.mjSTAGE_NONE)
        self.copies.check()

    def _late(self) -> np.ndarray:
        """Tells where the time is up, shape (n,), as Gymnasium's wrapper does: in a step that terminates the episode too."""
        late: np.ndarray = self._elapsed >= self._episode_steps
        return late


class HalfCheetahVectorEnv(_LocomotionVectorEnv):
    """Gymnasium's HalfCheetah-v5: run forward; the reward is the velocity less 0.1 times the squared action."""

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = 1000,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
    ):
        """Builds the copies; `threads` step them, None means one per CPU. Without `max_episode_steps` (None or -1) there is no time limit.

        Raises:
            UserError: there is no such mode, or not a single copy or step.
        """
        model = _load("half_cheetah.xml")
        super().__init__(model, "half_cheetah", 1, 0, num_envs, max_episode_steps, render_mode, autoreset_mode, threads)
        self._before = np.zeros(num_envs)

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes."""
        super().begin(copies, seeds)
        self._before[copies] = self.copies.qpos[copies, 0]

    def advance(self, actions: np.ndarray, copies: np.ndarray | None) -> None:
        """Moves the copies and remembers where they were."""
        self._before = self.copies.qpos[:, 0].copy()
        super().advance(actions, copies)

    def observe(self) -> np.ndarray:
        """Returns positions but the one along the track, then velocities, shape (n, 17)."""
        return np.concatenate([self.copies.qpos[:, self._unseen :], self.copies.qvel], axis=1)

    def judge(self) -> Judged:
        """Rewards speed; nothing terminates an episode."""
        position = self.copies.qpos[:, 0].copy()
        velocity = (position - self._before) / self.dt
        cost = 0.1 * np.square(self._action).sum(axis=1)
        info = {"x_position": position, "x_velocity": velocity, "reward_forward": velocity.copy(), "reward_ctrl": -cost}
        return velocity - cost, np.zeros(self.num_envs, dtype=bool), self._late(), info


class AntVectorEnv(_LocomotionVectorEnv):
    """Gymnasium's Ant-v5: run forward and stay healthy, with a price on actions and on forces of contact."""

    _kept = (*_LocomotionVectorEnv._kept, "_forces", "_after")

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = 1000,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
    ):
        """Builds the copies; `threads` step them, None means one per CPU. Without `max_episode_steps` (None or -1) there is no time limit.

        Raises:
            UserError: there is no such mode, or not a single copy or step.
        """
        model = _load("ant.xml")
        super().__init__(
            model, "ant", 2, (model.nbody - 1) * 6, num_envs, max_episode_steps, render_mode, autoreset_mode, threads, persistent=True
        )
        self._before, self._after = np.zeros((num_envs, 2)), np.zeros((num_envs, 2))
        self._forces = np.zeros((num_envs, model.nbody, 6))
        self._torso = self.copies.bind("xpos")[:, 1, :2]
        self._contacts = self.copies.bind("ncon")

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes; Gymnasium sees no contact forces before the first step."""
        super().begin(copies, seeds)
        self._before[copies] = self._after[copies] = self._torso[copies]
        self._forces[copies] = 0.0

    def advance(self, actions: np.ndarray, copies: np.ndarray | None) -> None:
        """Moves the copies and remembers where they were."""
        self._before = self._after
        super().advance(actions, copies)
        self._after = self._torso.copy()
        rows: Any = slice(None) if copies is None else copies
        self._forces[rows] = 0.0
        # MuJoCo derives the forces on bodies on request only, and from the contacts of its last Runge-Kutta stage, which only the
        # copy's own data holds. Where nothing touches, there are none.
        for copy in np.arange(self.num_envs)[rows][self._contacts[rows] > 0]:
            data = self.copies.data(copy)
            mujoco.mj_rnePostConstraint(self.copies.mj, data)
            self._forces[copy] = data.cfrc_ext
        np.clip(self._forces, -1.0, 1.0, out=self._forces)

    def observe(self) -> np.ndarray:
        """Returns positions but those in the plane, velocities, then forces of contact, within ±1 N, shape (n, 105)."""
        forces = self._forces[:, 1:].reshape(self.num_envs, -1)
        return np.concatenate([self.copies.qpos[:, self._unseen :], self.copies.qvel, forces], axis=1)

    def judge(self) -> Judged:
        """Rewards speed along x and health; an ant whose torso is not between 0.2 and 1 m high is not healthy."""
        position = self.copies.qpos[:, :2].copy()
        velocity = (self._after - self._before) / self.dt
        finite = np.isfinite(self.copies.qpos).all(axis=1) & np.isfinite(self.copies.qvel).all(axis=1)
        healthy = finite & (self.copies.qpos[:, 2] >= 0.2) & (self.copies.qpos[:, 2] <= 1.0)
        action_cost = 0.5 * np.square(self._action).sum(axis=1)
        contact_cost = 5e-4 * np.square(self._forces).reshape(self.num_envs, -1).sum(axis=1)
        info = {
            "x_position": position[:, 0].copy(),
            "y_position": position[:, 1].copy(),
            "distance_from_origin": np.linalg.norm(position, axis=1),
            "x_velocity": velocity[:, 0].copy(),
            "y_velocity": velocity[:, 1].copy(),
            "reward_forward": velocity[:, 0].copy(),
            "reward_ctrl": -action_cost,
            "reward_contact": -contact_cost,
            "reward_survive": healthy.astype(float),
        }
        reward = velocity[:, 0] + healthy - (action_cost + contact_cost)
        return reward, ~healthy, self._late(), info


class HalfCheetahEnv(BatchOfOneEnv):
    """One HalfCheetah."""

    def __init__(self, render_mode: str | None = None):
        """Builds the environment; its time limit is the wrapper that `gymnasium.make` puts around it."""
        super().__init__(HalfCheetahVectorEnv(1, None, None, AutoresetMode.DISABLED, 1), render_mode)


class AntEnv(BatchOfOneEnv):
    """One Ant."""

    def __init__(self, render_mode: str | None = None):
        """Builds the environment; its time limit is the wrapper that `gymnasium.make` puts around it."""
        super().__init__(AntVectorEnv(1, None, None, AutoresetMode.DISABLED, 1), render_mode)

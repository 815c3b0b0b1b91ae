"""Robots that can fall: each step tells the instability ρ of the state, and an episode ends where ρ reaches 1.

HalfCheetah and Ant are Gymnasium's with their standard rewards; `ros_rl.sim.locomotion_env` has them as they are. The quadruped is
this package's, which has no gait to begin with.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ros_rl.errors import unknown
from ros_rl.sim.locomotion_env import AntVectorEnv, HalfCheetahVectorEnv
from ros_rl.sim.vector_env import Judged
from ros_rl.sim.walk_env import NOMINAL, WalkVectorEnv, walk

_FALLEN_TILT = np.deg2rad(75.0)
_QUADRUPED_STEPS, _SPEED = 500, 0.6  # longest episode; m/s forward that is rewarded


class HalfCheetahFallEnv(HalfCheetahVectorEnv):
    """HalfCheetah with ρ = |pitch| / (π/2): it has fallen when its back is upright, or it stands on its head."""

    def instability(self) -> np.ndarray:
        """Returns ρ of the present states, (n,)."""
        rho: np.ndarray = np.abs(self.copies.qpos[:, 2]) / (np.pi / 2)
        return rho

    def judge(self) -> Judged:
        """Rewards as HalfCheetah, with ``rho`` in the infos; a fall terminates."""
        reward, _, late, info = super().judge()
        rho = self.instability()
        return reward, rho >= 1.0, late, info | {"rho": rho}


class AntFallEnv(AntVectorEnv):
    """Ant with ρ = tilt / 75°, the angle between the torso's up and the world's; it sees no forces, and may be as high as it likes."""

    def __init__(self, *args: Any, **kwargs: Any):
        """Takes the arguments of `AntVectorEnv`."""
        super().__init__(*args, **kwargs)
        self.single_observation_space = Box(-np.inf, np.inf, (self.copies.mj.nq - 2 + self.copies.mj.nv,), np.float64)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def observe(self) -> np.ndarray:
        """Returns positions but those in the plane, then velocities, shape (n, 27)."""
        return np.concatenate([self.copies.qpos[:, 2:], self.copies.qvel], axis=1)

    def instability(self) -> np.ndarray:
        """Returns ρ of the present states, (n,)."""
        _, x, y, _ = (self.copies.qpos[:, 3:7] / np.linalg.norm(self.copies.qpos[:, 3:7], axis=1, keepdims=True)).T
        rho: np.ndarray = np.arccos(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0)) / _FALLEN_TILT
        return rho

    def judge(self) -> Judged:
        """Rewards as Ant, with ``rho`` in the infos; a fall terminates, nothing else."""
        reward, _, late, info = super().judge()
        rho = self.instability()
        return reward, rho >= 1.0, late, info | {"rho": rho}


class QuadrupedFallEnv(WalkVectorEnv):
    """The quadruped, to be taught to walk ahead at 0.6 m/s from standing: an action moves the joint targets by up to 0.3 rad.

    Without a velocity command the trot of `WalkVectorEnv` stands still. An episode has at most 500 steps.
    """

    def __init__(self, num_envs: int, max_episode_steps: int, autoreset_mode: AutoresetMode | str, threads: int | None = 1):
        """Takes the arguments that all these environments have."""
        steps = min(max_episode_steps, _QUADRUPED_STEPS)
        super().__init__(walk(), num_envs, replace(NOMINAL, spread=False), steps, autoreset_mode, threads=threads)

    def judge(self) -> Judged:
        """Rewards the speed: exp(-(v - 0.6 m/s)² / 0.1) + 0.2 - 0.01 |action|². A fall terminates."""
        _, fallen, late, info = super().judge()
        reward = np.exp(-np.square(self.velocity[:, 0] - _SPEED) / 0.1) + 0.2 - 0.01 * np.square(self.walker.action).sum(axis=1)
        return reward, fallen, late, info


FallEnv = HalfCheetahFallEnv | AntFallEnv | WalkVectorEnv
FALL_ENVS: dict[str, type[HalfCheetahFallEnv] | type[AntFallEnv] | type[QuadrupedFallEnv]] = {
    "halfcheetah": HalfCheetahFallEnv,
    "ant": AntFallEnv,
    "quadruped": QuadrupedFallEnv,
}


def make_fall_env(name: str, copies: int, max_episode_steps: int = 1000, threads: int | None = 1) -> FallEnv:
    """Returns an environment of `FALL_ENVS` with autoreset off, as the learners want it.

    Raises:
        UserError: there is none of that name.
    """
    if name not in FALL_ENVS:
        raise unknown("environment", name, FALL_ENVS)
    return FALL_ENVS[name](copies, max_episode_steps, autoreset_mode=AutoresetMode.DISABLED, threads=threads)

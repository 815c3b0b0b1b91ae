"""A quadrotor that shall hover at a goal beside the point where it is safest."""

from collections.abc import Mapping, Sequence

import numpy as np

from ros_rl.robots.spec import load_robot
from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import build
from ros_rl.sim.coordinates import quaternion, rotation_vector
from ros_rl.sim.goals.interface import Outcome, SafeSet, draw_starts, observe, outside

ROBOT = "quadrotor_wrench"
RATE = 50.0  # Hz
GOALS = {"low": 0.21, "mid": 0.385, "high": 0.56}  # m along x: 30, 55 and 80 % of the way to the ellipsoid's end
SCALE = np.array([1.0, 1.0, 1.0, 1.5, 1.5, 1.5, 0.4, 0.4, 0.8, 3.0, 3.0, 2.0])
REACH = 0.5  # m


class QuadrotorGoal:
    """The environment; its state s is (position, velocity in the world, rotation vector, body rates) in m, rad and s."""

    action_size = 4
    episode_steps = 250

    def __init__(self, goals: np.ndarray, safe: SafeSet):
        """
        Args:
            goals: where to hover in each copy, m along x from the equilibrium, shape (n,).
            safe: where it is safe, for the state s.
        """
        self.goals = np.array(goals, dtype=float)
        self._targets = self.goals[:, None] * [1.0, 0.0, 0.0]
        self._safe = safe
        self._sim = BatchSim(build(load_robot(ROBOT, RATE), "floor"), len(self.goals), threads=1)
        self._steps = np.zeros(len(self.goals), int)

    def __len__(self) -> int:
        return len(self.goals)

    @property
    def safety_state(self) -> np.ndarray:
        """The state s, shape (n, 12)."""
        pose, velocity = self._sim.qpos, self._sim.qvel
        state = np.concatenate([pose[:, :3], velocity[:, :3], rotation_vector(pose[:, 3:7]), velocity[:, 3:]], axis=1)
        return state - self._safe.state_equilibrium

    @property
    def observation(self) -> np.ndarray:
        """The state, scaled, and the way from the goal, shape (n, 15)."""
        return observe(self.safety_state, SCALE, self._targets, REACH)

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[Sequence[int]]) -> None:
        """Starts new episodes."""
        states = draw_starts(self._safe, seeds) + self._safe.state_equilibrium
        pose = np.concatenate([states[:, :3], quaternion(states[:, 6:9])], axis=1)
        self._sim.place(copies, pose, np.concatenate([states[:, 3:6], states[:, 9:]], axis=1))
        self._steps[np.asarray(copies)] = 0

    def step(self, actions: np.ndarray) -> Outcome:
        """Flies for one control period. The reward is exp(-3 distance²) - 0.01 |action|²."""
        actions = np.clip(actions, -1.0, 1.0)
        self._sim.step(self._safe.action_equilibrium + self._safe.action_range * actions)
        self._steps += 1
        state = self.safety_state
        violation = outside(self._safe, state)
        distance = state[:, :3] - self._targets
        reward = np.exp(-3.0 * (distance**2).sum(axis=1)) - 0.01 * (actions**2).sum(axis=1)
        return Outcome(reward, violation, (self._steps >= self.episode_steps) & ~violation, violation)

    def state(self) -> dict[str, np.ndarray]:
        """Returns physics and step counts."""
        return {"physics": self._sim.snapshot(), "steps": self._steps.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self._sim.restore(state["physics"])
        self._steps[:] = state["steps"]

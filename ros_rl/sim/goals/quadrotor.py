"""A quadrotor that shall hover at a goal beside the point where it is safest."""

import numpy as np

from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.coordinates import quaternion, rotation_vector
from ros_rl.sim.goals.interface import SafeSet, observe
from ros_rl.sim.goals.simulated import SimulatedGoal

ROBOT = "quadrotor_wrench"
RATE = 50.0  # Hz
GOALS = {"low": 0.21, "mid": 0.385, "high": 0.56}  # m along x: 30, 55 and 80 % of the way to the ellipsoid's end
SCALE = np.array([1.0, 1.0, 1.0, 1.5, 1.5, 1.5, 0.4, 0.4, 0.8, 3.0, 3.0, 2.0])
REACH = 0.5  # m
DIRECTION = np.array([1.0, 0.0, 0.0])  # of the goals


class QuadrotorGoal(SimulatedGoal):
    """The environment; its state s is (position, velocity in the world, rotation vector, body rates) in m, rad and s."""

    action_size = 4

    def __init__(self, goals: np.ndarray, safe: SafeSet):
        """
        Args:
            goals: where to hover in each copy, m along x from the equilibrium, shape (n,).
            safe: where it is safe, for the state s.
        """
        super().__init__(build(load_robot(ROBOT, RATE), "floor"), goals, safe)
        self._targets = self.goals[:, None] * DIRECTION

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

    def _coordinates(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        states = states + self._safe.state_equilibrium
        pose = np.concatenate([states[:, :3], quaternion(states[:, 6:9])], axis=1)
        return pose, np.concatenate([states[:, 3:6], states[:, 9:]], axis=1)

    def _reward(self, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Returns exp(-3 distance²) - 0.01 |action|²."""
        distance = state[:, :3] - self._targets
        reward: np.ndarray = np.exp(-3.0 * (distance**2).sum(axis=1)) - 0.01 * (actions**2).sum(axis=1)
        return reward

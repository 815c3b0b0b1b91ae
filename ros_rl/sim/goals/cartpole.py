"""A cart that shall stand at a goal away from the middle of its rail, with its pole upright."""

import numpy as np

from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.goals.interface import SafeSet, observe
from ros_rl.sim.goals.simulated import SimulatedGoal

RATE = 50.0  # Hz
GOALS = {"low": 0.15, "mid": 0.30, "high": 0.45}  # m: 25, 50 and 75 % of the way to the ellipsoid's end
SCALE = np.array([1.0, 2.5, 0.4, 4.5])
REACH = 0.5  # m


class CartpoleGoal(SimulatedGoal):
    """The environment; its state s is (x, velocity, angle, angular velocity) in m, rad and s."""

    action_size = 1

    def __init__(self, goals: np.ndarray, safe: SafeSet, robot: str = "cartpole"):
        """
        Args:
            goals: where the cart shall stand in each copy, m, shape (n,).
            safe: where it is safe, for the state s.
            robot: a cart-pole by name, or a path to its robot.yaml.
        """
        super().__init__(build(load_robot(robot, RATE), "floor"), goals, safe)

    @property
    def safety_state(self) -> np.ndarray:
        """The state s, shape (n, 4)."""
        joints = self._sim.model
        position, velocity = self._sim.qpos[:, joints.qpos], self._sim.qvel[:, joints.qvel]
        return np.stack([position[:, 0], velocity[:, 0], position[:, 1], velocity[:, 1]], axis=1)

    @property
    def observation(self) -> np.ndarray:
        """The state, scaled, and how far the cart is from its goal, shape (n, 5)."""
        return observe(self.safety_state, SCALE, self.goals[:, None], REACH)

    def _coordinates(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        joints = self._sim.model
        qpos, qvel = np.empty((len(states), joints.mj.nq)), np.empty((len(states), joints.mj.nv))
        qpos[:, joints.qpos], qvel[:, joints.qvel] = states[:, [0, 2]], states[:, [1, 3]]
        return qpos, qvel

    def _reward(self, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Returns exp(-6 distance²) - 0.01 action²."""
        reward: np.ndarray = np.exp(-6.0 * (state[:, 0] - self.goals) ** 2) - 0.01 * actions[:, 0] ** 2
        return reward

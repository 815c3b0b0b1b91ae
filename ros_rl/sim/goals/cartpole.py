"""A cart that shall stand at a goal away from the middle of its rail, with its pole upright."""

from collections.abc import Mapping, Sequence

import numpy as np

from ros_rl.robots.spec import load_robot
from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import build
from ros_rl.sim.goals.interface import Outcome, SafeSet, draw_starts, observe, outside

RATE = 50.0  # Hz
GOALS = {"low": 0.15, "mid": 0.30, "high": 0.45}  # m: 25, 50 and 75 % of the way to the ellipsoid's end
SCALE = np.array([1.0, 2.5, 0.4, 4.5])
REACH = 0.5  # m


class CartpoleGoal:
    """The environment; its state s is (x, velocity, angle, angular velocity) in m, rad and s."""

    action_size = 1
    episode_steps = 250

    def __init__(self, goals: np.ndarray, safe: SafeSet, robot: str = "cartpole"):
        """
        Args:
            goals: where the cart shall stand in each copy, m, shape (n,).
            safe: where it is safe, for the state s.
            robot: a cart-pole by name, or a path to its robot.yaml.
        """
        self.goals = np.array(goals, dtype=float)
        self._safe = safe
        self._sim = BatchSim(build(load_robot(robot, RATE), "floor"), len(self.goals), threads=1)
        self._steps = np.zeros(len(self.goals), int)

    def __len__(self) -> int:
        return len(self.goals)

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

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[Sequence[int]]) -> None:
        """Starts new episodes."""
        states, joints = draw_starts(self._safe, seeds), self._sim.model
        qpos, qvel = np.empty((len(states), joints.mj.nq)), np.empty((len(states), joints.mj.nv))
        qpos[:, joints.qpos], qvel[:, joints.qvel] = states[:, [0, 2]], states[:, [1, 3]]
        self._sim.place(copies, qpos, qvel)
        self._steps[np.asarray(copies)] = 0

    def step(self, actions: np.ndarray) -> Outcome:
        """Pushes the carts for one control period. The reward is exp(-6 distance²) - 0.01 action²."""
        actions = np.clip(actions, -1.0, 1.0)
        self._sim.step(self._safe.action_equilibrium + self._safe.action_range * actions)
        self._steps += 1
        state = self.safety_state
        violation = outside(self._safe, state)
        reward = np.exp(-6.0 * (state[:, 0] - self.goals) ** 2) - 0.01 * actions[:, 0] ** 2
        return Outcome(reward, violation, (self._steps >= self.episode_steps) & ~violation, violation)

    def state(self) -> dict[str, np.ndarray]:
        """Returns physics and step counts."""
        return {"physics": self._sim.snapshot(), "steps": self._steps.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self._sim.restore(state["physics"])
        self._steps[:] = state["steps"]

"""PPO with a limit on falls: a critic of their cost, and a multiplier that rises while there are more than allowed.

Source: the PPO-Lagrangian baseline of Ray et al., "Benchmarking Safe Exploration in Deep Reinforcement Learning", 2019.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ros_rl.learning.mlp import Mlp, Parameters, regress
from ros_rl.learning.ppo import Batch, Environments, Ppo, PpoArgs, Rollout, advantages


class CostPpo(Ppo):
    """PPO that also learns the discounted cost of falls; what is done about it, a subclass says.

    Attributes:
        cost: falls per episode, of the last iteration in which an episode ended.
    """

    cost = 0.0

    def _build(self, observations: int, actions: int, draw: np.random.Generator) -> None:
        super()._build(observations, actions, draw)
        shape = [observations, *self.args.hidden, 1]
        self.cost_parameters = Parameters(Mlp.size_of(shape), self.args.learning_rate)
        self.cost_critic = Mlp(self.cost_parameters, 0, shape, draw, 1.0)

    def _estimate(self, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
        reward_advantage, target = super()._estimate(rollout)
        value, following = self._values(rollout, self.cost_critic)
        ends = rollout.terminated, rollout.truncated
        cost_advantage = advantages(rollout.terminated.astype(float), value, following, *ends, self.args.discount, self.args.trace)
        self._cost_target = (cost_advantage + value).ravel().astype(np.float32)
        self._ended = rollout.ends.shape[1]
        if self._ended:
            self.cost = float(rollout.terminated.sum()) / self._ended
        return self._combined(reward_advantage, cost_advantage), target

    def _combined(self, reward_advantage: np.ndarray, cost_advantage: np.ndarray) -> np.ndarray:
        """Returns the advantage that the policy is moved by, (T, n)."""
        raise NotImplementedError

    def _learn(self, batch: Batch) -> dict[str, float]:
        figures = super()._learn(batch)
        rate = self.args.learning_rate * (1.0 - self.iteration / self.iterations)
        for _ in range(self.args.epochs):
            order = self.streams.generators[1].permutation(len(self._cost_target))
            regress(self.cost_critic, batch.observation, self._cost_target, order, self.args.batch, rate, self.args.max_norm)
        return {**figures, "cost": self.cost}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns what `Ppo.state` returns, and the cost."""
        return {**super().state(), "cost_critic": self.cost_parameters.state(), "cost": {"cost": np.array(self.cost)}}

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what `state` returned."""
        super().restore(state)
        self.cost_parameters.restore(state["cost_critic"])
        self.cost = float(state["cost"]["cost"])


@dataclass(frozen=True)
class MultiplierArgs:
    """Settings of the constraint."""

    limit: float = 0.05
    """Falls per episode that are allowed."""
    start: float = 0.1
    """The multiplier at first."""
    rate: float = 0.05
    """By how much it grows in an iteration, per fall per episode above the limit."""


class LagrangianPpo(CostPpo):
    """Follows (A_reward - ν·A_cost) / (1 + ν)."""

    def __init__(self, args: PpoArgs, environments: Environments, iterations: int, seed: int, constraint: MultiplierArgs | None = None):
        """Takes what `Ppo` takes, and the constraint."""
        self.constraint = constraint or MultiplierArgs()
        self.multiplier = self.constraint.start
        super().__init__(args, environments, iterations, seed)

    def _combined(self, reward_advantage: np.ndarray, cost_advantage: np.ndarray) -> np.ndarray:
        if self._ended:
            self.multiplier = max(0.0, self.multiplier + self.constraint.rate * (self.cost - self.constraint.limit))
        combined: np.ndarray = (reward_advantage - self.multiplier * cost_advantage) / (1.0 + self.multiplier)
        return combined

    def _learn(self, batch: Batch) -> dict[str, float]:
        return {**super()._learn(batch), "multiplier": self.multiplier}

    def _asked(self) -> dict[str, Any]:
        return {**super()._asked(), "constraint": asdict(self.constraint)}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns what `CostPpo.state` returns, and the multiplier."""
        return {**super().state(), "multiplier": {"multiplier": np.array(self.multiplier)}}

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what `state` returned."""
        super().restore(state)
        self.multiplier = float(state["multiplier"]["multiplier"])

"""Constrained policy optimisation: the best step within a trust region that keeps the cost below its limit.

Source: Achiam et al., "Constrained Policy Optimization", ICML 2017; the step is that of its theorem 2.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ros_rl.learning.ppo import Batch, Environments, PpoArgs, Rollout, log_prob_of, through_gaussian
from ros_rl.learning.ppo_lagrangian import CostPpo

Product = Callable[[np.ndarray], np.ndarray]

_NOTHING = 1e-10  # curvature below which a gradient is none


@dataclass(frozen=True)
class CpoArgs:
    """Settings of the constrained step."""

    limit: float = 0.05
    """Falls per episode that are allowed."""
    radius: float = 0.01
    """KL divergence that a step may bring."""
    damping: float = 0.1
    """Added to the diagonal of the Fisher matrix."""
    solver_steps: int = 10
    """Iterations of the conjugate gradient."""
    backtracks: int = 15
    """How often a step is shortened before it is given up."""


def conjugate_gradient(product: Product, wanted: np.ndarray, steps: int) -> np.ndarray:
    """Returns x with H x ≈ wanted after some steps, for a positive definite H that is known by its product with vectors."""
    solution, residual = np.zeros_like(wanted), wanted.copy()
    direction, size = residual.copy(), residual @ residual
    for _ in range(steps):
        if size < _NOTHING:
            break
        image = product(direction)
        length = size / (direction @ image)
        solution += length * direction
        residual -= length * image
        smaller = residual @ residual
        direction, size = residual + smaller / size * direction, smaller
    return solution


def constrained_step(
    towards: np.ndarray, cost: np.ndarray, to_reward: np.ndarray, to_cost: np.ndarray, excess: float, radius: float
) -> np.ndarray:
    """Returns x that maximises g·x with x'Hx/2 ≤ δ and c + b·x ≤ 0, shape (p,); where nothing is feasible, what lowers the cost most.

    Args:
        towards: g, gradient of the reward.
        cost: b, gradient of the cost.
        to_reward: H⁻¹ g.
        to_cost: H⁻¹ b.
        excess: c, cost above its limit.
        radius: δ.
    """
    q, r, s = towards @ to_reward, towards @ to_cost, cost @ to_cost
    if q < _NOTHING and (excess <= 0.0 or s < _NOTHING):
        return np.zeros_like(towards)
    if s < _NOTHING or (excess < 0.0 and excess**2 / s > 2 * radius):
        return np.sqrt(2 * radius / q) * to_reward  # the constraint is out of reach
    if excess > 0.0 and excess**2 / s > 2 * radius:
        return -np.sqrt(2 * radius / s) * to_cost
    multiplier = _multiplier(q, r, s, excess, radius)
    price = max(0.0, (multiplier * excess + r) / s)
    step: np.ndarray = (to_reward - price * to_cost) / multiplier
    return step


def _multiplier(q: float, r: float, s: float, excess: float, radius: float) -> float:
    """Returns the λ that minimises the dual: over where the constraint binds (λ·c + r > 0), and over where it does not."""
    rest, room = max(q - r**2 / s, 0.0), max(2 * radius - excess**2 / s, _NOTHING)
    edge = -r / excess if excess else 0.0
    binds, loose = (0.0, np.inf), (0.0, np.inf)  # intervals of λ
    if excess < 0.0:
        binds, loose = (0.0, edge), (max(0.0, edge), np.inf)
    elif excess > 0.0:
        binds, loose = (max(0.0, edge), np.inf), (0.0, edge)
    elif r > 0.0:
        loose = (0.0, -1.0)
    else:
        binds = (0.0, -1.0)
    candidates = []
    for (low, high), best, value in (
        (binds, np.sqrt(rest / room), lambda x: rest / (2 * x) + x * (radius - excess**2 / (2 * s)) - r * excess / s),
        (loose, np.sqrt(q / (2 * radius)), lambda x: q / (2 * x) + x * radius),
    ):
        if high >= low and high > 0.0:
            found = max(float(np.clip(best, low, high)), _NOTHING)
            candidates.append((value(found), found))
    return min(candidates)[1]


class Cpo(CostPpo):
    """CPO with the environments and critics of PPO; the policy takes one step an iteration."""

    def __init__(self, args: PpoArgs, environments: Environments, iterations: int, seed: int, constraint: CpoArgs | None = None):
        """Takes what `Ppo` takes, and the constraint."""
        self.constraint = constraint or CpoArgs()
        super().__init__(args, environments, iterations, seed)

    def _estimate(self, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
        found = super()._estimate(rollout)
        self._episode = rollout.reward.size / max(self._ended, 1)  # steps
        return found

    def _combined(self, reward_advantage: np.ndarray, cost_advantage: np.ndarray) -> np.ndarray:
        self._cost_advantage = (cost_advantage - cost_advantage.mean()).ravel()
        return reward_advantage

    def _learn(self, batch: Batch) -> dict[str, float]:
        divergence = self._constrained_update(batch)
        return {**super()._learn(batch), "kl": divergence}

    def _policy_gradient(self, batch: Batch, rows: np.ndarray) -> None:
        """Leaves the policy alone while the critic learns."""

    def _asked(self) -> dict[str, Any]:
        return {**super()._asked(), "constraint": asdict(self.constraint)}

    def _constrained_update(self, batch: Batch) -> float:
        """Takes the step, shortened until it keeps what it promises, or none; returns the divergence that it brought."""
        values = self.actor.forward(batch.observation)
        mean, log_std = values[-1].numpy().copy(), self.log_std.copy()

        def gradient(weight: np.ndarray) -> np.ndarray:
            means, spread = through_gaussian(weight.astype(np.float32) / len(weight), batch.action, mean, log_std)
            return self._pulled_back(values, means, spread)

        def fisher(direction: np.ndarray) -> np.ndarray:
            split = self._actor_gradient.size
            moved = self.actor.tangent(values, direction[:split].astype(np.float32))
            means = moved * np.exp(-2.0 * log_std) / np.float32(len(moved))
            return self._pulled_back(values, means, 2.0 * direction[split:]) + self.constraint.damping * direction

        settings, excess = self.constraint, self.cost - self.constraint.limit
        # The cost is counted per episode, its gradient per step.
        towards, cost = gradient(batch.advantage), self._episode * gradient(self._cost_advantage)
        to_reward, to_cost = (conjugate_gradient(fisher, wanted, settings.solver_steps) for wanted in (towards, cost))
        step = constrained_step(towards, cost, to_reward, to_cost, excess, settings.radius)
        return self._backtrack(batch, step, mean, log_std, excess)

    def _pulled_back(self, values: list, means: np.ndarray, spread: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        self.actor.backward(values, means.astype(np.float32))
        return np.concatenate([self._actor_gradient, spread]).astype(float)

    def _backtrack(self, batch: Batch, step: np.ndarray, mean: np.ndarray, log_std: np.ndarray, excess: float) -> float:
        split = self._actor_gradient.size
        actor = self.parameters.values[:split]
        before = actor.copy()
        for _ in range(self.constraint.backtracks):
            actor[:], self.log_std[:] = before + step[:split], log_std + step[split:]
            moved = self.actor.forward(batch.observation)[-1].numpy()
            divergence = kl_divergence(mean, log_std, moved, self.log_std)
            ratio = np.exp(log_prob_of(batch.action, moved, self.log_std) - batch.log_prob)
            worse = self._episode * float(np.mean((ratio - 1.0) * self._cost_advantage))
            if divergence <= self.constraint.radius and worse <= max(0.0, -excess):
                return divergence
            step = 0.8 * step
        actor[:], self.log_std[:] = before, log_std
        return 0.0


def kl_divergence(mean: np.ndarray, log_std: np.ndarray, other_mean: np.ndarray, other_log_std: np.ndarray) -> float:
    """Returns the mean over k states of KL(first, other) between diagonal Gaussians; means (k, m), logarithms of spreads (m,)."""
    scaled = np.exp(2.0 * (log_std - other_log_std)) + ((mean - other_mean) * np.exp(-other_log_std)) ** 2
    return float((0.5 * (scaled - 1.0) + other_log_std - log_std).sum(-1).mean())

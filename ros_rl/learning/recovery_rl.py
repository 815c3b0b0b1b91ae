"""PPO beside a recovery policy that a learned risk calls, in the style of Recovery RL.

Implemented from a description of Thananjeyan et al., "Recovery RL: Safe Reinforcement Learning with Learned Recovery Zones", RA-L
2021. The policy learns from the actions that it proposed, as if they had been executed, also where the recovery policy acted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ros_rl.learning.mlp import Mlp, Parameters
from ros_rl.learning.ppo import Batch, Environments, PpoArgs, Rollout
from ros_rl.learning.safeexplorer import ExplorerArgs, Recovery, SafeExplorer


@dataclass(frozen=True)
class RiskArgs:
    """Settings of the risk."""

    discount: float = 0.85
    """Factor by which a fall counts less for every step that it is away."""
    threshold: float = 0.2
    """Risk of the proposed action above which the recovery policy acts."""
    epochs: int = 4
    """How often the critic of the risk goes through what was collected."""


def risk_targets(fell: np.ndarray, next_risk: np.ndarray, discount: float) -> np.ndarray:
    """Returns c + γ·(1 - c)·Q(s', a'), with Q held within 0 and 1; all (T, n)."""
    targets: np.ndarray = fell + discount * (1.0 - fell) * np.clip(next_risk, 0.0, 1.0)
    return targets


class RecoveryRl(SafeExplorer):
    """PPO, with a critic of the risk that decides who acts."""

    def __init__(
        self,
        args: PpoArgs,
        environments: Environments,
        iterations: int,
        seed: int,
        recovery: Recovery,
        explorer: ExplorerArgs,
        risk: RiskArgs | None = None,
    ):
        """Starts without a notion of risk; of `explorer`, `stuck_after` alone has a meaning here."""
        self.risk = risk or RiskArgs()
        unbiased = ExplorerArgs(explorer.start_region, explorer.max_region, explorer.ramp, 0.0, explorer.stuck_after, False, False)
        super().__init__(args, environments, iterations, seed, recovery, unbiased)
        self._executed = np.zeros((args.rollout, args.copies, len(self.low)), np.float32)

    def _build(self, observations: int, actions: int, draw: np.random.Generator) -> None:
        super()._build(observations, actions, draw)
        shape = [observations + actions, *self.args.hidden, 1]
        self.risk_parameters = Parameters(Mlp.size_of(shape), self.args.learning_rate)
        self.risk_critic = Mlp(self.risk_parameters, 0, shape, draw, 0.01)

    def _inside(self, proposed: np.ndarray) -> np.ndarray:
        risk = self.risk_critic(np.concatenate([self._seen, np.clip(proposed, self.low, self.high)], axis=1))[:, 0]
        return np.asarray(risk <= self.risk.threshold)

    def _returned(self, rho: np.ndarray) -> np.ndarray:
        return np.zeros(len(rho), bool)  # the next proposed action decides, not the state

    def _choose(self, proposed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        _, acted, executed = super()._choose(proposed)
        self._executed[self._step] = np.clip(executed, self.low, self.high)
        return proposed, acted, executed

    def _estimate(self, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
        """Remembers what the risk learns from."""
        self._taken = np.concatenate([rollout.observation, self._executed], axis=2).reshape(-1, self.risk_critic.sizes[0])
        self._following = rollout.following().reshape(-1, rollout.observation.shape[2])
        self._fell = rollout.terminated.ravel().astype(np.float32)
        return super()._estimate(rollout)

    def _learn(self, batch: Batch) -> dict[str, float]:
        """Learns the risk too, from executed actions, with those that the policy now takes afterwards."""
        figures = super()._learn(batch)
        mean = np.clip(self.actor.forward(self._following)[-1].numpy(), self.low, self.high)
        ahead = np.concatenate([self._following, mean], axis=1)
        for _ in range(self.risk.epochs):
            next_risk = self.risk_critic.forward(ahead)[-1].numpy()[:, 0]
            targets = risk_targets(self._fell, next_risk, self.risk.discount)
            order = self.streams.generators[1].permutation(len(targets))
            for rows in np.array_split(order, -(-len(order) // self.args.batch)):
                values = self.risk_critic.forward(self._taken[rows])
                error = values[-1].numpy() - targets[rows, None].astype(np.float32)
                self.risk_critic.backward(values, error / np.float32(len(rows)))
                self.risk_parameters.descend(self.args.learning_rate, self.args.max_norm)
        return {**figures, "risk_loss": 0.5 * float(np.mean(error * error))}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns what `SafeExplorer.state` returns, and the risk."""
        return {**super().state(), "risk": self.risk_parameters.state()}

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what `state` returned."""
        super().restore(state)
        self.risk_parameters.restore(state["risk"])

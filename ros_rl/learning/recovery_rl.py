"""PPO beside a recovery policy that a learned risk calls, in the style of Recovery RL.

Implemented from a description of Thananjeyan et al., "Recovery RL: Safe Reinforcement Learning with Learned Recovery Zones", RA-L
2021. The risk is learned first from transitions with falls in them, those that the recovery policy has learned from, then from these
and what is collected in equal parts: what is collected alone holds hardly a fall, and the risk would be forgotten. The policy learns
from the actions that it proposed, as if they had been executed, also where the recovery policy acted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ros_rl.learning.mlp import Mlp, Parameters, one_thread, regress
from ros_rl.learning.ppo import Batch, Environments, Moments, PpoArgs, Rollout
from ros_rl.learning.safeexplorer import ExplorerArgs, Recovery, SafeExplorer

_PARTS = "observation", "action", "terminated", "next_observation"  # of a transition


@dataclass(frozen=True)
class RiskArgs:
    """Settings of the risk."""

    discount: float = 0.85
    """Factor by which a fall counts less for every step that it is away."""
    threshold: float = 0.2
    """Risk of the proposed action above which the recovery policy acts."""
    epochs: int = 4
    """How often the critic of the risk goes through what was collected, and as many of the first transitions."""
    first_epochs: int = 20
    """How often it goes through the first transitions, before anything is collected."""


def risk_targets(fell: np.ndarray, next_risk: np.ndarray, discount: float) -> np.ndarray:
    """Returns c + γ·(1 - c)·Q(s', a'), with Q held within 0 and 1; all (T, n)."""
    targets: np.ndarray = fell + discount * (1.0 - fell) * np.clip(next_risk, 0.0, 1.0)
    return targets


class RecoveryRl(SafeExplorer):
    """PPO, with a critic of the risk that decides who acts.

    Attributes:
        risk_critic: Q of a fall, of normalised observation and action.
        risk_moments: what it normalises with, of the first transitions.
    """

    def __init__(
        self,
        args: PpoArgs,
        environments: Environments,
        iterations: int,
        seed: int,
        recovery: Recovery,
        first: Mapping[str, np.ndarray],
        explorer: ExplorerArgs | None = None,
        risk: RiskArgs | None = None,
    ):
        """Learns the risk from the first transitions, see `ros_rl.learning.recovery.Trained`.

        Of `explorer`, `stuck_after` alone has a meaning here.
        """
        self.risk = risk or RiskArgs()
        found = explorer or ExplorerArgs()
        alone = ExplorerArgs(found.start_region, found.max_region, found.ramp, 0.0, found.stuck_after, False, False)
        super().__init__(args, environments, iterations, seed, recovery, alone)
        observations, actions = environments.single_observation_space.shape, len(self.low)
        assert observations is not None
        self._executed = np.zeros((args.rollout, args.copies, actions))
        self._following = np.zeros((args.rollout, args.copies, *observations))
        self._first = {name: first[name] for name in _PARTS}
        self.risk_moments.update(first["observation"])
        with one_thread():
            self._learn_risk(self._first, self.risk.first_epochs, args.learning_rate)

    def _build(self, observations: int, actions: int, draw: np.random.Generator) -> None:
        super()._build(observations, actions, draw)
        shape = [observations + actions, *self.args.hidden, 1]
        self.risk_parameters = Parameters(Mlp.size_of(shape), self.args.learning_rate)
        self.risk_critic = Mlp(self.risk_parameters, 0, shape, draw, 0.01)
        self.risk_moments = Moments(observations)

    def _inputs(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Returns what the critic of the risk sees, float32 (k, o + m)."""
        return np.concatenate([self.risk_moments(observation), np.clip(action, self.low, self.high)], axis=1, dtype=np.float32)

    def _inside(self, proposed: np.ndarray) -> np.ndarray:
        return np.asarray(self.risk_critic(self._inputs(self._observation, proposed))[:, 0] <= self.risk.threshold)

    def _returned(self, rho: np.ndarray) -> np.ndarray:
        return np.zeros(len(rho), bool)  # the next proposed action decides, not the state

    def _refuse_resets_outside(self, rho: np.ndarray) -> None:
        """Has nothing against any: the region plays no part."""

    def _choose(self, proposed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        was_helped = self._recovering > 0
        _, acted, executed = super()._choose(proposed)
        if self._step:  # who acts alone again has come back in the step before
            self._back[self._step - 1] |= was_helped & self._chosen[self._step]
        self._executed[self._step] = executed
        return proposed, acted, executed

    def _end(
        self, terminated: np.ndarray, truncated: np.ndarray, reward: np.ndarray, observation: np.ndarray, info: Mapping[str, Any]
    ) -> np.ndarray:
        self._following[self._step] = observation
        return super()._end(terminated, truncated, reward, observation, info)

    def _collect(self) -> Rollout:
        """Remembers what the risk learns from."""
        rollout = super()._collect()
        parts = rollout.raw, self._executed, rollout.terminated, self._following
        self._collected = {name: part.reshape(-1, *part.shape[2:]) for name, part in zip(_PARTS, parts, strict=True)}
        return rollout

    def _learn(self, batch: Batch) -> dict[str, float]:
        """Learns the risk too, from executed actions, with those that the policy now takes afterwards."""
        figures = super()._learn(batch)
        rate = self.args.learning_rate * (1.0 - self.iteration / self.iterations)
        rows = self.streams.generators[1].integers(len(self._first["action"]), size=len(self._collected["action"]))
        mixed = {name: np.concatenate([part, self._first[name][rows]]) for name, part in self._collected.items()}
        return {**figures, "risk_loss": self._learn_risk(mixed, self.risk.epochs, rate)}

    def _learn_risk(self, transitions: Mapping[str, np.ndarray], epochs: int, rate: float) -> float:
        """Descends on k transitions and returns the last loss; the policy's mean is what is done after each of them."""
        taken, following = self._inputs(transitions["observation"], transitions["action"]), transitions["next_observation"]
        ahead = self._inputs(following, self.actor.forward(self.moments(following))[-1].numpy())
        fell = transitions["terminated"].astype(np.float32)
        for _ in range(epochs):
            targets = risk_targets(fell, self.risk_critic.forward(ahead)[-1].numpy()[:, 0], self.risk.discount).astype(np.float32)
            order = self.streams.generators[1].permutation(len(targets))
            loss = regress(self.risk_critic, taken, targets, order, self.args.batch, rate, self.args.max_norm)
        return loss

    def _own(self, rows: np.ndarray) -> np.ndarray:
        return np.ones(len(rows), bool)  # what is learned from was proposed by the policy, at every step

    def _asked(self) -> dict[str, Any]:
        return {**super()._asked(), "risk": asdict(self.risk)}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns what `SafeExplorer.state` returns, and the risk."""
        return {**super().state(), "risk": self.risk_parameters.state(), "risk_moments": self.risk_moments.state()}

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what `state` returned."""
        super().restore(state)
        self.risk_parameters.restore(state["risk"])
        self.risk_moments.restore(state["risk_moments"])

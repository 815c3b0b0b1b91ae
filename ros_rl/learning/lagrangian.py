"""SAC with a cost limit: a cost critic and a multiplier that rises while the policy's expected cost is above the limit.

Source: the Lagrangian baseline of safe reinforcement learning, e.g. Ha et al., "Learning to Walk in the Real World with Minimal
Human Effort", CoRL 2020 (SAC-Lagrangian).
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ros_rl.learning.replay import Streams
from ros_rl.learning.sac import Acted, Critic, Sac, SacArgs, bootstrapped


@dataclass(frozen=True)
class LagrangianArgs:
    """Settings of the constraint."""

    limit: float = 0.0
    """Discounted cost that is allowed."""
    multiplier_rate: float = 1e-3
    """By how much the multiplier grows in an update, per unit of cost above the limit."""


class LagrangianSac(Sac):
    """Maximises value - multiplier·cost; batches hold the `cost` of every transition too."""

    def __init__(self, args: SacArgs, observations: int, actions: int, streams: Streams, constraint: LagrangianArgs | None = None):
        """Makes SAC's networks, then one cost critic for each run."""
        super().__init__(args, observations, actions, streams)
        self.constraint = constraint or LagrangianArgs()
        self.multiplier = torch.zeros(len(streams.generators))
        self.cost_critic = Critic(observations, actions, args.hidden, streams.generators, copies=1)
        self.cost_target = copy.deepcopy(self.cost_critic)
        self.optimisers["cost"] = self._adam(self.cost_critic.parameters())

    def update(self, batch: Mapping[str, torch.Tensor], noise: torch.Tensor) -> dict[str, torch.Tensor]:
        """Learns the cost, then as SAC does; the figures have `multiplier` too."""
        with torch.no_grad():
            following = self.act(batch["next_observation"], batch["next_margin"], batch["next_safe_action"], noise[0])
            value = self.cost_target(batch["next_observation"], following.action)[0]
            target = bootstrapped(batch["cost"], batch["terminated"], value, self.args.discount)
        errors = self.cost_critic(batch["observation"], batch["action"])[0] - target
        self._descend("cost", (errors**2).mean(-1).sum(), list(self.cost_critic.parameters()))
        self._track(self.cost_target, self.cost_critic)
        return {**super().update(batch, noise), "multiplier": self.multiplier}

    def objective(self, batch: Mapping[str, torch.Tensor], acted: Acted) -> torch.Tensor:
        """Returns value - multiplier·cost, (R, batch)."""
        return super().objective(batch, acted) - self.multiplier[:, None] * self.cost_critic(batch["observation"], acted.action)[0]

    def _update_actor(self, batch: Mapping[str, torch.Tensor], acted: Acted, temperature: torch.Tensor) -> None:
        """Moves the multiplier by the cost of what the actor would do, then the actor."""
        with torch.no_grad():
            excess = self.cost_critic(batch["observation"], acted.action)[0].mean(-1) - self.constraint.limit
        self.multiplier = (self.multiplier + self.constraint.multiplier_rate * excess).clamp(min=0.0)
        super()._update_actor(batch, acted, temperature)

    def modules(self) -> dict[str, nn.Module]:
        """Returns the networks by name."""
        return {**super().modules(), "cost_critic": self.cost_critic, "cost_target": self.cost_target}

    def state(self) -> dict[str, np.ndarray]:
        """Returns what SAC returns, and the multiplier."""
        return {**super().state(), "multiplier": self.multiplier.numpy().copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        super().restore(state)
        self.multiplier = torch.from_numpy(state["multiplier"].copy())

"""Soft actor-critic, many runs at once, with the option to train through an AutoSafe mixture.

Sources: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (twin critics, tuned temperature). Where the policy
has a sharpness, AutoSafe is implemented from its description: the critic sees the mixed action, and the actor's gradient passes
the mixture on its way to the network.

Every tensor has the runs along its first axis. A run's loss depends on its own row alone, and Adam works on each number by
itself, so that training R runs together is R independent trainings.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from ros_rl.learning.replay import Streams
from ros_rl.policies.networks import GaussianActor, StackedMlp
from ros_rl.safety.autosafe import Sharpness, mix, mixing_weight


@dataclass(frozen=True)
class SacArgs:
    """Settings of soft actor-critic."""

    discount: float = 0.99
    """Factor by which a reward counts less for every step that it is away."""
    target_rate: float = 0.005
    """Share of the critics that the target critics take over in an update."""
    learning_rate: float = 3e-4
    """Step size of Adam, for actor, critics and temperature."""
    batch: int = 256
    """Transitions in an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    warmup: int = 1000
    """Steps with uniformly random actions before the first update."""
    correction: float | None = None
    """Share of the action range by which the network changes a nominal action, the last entries of an observation; None: there is no
    nominal action, the network's is the policy's."""


class Acted(NamedTuple):
    """What a policy did.

    Attributes:
        action: to execute, within [-1, 1], shape (R, batch, m).
        log_prob: of the network's own action before mixing, (R, batch).
        weight: λ of the safe action, (R, batch); None without AutoSafe.
        sharpness: p, (R, batch) or a number; None without AutoSafe.
    """

    action: torch.Tensor
    log_prob: torch.Tensor
    weight: torch.Tensor | None
    sharpness: torch.Tensor | float | None


class Critic(nn.Module):
    """C critics for each of R runs."""

    def __init__(self, observations: int, actions: int, hidden: Sequence[int], generators: Sequence[np.random.Generator], copies: int = 2):
        """Draws the weights; critic c of run r is network c·R + r."""
        super().__init__()
        self.copies = copies
        self.layers = StackedMlp([observations + actions, *hidden, 1], list(generators) * copies)

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns the values, shape (C, R, batch)."""
        inputs = torch.cat([observation, action], dim=-1)
        values: torch.Tensor = self.layers(inputs.repeat(self.copies, 1, 1))
        return values.reshape(self.copies, *inputs.shape[:2])


def log_prob_of_tanh(before: torch.Tensor, noise: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Returns log π(tanh(u)) for u = mean + exp(log_std)·noise, summed over the last axis.

    log(1 - tanh²u) = 2·(log 2 - u - softplus(-2u)), which stays finite where tanh(u) rounds to 1.

    Args:
        before: u, shape (..., m).
        noise: standard normal, (..., m).
        log_std: (..., m).
    """
    gaussian = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return (gaussian - 2.0 * (np.log(2.0) - before - softplus(-2.0 * before))).sum(-1)


def bootstrapped(reward: torch.Tensor, terminated: torch.Tensor, next_value: torch.Tensor, discount: float) -> torch.Tensor:
    """Returns r + γ·(1 - terminated)·V(next): an episode that ended by its time limit is not terminated, and goes on in the value."""
    return reward + discount * (1.0 - terminated) * next_value


class Sac:
    """The learner: actor, twin critics and temperature of R runs."""

    def __init__(self, args: SacArgs, observations: int, actions: int, streams: Streams, sharpness: Sharpness | None = None):
        """Draws the networks of run r from stream r.

        Args:
            args: settings.
            observations: size of an observation.
            actions: size m of an action.
            streams: random numbers, one stream for each run.
            sharpness: None for plain SAC.
        """
        self.args = args
        self.sharpness = sharpness
        self.actor = GaussianActor(observations, actions, args.hidden, streams.generators, bool(sharpness and sharpness.learned))
        self.critic = Critic(observations, actions, args.hidden, streams.generators)
        self.target = copy.deepcopy(self.critic)
        self.log_temperature = nn.Parameter(torch.zeros(len(streams.generators)))
        self.target_entropy = -float(actions)
        self.optimisers = {
            "actor": self._adam(self.actor.parameters()),
            "critic": self._adam(self.critic.parameters()),
            "temperature": self._adam([self.log_temperature]),
        }

    def _adam(self, parameters: object) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.args.learning_rate, fused=True)  # type: ignore[arg-type]

    def act(self, observation: torch.Tensor, margin: torch.Tensor, safe_action: torch.Tensor, noise: torch.Tensor | None) -> Acted:
        """Returns the policy's action, mixed with the safe one if the policy is AutoSafe's.

        Args:
            observation: (R, batch, o).
            margin: D of the state, (R, batch); not read without AutoSafe, as `safe_action`.
            safe_action: (R, batch, m).
            noise: standard normal, (R, batch, m); None for the deterministic policy, tanh of the mean.
        """
        mean, log_std, logit = self.actor(observation)
        noise = torch.zeros_like(mean) if noise is None else noise
        before = mean + log_std.exp() * noise
        return self.mixed(
            self._corrected(observation, torch.tanh(before)), log_prob_of_tanh(before, noise, log_std), logit, margin, safe_action
        )

    def warm_up(self, observation: torch.Tensor, margin: torch.Tensor, safe_action: torch.Tensor, uniform: torch.Tensor) -> Acted:
        """Returns a random action, mixed as any other. `uniform` is in [-1, 1], (R, batch, m)."""
        _, _, logit = self.actor(observation)
        return self.mixed(self._corrected(observation, uniform), torch.zeros(uniform.shape[:2]), logit, margin, safe_action)

    def _corrected(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns the policy's action, (R, batch, m), from what its network says, with the nominal one where there is one."""
        if self.args.correction is None:
            return action
        return observation[..., -action.shape[-1] :] + self.args.correction * action

    def mixed(
        self, action: torch.Tensor, log_prob: torch.Tensor, logit: torch.Tensor | None, margin: torch.Tensor, safe_action: torch.Tensor
    ) -> Acted:
        """Mixes the policy's action with the safe one.

        The log-probability stays that of the network's output: the mixture's has the term -m·log(1 - λ), infinite at λ = 1.
        """
        if self.sharpness is None:
            return Acted(action, log_prob, None, None)
        sharpness = self.sharpness.of(logit)
        weight = mixing_weight(margin, sharpness)
        return Acted(mix(action, safe_action, weight), log_prob, weight, sharpness)

    def update(self, batch: Mapping[str, torch.Tensor], noise: torch.Tensor) -> dict[str, torch.Tensor]:
        """Learns from one batch.

        Args:
            batch: observation, action, reward, terminated, next_observation, and margin and safe_action before and after
                (next_margin, next_safe_action); each (R, batch, ...).
            noise: standard normal, (2, R, batch, m): for the next action and for the present one.

        Returns:
            for each run, (R,): critic_loss, temperature, entropy.
        """
        critic_loss = self._update_critic(batch, noise[0])
        acted = self.act(batch["observation"], batch["margin"], batch["safe_action"], noise[1])
        temperature = self.log_temperature.detach().exp()
        self._update_actor(batch, acted, temperature)
        surprise = (acted.log_prob.detach() + self.target_entropy).mean(-1)
        self._descend("temperature", -(self.log_temperature.exp() * surprise).sum(), [self.log_temperature])
        self._track(self.target, self.critic)
        return {"critic_loss": critic_loss, "temperature": temperature, "entropy": -acted.log_prob.detach().mean(-1)}

    def objective(self, batch: Mapping[str, torch.Tensor], acted: Acted) -> torch.Tensor:
        """Returns what the actor maximises beside its entropy, (R, batch): the lower of the two values of what it would execute."""
        return self.critic(batch["observation"], acted.action).amin(0)

    def _update_actor(self, batch: Mapping[str, torch.Tensor], acted: Acted, temperature: torch.Tensor) -> None:
        objective = self.objective(batch, acted) - temperature[:, None] * acted.log_prob
        self._descend("actor", -objective.mean(-1).sum(), list(self.actor.parameters()))

    def target_value(self, batch: Mapping[str, torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
        """Returns what the critics should say, (R, batch), without gradient."""
        with torch.no_grad():
            following = self.act(batch["next_observation"], batch["next_margin"], batch["next_safe_action"], noise)
            value = self.target(batch["next_observation"], following.action).amin(0)
            value = value - self.log_temperature.exp()[:, None] * following.log_prob
            return bootstrapped(batch["reward"], batch["terminated"], value, self.args.discount)

    def _update_critic(self, batch: Mapping[str, torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
        errors = self.critic(batch["observation"], batch["action"]) - self.target_value(batch, noise)
        losses = (errors**2).mean(-1)
        self._descend("critic", losses.sum(), list(self.critic.parameters()))
        return losses.detach().mean(0)

    def _descend(self, name: str, loss: torch.Tensor, parameters: list[nn.Parameter]) -> None:
        """Takes one step of Adam on these parameters; gradients of others are not computed."""
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        self.optimisers[name].step()

    def _track(self, target: nn.Module, source: nn.Module) -> None:
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), self.args.target_rate)

    def modules(self) -> dict[str, nn.Module]:
        """Returns the networks by name."""
        return {"actor": self.actor, "critic": self.critic, "target": self.target}

    def state(self) -> dict[str, np.ndarray]:
        """Returns networks, temperature and optimisers as arrays."""
        arrays = {f"{name}.{key}": value for name, module in self.modules().items() for key, value in module.state_dict().items()}
        arrays["log_temperature"] = self.log_temperature.detach()
        for name, optimiser in self.optimisers.items():
            for index, moments in optimiser.state_dict()["state"].items():
                arrays |= {f"adam.{name}.{index}.{key}": value for key, value in moments.items()}
        return {name: value.numpy().copy() for name, value in arrays.items()}

    def load_networks(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes the networks from arrays as `state` names them."""
        for name, module in self.modules().items():
            module.load_state_dict({key: torch.from_numpy(state[f"{name}.{key}"]) for key in module.state_dict()})

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self.load_networks(state)
        with torch.no_grad():
            self.log_temperature.copy_(torch.from_numpy(state["log_temperature"]))
        for name, optimiser in self.optimisers.items():
            moments: dict[int, dict[str, torch.Tensor]] = {}
            for key, value in state.items():
                if key.startswith(f"adam.{name}."):
                    index, moment = key.removeprefix(f"adam.{name}.").split(".")
                    moments.setdefault(int(index), {})[moment] = torch.from_numpy(value)
            optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})

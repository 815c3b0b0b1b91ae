"""Policies that soft actor-critic has trained, with the AutoSafe mixture or without, as bundles."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pydantic
import torch

from ros_rl.config import STRICT, Finite, Positive
from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.networks import GaussianActor
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters, tensor
from ros_rl.robots.spec import RobotSpec
from ros_rl.safety.autosafe import Sharpness, mix, mixing_weight
from ros_rl.safety.prior import LmiPrior
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.goals.interface import observe

_ACTOR, _PRIOR = "actor.", "prior."


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `AutoSafePolicy`.

    Attributes:
        prior: state_names, action_names and digest of the safe prior, whose numbers are the tensors ``prior.*``.
        target: where the first states shall go, as deviation from the prior's equilibrium.
        reach: the distance to the target that the network reads as 1.
        sharpness: lowest and highest p; None: SAC alone, whose prior only says what state and action mean.
    """

    prior: dict[str, Any]
    target: list[Finite]
    reach: Positive
    sharpness: Annotated[list[Finite], pydantic.Field(min_length=2, max_length=2)] | None = None


@dataclass(frozen=True)
class Mixed:
    """What an action was mixed of, for diagnostics: λ, p, and the radius of the state in the ellipsoid, whose boundary is 1."""

    weight: float
    sharpness: float
    radius: float


class AutoSafePolicy:
    """The network's action, mixed with the safe one by a weight that is 1 at the boundary of the safe set; see `ros_rl.safety.autosafe`.

    Deterministic: the network's action is tanh of its mean. `mixed` says what the last action was made of.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the network (tensors ``actor.*``), the safe prior and ``scale`` (k,).

        Raises:
            UserError: the bundle is incomplete, its prior was changed, or it was made for other joints or another rate.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        settings = parameters(bundle, Parameters)
        self.prior = _prior_of(bundle, settings)
        self._coordinates = Coordinates(robot, self.prior.state_names, self.prior.state_equilibrium)
        self._target, self._reach = np.array(settings.target), settings.reach
        self._scale = tensor(bundle, "scale", (self.prior.state_size,))
        self._sharpness = None if settings.sharpness is None else Sharpness(settings.sharpness[0], settings.sharpness[1])
        inputs = self.prior.state_size + len(self._target)
        self._actor = _actor_of(bundle, inputs, self.prior.action_size, self._sharpness is not None)
        self._observations = ObservationBuilder(self.spec)
        self.mixed: Mixed | None = None

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode; the policy has neither memory nor randomness."""
        self._observations.reset()

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the command, in the robot's command mode."""
        self._observations.build(observation)  # refuses what is missing or not finite
        state = self._coordinates.of(observation)
        command = self.prior.action_equilibrium + self.prior.action_range * self.action(state)
        return ActionChunk(self.spec.joint_names, command[None], 1.0 / self.spec.rate, observation.stamp, self._name)

    def action(self, state: np.ndarray) -> np.ndarray:
        """Returns the action in [-1, 1], shape (m,), for a deviation (k,) from the equilibrium."""
        action, logit = self._network(state[None])
        if self._sharpness is None:
            return action[0]
        radius = float(self.prior.radius(state))
        if not math.isfinite(radius):
            raise UserError(f"policy '{self._name}': the state is not finite")
        sharpness = self._sharpness.low + (self._sharpness.high - self._sharpness.low) / (1.0 + math.exp(-float(logit[0])))
        weight = mixing_weight(max(1.0 - radius, 0.0), sharpness)
        self.mixed = Mixed(weight, sharpness, radius)
        return (1.0 - weight) * action[0] + weight * self.prior.safe_action(state)

    def actions(self, states: np.ndarray) -> np.ndarray:
        """Returns the actions (n, m) of many states (n, k), as `action` does for one."""
        action, logit = self._network(states)
        if self._sharpness is None:
            return action
        sharpness = self._sharpness.low + (self._sharpness.high - self._sharpness.low) / (1.0 + np.exp(-logit))
        return mix(action, self.prior.safe_action(states), mixing_weight(self.prior.margin(states), sharpness))

    def _network(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the network's actions (n, m) and the sharpness' logits (n,), for states (n, k)."""
        seen = observe(states, self._scale, self._target, self._reach).astype(np.float32)
        with torch.inference_mode():
            action, logit = self._actor.mode(torch.from_numpy(seen)[None])
        return action[0].numpy().astype(float), np.empty(0) if logit is None else logit[0].numpy().astype(float)


def prior_tensors(prior: LmiPrior) -> dict[str, np.ndarray]:
    """Returns the numbers of a prior as a bundle holds them."""
    return {_PRIOR + name: value for name, value in prior.to_tensors().items()}


def _prior_of(bundle: Bundle, settings: Parameters) -> LmiPrior:
    numbers = {name.removeprefix(_PRIOR): value for name, value in bundle.tensors.items() if name.startswith(_PRIOR)}
    try:
        prior = LmiPrior.from_tensors(numbers, settings.prior)
    except UserError as error:
        raise UserError(f"bundle '{bundle.name}': {error}") from None
    if prior.action_names != bundle.spec.joint_names:
        raise UserError(
            f"bundle '{bundle.name}': its safe prior acts on {', '.join(prior.action_names)}, "
            f"the policy commands {', '.join(bundle.spec.joint_names)}"
        )
    if abs(prior.period * bundle.spec.rate - 1.0) > 1e-9:
        raise UserError(
            f"bundle '{bundle.name}': its safe prior is for {1 / prior.period:g} Hz, the policy acts at {bundle.spec.rate:g} Hz"
        )
    return prior


def _actor_of(bundle: Bundle, inputs: int, actions: int, sharpness: bool) -> GaussianActor:
    weights = [bundle.tensors[name] for name in sorted(bundle.tensors) if name.startswith(_ACTOR + "layers.weights.")]
    if not weights:
        raise UserError(f"bundle '{bundle.name}' has no tensor '{_ACTOR}layers.weights.0'")
    actor = GaussianActor(inputs, actions, [weight.shape[-1] for weight in weights[:-1]], [np.random.default_rng(0)], sharpness)
    wanted = {name: tuple(value.shape) for name, value in actor.state_dict().items()}
    actor.load_state_dict({name: torch.from_numpy(tensor(bundle, _ACTOR + name, shape)) for name, shape in wanted.items()})
    return actor

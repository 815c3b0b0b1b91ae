"""Policies that soft actor-critic has trained, with the AutoSafe mixture or without, as bundles."""

import math
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
from ros_rl.safety.prior import BUNDLE_PREFIX, LmiPrior, prior_in
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.goals.interface import observe

_ACTOR = "actor."


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `AutoSafePolicy`.

    Attributes:
        prior: state_names, action_names and digest of the safe prior, whose numbers are the tensors ``prior.*``.
        target: where the first states shall go, as deviation from the prior's equilibrium.
        reach: the distance to the target that the network reads as 1.
        sharpness: lowest and highest p, from 0 to the prior's bound; None: SAC alone, whose prior only says what state and action mean.
    """

    prior: dict[str, Any]
    target: list[Finite]
    reach: Positive
    sharpness: Annotated[list[Finite], pydantic.Field(min_length=2, max_length=2)] | None = None


class AutoSafePolicy:
    """The network's action, mixed with the safe one by a weight that is 1 at the boundary of the safe set; see `ros_rl.safety.autosafe`.

    Deterministic: the network's action is tanh of its mean.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the network (tensors ``actor.*``), the safe prior and ``scale`` (k,).

        Raises:
            UserError: the bundle is incomplete, its prior was changed, it was made for other joints or another rate, or its
                sharpness is more than the prior allows.
        """
        self.spec = bundle.spec
        self._name = bundle.name
        settings = parameters(bundle, Parameters)
        self.prior = _prior_of(bundle)
        self._coordinates = Coordinates(robot, self.prior.state_names, self.prior.state_equilibrium)
        self._target, self._reach = np.array(settings.target), settings.reach
        self._scale = tensor(bundle, "scale", (self.prior.state_size,))
        self._sharpness = _sharpness_of(bundle, settings.sharpness, self.prior)
        inputs = self.prior.state_size + len(self._target)
        self._actor = _actor_of(bundle, inputs, self.prior.action_size, self._sharpness is not None)
        self._observations = ObservationBuilder(self.spec)
        # One product gives the radius (the norm of the first k numbers) and the safe action.
        root, gain = np.linalg.cholesky(self.prior.P), self.prior.F / self.prior.action_range[:, None]
        self._both = np.hstack([root, gain.T])
        self._mixed: tuple[float, float | None, float] | None = None  # weight, sharpness, radius
        self._steps_outside = 0

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode; the policy has neither memory nor randomness."""
        self._observations.reset()
        self._mixed = None

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the command, in the robot's command mode."""
        self._observations.build(observation)  # refuses what is missing or not finite
        state = self._coordinates.of(observation)
        command = self.prior.action_equilibrium + self.prior.action_range * self.action(state)
        return ActionChunk(self.spec.joint_names, command[None], 1.0 / self.spec.rate, observation.stamp, self._name)

    def report(self) -> dict[str, float]:
        """Returns what the last action was mixed of: weight λ, sharpness p, radius of the state in the ellipsoid (1 is its boundary).

        Outside the ellipsoid there is no sharpness. `steps_outside` counts the actions for such states, over all episodes. Empty
        without a mixture and before the first action of an episode.
        """
        if self._mixed is None:
            return {}
        weight, sharpness, radius = self._mixed
        found = {"weight": weight, "radius": radius, "steps_outside": self._steps_outside}
        return found if sharpness is None else {**found, "sharpness": sharpness}

    def action(self, state: np.ndarray) -> np.ndarray:
        """Returns the action in [-1, 1], shape (m,), for a deviation (k,) from the equilibrium.

        Does in plain numbers what `actions` does in arrays: for one state those would take longer than the network.
        """
        if self._sharpness is None:
            return self._proposed(state)[0]
        both = (state @ self._both).tolist()
        radius = math.hypot(*both[: len(state)])
        safe_action = [min(max(value, -1.0), 1.0) for value in both[len(state) :]]
        if radius >= 1.0:  # however far, where the network was never trained
            self._steps_outside += 1
            self._mixed = 1.0, None, radius
            return np.array(safe_action)
        action, logit = self._proposed(state)
        sharpness = self._sharpness.of(float(logit))
        weight = mixing_weight(1.0 - radius, sharpness)
        self._mixed = weight, sharpness, radius
        return np.array([(1.0 - weight) * ours + weight * safe for ours, safe in zip(action.tolist(), safe_action, strict=True)])

    def actions(self, states: np.ndarray) -> np.ndarray:
        """Returns the actions (n, m) of many states (n, k)."""
        action, logit = self._proposed(states)
        if self._sharpness is None:
            return action
        both = states @ self._both
        rooted, safe_action = both[:, : states.shape[1]], np.minimum(np.maximum(both[:, states.shape[1] :], -1.0), 1.0)
        margin = np.maximum(1.0 - np.sqrt(np.vecdot(rooted, rooted)), 0.0)
        return mix(action, safe_action, mixing_weight(margin, self._sharpness.of(logit)))

    def _proposed(self, states: np.ndarray) -> tuple[np.ndarray, Any]:
        """Returns the network's own actions (..., m) and its outputs for the sharpness (...), for states (..., k)."""
        seen = observe(states, self._scale, self._target, self._reach).astype(np.float32)
        with torch.inference_mode():
            out: np.ndarray = self._actor.layers(torch.from_numpy(seen.reshape(1, -1, seen.shape[-1]))).numpy()
        mean, _, logit = self._actor.split(out.astype(float).reshape(*states.shape[:-1], -1))
        return np.tanh(mean), logit


def prior_tensors(prior: LmiPrior) -> dict[str, np.ndarray]:
    """Returns the numbers of a prior as a bundle holds them."""
    return {BUNDLE_PREFIX + name: value for name, value in prior.to_tensors().items()}


def _prior_of(bundle: Bundle) -> LmiPrior:
    prior = prior_in(bundle)
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


def _sharpness_of(bundle: Bundle, bounds: list[float] | None, prior: LmiPrior) -> Sharpness | None:
    """The prior's bound is what its certificate is about, and what its digest covers: a policy may stay below it, not above."""
    if bounds is None:
        return None
    low, high = bounds
    if not 0.0 <= low < high <= prior.sharpness_bound:
        raise UserError(
            f"bundle '{bundle.name}': sharpness must rise from 0 or more to at most {prior.sharpness_bound:g}, "
            f"the bound of its safe prior, got {low:g} to {high:g}"
        )
    return Sharpness(low, high)


def _actor_of(bundle: Bundle, inputs: int, actions: int, sharpness: bool) -> GaussianActor:
    weights = [bundle.tensors[name] for name in sorted(bundle.tensors) if name.startswith(_ACTOR + "layers.weights.")]
    if not weights:
        raise UserError(f"bundle '{bundle.name}' has no tensor '{_ACTOR}layers.weights.0'")
    actor = GaussianActor(inputs, actions, [weight.shape[-1] for weight in weights[:-1]], [np.random.default_rng(0)], sharpness)
    wanted = {name: tuple(value.shape) for name, value in actor.state_dict().items()}
    actor.load_state_dict({name: torch.from_numpy(tensor(bundle, _ACTOR + name, shape)) for name, shape in wanted.items()})
    return actor

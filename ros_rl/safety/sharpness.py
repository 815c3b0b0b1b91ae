"""How sharp the mixing weight of AutoSafe may be so that no policy drives the robot out of its safe ellipsoid."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ros_rl.safety.autosafe import mix, mixing_weight
from ros_rl.safety.prior import CertificateError, LmiPrior
from ros_rl.sim.goals.interface import Outcome
from ros_rl.sim.plant import Step

LARGEST = 50.0
_RESOLUTION = 0.01  # of a certified sharpness
_COARSE = 0.1  # of one found by simulation
_KEPT = 0.98  # V that the adversary must stay below: what is not proven keeps a distance
_EPISODES, _STEPS = 40, 250
_SEEDS = range(5)  # of the initial states that a simulated sharpness is chosen by
_START = 0.5  # radius within which an adversary begins


def certified_sharpness(prior: LmiPrior, smallest: float = 0.0) -> float:
    """Returns the largest sharpness, a multiple of 0.01, for which the linear model stays in the ellipsoid under any policy.

    With the weight λ the radius r = sqrt(V) goes to at most sqrt(contraction)·r + (1 - λ)·reach, where reach is the most that
    the difference of two actions adds. That stays below 1 where λ >= 1 - (1 - sqrt(contraction)·r) / reach, which is checked at
    2001 radii. The weight falls with the sharpness, so there is a largest. With several actions the bound is a cautious one.

    Raises:
        CertificateError: not even `smallest` fulfils it.
    """
    radius = np.linspace(0.0, 1.0, 2001)
    reach = float(2 * prior.radius(prior.B.T) @ prior.action_range)
    needed = np.clip(1 - (1 - np.sqrt(prior.contraction) * radius) / reach, 0.0, 1.0)
    found = _largest(lambda sharpness: bool((mixing_weight(1 - radius, sharpness) >= needed).all()), smallest, LARGEST, _RESOLUTION)
    if found is None:
        raise CertificateError(
            f"sharpness: none from {smallest:g} to {LARGEST:g} keeps the ellipsoid: in one period, actions move the state by up to "
            f"{reach:.3g} of its radius, which must be below 1; take smaller action ranges or a higher rate"
        )
    return found


class CorrectedEnvironment(Protocol):
    """An environment in which a policy corrects an action that is nominal, see `ros_rl.sim.goals.quadruped`."""

    episode_steps: int

    @property
    def nominal(self) -> np.ndarray:
        """Action that the policy adds to, shape (n, m)."""

    @property
    def safety_state(self) -> np.ndarray:
        """State s, shape (n, k)."""

    def __len__(self) -> int: ...

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[Sequence[int]]) -> None:
        """Starts new episodes."""

    def step(self, actions: np.ndarray) -> Outcome:
        """Advances every copy."""


@dataclass(frozen=True)
class Attack:
    """What the worst policy that is known brought about.

    Attributes:
        value: largest V = s'Ps.
        reach: largest |h s| of a row of the box; 1 touches it.
        fallen: part of the copies whose episode ended by a violation.
    """

    value: float
    reach: float
    fallen: float


def attack(environment: CorrectedEnvironment, prior: LmiPrior, sharpness: float, correction: float, seed: int = 0) -> Attack:
    """Runs one episode in every copy with the worst policy for an environment with a memory, such as of where the feet are.

    As `adversary`, but the policy only chooses among the corners of what it may add to the nominal action, and goes on outside the
    ellipsoid.
    """
    environment.reset(range(len(environment)), [[seed, copy] for copy in range(len(environment))])
    choices, running, value, reach = correction * _corners(prior), np.ones(len(environment), bool), 0.0, 0.0
    for _ in range(environment.episode_steps):
        states = environment.safety_state
        weight = mixing_weight(prior.margin(states), sharpness)
        own = worst_actions(prior, states, weight, choices, environment.nominal)
        outcome = environment.step(mix(own, prior.safe_action(states), weight))
        after = environment.safety_state[running]
        value = max(value, float(prior.value(after).max(initial=0.0)))
        reach = max(reach, float(np.abs(after @ prior.box.T).max(initial=0.0)))
        running &= ~outcome.terminated
        if (over := np.flatnonzero(outcome.terminated)).size:  # what is over must not go on to diverge
            environment.reset(over, [[seed, int(copy)] for copy in over])
    return Attack(value, reach, float(np.mean(~running)))


def withstood_sharpness(
    environment: CorrectedEnvironment,
    prior: LmiPrior,
    correction: float,
    largest: float = 4.0,
    resolution: float = 0.25,
    seeds: Sequence[int] = range(3),
) -> float:
    """Returns the largest sharpness, in steps of `resolution` from 0 on, with which `attack` stays inside the box from all seeds.

    The ellipsoid is smaller than the box and may be left; what is not proven keeps that distance.

    Raises:
        CertificateError: not even with 0 does it.
    """

    def kept(sharpness: float) -> bool:
        return all(attack(environment, prior, sharpness, correction, seed).reach < 1.0 for seed in seeds)

    found = _largest(kept, 0.0, largest, resolution)
    if found is None:
        raise CertificateError("sharpness: the worst policy leaves the safe box in simulation even at 0")
    return found


def simulated_sharpness(
    prior: LmiPrior, step: Step, proven: float, largest: float = 20.0, steps: int = _STEPS, seeds: Sequence[int] = _SEEDS
) -> float:
    """Returns the largest sharpness, in steps of 0.1 above `proven`, with which `adversary` keeps V below 0.98; else `proven`.

    It is empirical: other initial states and another adversary may do better, so this one is kept at a distance from the boundary,
    from all of several `seeds`. What it reaches from those says little, being what the sharpness was chosen by; see others.

    Raises:
        CertificateError: what is proven for the linear model does not hold in simulation: the adversary leaves the ellipsoid.
    """
    reached = max(adversary(prior, step, proven, seed, steps=steps) for seed in seeds)
    if not reached < 1.0:
        raise CertificateError(f"sharpness: an adversary brings V to {reached:.3g} in simulation at {proven:g} already")

    def kept(sharpness: float) -> bool:
        return all(adversary(prior, step, sharpness, seed, steps=steps) < _KEPT for seed in seeds)

    found = _largest(kept, proven, largest, _COARSE)
    return proven if found is None else found


def adversary(prior: LmiPrior, step: Step, sharpness: float, seed: int = 0, episodes: int = _EPISODES, steps: int = _STEPS) -> float:
    """Returns the largest V = s'Ps that the worst policy reaches in simulation; an episode ends when it leaves the ellipsoid.

    At every step the policy takes, of the corners of its action space, the one that makes V largest after the step in the linear
    model. V is convex in the action, so that nothing inside would make it larger.

    Args:
        prior: what mixes in its safe action.
        step: one control period of the robot.
        sharpness: of the mixing weight.
        seed: of the initial states, which are drawn evenly from the ellipsoid's inner half.
        episodes: run side by side.
        steps: of an episode.
    """
    draw = np.random.default_rng(seed)
    states = boundary(prior, episodes, draw) * (_START * draw.uniform(size=(episodes, 1)) ** (1 / prior.state_size))
    corners = _corners(prior)
    worst = float(prior.value(states).max())
    for _ in range(steps):
        weight = mixing_weight(prior.margin(states), sharpness)
        own = worst_actions(prior, states, weight, corners)
        states = step(states, mix(own, prior.safe_action(states), weight) * prior.action_range)
        value = prior.value(states)
        worst = max(worst, float(value.max()))
        states = states[value < 1.0]
        if not len(states):
            break
    return worst


def worst_actions(
    prior: LmiPrior, states: np.ndarray, weight: np.ndarray, choices: np.ndarray, base: np.ndarray | float = 0.0
) -> np.ndarray:
    """Returns, for each state, which action of a policy makes V largest one step later in the linear model, shape (n, m).

    Args:
        prior: what mixes in its safe action.
        states: shape (n, k).
        weight: λ of the safe action, shape (n,).
        choices: what the policy may add to `base`, shape (c, m).
        base: action that it adds to, shape (n, m).
    """
    root, own = np.linalg.cholesky(prior.P), 1.0 - weight[:, None]
    safe = mix(np.broadcast_to(base, (len(states), prior.action_size)), prior.safe_action(states), weight)
    # V is |centre + (1 - λ)·move|², of which |centre|² is the same for all choices.
    centre = (states @ prior.A.T + (safe * prior.action_range) @ prior.B.T) @ root
    moves = (choices * prior.action_range) @ prior.B.T @ root
    value = 2.0 * own * (centre @ moves.T) + own**2 * (moves**2).sum(axis=1)
    return base + choices[value.argmax(axis=1)]


def _corners(prior: LmiPrior) -> np.ndarray:
    """Returns the corners of the action space, shape (2^m, m)."""
    return np.array(list(itertools.product((-1.0, 1.0), repeat=prior.action_size)))


def boundary(prior: LmiPrior, count: int, draw: np.random.Generator) -> np.ndarray:
    """Returns states on the ellipsoid's boundary, shape (count, n), evenly drawn in the coordinates in which it is a ball."""
    directions = draw.normal(size=(count, prior.state_size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return np.linalg.solve(np.linalg.cholesky(prior.P).T, directions.T).T


def _largest(holds: Callable[[float], bool], smallest: float, largest: float, resolution: float) -> float | None:
    """Returns the largest value of a grid from `smallest` on for which a condition holds that holds up to some value."""
    if not holds(smallest):
        return None
    low, high = 0, round((largest - smallest) / resolution) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(smallest + middle * resolution) else (low, middle)
    return round(smallest + low * resolution, 9)

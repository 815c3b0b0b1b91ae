"""What a learner needs of an environment: n copies of one plant, stepped together."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

START_RADIUS = 0.5


class Outcome(NamedTuple):
    """What a step brought each copy; arrays of shape (n,).

    Attributes:
        reward: of the step.
        terminated: the episode is over, because the safe box was left.
        truncated: it is over, because its time is up; the future would have gone on.
        violation: the state is outside the safe box.
    """

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    violation: np.ndarray


class SafeSet(Protocol):
    """What an environment takes from the safe prior of its plant."""

    @property
    def P(self) -> np.ndarray:  # noqa: N802 - as in the literature
        """Matrix of the ellipsoid {s : s'Ps <= 1}, shape (k, k)."""

    @property
    def box(self) -> np.ndarray:
        """Rows h of the safe box |h s| <= 1, shape (b, k)."""

    @property
    def state_equilibrium(self) -> np.ndarray:
        """Where s is zero, shape (k,)."""

    @property
    def action_equilibrium(self) -> np.ndarray:
        """Command at rest there, shape (m,)."""

    @property
    def action_range(self) -> np.ndarray:
        """What the action 1 adds to it, shape (m,)."""


class GoalEnvironment(Protocol):
    """n copies of a plant, each with a goal of its own. A copy that is over should be reset: it would go on.

    Attributes:
        action_size: m; actions are in [-1, 1].
        episode_steps: control periods in an episode.
    """

    action_size: int
    episode_steps: int

    @property
    def observation(self) -> np.ndarray:
        """What actor and critic see, scaled, shape (n, o)."""

    @property
    def safety_state(self) -> np.ndarray:
        """Deviation s from the safe equilibrium in physical units, shape (n, k)."""

    def __len__(self) -> int: ...

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[Sequence[int]]) -> None:
        """Starts new episodes in some copies: for each, a state drawn from its seed (whole numbers, as numpy takes them)."""

    def step(self, actions: np.ndarray) -> Outcome:
        """Advances every copy by one control period; actions have the shape (n, m)."""

    def state(self) -> dict[str, np.ndarray]:
        """Returns everything that the future depends on."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""


def draw_starts(safe: SafeSet, seeds: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns one state for each seed, uniform in the ellipsoid of half the radius of the safe one, shape (len(seeds), k)."""
    width = START_RADIUS * np.linalg.inv(np.linalg.cholesky(safe.P)).T
    states = np.empty((len(seeds), len(width)))
    for state, seed in zip(states, seeds, strict=True):
        draw = np.random.default_rng(list(seed))
        direction = draw.standard_normal(len(width))
        state[:] = width @ (direction / np.linalg.norm(direction) * draw.random() ** (1 / len(width)))
    return states


def outside(safe: SafeSet, states: np.ndarray) -> np.ndarray:
    """Returns which states (n, k) are outside the safe box, shape (n,)."""
    return (np.abs(states @ safe.box.T) > 1.0).any(axis=1)


def observe(state: np.ndarray, scale: np.ndarray, target: np.ndarray, reach: float) -> np.ndarray:
    """Returns what a policy sees: the state over its typical size, and the way from the target in units of `reach`.

    Args:
        state: s, shape (..., k).
        scale: shape (k,).
        target: where the first g states shall go, shape (..., g).
        reach: in the unit of those states.

    Returns:
        shape (..., k + g).
    """
    return np.concatenate([state / scale, (state[..., : target.shape[-1]] - target) / reach], axis=-1)

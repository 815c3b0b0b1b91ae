"""A control barrier function: the action nearest to the proposed one that lets h = 1 - V fall by no more than a given part.

Source: Agrawal and Sreenath, "Discrete control barrier functions for safety-critical control of discrete systems", RSS 2017. The
condition is linearised about the safe action, which leaves a quadratic programme.
"""

import numpy as np
from qpsolvers import solve_qp

from ros_rl.safety.prior import LmiPrior

RATE = 0.2  # part of h that a control period may take


def barrier(prior: LmiPrior, state: np.ndarray, rate: float = RATE) -> tuple[np.ndarray, np.ndarray]:
    """Returns slope (..., m) and bound (...) of the condition slope·action <= bound, linear in the action.

    It is h(s+) >= (1 - rate)·h(s) with the s+ of the linear model, linearised about the safe action.

    Args:
        prior: gives V and the linear model.
        state: shape (..., n).
        rate: largest part of h that a control period may take, in (0, 1].
    """
    safe, effect = prior.safe_action(state), prior.B * prior.action_range
    after = state @ prior.A.T + safe @ effect.T
    slope = 2.0 * after @ prior.P @ effect
    room = (1.0 - prior.value(after)) - (1.0 - rate) * (1.0 - prior.value(state))
    return slope, (slope * safe).sum(axis=-1) + room


def nearest_allowed(proposed: np.ndarray, slope: np.ndarray, bound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solves k of these quadratic programmes at once, exactly and without a solver.

    The nearest action within [-1, 1] with slope·action <= bound is clip(proposed - μ·slope) with the smallest μ >= 0 that meets the
    condition. Between the μ at which an entry reaches its limit, slope·action is linear in μ.

    Args:
        proposed: within [-1, 1], shape (k, m).
        slope: shape (k, m).
        bound: shape (k,).

    Returns:
        the actions (k, m), and which of the programmes have a solution, shape (k,).
    """
    # μ at which an entry arrives at the limit that it moves to; an entry without slope does not move.
    moving = slope != 0.0
    arrival = np.where(moving, (proposed + np.sign(slope)) / np.where(moving, slope, 1.0), 0.0)
    knots = np.sort(np.concatenate([np.zeros((len(slope), 1)), arrival], axis=1), axis=1)
    actions = np.clip(proposed[:, None] - knots[..., None] * slope[:, None], -1.0, 1.0)
    reached = np.einsum("kjm,km->kj", actions, slope)  # falls from knot to knot
    met = reached <= bound[:, None]
    rows, last = np.arange(len(slope)), np.argmax(met, axis=1)
    first = np.maximum(last - 1, 0)
    fall = reached[rows, first] - reached[rows, last]
    share = np.where(fall > 0, (reached[rows, first] - bound) / np.where(fall > 0, fall, 1.0), 0.0)
    multiplier = knots[rows, first] + share * (knots[rows, last] - knots[rows, first])
    return np.clip(proposed - multiplier[:, None] * slope, -1.0, 1.0), met.any(axis=1)


class Barrier:
    """The filter of one robot, by a quadratic-programme solver."""

    def __init__(self, prior: LmiPrior, rate: float = RATE):
        """Takes the prior, and the largest part of h that a control period may take."""
        self._prior = prior
        self._rate = rate

    def reset(self) -> None:
        """Nothing to forget."""

    def act(self, state: np.ndarray, proposed: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """Returns the nearest allowed action, or the safe one where none is allowed, shape (m,), for a state (n,)."""
        slope, bound = barrier(self._prior, state, self._rate)
        size = len(proposed)
        solution = None
        if -np.abs(slope).sum() <= bound:  # else no action meets the condition, and the solver only takes longer to say so
            limit = np.ones(size)
            solution = solve_qp(np.eye(size), -proposed, slope[None], np.array([bound]), lb=-limit, ub=limit, solver="daqp")
        if solution is None:
            return self._prior.safe_action(state), {"weight": 1.0}
        return np.clip(solution, -1.0, 1.0), {"weight": 0.0}

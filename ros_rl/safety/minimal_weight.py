"""The least weight of the safe action with which the next state is still expected inside the safe set, in closed form.

A diagnostic: with few samples of a policy it is noisy, which is why AutoSafe mixes by `ros_rl.safety.autosafe.mixing_weight`.
"""

from statistics import NormalDist

import numpy as np

from ros_rl.safety.prior import LmiPrior

RISK = 0.01  # δ: probability with which a normally distributed margin may be below the risk-adjusted one


def minimal_weight(policy_margin: np.ndarray, safe_margin: np.ndarray) -> np.ndarray:
    """Returns λ* in [0, 1], shape (...): the least λ with (1 - λ)·policy_margin + λ·safe_margin >= 0; 1 where there is none.

    Margins are signed, positive inside the safe set. 0 where the policy's margin is not negative, 1 where the safe action's is no better.

    Args:
        policy_margin: L of the policy, (...).
        safe_margin: L of the safe action, of a shape that broadcasts with it.

    Raises:
        ValueError: a margin is NaN.
    """
    policy_margin, safe_margin = np.broadcast_arrays(np.asarray(policy_margin, dtype=float), np.asarray(safe_margin, dtype=float))
    if np.isnan(policy_margin).any() or np.isnan(safe_margin).any():
        raise ValueError("margins must be numbers, got NaN")
    better = safe_margin > policy_margin
    gain = np.where(better, safe_margin - policy_margin, 1.0)
    return np.where(policy_margin >= 0, 0.0, np.where(better, np.minimum(1.0, -policy_margin / gain), 1.0))


def risk_adjusted(margins: np.ndarray, risk: float = RISK) -> np.ndarray:
    """Returns mean - β·standard deviation of samples (..., S), shape (...), with β the normal quantile of 1 - risk.

    Raises:
        ValueError: there are fewer than two samples, or the risk is not between 0 and 1.
    """
    if margins.shape[-1] < 2 or not 0.0 < risk < 1.0:
        raise ValueError(f"two samples at least and a risk between 0 and 1 are needed, got {margins.shape[-1]} and {risk:g}")
    adjusted: np.ndarray = margins.mean(axis=-1) - NormalDist().inv_cdf(1.0 - risk) * margins.std(axis=-1, ddof=1)
    return adjusted


def minimal_weight_of(prior: LmiPrior, states: np.ndarray, actions: np.ndarray, risk: float = RISK) -> np.ndarray:
    """Returns λ* at some states, shape (n,), from one step of the prior's linear model.

    The margin is 1 - radius, which is negative outside the ellipsoid.

    Args:
        prior: gives model, ellipsoid and safe action.
        states: s, shape (n, k).
        actions: samples of the policy's own action before mixing, shape (n, S, m).
        risk: see `risk_adjusted`.
    """
    drift = states @ prior.A.T
    reach = prior.B.T * prior.action_range[:, None]
    own = 1.0 - prior.radius(drift[:, None] + actions @ reach)
    safe = 1.0 - prior.radius(drift + prior.safe_action(states) @ reach)
    return minimal_weight(risk_adjusted(own, risk), safe)

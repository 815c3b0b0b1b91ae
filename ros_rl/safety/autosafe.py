"""AutoSafe: a certified safe action mixed into the policy's own, with a learned weight that is 1 at the boundary of the safe set."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_LINEAR_BELOW = 1e-3  # |sharpness| below which the weight is taken from its series: the closed form is 0/0 there


def _namespace(*values: Any) -> Any:
    """Returns the library that the values live in: torch if one of them is a tensor, else numpy."""
    if all(isinstance(value, np.ndarray | float | int) for value in values):
        return np
    import torch  # not at the top: filters without a network must not wait for it

    return torch if any(isinstance(value, torch.Tensor) for value in values) else np


def mixing_weight(margin: Any, sharpness: Any) -> Any:
    """Returns the weight λ of the safe action, (exp(p x) - 1) / (exp(p) - 1) with x = 1 - margin.

    λ is 0 at margin 1 and 1 at margin 0 for every sharpness p, falls with the margin, and falls with p in between: a larger
    p intervenes later and more steeply. At p = 0 it is the line x. Differentiable and finite for any finite p.

    Args:
        margin: D in [0, 1], 1 in the centre of the safe set and 0 at its boundary or outside; number, array or tensor.
        sharpness: p; a number, array or tensor that broadcasts with `margin`.

    Returns:
        λ in [0, 1], of the broadcast shape; a tensor if an argument is one, a float if both are floats.

    Raises:
        ValueError: a margin is outside [0, 1] or NaN.
    """
    if type(margin) is float and type(sharpness) is float:
        _check(0.0 <= margin <= 1.0, margin)
        form = _above if sharpness >= _LINEAR_BELOW else _below if sharpness <= -_LINEAR_BELOW else _series
        return form(math, margin, sharpness)
    xp = _namespace(margin, sharpness)
    if xp is np:
        margin, sharpness = (np.asarray(value, np.result_type(margin, sharpness, 0.0)) for value in (margin, sharpness))
    else:
        like = margin if isinstance(margin, xp.Tensor) else sharpness
        margin, sharpness = (xp.as_tensor(value, dtype=like.dtype) for value in (margin, sharpness))
    inside = (margin >= 0) & (margin <= 1)
    if not inside.all():
        _check(False, margin[~inside].reshape(-1)[0])
    above = sharpness >= _LINEAR_BELOW
    if above.all():  # as it is with AutoSafe's own range of p: two branches less to compute
        weight = _above(xp, margin, sharpness)
    else:
        below = sharpness <= -_LINEAR_BELOW
        # Each branch gets a harmless p where it is not taken: a NaN that `where` drops would still poison the gradient.
        up, down, near = xp.where(above, sharpness, 1.0), xp.where(below, sharpness, -1.0), xp.where(above | below, 0.0, sharpness)
        weight = xp.where(above, _above(xp, margin, up), xp.where(below, _below(xp, margin, down), _series(xp, margin, near)))
    if xp is np:
        return weight
    # The ends are exact already; their gradient is made so, too.
    return xp.where(margin <= 0, 1.0, xp.where(margin >= 1, 0.0, weight))


def _check(right: bool, margin: Any) -> None:
    if not right:
        raise ValueError(f"margin must be within 0 and 1, got {float(margin):g}")


# The same weight in three forms, each sound where it is used. At the ends they are exact: 0·something and v/v.


def _above(xp: Any, margin: Any, p: Any) -> Any:
    """For p > 0: exp(p) would overflow, so both terms are divided by it."""
    return xp.exp(-p * margin) * (xp.expm1(-p * (1 - margin)) / xp.expm1(-p))


def _below(xp: Any, margin: Any, p: Any) -> Any:
    """For p < 0."""
    return xp.expm1(p * (1 - margin)) / xp.expm1(p)


def _series(_: Any, margin: Any, p: Any) -> Any:
    """For p about 0, to second order."""
    x = 1 - margin
    return x * (1 - p * margin / 2 + p**2 * margin * (1 - 2 * x) / 12)


@dataclass(frozen=True)
class Sharpness:
    """How a policy gets its sharpness p: the same everywhere, or between two bounds as its head says.

    Raises:
        ValueError: the bounds are in the wrong order.
    """

    low: float
    high: float
    learned: bool = True

    def __post_init__(self) -> None:
        if not (self.low < self.high if self.learned else self.low == self.high):
            order = "low < high" if self.learned else "low = high where it is not learned"
            raise ValueError(f"sharpness: {order} is needed, got low {self.low:g} and high {self.high:g}")

    @classmethod
    def fixed(cls, value: float) -> "Sharpness":
        """Returns the sharpness `value` for all states; 0 makes the weight fall linearly with the margin."""
        return cls(value, value, learned=False)

    def of(self, logit: "torch.Tensor | np.ndarray | float | None") -> Any:
        """Returns p for a head's output, a tensor, array or number, of the same shape; the one p where it is not learned."""
        if logit is None:
            return self.low
        if isinstance(logit, float):  # the logistic function, in a form that cannot overflow
            share: Any = 0.5 + 0.5 * math.tanh(0.5 * logit)
        else:
            share = 0.5 + 0.5 * np.tanh(0.5 * logit) if isinstance(logit, np.ndarray) else logit.sigmoid()
        return self.low + (self.high - self.low) * share


def mix(action: Any, safe_action: Any, weight: Any) -> Any:
    """Returns (1 - λ)·action + λ·safe_action: exactly the safe action at λ = 1, and in [-1, 1] if both are.

    Args:
        action: (..., m), array or tensor.
        safe_action: (..., m).
        weight: λ, (...), or one float for all.
    """
    if not isinstance(weight, float):
        weight = weight[..., None]
    return (1 - weight) * action + weight * safe_action

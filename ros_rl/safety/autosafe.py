"""AutoSafe: a certified safe action mixed into the policy's own, with a learned weight that is 1 at the boundary of the safe set."""

from types import ModuleType
from typing import Any

import numpy as np

_LINEAR_BELOW = 1e-3  # |sharpness| below which the weight is taken from its series: the closed form is 0/0 there


def _namespace(*values: Any) -> ModuleType:
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
        margin: D in [0, 1], 1 in the centre of the safe set and 0 at its boundary or outside; array or tensor, any shape.
        sharpness: p; a number, or an array or tensor that broadcasts with `margin`.

    Returns:
        λ in [0, 1], of the broadcast shape; a tensor if an argument is one.

    Raises:
        ValueError: a margin is outside [0, 1] or NaN.
    """
    xp = _namespace(margin, sharpness)
    if xp is np:
        margin, sharpness = (np.asarray(value, np.result_type(margin, sharpness, 0.0)) for value in (margin, sharpness))
    else:
        like = margin if isinstance(margin, xp.Tensor) else sharpness
        margin, sharpness = (xp.as_tensor(value, dtype=like.dtype) for value in (margin, sharpness))
    inside = (margin >= 0) & (margin <= 1)
    if not inside.all():
        raise ValueError(f"margin must be within 0 and 1, got {float(margin[~inside].reshape(-1)[0]):g}")
    x = 1 - margin
    # Each branch gets a harmless p where it is not taken: a NaN that `where` drops would still poison the gradient.
    rising, falling = sharpness >= _LINEAR_BELOW, sharpness <= -_LINEAR_BELOW
    up, down, near = xp.where(rising, sharpness, 1.0), xp.where(falling, sharpness, -1.0), xp.where(rising | falling, 0.0, sharpness)
    above = xp.exp(-up * margin) * xp.expm1(-up * x) / xp.expm1(-up)
    below = xp.expm1(down * x) / xp.expm1(down)
    series = x * (1 - near * margin / 2 + near**2 * margin * (1 - 2 * x) / 12)
    weight = xp.where(rising, above, xp.where(falling, below, series))
    return xp.where(margin <= 0, 1.0, xp.where(margin >= 1, 0.0, weight))

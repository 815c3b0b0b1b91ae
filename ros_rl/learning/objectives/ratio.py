"""Group advantages, and the clipped surrogate with its aggregations.

Sources: Shao et al., "DeepSeekMath", 2024 (GRPO); Yu et al., "DAPO", 2025 (asymmetric clip, token mean); Liu et al., 2025 (Dr.GRPO).
All are objectives to be maximised; the loss is the negative.
"""

from typing import Literal

import torch

from ros_rl.learning.objectives.frame import RolloutBatch, check_log_probs, masked, normalise

Aggregation = Literal["token_mean", "row_mean", "constant"]
ClipCentre = Literal["old", "behaviour"]
_LOG_LIMIT = 20.0
_MOST_CORRECTION = 5.0


def group_advantage(reward: torch.Tensor, group: torch.Tensor, divide_by_std: bool = True, leave_one_out: bool = False) -> torch.Tensor:
    """Returns how much better than its group each row [N] was; 0 where all of a group are equal or it has one row.

    Args:
        reward: [N].
        group: [N].
        divide_by_std: whether advantages are divided by the group's deviation.
        leave_one_out: compare with the mean of the others: G/(G-1)·(r - mean), never divided (RLOO).

    Raises:
        ValueError: a reward is not finite, or every group has a single row; the row or group is named.
    """
    if not (finite := torch.isfinite(reward)).all():
        raise ValueError(f"reward of row {int(finite.int().argmin())} is {float(reward[finite.int().argmin()])}")
    names, sizes = group.unique(return_counts=True)
    if len(names) and (sizes == 1).all():
        raise ValueError(f"group {int(names[0])} has 1 row; group advantages need 2")
    if not leave_one_out:
        return normalise(reward, group, divide_by_std)
    size = sizes[torch.searchsorted(names, group)].to(reward.dtype)
    return normalise(reward, group, divide_by_std=False) * size / (size - 1).clamp(min=1)


def clipped_surrogate(
    logp_new: torch.Tensor,
    batch: RolloutBatch,
    level: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    clip: tuple[float, float] = (0.2, 0.28),
    aggregation: Aggregation = "token_mean",
    constant: int = 0,
    total: float | None = None,
    kl: float = 0.0,
    dual_clip: float = 0.0,
    clip_centre: ClipCentre = "old",
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns min(ρ·a, clip(ρ)·a) over all tokens in the mask, less the KL penalty, and figures about it.

    ρ = exp(logp_new - logp_old), a = weight·level, c = exp(logp_old - logp_behaviour), 1 on-policy.

    Args:
        logp_new: [N,T], with gradient.
        batch: what was sampled.
        level: signed advantages, [N,T].
        weight: of each token, not negative, [N,T]; None: 1.
        clip: how far ρ may go below and above 1.
        aggregation: mean over all tokens, over rows of their means, or the sum by rows and a `constant` length.
        constant: that length.
        total: what is divided by, where this is a part of a larger batch; None: this batch's own.
        kl: weight of exp(d) - d - 1 with d = logp_ref - logp_new.
        dual_clip: for negative advantages the surrogate is at least this times a; 0: no such bound.
        clip_centre: "old": c·min(ρ·a, clip(ρ)·a) with c ≤ 5; "behaviour": min(cρ·a, clip(cρ)·a).

    Raises:
        ValueError: a log-prob is none, a reference is missing, or a length.
    """
    check_log_probs("logp_new", logp_new.detach(), batch)
    mask = batch.mask
    new, old = masked(logp_new, mask), masked(batch.logp_old, mask)
    behind = (old - masked(batch.logp_behaviour, mask)).clamp(-_LOG_LIMIT, _LOG_LIMIT)
    log_ratio = (new - old).clamp(-_LOG_LIMIT, _LOG_LIMIT)
    correction = behind.exp()
    if clip_centre == "behaviour":
        ratio, outer = (log_ratio + behind).exp(), torch.ones_like(correction)
    else:
        ratio, outer = log_ratio.exp(), correction.clamp(max=_MOST_CORRECTION)
    advantage = masked(level if weight is None else weight * level, mask)
    bounded = ratio.clamp(1 - clip[0], 1 + clip[1]) * advantage
    value = torch.minimum(ratio * advantage, bounded)
    if dual_clip:
        value = torch.where(advantage < 0, torch.maximum(value, dual_clip * advantage), value)
    cut = (value != ratio * advantage) & mask
    value = outer * value
    if kl:
        if batch.logp_ref is None:
            raise ValueError("a KL penalty needs logp_ref")
        ahead = (masked(batch.logp_ref, mask) - new).clamp(-_LOG_LIMIT, _LOG_LIMIT)
        value = value - kl * masked(ahead.exp() - ahead - 1, mask)
    objective = aggregate(value, mask, aggregation, constant, total)
    with torch.no_grad():
        logs = log_ratio[mask]
        stats = {
            "clipped_share": float(cut.sum() / mask.sum().clamp(min=1)),
            "log_ratio_mean": float(logs.mean()) if len(logs) else 0.0,
            "log_ratio_max": float(logs.abs().max()) if len(logs) else 0.0,
        }
    return objective, stats


def aggregate(value: torch.Tensor, mask: torch.Tensor, how: Aggregation, constant: int = 0, total: float | None = None) -> torch.Tensor:
    """Returns one number of what tokens are worth, [N,T], 0 where the mask is not set. Rows without tokens count nowhere.

    Raises:
        ValueError: the aggregation "constant" lacks its length.
    """
    counts = mask.sum(1)
    if how == "row_mean":
        per_row = value.sum(1) / counts.clamp(min=1)
        return per_row.sum() / (float((counts > 0).sum().clamp(min=1)) if total is None else total)
    if how == "constant":
        if constant < 1:
            raise ValueError("the aggregation 'constant' needs a length of 1 or more")
        rows = float((counts > 0).sum().clamp(min=1))
        return value.sum() / (rows * constant if total is None else total)
    return value.sum() / (float(counts.sum().clamp(min=1)) if total is None else total)


def denominator(mask: torch.Tensor, how: Aggregation, constant: int = 0) -> float:
    """Returns what `aggregate` divides by, so that parts of a batch can be divided by that of the whole."""
    counts = mask.sum(1)
    rows = float((counts > 0).sum().clamp(min=1))
    return {"token_mean": float(counts.sum().clamp(min=1)), "row_mean": rows, "constant": rows * constant}[how]

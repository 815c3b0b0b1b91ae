"""What all objectives for token policies share: the batch of rollouts, group statistics, and the spread of advantages over tokens.

Symbols: N rows (rollouts), T padded tokens of a row, K padded decision steps of a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

STD_FLOOR = 1e-6
_DISCRETE_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """Rollouts of all groups, padded. No tensor has a gradient. Padding may hold NaN and is never read.

    Attributes:
        tokens: [N,T] int64, chosen tokens.
        step: [N,T] int64, decision step of the token, non-decreasing in a row; -1 is padding.
        mask: [N,T] bool, the token enters the loss.
        temperature: [N,T] float32 > 0, at which the token was sampled.
        logp_old: [N,T] float32, log-prob under the policy at the start of this update, at that temperature.
        logp_behaviour: [N,T] float32, log-prob under what really produced the token.
        group: [N] int64, rows that are compared.
        n_steps: [N] int64, executed steps.
        outcome: [N] float32, 0 or 1.
        terminated, truncated: [N] bool.
        logp_ref: [N,T] float32, under a frozen reference; or None.
        entropy: [N,T] float32, nats, of the sampling distribution; or None.
        stale: whether some rows were sampled with older weights than those of `logp_old`.
    """

    tokens: torch.Tensor
    step: torch.Tensor
    mask: torch.Tensor
    temperature: torch.Tensor
    logp_old: torch.Tensor
    logp_behaviour: torch.Tensor
    group: torch.Tensor
    n_steps: torch.Tensor
    outcome: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    logp_ref: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    stale: bool = False

    def __post_init__(self) -> None:
        """Checks the invariants.

        Raises:
            ValueError: names the field, the row and the value.
        """
        rows = self.tokens.shape[0]
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not isinstance(value, torch.Tensor):
                continue
            wanted = tuple(self.tokens.shape) if value.ndim == 2 else (rows,)
            if tuple(value.shape) != wanted:
                raise ValueError(f"{entry.name} has the shape {tuple(value.shape)}, needed is {wanted}")
            if value.requires_grad:
                raise ValueError(f"{entry.name} has a gradient; only the new log-probs may")
        if (bad := self.mask & (self.step < 0)).any():
            row, token = bad.nonzero()[0].tolist()
            raise ValueError(f"mask of row {row} is set at token {token}, where step is {int(self.step[row, token])}")
        for name in ("logp_old", "logp_behaviour", "logp_ref"):
            if (value := getattr(self, name)) is not None:
                check_log_probs(name, value, self)
        if (bad := (self.outcome != 0) & (self.outcome != 1)).any():
            row = int(bad.nonzero()[0])
            raise ValueError(f"outcome of row {row} is {float(self.outcome[row])}, it must be 0 or 1")
        if not self.stale and not torch.equal(self.logp_old[self.mask], self.logp_behaviour[self.mask]):
            raise ValueError("logp_behaviour differs from logp_old; mark the batch as stale if older weights sampled it")

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, which: torch.Tensor) -> "RolloutBatch":
        """Returns some of the rows; `which` are indices or a bool for each."""
        picked: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            picked[entry.name] = value[which] if isinstance(value, torch.Tensor) else value
        return replace(self, **picked)

    @property
    def n(self) -> torch.Tensor:
        """Tokens of each row that enter the loss, [N]."""
        return self.mask.sum(1)


def check_log_probs(name: str, value: torch.Tensor, batch: RolloutBatch) -> None:
    """Refuses log-probs [N,T] that no discrete head gives, where the mask is set.

    Raises:
        ValueError: names row, token and token id.
    """
    bad = batch.mask & ~(torch.isfinite(value) & (value <= _DISCRETE_SLACK))
    if bad.any():
        row, token = bad.nonzero()[0].tolist()
        raise ValueError(f"{name} of row {row}, token {token} (id {int(batch.tokens[row, token])}) is {float(value[row, token]):g}")


def masked(value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the value where the mask is set and 0 elsewhere. It comes before any arithmetic: 0·NaN is NaN."""
    return torch.where(mask, value, torch.zeros((), dtype=value.dtype, device=value.device))


def is_live(values: torch.Tensor) -> bool:
    """Whether there are two or more values that really differ: rounding alone has a spread too."""
    doubles = values.double()
    return len(values) >= 2 and bool(doubles.std(correction=0) > STD_FLOOR * max(1.0, abs(float(doubles.mean()))))


def normalise(values: torch.Tensor, group: torch.Tensor, divide_by_std: bool = True) -> torch.Tensor:
    """Returns (x - mean) / (std + 1e-6) within each group [N] if the group is live, else 0; float64 inside, population deviation.

    Args:
        values: [N].
        group: [N].
        divide_by_std: False leaves x - mean (Dr.GRPO).
    """
    doubles, result = values.double(), torch.zeros(len(values), dtype=torch.float64, device=values.device)
    for name in group.unique():
        rows = group == name
        if is_live(doubles[rows]):
            centred = doubles[rows] - doubles[rows].mean()
            result[rows] = centred / (doubles[rows].std(correction=0) + STD_FLOOR) if divide_by_std else centred
    return result.to(values.dtype)


def spread(value: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
    """Returns a value of each row [N], or of each row's steps [N,K], for each of its tokens, [N,T]; 0 where the mask is not set."""
    of_token = value[:, None].expand(batch.tokens.shape) if value.ndim == 1 else value.gather(1, batch.step.clamp(min=0))
    return masked(of_token, batch.mask)


def padded(rows: Sequence[torch.Tensor], fill: float = 0) -> torch.Tensor:
    """Returns rows of unequal length as one tensor, padded on the right."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)

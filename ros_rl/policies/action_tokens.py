"""Actions as tokens: each dimension of each waypoint of a chunk is one of 256 equal bins between two bounds."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ros_rl.errors import UserError

BINS = 256
NARROWEST = 1e-3  # rad (m): a range below this is widened to it; 256 bins of less are finer than any joint moves


@dataclass(frozen=True, eq=False)
class Ranges:
    """Bounds between which the values of some named dimensions lie.

    Attributes:
        names: one for each dimension, for messages.
        lower, upper: shape (n,).
    """

    names: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray

    def __post_init__(self) -> None:
        """Refuses bounds that are not finite or not in order.

        Raises:
            UserError: names the dimension.
        """
        for name, lower, upper in zip(self.names, self.lower, self.upper, strict=True):
            if not (np.isfinite(lower) and np.isfinite(upper)) or lower >= upper:
                raise UserError(f"the range of '{name}' is {lower:g} to {upper:g}, it must be finite and rise")

    @classmethod
    def of(cls, names: Sequence[str], values: np.ndarray, share: float = 0.999) -> "Ranges":
        """Measures the ranges that hold a share of the values, shape (..., n), without as much at either end.

        A dimension that hardly moves gets a range of `NARROWEST` about its middle, and a warning names it.

        Raises:
            UserError: there are no values, or one is not finite; the dimension is named.
        """
        flat = np.asarray(values, dtype=float).reshape(-1, len(names))
        if not len(flat):
            raise UserError(f"there are no values to measure the ranges of {', '.join(names)} by")
        if not (finite := np.isfinite(flat).all(axis=0)).all():
            raise UserError(f"'{names[int(np.argmin(finite))]}' is not finite in the data")
        lower, upper = np.quantile(flat, [(1 - share) / 2, (1 + share) / 2], axis=0)
        narrow = upper - lower < NARROWEST
        if narrow.any():
            which = ", ".join(name for name, bad in zip(names, narrow, strict=True) if bad)
            warnings.warn(f"{which}: hardly moves in the data; its range is widened to {NARROWEST:g}", stacklevel=2)
        middle = (lower + upper) / 2
        lower, upper = np.where(narrow, middle - NARROWEST / 2, lower), np.where(narrow, middle + NARROWEST / 2, upper)
        return cls(tuple(names), lower, upper)

    def normalised(self, values: np.ndarray) -> np.ndarray:
        """Returns values (..., n) on a scale where the bounds are -1 and 1, cut at -2 and 2; NaN stays NaN."""
        return np.clip(2 * (values - self.lower) / (self.upper - self.lower) - 1, -2.0, 2.0)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Returns the bins (..., n), int64, of values (..., n); what is out of range gets the first or last.

        Raises:
            UserError: a value is not finite; the dimension is named.
        """
        if not (finite := np.isfinite(values).reshape(-1, len(self.names)).all(axis=0)).all():
            raise UserError(f"the action of '{self.names[int(np.argmin(finite))]}' is not finite")
        share = (values - self.lower) / (self.upper - self.lower)
        return np.clip(np.floor(share * BINS), 0, BINS - 1).astype(np.int64)

    def decode(self, tokens: np.ndarray) -> np.ndarray:
        """Returns the middles (..., n) of bins (..., n)."""
        return self.lower + (np.asarray(tokens) + 0.5) / BINS * (self.upper - self.lower)

    def tensors(self, prefix: str) -> dict[str, np.ndarray]:
        """Returns the bounds as a bundle holds them."""
        return {f"{prefix}.lower": self.lower, f"{prefix}.upper": self.upper}


@dataclass(frozen=True, eq=False)
class WaypointCode:
    """Chunks of joint targets as tokens.

    A chunk is `ticks` waypoints of all joints. Those of a `relative` joint are offsets from the position measured when the chunk was
    decided, so that the same motion has the same tokens wherever it is made; others (a gripper) are targets themselves.

    Attributes:
        ranges: of the waypoints as they are coded, one for each joint.
        relative: which joints are coded relative to where they are, bool, shape (n,).
        ticks: waypoints in a chunk.
    """

    ranges: Ranges
    relative: np.ndarray
    ticks: int

    @property
    def length(self) -> int:
        """Tokens in a chunk: the joints of the first waypoint, then those of the second, ..."""
        return self.ticks * len(self.relative)

    def encode(self, waypoints: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Returns the tokens (..., length) of targets (..., ticks, n) decided at a measured position (..., n)."""
        tokens = self.ranges.encode(relative_to(waypoints, position, self.relative))
        return tokens.reshape(*waypoints.shape[:-2], self.length)

    def decode(self, tokens: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Returns the targets (..., ticks, n) of tokens (..., length)."""
        coded = self.ranges.decode(np.asarray(tokens).reshape(*tokens.shape[:-1], self.ticks, -1))
        return coded + np.where(self.relative, position, 0.0)[..., None, :]


def relative_to(waypoints: np.ndarray, position: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Returns targets (..., ticks, n) as offsets from a position (..., n) in the dimensions that are `relative`."""
    return waypoints - np.where(relative, position, 0.0)[..., None, :]


def rows_between(start: np.ndarray, waypoints: np.ndarray, rows: int) -> np.ndarray:
    """Returns the targets on straight lines from `start` (..., n) through waypoints (..., T, n), `rows` to each, (..., T·rows, n).

    The last row of each line is its waypoint.
    """
    corners = np.concatenate([start[..., None, :], waypoints], axis=-2)
    before, after = corners[..., :-1, None, :], corners[..., 1:, None, :]
    share = (np.arange(1, rows + 1) / rows)[:, None]
    lines = before + share * (after - before)
    return lines.reshape(*waypoints.shape[:-2], -1, waypoints.shape[-1])

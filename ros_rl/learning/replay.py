"""Past transitions of many runs, each with a stream of random numbers of its own."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import torch


class Streams:
    """One random generator for each run: what a run draws does not depend on which runs train beside it."""

    def __init__(self, seeds: Sequence[int] | Sequence[Sequence[int]]):
        """Seeds generator r with `seeds[r]`, one or several whole numbers."""
        self.generators = [np.random.default_rng(seed) for seed in seeds]

    def normal(self, *shape: int) -> torch.Tensor:
        """Returns standard normal numbers, shape (R, *shape), float32."""
        return torch.from_numpy(np.stack([draw.standard_normal(shape, np.float32) for draw in self.generators]))

    def uniform(self, *shape: int) -> torch.Tensor:
        """Returns numbers uniform in [-1, 1), shape (R, *shape), float32."""
        return torch.from_numpy(np.stack([2.0 * draw.random(shape, np.float32) - 1.0 for draw in self.generators]))

    def integers(self, high: int, size: int) -> np.ndarray:
        """Returns whole numbers in [0, high), shape (R, size)."""
        return np.stack([draw.integers(0, high, size) for draw in self.generators])

    def state(self) -> np.ndarray:
        """Returns where all streams are, as text in an array of bytes."""
        return np.frombuffer(json.dumps([draw.bit_generator.state for draw in self.generators]).encode(), np.uint8)

    def restore(self, state: np.ndarray) -> None:
        """Goes back to where the streams were when `state` was called."""
        for draw, value in zip(self.generators, json.loads(state.tobytes()), strict=True):
            draw.bit_generator.state = value


class Replay:
    """The newest transitions of R runs, side by side in one array, so that a batch is one gather."""

    def __init__(self, runs: int, capacity: int, widths: Mapping[str, int]):
        """Makes room.

        Args:
            runs: R.
            capacity: transitions kept of each run; older ones are overwritten.
            widths: name to number of values of each part of a transition; 0 for a number that is no vector.
        """
        self.widths = dict(widths)
        self.count = 0
        self._columns = [max(width, 1) for width in self.widths.values()]
        self._data = np.zeros((runs, capacity, sum(self._columns)), np.float32)
        self._rows = np.arange(runs)[:, None]

    def __len__(self) -> int:
        return min(self.count, self._data.shape[1])

    def add(self, **parts: np.ndarray) -> None:
        """Stores one transition of each run; each part has the shape (R, width), or (R,) for a width of 0."""
        row = self.count % self._data.shape[1]
        columns = [parts[name] if width else parts[name][:, None] for name, width in self.widths.items()]
        self._data[:, row] = np.concatenate(columns, axis=1)
        self.count += 1

    def sample(self, streams: Streams, size: int) -> dict[str, torch.Tensor]:
        """Returns transitions drawn with replacement: name to (R, size, width), without the last axis for a width of 0."""
        drawn = torch.from_numpy(self._data[self._rows, streams.integers(len(self), size)])
        parts = torch.split(drawn, self._columns, dim=-1)
        return {name: part if width else part[..., 0] for (name, width), part in zip(self.widths.items(), parts, strict=True)}

    def parts(self, run: int) -> dict[str, np.ndarray]:
        """Returns all transitions of a run, the oldest first unless newer ones have overwritten it: name to (k, width), (k,) for 0."""
        split = np.split(self._data[run, : len(self)], np.cumsum(self._columns)[:-1], axis=1)
        return {name: part if width else part[:, 0] for (name, width), part in zip(self.widths.items(), split, strict=True)}

    def state(self) -> dict[str, np.ndarray]:
        """Returns what is stored."""
        return {"data": self._data[:, : len(self)], "count": np.array(self.count)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self._data[:, : state["data"].shape[1]] = state["data"]
        self.count = int(state["count"])

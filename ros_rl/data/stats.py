"""Statistics of columns as LeRobot 0.4 defines them: per episode, and of episodes together.

Each column has min, max, mean, std (population), count and the quantiles 1, 10, 50, 90 and 99 %. A quantile of an episode is
read off a histogram of 5000 bins over its range, linear within a bin; that of several episodes is the mean of theirs weighted
by count, so it is exact only where they are alike. Images are in [0, 1], per channel, shape (3, 1, 1), over a sample of frames.
"""

from collections.abc import Iterable, Sequence

import numpy as np

Stats = dict[str, dict[str, np.ndarray]]

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
MOMENTS = ("min", "max", "mean", "std", "count")
_BINS = 5000
_MARGIN = 1e-10  # widens the histogram's range, so that a constant column has one
_FEWEST, _MOST, _POWER = 100, 10_000, 0.75  # frames sampled of an episode's video
_LARGE, _WANTED = 300, 150  # px: images at least this large are thinned to about that


def vector_stats(values: np.ndarray, count: int | None = None) -> dict[str, np.ndarray]:
    """Returns the statistics of each element of a column.

    Args:
        values: shape (rows, n), of numbers or truth values.
        count: what to state as `count` where it is not the number of rows.
    """
    values = np.asarray(values, dtype=np.float64)
    low, high, mean = values.min(axis=0), values.max(axis=0), values.mean(axis=0)
    stats = {"min": low, "max": high, "mean": mean, "std": values.std(axis=0), "count": np.array([len(values) if count is None else count])}
    for key in QUANTILES:
        stats[key] = mean.copy() if len(values) < 2 else np.empty_like(mean)
    if len(values) >= 2:
        for i in range(values.shape[1]):
            edges = np.linspace(low[i] - _MARGIN, high[i] + _MARGIN, _BINS + 1)
            cumulative = np.cumsum(np.histogram(values[:, i], bins=edges)[0])
            for key, q in QUANTILES.items():
                stats[key][i] = _quantile(cumulative, edges, q * len(values))
    return stats


def _quantile(cumulative: np.ndarray, edges: np.ndarray, wanted: float) -> float:
    """Returns where the cumulated histogram reaches `wanted`; the lower end of the range where the first bin does."""
    i = int(np.searchsorted(cumulative, wanted))
    if i == 0:
        return float(edges[0])
    if i >= len(cumulative):
        return float(edges[-1])
    share = (wanted - cumulative[i - 1]) / (cumulative[i] - cumulative[i - 1])
    return float(edges[i] + share * (edges[i + 1] - edges[i]))


def sampled_frames(count: int) -> np.ndarray:
    """Returns which of an episode's `count` frames stand for all: evenly spread, the first and the last included."""
    number = max(min(_FEWEST, count), min(int(count**_POWER), _MOST))
    return np.round(np.linspace(0, count - 1, number)).astype(int)


def thinned(image: np.ndarray) -> np.ndarray:
    """Returns every k-th pixel of a large image (height, width, 3), all of a small one."""
    height, width = image.shape[:2]
    if max(height, width) < _LARGE:
        return image
    step = int((width if width > height else height) / _WANTED)
    return image[::step, ::step]


def image_stats(frames: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the statistics of frames that were sampled and thinned, (height, width, 3) uint8 each."""
    pixels = np.concatenate([frame.reshape(-1, 3) for frame in frames])
    stats = vector_stats(pixels, len(frames))
    return {key: value if key == "count" else (value / 255.0).reshape(3, 1, 1) for key, value in stats.items()}


def whole(entry: dict[str, np.ndarray], shape: tuple[int, ...]) -> bool:
    """Says whether the statistics of a column of that shape are complete. LeRobot wrote none of the quantiles before 0.4."""
    names = [*MOMENTS, *(QUANTILES if any(key in entry for key in QUANTILES) else ())]
    right = {name: (1,) if name == "count" else shape for name in names}
    return all(name in entry and entry[name].shape == right[name] and entry[name].dtype.kind in "biuf" for name in names)


def aggregate(parts: Iterable[Stats]) -> Stats:
    """Returns the statistics of several episodes, or groups of them, together; grouping them otherwise gives the same.

    What one of them lacks, a column or the quantiles, is left out.
    """
    parts = list(parts)
    common = [key for key in (parts[0] if parts else {}) if all(key in part for part in parts)]
    entries = {key: [part[key] for part in parts] for key in common}
    return {
        key: _aggregate(group)
        for key, group in entries.items()
        if all(whole(entry, np.shape(group[0].get("mean", 0.0))) for entry in group)
    }


def _aggregate(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    counts = np.array([part["count"][0] for part in parts])
    weights = counts / counts.sum()

    def weighted(values: list[np.ndarray]) -> np.ndarray:
        return np.tensordot(weights, np.stack(values), axes=1)

    mean = weighted([part["mean"] for part in parts])
    variance = weighted([part["std"] ** 2 + (part["mean"] - mean) ** 2 for part in parts])
    return {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": np.array([counts.sum()]),
        **{key: weighted([part[key] for part in parts]) for key in QUANTILES if all(key in part for part in parts)},
    }

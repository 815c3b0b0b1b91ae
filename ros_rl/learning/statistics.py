"""Summaries of few runs: the interquartile mean and its bootstrap interval.

Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021.
"""

import numpy as np

_DRAWS = 2000


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the middle half of `values` (..., n), shape (...): a quarter of them, rounded down, is cut at each end.

    Of fewer than four values nothing is cut: it is their mean.
    """
    cut = int(0.25 * values.shape[-1])
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)


def bootstrap_interval(values: np.ndarray, confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Returns the percentile interval of the interquartile mean of `values` (n,), from 2000 draws of n runs with replacement."""
    drawn = values[np.random.default_rng(seed).integers(0, len(values), (_DRAWS, len(values)))]
    low, high = np.quantile(interquartile_mean(drawn), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)

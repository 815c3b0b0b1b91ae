"""Tests of ros_rl.learning.statistics against SciPy."""

import numpy as np
import pytest
from scipy.stats import bootstrap, trim_mean

from ros_rl.learning.statistics import bootstrap_interval, interquartile_mean


@pytest.mark.parametrize("size", [1, 3, 4, 5, 9, 40])
def test_the_interquartile_mean_is_scipys_trimmed_mean(size):
    values = np.random.default_rng(size).normal(size=(6, size))
    np.testing.assert_allclose(interquartile_mean(values), trim_mean(values, 0.25, axis=-1), rtol=1e-12)


def test_one_run_gone_wrong_does_not_move_it_far():
    assert interquartile_mean(np.array([10.0, 11.0, 12.0, 13.0, -1e9])) == 11.0


def test_the_interval_is_about_scipys():
    values = np.random.default_rng(1).normal(5.0, 2.0, 30)
    theirs = bootstrap(
        (values,), interquartile_mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    np.testing.assert_allclose(bootstrap_interval(values), [theirs.low, theirs.high], atol=0.1)


def test_the_interval_of_equal_values_is_a_point():
    assert bootstrap_interval(np.full(5, 3.0)) == (3.0, 3.0)

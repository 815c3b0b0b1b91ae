"""Tests of ros_rl.safety.minimal_weight: the closed form against its own condition, and against a search."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.safety.minimal_weight import minimal_weight, minimal_weight_of, risk_adjusted

DRAW = np.random.default_rng(0)
POLICY, SAFE = DRAW.uniform(-1, 1, (20, 50)), DRAW.uniform(-1, 1, (20, 50))


def test_no_weight_is_needed_where_the_policy_stays_inside():
    assert (minimal_weight(POLICY, SAFE)[POLICY >= 0] == 0).all()
    assert minimal_weight(0.0, -1.0) == 0.0


def test_mixed_with_it_the_margin_is_exactly_zero():
    weight = minimal_weight(POLICY, SAFE)
    between = (POLICY < 0) & (SAFE > 0)
    assert between.sum() > 200
    np.testing.assert_allclose(((1 - weight) * POLICY + weight * SAFE)[between], 0.0, atol=1e-15)
    assert ((weight > 0) & (weight < 1))[between].all()


def test_the_safe_action_alone_acts_where_nothing_would_do():
    weight = minimal_weight(POLICY, SAFE)
    np.testing.assert_array_equal(weight[(POLICY < 0) & (SAFE <= 0)], 1.0)
    assert minimal_weight(-0.5, -0.5) == 1.0


def test_it_is_the_least_weight_of_a_fine_grid():
    grid = np.linspace(0, 1, 10_001)[:, None]
    policy, safe = POLICY.ravel()[:200], SAFE.ravel()[:200]
    enough = (1 - grid) * policy + grid * safe >= 0
    least = np.where(enough.any(axis=0), grid[enough.argmax(axis=0), 0], 1.0)
    np.testing.assert_allclose(minimal_weight(policy, safe), least, atol=1.001e-4)


def test_shapes_broadcast_and_a_nan_is_refused():
    assert minimal_weight(POLICY, 0.5).shape == POLICY.shape
    assert minimal_weight(POLICY[:, :1], SAFE[0]).shape == (20, 50)
    with pytest.raises(ValueError, match="margins must be numbers, got NaN"):
        minimal_weight(np.array([0.1, np.nan]), 0.5)


def test_the_risk_adjusted_margin_is_a_quantile_of_a_normal_distribution():
    margins = np.random.default_rng(1).normal(0.3, 0.1, (3, 200_000))
    adjusted = risk_adjusted(margins, 0.05)
    np.testing.assert_allclose(adjusted, 0.3 - 1.6448536 * 0.1, atol=2e-3)
    np.testing.assert_allclose((margins < adjusted[:, None]).mean(axis=1), 0.05, atol=2e-3)
    assert (risk_adjusted(margins, 0.01) < adjusted).all()


@pytest.mark.parametrize(("samples", "risk"), [(1, 0.01), (8, 0.0), (8, 1.0)])
def test_a_risk_or_a_sample_that_says_nothing_is_refused(samples, risk):
    with pytest.raises(ValueError, match="two samples at least and a risk between 0 and 1"):
        risk_adjusted(np.zeros((3, samples)), risk)


def test_a_policy_that_is_certain_needs_what_its_one_action_needs(prior):
    """All samples the same: no risk to adjust for, and margins are those of one step of the linear model."""
    strong = replace(prior, B=20 * prior.B)
    states = np.array([[0.0, 0.0], [0.05, 0.2], [0.2, 0.6]])
    actions = np.ones((3, 4, 1))
    own = 1 - strong.radius(states @ strong.A.T + strong.B[:, 0] * 4.0)
    safe = 1 - strong.radius(states @ (strong.A + strong.B @ strong.F).T)
    weight = minimal_weight_of(strong, states, actions)
    np.testing.assert_allclose(weight, minimal_weight(own, safe), atol=1e-12)
    assert (weight > 0).any()
    uncertain = actions + np.array([[-0.5], [0.5], [-0.5], [0.5]])
    assert (minimal_weight_of(strong, states, uncertain) >= weight - 1e-12).all()
    np.testing.assert_array_equal(minimal_weight_of(prior, np.zeros((1, 2)), np.zeros((1, 4, 1))), [0.0])

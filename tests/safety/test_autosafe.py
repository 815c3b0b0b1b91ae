"""Tests of ros_rl.safety.autosafe."""

import numpy as np
import pytest
import torch

from ros_rl.safety.autosafe import Sharpness, mix, mixing_weight

SHARPNESSES = (-1000.0, -300.0, -20.0, -1e-4, 0.0, 1e-4, 1.0, 20.0, 300.0, 1000.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sharpness", SHARPNESSES)
def test_the_weight_is_one_at_the_boundary_zero_in_the_centre_and_monotone_between(sharpness, dtype):
    margin = np.linspace(0, 1, 201, dtype=dtype)
    for weight in (mixing_weight(margin, sharpness), mixing_weight(torch.from_numpy(margin), sharpness).numpy()):
        assert weight[0] == 1.0 and weight[-1] == 0.0
        assert np.isfinite(weight).all()
        assert (np.diff(weight) <= 0).all()
        assert weight.dtype == dtype


def test_at_half_the_margin_the_weight_is_a_logistic_function():
    assert mixing_weight(0.5, 2.0) == pytest.approx(0.2689414, abs=1e-7)
    assert mixing_weight(0.5, -2.0) == pytest.approx(0.7310586, abs=1e-7)
    sharpness = np.linspace(-30, 30, 601)
    np.testing.assert_allclose(mixing_weight(0.5, sharpness), 1 / (1 + np.exp(sharpness / 2)), rtol=1e-9)


def test_the_weight_at_sharpness_zero_is_a_line():
    margin = np.linspace(0, 1, 11)
    np.testing.assert_allclose(mixing_weight(margin, 0.0), 1 - margin, atol=1e-15)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_weight_is_continuous_where_the_series_ends(sign):
    margin = np.linspace(0, 1, 101)
    inner, outer = mixing_weight(margin, sign * (1e-3 - 1e-12)), mixing_weight(margin, sign * (1e-3 + 1e-12))
    np.testing.assert_allclose(inner, outer, atol=1e-9)


def test_the_gradient_is_that_of_the_formula_and_finite_everywhere():
    margin = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
    for value in (-5.0, -0.3, -2e-3, -5e-4, 0.0, 5e-4, 2e-3, 0.3, 5.0):
        sharpness = torch.full_like(margin, value, requires_grad=True)
        mixing_weight(margin, sharpness).sum().backward()
        x, p = 1 - margin.numpy(), value or 1e-9
        weight = np.expm1(p * x) / np.expm1(p)
        formula = weight * (x / -np.expm1(-p * x) - 1 / -np.expm1(-p)) if abs(p) > 1e-6 else -x * (1 - x) / 2
        difference = (mixing_weight(1 - x, value + 1e-5) - mixing_weight(1 - x, value - 1e-5)) / 2e-5
        np.testing.assert_allclose(sharpness.grad.numpy(), formula, atol=1e-5)
        np.testing.assert_allclose(sharpness.grad.numpy(), difference, atol=1e-5)
        assert (sharpness.grad < 0).all()
    extremes = torch.tensor(SHARPNESSES, requires_grad=True)
    mixing_weight(torch.linspace(0, 1, 11)[:, None], extremes).sum().backward()
    assert torch.isfinite(extremes.grad).all()


@pytest.mark.parametrize("margin", [-1e-6, 1.1, float("nan")])
def test_a_margin_outside_its_range_is_refused(margin):
    with pytest.raises(ValueError, match="margin must be within 0 and 1, got"):
        mixing_weight(np.array([0.5, margin]), 1.0)
    with pytest.raises(ValueError, match="margin must be within 0 and 1, got"):
        mixing_weight(torch.tensor([0.5, margin]), 1.0)
    with pytest.raises(ValueError, match="margin must be within 0 and 1, got"):
        mixing_weight(margin, 1.0)


def test_numbers_arrays_and_tensors_give_the_same_weight():
    for sharpness in (-3.0, 0.0, 5e-4, 2.0):
        for margin in (0.0, 0.3, 1.0):
            weight = mixing_weight(margin, sharpness)
            assert type(weight) is float
            assert mixing_weight(np.array([margin]), sharpness)[0] == pytest.approx(weight, abs=1e-15)
            assert float(mixing_weight(torch.tensor([margin], dtype=torch.float64), sharpness)[0]) == pytest.approx(weight, abs=1e-15)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.9, 1.0])
def test_mixing_scales_the_covariance_by_the_square_of_what_is_left_to_the_policy(weight):
    """Exactly for the same random numbers, whatever the distribution; here a tanh-Gaussian of two correlated actions."""
    draw = np.random.default_rng(0)
    actions = np.tanh(draw.normal(size=(200_000, 2)) @ np.array([[0.6, 0.3], [0.0, 0.5]]) + 0.2)
    mixed = mix(actions, np.array([0.7, -0.4]), np.full(len(actions), weight))
    np.testing.assert_allclose(np.cov(mixed.T), (1 - weight) ** 2 * np.cov(actions.T), rtol=1e-9, atol=1e-20)
    other = np.tanh(draw.normal(size=(200_000, 2)) @ np.array([[0.6, 0.3], [0.0, 0.5]]) + 0.2)
    np.testing.assert_allclose(np.cov(mixed.T), (1 - weight) ** 2 * np.cov(other.T), rtol=0.02, atol=1e-20)


def test_the_mixture_is_within_the_actions_and_exactly_one_of_them_at_the_ends():
    draw = np.random.default_rng(0)
    action, safe_action = draw.uniform(-1, 1, (2, 100_000, 3))
    assert np.abs(mix(action, safe_action, draw.uniform(0, 1, 100_000))).max() <= 1.0
    np.testing.assert_array_equal(mix(action, safe_action, np.zeros(100_000)), action)
    np.testing.assert_array_equal(mix(action, safe_action, np.ones(100_000)), safe_action)


def test_a_learned_sharpness_stays_between_its_bounds_and_starts_in_the_middle():
    sharpness = Sharpness(0.5, 2.5).of(torch.tensor([-50.0, 0.0, 50.0]))
    torch.testing.assert_close(sharpness, torch.tensor([0.5, 1.5, 2.5]))
    assert Sharpness.fixed(1.2).of(None) == 1.2


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)])
def test_bounds_in_the_wrong_order_are_refused(bounds):
    with pytest.raises(ValueError, match="low < high is needed"):
        Sharpness(*bounds)

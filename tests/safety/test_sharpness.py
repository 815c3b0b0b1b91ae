"""Tests of ros_rl.safety.sharpness: no policy leaves the ellipsoid up to the bound, and a bad one does beyond it."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.safety.autosafe import mixing_weight
from ros_rl.safety.certify import linear_step
from ros_rl.safety.prior import CertificateError
from ros_rl.safety.sharpness import adversary, boundary, certified_sharpness, simulated_sharpness


def test_the_bound_of_the_cart_pole_is_the_largest_that_fulfils_its_condition(cartpole):
    prior = cartpole.prior
    assert prior.sharpness_bound == certified_sharpness(prior) == 2.26
    reach = 2 * 20.0 * float(np.sqrt(prior.B[:, 0] @ prior.P @ prior.B[:, 0]))
    radius = np.linspace(0, 1, 100_001)
    for sharpness, kept in ((2.26, True), (2.28, False)):
        after = np.sqrt(prior.contraction) * radius + (1 - mixing_weight(1 - radius, sharpness)) * reach
        assert (after <= 1 + 1e-9).all() == kept


def test_no_policy_leaves_the_ellipsoid_of_the_simulator_at_the_bound_and_one_does_beyond(cartpole):
    prior, step = cartpole.prior, cartpole.plant.step
    assert 0.9 < adversary(prior, step, prior.sharpness_bound) < 1.0
    assert adversary(prior, step, 50.0) > 1.5


def test_the_simulated_bound_is_where_the_adversary_begins_to_win(cartpole):
    prior, step = cartpole.prior, linear_step(cartpole.prior)
    bound = simulated_sharpness(prior, step, 1.0, largest=6.0)
    assert 1.0 < bound < 6.0
    close = bound + 0.1  # if this were proven, it would stand, closer to the boundary than what is not proven may come
    at_bound, beyond = ([adversary(prior, step, sharpness, seed) for seed in range(5)] for sharpness in (bound, close))
    assert max(at_bound) < 0.98 <= max(beyond) < 1.0
    # One seed alone would have allowed more.
    assert bound < simulated_sharpness(prior, step, 1.0, largest=6.0, seeds=[int(np.argmin(beyond))])
    assert simulated_sharpness(prior, step, close) == close


def test_the_adversary_starts_inside_and_is_the_same_for_the_same_seed(cartpole):
    prior, step = cartpole.prior, linear_step(cartpole.prior)
    assert adversary(prior, step, 0.0, steps=0) <= 0.25 + 1e-12
    assert adversary(prior, step, 0.0, seed=3, steps=20) == adversary(prior, step, 0.0, seed=3, steps=20)
    assert adversary(prior, step, 0.0, seed=3, steps=20) != adversary(prior, step, 0.0, seed=4, steps=20)


def test_a_system_that_actions_throw_too_far_has_no_bound(prior):
    # A step of 4 N moves the state by 0.08 of a radius; a hundred times that is several radii.
    assert certified_sharpness(prior) > 0.0
    with pytest.raises(CertificateError, match=r"none from 0 to 50 keeps the ellipsoid: .* by up to 16 of its radius"):
        certified_sharpness(replace(prior, B=100 * prior.B))
    with pytest.raises(CertificateError, match="an adversary brings V to 522 in simulation at 0 already"):
        simulated_sharpness(prior, lambda states, inputs: states + 10.0, 0.0)


def test_a_certified_sharpness_is_the_largest_that_is_searched_where_nothing_is_in_the_way(prior):
    assert certified_sharpness(replace(prior, B=1e-9 * prior.B)) == 50.0


def test_boundary_states_are_on_the_boundary_and_on_all_sides(cartpole):
    states = boundary(cartpole.prior, 5000, np.random.default_rng(0))
    np.testing.assert_allclose(cartpole.prior.value(states), 1.0, atol=1e-12)
    np.testing.assert_allclose(4 * states.T @ states / 5000, np.linalg.inv(cartpole.prior.P), atol=0.5)
    assert (states.min(axis=0) < 0).all() and (states.max(axis=0) > 0).all()

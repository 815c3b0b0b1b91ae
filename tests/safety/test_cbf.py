"""Tests of ros_rl.safety.cbf: closed form and solver agree, and the condition does what it is for."""

import numpy as np
import pytest
from qpsolvers import solve_qp

from ros_rl.safety.cbf import Barrier, barrier, nearest_allowed
from ros_rl.safety.certify import linear_step
from ros_rl.safety.prior import load_prior
from ros_rl.safety.sharpness import boundary


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_closed_form_is_what_the_solver_finds(size):
    random = np.random.default_rng(size)
    proposed = random.uniform(-1, 1, (300, size))
    slope = random.normal(size=(300, size)) * (random.uniform(size=(300, size)) > 0.2)
    bound = random.normal(size=300) * np.abs(slope).sum(axis=1)
    actions, feasible = nearest_allowed(proposed, slope, bound)
    ones = np.ones(size)
    for index in range(300):
        expected = solve_qp(
            np.eye(size), -proposed[index], slope[index : index + 1], bound[index : index + 1], lb=-ones, ub=ones, solver="daqp"
        )
        assert (expected is not None) == feasible[index]
        if expected is not None:
            np.testing.assert_allclose(actions[index], expected, atol=1e-6)
    assert 30 < feasible.sum() < 290


@pytest.mark.parametrize("robot", ["cartpole", "quadrotor_wrench"])
def test_filter_and_batch_agree_on_a_robot(robot):
    prior = load_prior(robot)
    random = np.random.default_rng(0)
    states = boundary(prior, 100, random) * random.uniform(0, 1.05, (100, 1))
    proposed = random.uniform(-1, 1, (100, prior.action_size))
    slope, bound = barrier(prior, states)
    actions, feasible = nearest_allowed(proposed, slope, bound)
    expected = np.where(feasible[:, None], actions, prior.safe_action(states))
    cbf = Barrier(prior)
    for state, action, wanted in zip(states, proposed, expected, strict=True):
        np.testing.assert_allclose(cbf.act(state, action)[0], wanted, atol=1e-6)


def test_the_condition_is_the_barriers_slope_at_the_safe_action(cartpole):
    prior = cartpole.prior
    states = boundary(prior, 50, np.random.default_rng(0)) * 0.9
    slope, bound = barrier(prior, states, rate=0.2)
    safe, after = prior.safe_action(states), linear_step(prior)
    room = bound - (slope * safe).sum(axis=1)
    h = 1 - prior.value(states)
    np.testing.assert_allclose(room, 1 - prior.value(after(states, safe * prior.action_range)) - 0.8 * h, atol=1e-12)
    tilt = [1 - prior.value(after(states, (safe + side) * prior.action_range)) for side in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope[:, 0], -(tilt[0] - tilt[1]) / 2e-6, rtol=1e-5, atol=1e-6)
    assert (room > 0).all()  # the safe action itself is always allowed: the contraction of V is faster than what h may lose


def test_an_allowed_action_passes_and_one_that_leads_out_is_cut(cartpole):
    prior, cbf = cartpole.prior, Barrier(cartpole.prior)
    centre = np.zeros(4)
    np.testing.assert_allclose(cbf.act(centre, np.array([0.3]))[0], [0.3], atol=1e-9)
    state = boundary(prior, 1, np.random.default_rng(0))[0] * 0.95
    slope, bound = barrier(prior, state)
    worst = np.sign(slope)
    executed, _ = cbf.act(state, worst)
    assert not np.allclose(executed, worst)
    assert slope @ executed == pytest.approx(float(bound), abs=1e-6)


def test_where_no_action_is_allowed_the_safe_one_acts(cartpole):
    prior = cartpole.prior
    outside = boundary(prior, 200, np.random.default_rng(0)) * 3.0
    slope, bound = barrier(prior, outside)
    impossible = outside[-np.abs(slope).sum(axis=1) > bound]
    assert len(impossible)
    executed, watched = Barrier(prior).act(impossible[0], np.array([0.1]))
    np.testing.assert_array_equal(executed, prior.safe_action(impossible[0]))
    assert watched == {"weight": 1.0}

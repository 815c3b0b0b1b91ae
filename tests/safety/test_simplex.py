"""Tests of ros_rl.safety.simplex."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.safety.prior import CallablePrior
from ros_rl.safety.simplex import Simplex, takes_over


def test_it_takes_over_above_one_threshold_and_lets_go_below_the_other():
    value = np.array([0.69, 0.71, 0.5, 0.41, 0.39, 0.5, 0.71])
    before, taken = np.array(False), []
    for entry in value:
        before = takes_over(entry, before)
        taken.append(bool(before))
    assert taken == [False, True, True, True, False, False, True]


def test_many_copies_switch_each_for_itself():
    before = np.array([False, True, False, True])
    np.testing.assert_array_equal(takes_over(np.array([0.5, 0.5, 0.8, 0.3]), before), [False, True, True, False])


def test_the_safe_controller_acts_alone_and_then_not_at_all(prior):
    # V = 4 x²: 0.45 m is V = 0.81, 0.35 m is 0.49, 0.3 m is 0.36.
    simplex = Simplex(prior)
    proposed = np.array([0.9])
    expected = [(0.35, proposed, 0.0), (0.45, [-0.225], 1.0), (0.35, [-0.175], 1.0), (0.3, proposed, 0.0)]
    for x, action, weight in expected:
        executed, watched = simplex.act(np.array([x, 0.0]), proposed)
        np.testing.assert_allclose(executed, action)
        assert watched == {"weight": weight}
    simplex.act(np.array([0.45, 0.0]), proposed)
    simplex.reset()
    np.testing.assert_array_equal(simplex.act(np.array([0.35, 0.0]), proposed)[0], proposed)


def test_any_prior_has_what_it_needs():
    stance = CallablePrior(1, 1, lambda state: 1.0 - abs(state[..., 0]), lambda state: -state)
    simplex = Simplex(stance)
    np.testing.assert_array_equal(simplex.act(np.array([0.9]), np.array([1.0]))[0], [-0.9])


@pytest.mark.parametrize(("enter", "leave"), [(0.4, 0.7), (1.0, 0.4), (0.7, 0.0)])
def test_thresholds_that_make_no_sense_are_refused(prior, enter, leave):
    with pytest.raises(UserError, match="0 < leave <= enter < 1"):
        Simplex(prior, enter, leave)

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.policies.action_tokens import BINS, NARROWEST, Ranges, WaypointCode, rows_between

RANGES = Ranges(("a", "b"), np.array([-1.0, 0.0]), np.array([1.0, 0.5]))


def test_a_value_comes_back_within_half_a_bin():
    values = np.random.default_rng(0).uniform(RANGES.lower, RANGES.upper, (1000, 2))
    off = np.abs(RANGES.decode(RANGES.encode(values)) - values)
    assert (off <= (RANGES.upper - RANGES.lower) / BINS / 2 + 1e-12).all()


def test_bins_divide_the_range_evenly_and_what_is_outside_gets_the_last_one():
    tokens = np.stack([np.arange(BINS)] * 2, axis=-1)
    assert np.array_equal(RANGES.encode(RANGES.decode(tokens)), tokens)
    assert RANGES.encode(np.array([-9.0, 9.0])).tolist() == [0, BINS - 1]
    assert RANGES.encode(np.array([1.0, 0.0])).tolist() == [BINS - 1, 0]


def test_ranges_leave_out_outliers():
    values = np.append(np.linspace(-1, 1, 10_001), 1e6)[:, None]
    assert Ranges.of(["a"], values).upper[0] == pytest.approx(1.0, abs=2e-3)


def test_a_joint_that_hardly_moves_is_named_and_gets_a_floor():
    values = np.stack([np.linspace(0, 1, 50), np.full(50, 0.25)], axis=1)
    with pytest.warns(UserWarning, match="gripper: hardly moves"):
        found = Ranges.of(["arm", "gripper"], values)
    assert found.lower[1] == pytest.approx(0.25 - NARROWEST / 2) and found.upper[1] - found.lower[1] == pytest.approx(NARROWEST)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, np.nan), (-np.inf, 0.0)])
def test_degenerate_bounds_are_refused_by_name(bounds):
    with pytest.raises(UserError, match="range of 'elbow'"):
        Ranges(("elbow",), np.array(bounds[:1]), np.array(bounds[1:]))


def test_values_that_are_not_finite_are_refused_by_name():
    with pytest.raises(UserError, match="'b'"):
        RANGES.encode(np.array([0.0, np.nan]))
    with pytest.raises(UserError, match="'b' is not finite"):
        Ranges.of(["a", "b"], np.array([[0.0, np.inf]]))
    with pytest.raises(UserError, match="no values"):
        Ranges.of(["a", "b"], np.zeros((0, 2)))


def test_the_state_is_scaled_to_its_bounds_and_cut():
    assert RANGES.normalised(np.array([-1.0, 0.5])).tolist() == [-1.0, 1.0]
    assert RANGES.normalised(np.array([0.0, 99.0])).tolist() == [0.0, 2.0]


def test_relative_joints_have_the_same_tokens_wherever_the_motion_is_made():
    code = WaypointCode(RANGES, np.array([True, False]), 3)
    motion = np.array([[0.1, 0.3], [0.2, 0.3], [0.3, 0.1]])
    here, there = np.array([0.5, 0.2]), np.array([-2.0, 0.4])
    tokens = code.encode(motion + here * [1, 0], here)
    assert tokens.shape == (6,) and np.array_equal(tokens, code.encode(motion + there * [1, 0], there))
    np.testing.assert_allclose(code.decode(tokens, here), motion + here * [1, 0], atol=1 / BINS)
    np.testing.assert_allclose(code.decode(np.stack([tokens] * 2), np.stack([here, there]))[1], motion + there * [1, 0], atol=1 / BINS)


def test_rows_go_straight_through_the_waypoints():
    rows = rows_between(np.array([0.0]), np.array([[1.0], [0.0]]), 4)
    assert rows[:, 0].tolist() == [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0]

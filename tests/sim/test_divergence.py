"""Tests of ros_rl.sim.divergence."""

import mujoco
import numpy as np
import pytest

from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.divergence import describe, wild

NO_WARNINGS = np.zeros((len(mujoco.mjtWarning.__members__) - 1, 2), dtype=int)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return build(load_robot("cartpole"), "floor").mj


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e3, -2e3])
def test_wild_velocities_are_found_whatever_their_kind(bad):
    np.testing.assert_array_equal(wild(np.array([[0.0, 1.0], [0.0, bad]]), np.zeros((2, 2))), [[False, False], [False, True]])


def test_a_calm_state_is_no_fault(model):
    assert describe(model, np.array([900.0, -900.0]), np.array([1e6, 0.0]), NO_WARNINGS) is None


def test_the_body_is_named(model):
    assert "body 'pole' moves at nan" in describe(model, np.array([0.0, np.nan]), np.zeros(2), NO_WARNINGS)
    assert "body 'cart'" in describe(model, np.zeros(2), np.array([np.inf, 0.0]), NO_WARNINGS)


def test_mujoco_warnings_are_faults_too(model):
    warnings = NO_WARNINGS.copy()
    warnings[mujoco.mjtWarning.mjWARN_BADQACC] = 1, 3
    assert "unstable" in describe(model, np.zeros(2), np.zeros(2), warnings)
    assert "body 'pole'" in describe(model, np.zeros(2), np.zeros(2), warnings)

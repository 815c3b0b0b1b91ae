"""Tests of ros_rl.learning.shields: each does what its name says, copy by copy."""

import numpy as np
import pytest

from ros_rl.learning.shields import BarrierShield, ResidualShield, SimplexShield
from ros_rl.safety.cbf import Barrier
from ros_rl.safety.certify import certify_robot
from ros_rl.safety.simplex import Simplex

PRIOR = certify_robot("cartpole", 50.0).prior


@pytest.fixture
def states() -> np.ndarray:
    """60 steps of 4 copies, at radii from 0 to 1.1."""
    draw = np.random.default_rng(0)
    directions = draw.normal(size=(60, 4, 4))
    return directions / PRIOR.radius(directions)[..., None] * draw.uniform(0.0, 1.1, (60, 4, 1))


def test_the_hard_switch_of_each_copy_is_that_of_the_filter(states):
    shield, filters = SimplexShield(PRIOR, 4), [Simplex(PRIOR) for _ in range(4)]
    switched = 0
    for step, state in enumerate(states):
        proposed = np.random.default_rng(step).uniform(-1, 1, (4, 1))
        if step == 30:
            shield.reset(np.array([2]))
            filters[2].reset()
        executed = shield(proposed, state, PRIOR.safe_action(state))
        expected = [rule.act(state[copy], proposed[copy])[0] for copy, rule in enumerate(filters)]
        np.testing.assert_allclose(executed, expected, atol=1e-15)
        switched += (executed != proposed).sum()
    assert 20 < switched < 220


def test_the_hard_switch_remembers_across_a_checkpoint(states):
    shield = SimplexShield(PRIOR, 4)
    near = states[0] / PRIOR.radius(states[0])[:, None]
    proposed = np.full((4, 1), 0.123)
    shield(proposed, 0.95 * near, PRIOR.safe_action(near))  # V = 0.9: the safe controller has them
    resumed = SimplexShield(PRIOR, 4)
    resumed.restore(shield.state())
    between = 0.75 * near  # V = 0.56, between the thresholds
    assert (resumed(proposed, between, PRIOR.safe_action(between)) != proposed).all()
    assert (SimplexShield(PRIOR, 4)(proposed, between, PRIOR.safe_action(between)) == proposed).all()


def test_the_barrier_of_each_copy_is_the_quadratic_programmes_of_the_solver(states):
    shield, rule = BarrierShield(PRIOR), Barrier(PRIOR)
    for step, state in enumerate(states[:20]):
        proposed = np.random.default_rng(step).uniform(-1, 1, (4, 1))
        expected = [rule.act(state[copy], proposed[copy])[0] for copy in range(4)]
        np.testing.assert_allclose(shield(proposed, state, PRIOR.safe_action(state)), expected, atol=1e-6)


def test_the_residual_adds_half_of_the_proposed_action_and_is_clipped():
    executed = ResidualShield()(np.array([[1.0], [-0.4], [1.0]]), np.zeros((3, 4)), np.array([[0.2], [0.1], [0.9]]))
    np.testing.assert_allclose(executed, [[0.7], [-0.1], [1.0]])

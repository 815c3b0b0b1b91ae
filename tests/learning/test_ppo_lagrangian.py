"""Tests of ros_rl.learning.ppo_lagrangian."""

import numpy as np
import pytest
from falling_point import FallingPoint

from ros_rl.learning.ppo import PpoArgs
from ros_rl.learning.ppo_lagrangian import LagrangianPpo, MultiplierArgs

ARGS = PpoArgs(copies=2, rollout=32, epochs=2, batch=16, hidden=(8, 8))
LONGER = PpoArgs(copies=8, rollout=64, epochs=10, batch=64, hidden=(16, 16), learning_rate=3e-3)


def test_the_multiplier_follows_falls_per_episode_and_the_advantage_is_weighed():
    learner = LagrangianPpo(ARGS, FallingPoint(2), 10, 0)
    learner._ended, learner.cost = 4, 0.55
    combined = learner._combined(np.array([[2.0]]), np.array([[1.0]]))
    assert learner.multiplier == pytest.approx(0.1 + 0.05 * 0.5)
    np.testing.assert_allclose(combined, (2.0 - 0.125) / 1.125)
    learner.cost = 0.0
    for _ in range(100):
        learner._combined(np.array([[2.0]]), np.array([[1.0]]))
    assert learner.multiplier == 0.0
    learner._ended, learner.cost = 0, 1.0  # nothing was learnt about falls
    learner._combined(np.array([[2.0]]), np.array([[1.0]]))
    assert learner.multiplier == 0.0


def test_the_cost_is_falls_per_episode():
    learner = LagrangianPpo(ARGS, FallingPoint(2, limit=7, reach=0.8), 10, 0)
    figures = learner.iterate()
    assert figures["falls"] > 0
    assert figures["cost"] == pytest.approx(figures["falls"] / len(learner.episodes))


def test_the_critic_of_the_cost_learns_where_falls_are_near():
    learner = LagrangianPpo(LONGER, FallingPoint(8, goal=0.95, reach=0.4, limit=50), 30, 0)
    for _ in range(8):
        learner.iterate()
    near, far = learner.cost_critic(learner.moments(np.array([[0.9, 0.95], [-0.5, 0.95]])))[:, 0]
    assert near > far + 0.03


def test_a_strict_limit_means_fewer_falls():
    def falls(constraint: MultiplierArgs) -> int:
        learner = LagrangianPpo(LONGER, FallingPoint(8, goal=0.95), 25, 0, constraint)
        for _ in range(25):
            learner.iterate()
        return learner.falls

    assert falls(MultiplierArgs(limit=0.0, start=5.0, rate=1.0)) < 0.8 * falls(MultiplierArgs(limit=1.0, start=0.0))


def test_a_training_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    whole, stopped, resumed = (LagrangianPpo(ARGS, FallingPoint(2), 10, 0) for _ in range(3))
    for _ in range(4):
        whole.iterate()
    stopped.iterate(), stopped.iterate()
    stopped.save(tmp_path / "run.npz")
    resumed.resume(tmp_path / "run.npz")
    resumed.iterate(), resumed.iterate()
    assert resumed.multiplier == whole.multiplier
    np.testing.assert_array_equal(resumed.parameters.values, whole.parameters.values)
    np.testing.assert_array_equal(resumed.cost_parameters.values, whole.cost_parameters.values)

"""Tests of ros_rl.safety.stance: that the stance keeps a quadruped up, and what its ellipsoid and its linear model are worth."""

import numpy as np
import pytest

from ros_rl.safety.prior import CertificateError
from ros_rl.safety.sharpness import Attack, attack, boundary, withstood_sharpness, worst_actions
from ros_rl.safety.stance import perturbed_steps, stance_gain, stance_prior
from ros_rl.sim.goals.quadruped import CORRECTION, RANGE, QuadrupedGoal

PRIOR = stance_prior()


def environment_of(copies: int = 6) -> QuadrupedGoal:
    return QuadrupedGoal(np.resize([0.2, 0.4, 0.6], copies), PRIOR)


def test_the_prior_is_the_same_every_time():
    assert stance_prior().digest() == PRIOR.digest()


def test_the_ellipsoid_is_well_inside_its_limits_and_contracts():
    reach = np.sqrt(np.diag(np.linalg.inv(PRIOR.P)))
    assert (reach[:3] <= np.array([0.5, 0.5, 0.1]) * (1 + 1e-9)).all()
    assert max(reach[:3] / [0.5, 0.5, 0.1]) == pytest.approx(0.7, abs=1e-9)
    states = boundary(PRIOR, 5000, np.random.default_rng(0))
    assert np.abs(states @ PRIOR.F.T).max() <= RANGE
    after = PRIOR.value(states @ (PRIOR.A + PRIOR.B @ PRIOR.F).T)
    assert after.max() <= PRIOR.contraction + 1e-9 and PRIOR.contraction < 0.95


def test_a_leg_grows_by_what_the_trunk_is_too_low_above_its_foot():
    """Held against the leg's inverse kinematics: lower the trunk by 1 cm and ask for 0.3 cm of length."""
    legs = stance_gain(0.3, 0.0).reshape(4, 3, 6)
    for joints in legs @ [0, 0, -0.01, 0, 0, 0]:
        assert abs(joints[0]) < 0.01
        # Thigh and calf of equal length 0.213 m at 0.9 and -1.8 rad: L = 2·0.213·cos(thigh).
        assert -2 * 0.213 * np.sin(0.9) * joints[1] == pytest.approx(0.003, rel=0.15)
        assert joints[2] == pytest.approx(-2 * joints[1], rel=0.1)
    rolled = legs @ [0.1, 0, 0, 0, 0, 0]  # to the right: the left side rises, its legs shorten
    assert (rolled[[0, 2], 2] < 0).all() and (rolled[[1, 3], 2] > 0).all()
    sinking = stance_gain(0.0, 0.03).reshape(4, 3, 6) @ [0, 0, 0, 0, 0, -0.5]
    assert (sinking[:, 2] > 0).all()


def test_one_step_predictions_are_better_than_that_nothing_changes_on_steps_that_were_not_fitted():
    states, inputs, after = perturbed_steps(PRIOR.F, seed=7)
    assert len(states) == 2000
    error = ((after - states @ PRIOR.A.T - inputs @ PRIOR.B.T) ** 2).mean(axis=0)
    assert (error < 0.6 * ((after - states) ** 2).mean(axis=0)).all()
    explained = 1 - error / after.var(axis=0)
    assert (explained[:3] > 0.8).all() and (explained[3:] > 0.3).all()


def test_the_stance_stays_in_the_ellipsoid_for_ten_seconds_and_comes_to_rest():
    environment = environment_of()
    environment.reset(range(6), [[3, copy] for copy in range(6)])
    assert PRIOR.radius(environment.safety_state).max() > 0.3
    radius = []
    for _ in range(500):
        outcome = environment.step(PRIOR.safe_action(environment.safety_state))
        radius.append(PRIOR.radius(environment.safety_state))
        assert not outcome.violation.any()
    # It lands after a step or two, and then does not leave.
    assert np.max(radius[5:]) < 1.0
    assert np.max(radius[250:]) < 0.35
    assert np.ptp(radius[-50:], axis=0).max() < 0.01


def test_the_worst_corner_is_the_worst_of_all():
    states = boundary(PRIOR, 3, np.random.default_rng(1)) * 0.5
    choices, base = np.random.default_rng(2).uniform(-1, 1, (200, 12)), np.random.default_rng(3).uniform(-1, 1, (3, 12))
    weight = np.array([0.1, 0.5, 0.9])
    found = worst_actions(PRIOR, states, weight, choices, base)
    for state, share, middle, chosen in zip(states, weight, base, found, strict=True):
        mixed = (1 - share) * (middle + choices) + share * PRIOR.safe_action(state)
        value = PRIOR.value(state @ PRIOR.A.T + mixed * RANGE @ PRIOR.B.T)
        np.testing.assert_allclose(chosen, middle + choices[value.argmax()], atol=1e-12)


def test_the_worst_policy_is_withstood_at_0_and_not_at_50():
    environment = environment_of()
    gentle = attack(environment, PRIOR, 0.0, CORRECTION)
    assert 0.2 < gentle.reach < 0.8 and gentle.fallen == 0.0
    harsh = attack(environment, PRIOR, 50.0, CORRECTION)
    assert harsh.value > 4.0 and harsh.reach > 1.0 and harsh.fallen > 0.0


def test_the_sharpness_that_is_withstood_is_the_largest_of_its_grid(monkeypatch):
    monkeypatch.setattr("ros_rl.safety.sharpness.attack", lambda _, prior, sharpness, *others: Attack(9.0, 0.5 + sharpness / 4, 0.0))
    assert withstood_sharpness(environment_of(1), PRIOR, CORRECTION) == 1.75
    monkeypatch.setattr("ros_rl.safety.sharpness.attack", lambda *_: Attack(0.5, 1.0, 0.0))
    with pytest.raises(CertificateError, match="the worst policy leaves the safe box in simulation even at 0"):
        withstood_sharpness(environment_of(1), PRIOR, CORRECTION)

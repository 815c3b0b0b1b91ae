"""Tests of ros_rl.safety.certify: what is certified holds in the simulator that the certificate has not seen."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.paths import share_dir
from ros_rl.robots.spec import load_robot
from ros_rl.safety.certify import certify, certify_robot, check_nonlinear, leaving, linear_step
from ros_rl.safety.prior import CertificateError, load_prior
from ros_rl.safety.safe_set import SafeSet
from ros_rl.sim.linearise import rigid_body


def test_the_cart_pole_is_certified_with_the_size_that_is_known(cartpole):
    prior, certificate = cartpole.prior, cartpole.certificate
    assert certificate.contraction == pytest.approx(0.96, abs=1e-6)
    np.testing.assert_allclose(certificate.box_reach, [1.0, 1.0], atol=1e-6)
    assert certificate.spectral_radius < 1.0
    assert 1 / np.sqrt(prior.P[0, 0]) == pytest.approx(0.60, abs=0.01)  # how far the cart may stand from the middle
    assert cartpole.disagreement < 1e-8
    assert 0.98 < cartpole.nonlinear.largest < 0.99
    assert cartpole.nonlinear.outside == 0.0


def test_10000_interior_states_contract_within_box_and_actions(cartpole):
    prior = cartpole.prior
    random = np.random.default_rng(1)
    directions = random.normal(size=(10_000, 4)) @ np.linalg.inv(np.linalg.cholesky(prior.P))
    states = directions / prior.radius(directions)[:, None] * random.uniform(size=(10_000, 1)) ** 0.25
    inputs = states @ prior.F.T
    np.testing.assert_allclose(prior.safe_action(states) * prior.action_range, inputs, atol=1e-9)  # nothing is clipped
    assert (prior.value(linear_step(prior)(states, inputs)) <= 0.96 * prior.value(states) + 1e-6).all()
    assert prior.inside_box(states).all()
    assert np.abs(inputs).max() <= 20.0


def test_rollouts_stay_in_the_linear_model_and_in_the_simulator(cartpole):
    assert leaving(cartpole.prior, linear_step(cartpole.prior), 10_000, 50) == 0.0
    assert leaving(cartpole.prior, cartpole.plant.step, 200, 20) == 0.0
    assert leaving(replace(cartpole.prior, F=0 * cartpole.prior.F), cartpole.plant.step, 200, 20) > 0.5


def test_a_simulator_that_is_wilder_than_its_linear_model_is_refused(cartpole):
    prior = cartpole.prior

    def wild(states, inputs):
        return linear_step(prior)(states, inputs) + 0.5 * states**3

    check = check_nonlinear(prior, wild)
    assert check.largest > 1.0 and 0.0 < check.outside < 1.0
    safe = SafeSet(
        state_names=prior.state_names,
        action_names=prior.action_names,
        state_equilibrium=np.zeros(4),
        action_equilibrium=np.zeros(1),
        action_range=np.array([20.0]),
        bounds={prior.state_names[0]: (-1.0, 1.0), prior.state_names[2]: (-0.4, 0.4)},
        scale=np.array([1.0, 2.5, 0.4, 4.5]),
        contraction=0.96,
        period=0.02,
    )
    with pytest.raises(CertificateError, match=r"in simulation V reaches \d.*, it must stay below 1 \(\d.*% of 2000 states leave\)"):
        certify(safe, wild)
    assert check_nonlinear(prior, lambda states, inputs: np.full_like(states, np.nan)).outside == 1.0
    with pytest.raises(UserError, match=r"scale must have the shape \(4,\), it has \(3,\)"):
        certify(replace(safe, scale=np.ones(3)), wild)


def test_a_linear_model_that_pinocchio_does_not_share_is_refused(monkeypatch):
    monkeypatch.setattr("ros_rl.safety.certify.rigid_body", lambda *robot: tuple(1.01 * matrix for matrix in rigid_body(*robot)))
    with pytest.raises(
        CertificateError, match=r"MuJoCo and Pinocchio differ by 0.00226 in what joint_velocity.pole does to joint_position.pole"
    ):
        certify_robot("cartpole", 50.0)


@pytest.mark.parametrize("robot", ["cartpole", "quadrotor_wrench"])
def test_the_priors_that_ship_are_for_their_robots_and_hold(robot):
    prior, spec = load_prior(robot), load_robot(robot)
    assert prior.action_names == spec.joint_names
    assert prior.period == spec.period
    assert leaving(prior, linear_step(prior), 1000, 20) == 0.0


def test_the_prior_that_ships_is_what_certify_computes():
    fresh, shipped = certify_robot("cartpole").prior, load_prior("cartpole")
    assert fresh.sharpness_bound == shipped.sharpness_bound
    for name in ("A", "B", "P", "F"):
        np.testing.assert_allclose(getattr(fresh, name), getattr(shipped, name), rtol=1e-4)


@pytest.fixture
def robot_file(tmp_path):
    """A cart-pole in a folder of its own, with its safety.yaml."""
    folder = tmp_path / "cart"
    shutil.copytree(share_dir() / "urdf" / "cartpole", folder)
    return folder / "robot.yaml"


def test_a_contraction_is_the_same_per_second_at_any_rate(robot_file):
    prior = certify_robot(robot_file, 40.0).prior
    assert prior.period == 0.025
    assert prior.contraction == pytest.approx(0.96**1.25)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("contraction: 0.96", "contraction: 1.0", r"safety.yaml:3: contraction must be below 1"),
        ("slider: 20.0", "slide: 20.0", r"safety.yaml:13: 'actions' names slide; robot 'cartpole' has slider"),
        ("slider: 20.0", "slider: 31.0", r"safety.yaml:14: the range 31 of 'slider' goes beyond its command limits"),
        ("slider: 20.0", "slider: -1.0", r"safety.yaml:14: 'actions.slider' should be greater than 0"),
        ("lower: -0.4", "lower: 0.1", r"joint_position.pole is 0 at the equilibrium, that is not between 0.1 and 0.4"),
        ("joint_velocity.pole:", "joint_velocity.pol:", "unknown joint of robot 'cartpole' 'pol', did you mean 'pole'"),
        ("control_rate: 50", "rate: 50", "safety.yaml:2: unknown key 'rate'"),
        ("  joint_velocity.pole: {scale: 4.5}\n", "", "the state lacks joint_velocity.pole, which moves joint_position.pole"),
    ],
)
def test_mistakes_in_safety_yaml_are_named(robot_file, old, new, message):
    path = robot_file.with_name("safety.yaml")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError, match=message):
        certify_robot(robot_file)


def test_a_robot_without_a_safety_yaml_is_named():
    with pytest.raises(UserError, match=r"robot 'arm' has no .*urdf/arm/safety.yaml, which says which states are safe"):
        certify_robot("arm")

"""Tests of ros_rl.sim.linearise: two libraries and the book agree about how a robot moves near its equilibrium."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.coordinates import POSITIONS, Coordinates
from ros_rl.sim.linearise import differences, regress, rigid_body, semi_implicit, zero_order_hold
from ros_rl.sim.plant import Plant

CART = ("joint_position.slider", "joint_velocity.slider", "joint_position.pole", "joint_velocity.pole")
FLYING = tuple(f"{kind}.{axis}" for kind in ("base_position", "base_velocity", "base_rotation", "base_gyro") for axis in "xyz")
HOVER = np.array([0.0, 0.0, 1.5] + [0.0] * 9)
GRAVITY = 9.81


class Case:
    """A robot near its equilibrium: its linear model by differences of the simulator, and the one of Pinocchio."""

    def __init__(self, robot: str, rate: float):
        self.spec = load_robot(robot, rate)
        flies = self.spec.floating_base
        self.names, rest = (FLYING, HOVER) if flies else (CART, np.zeros(4))
        self.hold = np.array([joint.hold or 0.0 for joint in self.spec.joints])
        self.model = build(self.spec, "floor")
        self.coordinates = Coordinates(self.spec, self.names, rest)
        self.plant = Plant(self.model, self.coordinates, self.hold)
        n, m = len(self.names), len(self.hold)
        self.a, self.b = differences(self.plant.step, np.full(n, 1e-4), np.full(m, 1e-4))
        self.drift, self.effect = rigid_body(self.spec, self.coordinates, self.hold)
        self.positions = np.array([name.partition(".")[0] in POSITIONS for name in self.names])


CASES = {key: Case(*key) for key in [("cartpole", 50.0), ("cartpole", 100.0), ("quadrotor_wrench", 50.0), ("quadrotor", 200.0)]}


@pytest.mark.parametrize("case", CASES.values(), ids=map(str, CASES))
def test_mujoco_and_pinocchio_agree_with_the_same_integrator(case):
    a, b = semi_implicit(case.drift, case.effect, case.positions, case.model.mj.opt.timestep, case.model.substeps)
    np.testing.assert_allclose(case.a, a, atol=1e-8)
    np.testing.assert_allclose(case.b, b, atol=1e-8)


@pytest.mark.parametrize("case", CASES.values(), ids=map(str, CASES))
def test_they_agree_with_a_zero_order_hold_up_to_the_timestep(case):
    a, b = zero_order_hold(case.drift, case.effect, case.spec.period)
    # The integrator errs by half a timestep times the acceleration that a state, or the full input, causes.
    slack = case.model.mj.opt.timestep * case.spec.period
    np.testing.assert_allclose(case.a, a, atol=slack * np.abs(case.drift).max())
    np.testing.assert_allclose(case.b, b, atol=slack * np.abs(case.effect).max())


def test_mujocos_own_derivatives_composed_over_the_substeps_are_the_differences():
    case = CASES["cartpole", 50.0]
    data = mujoco.MjData(case.model.mj)
    a1, b1 = np.zeros((4, 4)), np.zeros((4, 1))
    mujoco.mjd_transitionFD(case.model.mj, data, 1e-6, True, a1, b1, None, None)
    order = [0, 2, 1, 3]  # MuJoCo has positions first
    steps = case.model.substeps
    powers = [np.linalg.matrix_power(a1, index) for index in range(steps + 1)]
    np.testing.assert_allclose(case.a, powers[steps][np.ix_(order, order)], atol=1e-8)
    np.testing.assert_allclose(case.b, (sum(powers[:steps]) @ b1)[order], atol=1e-8)


def test_the_cart_pole_is_the_one_of_the_book():
    # Cart of mass M with friction c; uniform rod of mass m, length 2 l, friction d at its pivot; angle from upright.
    cart, rod, half, slide, pivot = 0.94, 0.23, 0.32, 0.1, 0.001
    mass = np.array([[cart + rod, rod * half], [rod * half, rod * half**2 * 4 / 3]])
    forces = np.array([[0.0, -slide, 0.0, 0.0], [0.0, 0.0, rod * GRAVITY * half, -pivot]])
    accelerations = np.linalg.solve(mass, forces)
    drift = np.array([[0, 1, 0, 0], accelerations[0], [0, 0, 0, 1], accelerations[1]])
    effect = np.zeros((4, 1))
    effect[[1, 3], 0] = np.linalg.solve(mass, [1.0, 0.0])
    np.testing.assert_allclose(CASES["cartpole", 50.0].drift, drift, atol=2e-4)
    np.testing.assert_allclose(CASES["cartpole", 50.0].effect, effect, atol=1e-5)


def test_the_quadrotor_leans_into_its_acceleration():
    case = CASES["quadrotor_wrench", 50.0]
    drift = np.zeros((12, 12))
    drift[0:3, 3:6] = drift[6:9, 9:12] = np.eye(3)
    drift[3, 7], drift[4, 6] = GRAVITY, -GRAVITY
    effect = np.zeros((12, 4))
    effect[5, 0], effect[9, 1], effect[10, 2], effect[11, 3] = 1.0, 100.0, 100.0, 1 / 0.018
    np.testing.assert_allclose(case.drift, drift, atol=1e-9)
    np.testing.assert_allclose(case.effect, effect, atol=1e-9)


def test_differences_find_the_slopes_of_any_system():
    a, b = np.array([[0.9, 0.1], [-0.2, 1.1]]), np.array([[0.0], [0.3]])

    def step(states, inputs):
        return states @ a.T + inputs @ b.T + np.sin(states) ** 3 + inputs**2

    found = differences(step, np.array([1e-4, 1e-3]), np.array([1e-4]))
    np.testing.assert_allclose(found[0], a, atol=2e-6)
    np.testing.assert_allclose(found[1], b, atol=1e-9)


def test_a_regression_finds_the_model_that_made_the_steps_whatever_the_units():
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(3, 3)), draw.normal(size=(3, 2))
    states, inputs = draw.normal(size=(200, 3)) * [1.0, 1e-4, 1e3], draw.normal(size=(200, 2))
    for found, expected in zip(regress(states, inputs, states @ a.T + inputs @ b.T), (a, b), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-8)
    noise = draw.normal(size=(200, 3))
    noisy_a, noisy_b = regress(states, inputs, states @ a.T + inputs @ b.T + noise)
    left = states @ (a - noisy_a).T + inputs @ (b - noisy_b).T + noise
    np.testing.assert_allclose(left.T @ np.hstack([states, inputs]) / [1.0, 1e-4, 1e3, 1.0, 1.0], 0.0, atol=1e-8)  # orthogonal to all


@pytest.mark.parametrize(
    ("steps", "spoil", "message"),
    [
        (4, 1.0, "4 steps tell 4 of 5 states and inputs apart"),
        (50, np.nan, "a state or an input is not finite"),
        (50, 0.0, "50 steps tell 4 of 5"),
    ],
)
def test_steps_that_do_not_tell_a_model_are_refused(steps, spoil, message):
    draw = np.random.default_rng(0)
    states, inputs = draw.normal(size=(steps, 3)), draw.normal(size=(steps, 2))
    states[:, 1] *= spoil
    with pytest.raises(UserError, match=message):
        regress(states, inputs, states)


def test_a_hold_of_a_double_integrator_is_the_closed_form():
    a, b = zero_order_hold(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0], [1.0]]), 0.5)
    np.testing.assert_allclose(a, [[1.0, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(b, [[0.125], [0.5]])


def test_what_is_no_equilibrium_is_refused():
    case = CASES["quadrotor_wrench", 50.0]
    with pytest.raises(UserError, match="does not rest at its equilibrium, it accelerates at 1"):
        rigid_body(case.spec, case.coordinates, np.array([10.81, 0.0, 0.0, 0.0]))
    leaning = Coordinates(load_robot("cartpole"), CART, np.array([0.0, 0.0, 0.3, 0.0]))
    with pytest.raises(UserError, match="does not rest"):
        rigid_body(load_robot("cartpole"), leaning, np.zeros(1))


def test_a_state_that_misses_what_moves_it_is_refused():
    spec = load_robot("quadrotor_wrench")
    with pytest.raises(UserError, match=r"the state lacks base_rotation.y, which moves base_velocity.x"):
        rigid_body(spec, Coordinates(spec, ("base_position.x", "base_velocity.x"), np.zeros(2)), np.array([9.81, 0, 0, 0]))
    height = Coordinates(spec, ("base_position.z", "base_velocity.z"), np.zeros(2))
    drift, effect = rigid_body(spec, height, np.array([9.81, 0, 0, 0]))
    np.testing.assert_allclose(drift, [[0, 1], [0, 0]], atol=1e-9)
    np.testing.assert_allclose(effect, [[0, 0, 0, 0], [1, 0, 0, 0]], atol=1e-9)


def test_position_commands_and_dry_friction_are_refused(tmp_path):
    arm = load_robot("arm")
    with pytest.raises(UserError, match="robot 'arm' takes position commands"):
        rigid_body(arm, Coordinates(arm, (), np.zeros(0)), arm.home[:8])
    spec = load_robot("cartpole")
    (tmp_path / "dry.urdf").write_text(
        spec.urdf.read_text().replace('<dynamics damping="0.1"/>', '<dynamics damping="0.1" friction="0.5"/>')
    )
    dry = replace(spec, urdf=tmp_path / "dry.urdf")
    with pytest.raises(UserError, match="joint 'slider' has dry friction"):
        rigid_body(dry, Coordinates(dry, CART, np.zeros(4)), np.zeros(1))

"""Tests of ros_rl.safety.lmi."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from ros_rl.errors import UserError
from ros_rl.safety.lmi import LinearProblem, box_rows, check, lyapunov_ellipsoid, synthesise
from ros_rl.safety.prior import CertificateError, InfeasibleSafePrior

# A cart-pole whose gain is known: forward Euler at 30 Hz, state (x, velocity, angle, angular velocity).
A = np.eye(4)
A[0, 1] = A[2, 3] = 1 / 30
A[1, 2], A[3, 2] = -0.05649123, 0.89802632
B = np.array([[0.0], [0.03341688], [0.0], [-0.0783208]])
BOX = np.diag([1 / 0.9, 1 / 100, 1 / 0.8, 1 / 100])
FORCE = np.sqrt(1 / 0.002)
NAMES = ("x", "velocity", "angle", "angular velocity")
KNOWN = LinearProblem(A, B, BOX, np.array([FORCE]), 0.849, state_names=NAMES, action_names=("force",), inside="ball")


@pytest.fixture(scope="module")
def known():
    return synthesise(KNOWN)


@pytest.fixture(scope="module")
def boxed():
    return synthesise(replace(KNOWN, inside="box"))


def test_the_known_gain_comes_out(known):
    lyapunov, gain = known
    np.testing.assert_allclose(gain, [[25.9995, 19.4241, 75.9886, 13.8553]], atol=5e-4)
    certificate = check(KNOWN, lyapunov, gain)
    assert certificate.contraction == pytest.approx(0.849, abs=1e-6)
    assert certificate.spectral_radius == pytest.approx(np.abs(np.linalg.eigvals(A + B @ gain)).max())
    assert certificate.spectral_radius < np.sqrt(0.849)
    assert certificate.action_reach * FORCE == pytest.approx([22.361], abs=1e-3)
    assert certificate.box_reach[2] * 0.8 == pytest.approx(0.7996, abs=5e-5)


def test_the_box_leaves_room_for_a_larger_ellipsoid_than_the_ball_in_it(known, boxed):
    volumes = [-np.linalg.slogdet(lyapunov)[1] for lyapunov, _ in (known, boxed)]
    np.testing.assert_allclose(volumes, [0.524199, 0.530030], atol=1e-5)


def test_10000_rollouts_from_the_surface_never_leave_it_nor_box_and_actions(boxed):
    lyapunov, gain = boxed
    random = np.random.default_rng(0)
    directions = random.normal(size=(10_000, 4))
    states = directions / np.sqrt(np.einsum("ki,ij,kj->k", directions, lyapunov, directions))[:, None]
    before = np.ones(10_000)
    for _ in range(60):
        assert (np.abs(states @ BOX.T) <= 1 + 1e-9).all()
        assert (np.abs(states @ gain.T) <= FORCE * (1 + 1e-9)).all()
        states = states @ (A + B @ gain).T
        value = np.einsum("ki,ij,kj->k", states, lyapunov, states)
        assert (value <= 0.849 * before + 1e-6).all()
        before = value
    assert before.max() < 1e-3


def test_scaled_states_and_actions_change_nothing(boxed):
    scale = np.array([0.01, 10.0, 1.0, 50.0])
    _, gain = synthesise(replace(KNOWN, inside="box", scale=scale))
    np.testing.assert_allclose(gain, boxed[1], rtol=2e-4)


def test_no_ellipsoid_of_the_same_kind_is_larger(boxed):
    # Of an LQR gain, its own Lyapunov matrix fitted into the same box is a certificate too, and a smaller one.
    cost = solve_discrete_are(A, B, np.eye(4), np.array([[0.01]]))
    gain = -np.linalg.solve(0.01 + B.T @ cost @ B, B.T @ cost @ A)
    problem = replace(KNOWN, inside="box", contraction=0.999)
    rows = np.vstack([problem.box, gain / problem.action_range[:, None]])
    lyapunov = cost * np.einsum("ki,ij,kj->k", rows, np.linalg.inv(cost), rows).max()
    certificate = check(problem, lyapunov, gain)
    assert max(certificate.box_reach.max(), certificate.action_reach.max()) == pytest.approx(1.0)
    assert -np.linalg.slogdet(lyapunov)[1] < -np.linalg.slogdet(boxed[0])[1]


@pytest.mark.parametrize(
    ("spoil", "violated"),
    [
        (lambda p, f: (p, 1.3 * f), "contraction is 0.870"),
        (lambda p, f: (p, 0 * f), "contraction is"),
        (lambda p, f: (p / 1.01, f), r"the ellipsoid reaches 1.00\d+ of \|angle\| <= 0.8"),
        (lambda p, f: (-p, f), "P is not positive definite"),
        (lambda p, f: (np.full((4, 4), np.nan), f), "P or F is not finite"),
        (lambda p, f: (p, np.full((1, 4), np.nan)), "P or F is not finite"),
    ],
)
def test_numbers_that_are_off_are_refused_with_the_inequality(boxed, spoil, violated):
    with pytest.raises(CertificateError, match=violated):
        check(replace(KNOWN, inside="box"), *spoil(*boxed))


def test_an_action_beyond_its_range_is_refused_by_name(boxed):
    with pytest.raises(CertificateError, match=r"force reaches 1.118\d+ of its range"):
        check(replace(KNOWN, inside="box", action_range=[20.0]), *boxed)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_what_a_less_exact_solver_calls_a_solution_is_refused():
    import cvxpy as cp

    from ros_rl.safety import lmi

    q, r, constraints = lmi._programme(replace(KNOWN, inside="box"))
    programme = cp.Problem(cp.Maximize(cp.log_det(q)), list(constraints.values()))
    programme.solve(solver=cp.SCS, max_iters=60)
    lyapunov = np.linalg.inv((q.value + q.value.T) / 2)
    gain = FORCE * r.value @ lyapunov
    with pytest.raises(CertificateError, match="certificate: "):
        check(replace(KNOWN, inside="box"), lyapunov, gain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": np.diag([1 / 0.9, 1 / 100, 1e6, 1 / 100]), "action_range": [1e-3]}, r"\|angle\| <= 1e-06.*contraction 0.849"),
        ({"box": np.diag([1 / 0.9, 1 / 100, 1e6, 1 / 100])}, r": \|angle\| <= 1e-06 cannot hold"),
        ({"box": np.diag([1 / 0.9, 1 / 100, 2000, 1 / 100])}, r": \|angle\| <= 0.0005 cannot hold"),  # an ellipsoid, but one too thin
        ({"action_range": [1e-4]}, r": \|force\| <= 0.0001 cannot hold.*half-widths 0.9, 100, 0.8, 100"),
        ({"B": 0 * B}, r"no action moves the mode of A with eigenvalue 1.173.*\(mainly angle\), which is not stable"),
        ({"A": np.diag([0.5, 0.5, 0.95, 0.5]), "B": np.array([[0], [1], [0], [0]])}, "eigenvalue 0.95.*angle.*slower than a contraction"),
    ],
)
def test_a_problem_without_an_ellipsoid_is_refused_with_what_conflicts(change, message):
    with pytest.raises(InfeasibleSafePrior, match=message) as caught:
        synthesise(replace(KNOWN, inside="box", **change))
    assert isinstance(caught.value, UserError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": np.ones((4, 3))}, "A must be square"),
        ({"A": np.ones(4)}, "A must be square"),
        ({"B": B.T}, "B must have the 4 rows"),
        ({"B": np.zeros((4, 0))}, "B must have the 4 rows"),
        ({"box": np.ones((2, 3))}, r"box must have the shape \(2, 4\)"),
        ({"box": np.ones((0, 4))}, "box must have the shape"),
        ({"action_range": [1.0, 2.0]}, "action_range must have the shape"),
        ({"action_range": [0.0]}, "action_range .0.0. and scale must be more than 0"),
        ({"scale": [1, 1, -1, 1]}, "scale must be more than 0"),
        ({"contraction": 1.0}, "contraction must be between 0 and 1"),
        ({"contraction": np.nan}, "contraction must be between 0 and 1"),
        ({"A": np.full((4, 4), np.nan)}, "A is not finite"),
        ({"state_names": ("x",)}, "4 state_names are needed"),
    ],
)
def test_malformed_problems_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        replace(KNOWN, **change)


def test_the_box_is_the_largest_about_the_equilibrium_within_the_bounds():
    rows = box_rows(("glucose", "insulin"), np.array([110.0, 15.0]), {"glucose": (70.0, 160.0)})
    np.testing.assert_allclose(rows, [[1 / 40, 0.0]])


@pytest.mark.parametrize(
    ("bounds", "message"), [({"glucose": (120.0, 160.0)}, "glucose is 110 at the equilibrium"), ({"gluc": (0.0, 1.0)}, "no state 'gluc'")]
)
def test_an_equilibrium_outside_the_box_is_refused(bounds, message):
    with pytest.raises(UserError, match=message):
        box_rows(("glucose", "insulin"), np.array([110.0, 15.0]), bounds)


def test_the_ellipsoid_of_a_given_gain_solves_its_lyapunov_equation_and_touches_a_limit(boxed):
    _, gain = boxed
    scale = np.array([1.0, 2.5, 0.4, 4.5])
    problem = replace(KNOWN, inside="box", scale=scale, contraction=0.999)
    lyapunov = lyapunov_ellipsoid(problem, gain)
    closed = problem.A + problem.B @ gain
    left = lyapunov - closed.T @ lyapunov @ closed
    np.testing.assert_allclose(left / left[0, 0], np.diag(scale**-2.0), atol=1e-7)
    found = check(problem, lyapunov, gain)
    assert max(*found.box_reach, *found.action_reach) == pytest.approx(1.0, abs=1e-9)
    # V falls by s'Ws in a step; relative to V that is least where P is large against W.
    slowest = np.linalg.eigvals(np.linalg.solve(lyapunov, lyapunov - left)).real.max()
    assert found.contraction == pytest.approx(slowest, rel=1e-6)
    with pytest.raises(CertificateError, match=r"contraction is 0\.9\d+, 0\.5 was asked for"):
        lyapunov_ellipsoid(replace(problem, contraction=0.5), gain)
    with pytest.raises(InfeasibleSafePrior, match="the feedback does not damp the system, A \\+ B F has the spectral radius 1"):
        lyapunov_ellipsoid(problem, 0 * gain)

"""Tests of ros_rl.sim.goals: what every environment must do, and what each plant does by theory."""

import mujoco
import numpy as np
import pytest

from ros_rl.learning.goal_tasks import TASKS, glucose_prior
from ros_rl.robots.spec import load_robot
from ros_rl.safety.certify import certify_robot
from ros_rl.safety.prior import LmiPrior
from ros_rl.safety.stance import stance_prior
from ros_rl.sim.build import build
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.goals import cartpole, glucose, quadrotor
from ros_rl.sim.goals.interface import draw_starts

COPIES = 4


def flat_prior(robot: str, names: list[str], equilibrium: np.ndarray, actions: np.ndarray, widths: np.ndarray) -> LmiPrior:
    """A prior with an ellipsoid of these half-widths, good for nothing but to set an environment up."""
    n, m = len(names), len(actions)
    spec = load_robot(robot, 50.0)
    return LmiPrior(
        A=0.5 * np.eye(n),
        B=np.zeros((n, m)),
        P=np.diag(widths**-2.0),
        F=np.zeros((m, n)),
        action_range=actions,
        box=np.diag(1.0 / widths),
        contraction=0.9,
        period=0.02,
        state_equilibrium=equilibrium,
        action_equilibrium=np.array([joint.hold or 0.0 for joint in spec.joints]),
        sharpness_bound=1.0,
        empirical=True,
        state_names=tuple(names),
        action_names=spec.joint_names,
    )


QUADROTOR = [f"{kind}.{axis}" for kind in ("base_position", "base_velocity", "base_rotation", "base_gyro") for axis in "xyz"]
PRIORS = {
    "cartpole": certify_robot("cartpole", cartpole.RATE).prior,
    "quadrotor": flat_prior(
        quadrotor.ROBOT,
        QUADROTOR,
        np.array([0.0, 0.0, 1.5, *np.zeros(9)]),
        np.array([5.99, 0.3, 0.3, 0.15]),
        np.array([1.0, 1, 1, 2, 2, 2, 0.4, 0.4, 0.8, 3, 3, 2]),
    ),
    "glucose": glucose_prior(),
    "quadruped": stance_prior(),
}
CASES = [(name, variant) for name, task in TASKS.items() for variant in task.environments]


def environment_of(name: str, variant: str = "nominal", goals: np.ndarray | None = None):
    goals = np.linspace(*list(TASKS[name].goals.values())[::2], COPIES) if goals is None else goals
    environment = TASKS[name].environments[variant](goals, PRIORS[name])
    environment.reset(range(len(goals)), [[copy] for copy in range(len(goals))])
    return environment


def actions(name: str, steps: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (steps, COPIES, environment_of(name).action_size))


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_the_same_seeds_and_actions_give_the_same_numbers_all_finite_and_in_no_shared_memory(name, variant):
    runs = []
    for _ in range(2):
        environment = environment_of(name, variant)
        rows = [(environment.observation, environment.safety_state, *environment.step(row)) for row in actions(name, 10)]
        runs.append([np.concatenate([np.ravel(value) for value in row]) for row in rows])
        assert not np.array_equal(rows[0][0], rows[1][0])
    np.testing.assert_array_equal(*runs)
    assert np.isfinite(runs).all()
    assert environment.observation.shape[0] == environment.safety_state.shape[0] == len(environment) == COPIES


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_starts_within_half_the_ellipsoid_and_fills_it(name):
    states = draw_starts(PRIORS[name], [[seed] for seed in range(400)])
    radius = PRIORS[name].radius(states)
    assert radius.max() <= 0.5 and radius.max() > 0.48
    # Uniform in a ball of k dimensions: half of the volume is within 2^(-1/k) of its radius.
    assert np.mean(radius < 0.5 * 0.5 ** (1 / PRIORS[name].state_size)) == pytest.approx(0.5, abs=0.08)
    environment = environment_of(name)
    np.testing.assert_allclose(environment.safety_state, draw_starts(PRIORS[name], [[copy] for copy in range(COPIES)]), atol=1e-9)


@pytest.mark.parametrize("name", TASKS)
def test_an_environment_goes_on_where_it_was_saved(name):
    environment, plan = environment_of(name), actions(name, 12)
    for row in plan[:5]:
        environment.step(row)
    saved = environment.state()
    future = [environment.step(row) for row in plan[5:]]
    other = environment_of(name)
    other.restore(saved)
    for row, expected in zip(plan[5:], future, strict=True):
        for ours, theirs in zip(other.step(row), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", TASKS)
def test_time_up_truncates_and_does_not_terminate(name):
    environment = environment_of(name)
    environment.episode_steps = 3
    outcomes = [environment.step(np.zeros((COPIES, environment.action_size))) for _ in range(3)]
    assert [bool(outcome.truncated.all()) for outcome in outcomes] == [False, False, True]
    assert not any(outcome.terminated.any() for outcome in outcomes)
    environment.reset([1], [[9]])
    np.testing.assert_array_equal(environment.step(np.zeros((COPIES, environment.action_size))).truncated, [True, False, True, True])


@pytest.mark.parametrize("name", [name for name in TASKS if name != "quadruped"])  # which may be outside its box and has not fallen
def test_leaving_the_box_is_a_violation_and_ends_the_episode(name):
    environment = environment_of(name)
    for _ in range(environment.episode_steps):
        outcome = environment.step(np.ones((COPIES, environment.action_size)))
        inside = PRIORS[name].inside_box(environment.safety_state)
        np.testing.assert_array_equal(outcome.violation, ~inside)
        np.testing.assert_array_equal(outcome.terminated, ~inside)
        if not inside.any():
            return
    pytest.fail("the largest action never led out of the box")


@pytest.mark.parametrize(("name", "best"), [("cartpole", 1.0), ("quadrotor", 1.0), ("glucose", 1.0)])
def test_the_reward_is_largest_at_the_goal(name, best):
    """A copy whose goal is where it is: at the equilibrium, at rest, without action."""
    centre = {"cartpole": 0.0, "quadrotor": 0.0, "glucose": glucose.BASAL_GLUCOSE}[name]
    prior = PRIORS[name]
    narrow = LmiPrior(**{**{key: getattr(prior, key) for key in prior.__dataclass_fields__}, "P": 1e12 * prior.P})
    environment = TASKS[name].environments["nominal"](np.array([centre, centre + 0.1]), narrow)
    environment.reset([0, 1], [[0], [1]])
    reward = environment.step(np.zeros((2, environment.action_size))).reward
    assert reward[0] == pytest.approx(best, abs=1e-6)
    assert reward[1] < reward[0]


@pytest.mark.parametrize(("name", "width", "cost"), [("cartpole", 6.0**-0.5, 0.01), ("quadrotor", 3.0**-0.5, 0.01), ("glucose", 15.0, 0.0)])
def test_the_reward_falls_with_the_distance_from_the_goal_and_with_the_action(name, width, cost):
    environment = environment_of(name)
    target = np.zeros((COPIES, 3 if name == "quadrotor" else 1))
    target[:, 0] = environment.goals - (glucose.BASAL_GLUCOSE if name == "glucose" else 0.0)
    actions = np.random.default_rng(0).uniform(-0.4, 0.4, (COPIES, environment.action_size))
    reward = environment.step(actions).reward
    squared = ((environment.safety_state[:, : target.shape[1]] - target) ** 2).sum(axis=1)
    np.testing.assert_allclose(reward, np.exp(-squared / width**2) - cost * (actions**2).sum(axis=1), atol=1e-12)


def test_the_state_of_the_quadrotor_is_that_of_its_coordinates():
    model = build(load_robot(quadrotor.ROBOT, 50.0), "floor")
    coordinates, data = Coordinates(model.spec, QUADROTOR, PRIORS["quadrotor"].state_equilibrium), mujoco.MjData(model.mj)
    environment = environment_of("quadrotor")
    for row in actions("quadrotor", 8):
        environment.step(row)
    for copy in range(COPIES):
        data.qpos[:], data.qvel[:] = environment._sim.qpos[copy], environment._sim.qvel[copy]
        np.testing.assert_allclose(environment.safety_state[copy], coordinates.measure(model, data), atol=1e-12)


def test_glucose_under_constant_insulin_settles_where_the_model_balances():
    """I' = 0: I = u/(V n); X' = 0: X = s I/a; G' = 0: G = -X Gb/(g + X)."""
    infusion = np.array([[3.0]])
    state = np.zeros((1, 3))
    for _ in range(400):
        state = glucose.advance(state, infusion)
    insulin = 3.0 / (glucose.VOLUME * glucose.INSULIN_RATE)
    action = glucose.SENSITIVITY * insulin / glucose.ACTION_RATE
    expected = [-action * glucose.BASAL_GLUCOSE / (glucose.GLUCOSE_RATE + action), action, insulin]
    np.testing.assert_allclose(state[0], expected, rtol=1e-9)


def test_the_worn_rail_holds_a_cart_that_the_nominal_one_lets_go():
    """0.9 N, less than the dry friction of 1 N."""
    moved = []
    for variant in ("nominal", "rough"):
        prior = PRIORS["cartpole"]
        narrow = LmiPrior(**{**{key: getattr(prior, key) for key in prior.__dataclass_fields__}, "P": 1e12 * prior.P})
        environment = TASKS["cartpole"].environments[variant](np.zeros(1), narrow)
        environment.reset([0], [[0]])
        for _ in range(5):
            environment.step(np.array([[0.045]]))
        moved.append(abs(environment.safety_state[0, 0]))
    assert moved[0] > 1e-3
    assert moved[1] < 1e-4

"""The safe prior of a quadruped: a stance that corrects tilt and height by the length of its legs, and where that is known to work."""

from dataclasses import dataclass, replace

import numpy as np

from ros_rl.robots.legs import legs_of
from ros_rl.robots.spec import load_robot
from ros_rl.safety import lmi
from ros_rl.safety.prior import LmiPrior
from ros_rl.safety.sharpness import withstood_sharpness
from ros_rl.sim.goals.interface import SafeSet
from ros_rl.sim.goals.quadruped import CORRECTION, GOALS, RANGE, RATE, ROBOT, STATE, QuadrupedGoal, stance
from ros_rl.sim.linearise import regress

PROPORTIONAL, DERIVATIVE = 0.3, 0.03  # m of leg per m that the trunk is too low above that foot, and per m/s, s
WIDTHS = {"roll": 0.5, "pitch": 0.5, "height": 0.10}  # rad and m that the ellipsoid fits into
_SCALE = np.array([0.5, 0.5, 0.1, 4.0, 4.0, 1.0])  # sizes of the states that the ellipsoid's shape follows
_CONTRACTION = 0.95  # at most, per control period of the linear model
_ROLLOUTS, _STEPS = 100, 20  # of the regression: 2,000 steps
_PERTURBATION = 0.25  # rad about the stance's joint targets
_SIZE = 0.7  # of the ellipsoid against the largest that fits: so the stance takes over in time where no proof says that it does
_COPIES = 18  # of an attack
_DIFFERENCE = 1e-5  # m


@dataclass(frozen=True, eq=False)
class _Around:
    """Where the regression's rollouts start: about the stance."""

    P: np.ndarray
    box: np.ndarray
    state_equilibrium: np.ndarray
    action_equilibrium: np.ndarray
    action_range: np.ndarray


def around() -> SafeSet:
    """Returns a set about the stance as wide as the sizes of the states, to set the environment up before there is a prior."""
    home = load_robot(ROBOT, RATE).home
    return _Around(np.diag(_SCALE**-2.0), np.empty((0, len(STATE))), stance().state, home, np.full(len(home), RANGE))


def stance_gain(proportional: float = PROPORTIONAL, derivative: float = DERIVATIVE) -> np.ndarray:
    """Returns F of joint targets F s, rad, shape (12, 6): each leg grows as the trunk is too low above its foot, or sinks there.

    The leg's kinematics are linear about the stance.
    """
    feet, legs = stance().feet, legs_of(load_robot(ROBOT, RATE)).values()
    down = np.array([0.0, 0.0, _DIFFERENCE])
    stretch = np.zeros((12, 4))  # of the joints, rad, for each m that a leg grows
    for index, (leg, foot) in enumerate(zip(legs, feet, strict=True)):
        stretch[3 * index : 3 * index + 3, index] = (leg.joints(foot - down) - leg.joints(foot + down)) / (2 * _DIFFERENCE)
    above = np.column_stack([feet[:, 1], -feet[:, 0], np.ones(4)])  # how high the trunk is above each foot, from roll, pitch, height
    return -stretch @ np.concatenate([proportional * above, derivative * above], axis=1)


def perturbed_steps(gain: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns states (k, 6), inputs (k, 12), rad, and next states of steps of the stance with random joint targets on uneven ground."""
    environment = QuadrupedGoal(np.zeros(_ROLLOUTS), around())
    environment.reset(range(_ROLLOUTS), [[seed, copy] for copy in range(_ROLLOUTS)])
    draw = np.random.default_rng(seed)
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(_STEPS):
        state = environment.safety_state
        inputs = state @ gain.T + draw.uniform(-_PERTURBATION, _PERTURBATION, (_ROLLOUTS, 12))
        inputs = np.clip(inputs, -RANGE, RANGE)
        environment.step(inputs / RANGE)
        rows.append((state, inputs, environment.safety_state))
    states, all_inputs, after = (np.concatenate(column) for column in zip(*rows, strict=True))
    return states, all_inputs, after


def stance_prior() -> LmiPrior:
    """Returns the prior with a sharpness bound of 0: linear model, gain and ellipsoid, the same every time.

    Raises:
        InfeasibleSafePrior, CertificateError: the stance does not damp the linear model as it should.
    """
    rest, gain = around(), stance_gain()
    names = load_robot(ROBOT, RATE).joint_names
    a, b = regress(*perturbed_steps(gain, seed=0))
    box = lmi.box_rows(STATE, np.zeros(len(STATE)), {name: (-width, width) for name, width in WIDTHS.items()})
    problem = lmi.LinearProblem(a, b, box, rest.action_range, _CONTRACTION, _SCALE, state_names=STATE, action_names=names)
    lyapunov = lmi.lyapunov_ellipsoid(problem, gain) / _SIZE**2
    return LmiPrior(
        A=a,
        B=b,
        P=lyapunov,
        F=gain,
        action_range=rest.action_range,
        box=box,
        contraction=lmi.check(problem, lyapunov, gain).contraction,
        period=1.0 / RATE,
        state_equilibrium=rest.state_equilibrium,
        action_equilibrium=rest.action_equilibrium,
        sharpness_bound=0.0,
        empirical=True,
        state_names=STATE,
        action_names=names,
    )


def quadruped_prior() -> LmiPrior:
    """Returns the prior with the sharpness that the worst policy was withstood with in simulation; this takes minutes.

    Raises:
        InfeasibleSafePrior, CertificateError: there is none.
    """
    prior = stance_prior()
    environment = QuadrupedGoal(np.resize(list(GOALS.values()), _COPIES), prior)
    return replace(prior, sharpness_bound=withstood_sharpness(environment, prior, CORRECTION))

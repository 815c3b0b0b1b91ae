"""From a description of what is safe to a certified prior: linear model, ellipsoid and gain, nonlinear check, sharpness."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ros_rl.errors import UserError
from ros_rl.robots.spec import load_robot
from ros_rl.safety import lmi
from ros_rl.safety.prior import CertificateError, LmiPrior
from ros_rl.safety.safe_set import SafeSet, load_safe_set
from ros_rl.safety.sharpness import boundary, certified_sharpness, simulated_sharpness
from ros_rl.sim.build import build
from ros_rl.sim.coordinates import POSITIONS, Coordinates
from ros_rl.sim.linearise import differences, rigid_body, semi_implicit
from ros_rl.sim.plant import Plant, Step

BOUNDARY_STATES = 2000
AGREEMENT = 1e-6  # of MuJoCo and Pinocchio; differences of the simulator leave about 1e-8
_ADVERSARY_TIME = 5.0  # s of an episode of the adversary against a robot
_DIFFERENCE = 1e-4  # of a state's or action's size


@dataclass(frozen=True)
class NonlinearCheck:
    """What the simulator does in one control period from `states` states on the ellipsoid's boundary.

    Attributes:
        largest: V afterwards.
        outside: part of the states that are outside afterwards.
    """

    states: int
    largest: float
    outside: float


def certify(
    safe: SafeSet, step: Step, simulated: bool = False, steps: int = 250, seed: int = 0
) -> tuple[LmiPrior, lmi.Certificate, NonlinearCheck]:
    """Returns a prior for a system, what its certificate measures, and how the system itself behaves on the boundary.

    Args:
        safe: what shall be certified.
        step: one control period of the system, see `ros_rl.sim.plant.Step`.
        simulated: whether the sharpness bound may be raised above the proven one to what an adversary cannot break in simulation.
        steps: control periods for which that adversary tries.
        seed: of the states on the boundary that are tried.

    Raises:
        InfeasibleSafePrior: there is no such ellipsoid.
        CertificateError: its numbers do not hold, or the system leaves the ellipsoid where its linear model does not.
        UserError: shapes or numbers do not fit.
    """
    problem = linear_problem(safe, step)
    lyapunov, gain = lmi.synthesise(problem)
    prior = LmiPrior(
        A=problem.A,
        B=problem.B,
        P=lyapunov,
        F=gain,
        action_range=problem.action_range,
        box=problem.box,
        contraction=safe.contraction,
        period=safe.period,
        state_equilibrium=safe.state_equilibrium,
        action_equilibrium=safe.action_equilibrium,
        sharpness_bound=0.0,
        empirical=False,
        state_names=safe.state_names,
        action_names=safe.action_names,
    )
    nonlinear = check_nonlinear(prior, step, seed)
    if nonlinear.outside:
        raise CertificateError(
            f"certificate: in simulation V reaches {nonlinear.largest:.4g} one step after the boundary, it must stay below 1 "
            f"({nonlinear.outside:.1%} of {nonlinear.states} states leave); lower the contraction or the safe box"
        )
    proven = certified_sharpness(prior)
    bound = simulated_sharpness(prior, step, proven, steps=steps) if simulated else proven
    return replace(prior, sharpness_bound=bound, empirical=bound > proven), lmi.check(problem, prior.P, prior.F), nonlinear


def linear_problem(safe: SafeSet, step: Step) -> lmi.LinearProblem:
    """Linearises the system and sets the semidefinite programme up.

    Raises:
        UserError: shapes or numbers do not fit.
    """
    n, m = len(safe.state_names), len(safe.action_names)
    sizes = {"scale": n, "state_equilibrium": n, "action_range": m, "action_equilibrium": m}
    for name, size in sizes.items():
        if np.shape(getattr(safe, name)) != (size,):
            raise UserError(f"safe set: {name} must have the shape ({size},), it has {np.shape(getattr(safe, name))}")
    a, b = differences(step, _DIFFERENCE * safe.scale, _DIFFERENCE * safe.action_range)
    box = lmi.box_rows(safe.state_names, safe.state_equilibrium, safe.bounds)
    return lmi.LinearProblem(
        a, b, box, safe.action_range, safe.contraction, safe.scale, state_names=safe.state_names, action_names=safe.action_names
    )


def check_nonlinear(prior: LmiPrior, step: Step, seed: int = 0, states: int = BOUNDARY_STATES) -> NonlinearCheck:
    """Steps the system once from random states on the ellipsoid's boundary under the safe action."""
    start = boundary(prior, states, np.random.default_rng(seed))
    value = prior.value(step(start, prior.safe_action(start) * prior.action_range))
    # Written so that a state that is no number counts as outside.
    return NonlinearCheck(states, float(value.max()), float(np.mean(~(value < 1.0))))


def leaving(prior: LmiPrior, step: Step, rollouts: int, steps: int, seed: int = 0) -> float:
    """Returns the part of rollouts from the ellipsoid's boundary under the safe action that ever leave the ellipsoid again.

    Args:
        prior: the prior.
        step: one control period of the system, or of its linear model (see `linear_step`).
        rollouts: how many, from random states on the boundary.
        steps: control periods of each.
        seed: of the states.
    """
    states = boundary(prior, rollouts, np.random.default_rng(seed))
    left = np.zeros(rollouts, bool)
    for _ in range(steps):
        states = step(states, prior.safe_action(states) * prior.action_range)
        left |= ~(prior.value(states) <= 1.0)
    return float(left.mean())


def linear_step(prior: LmiPrior) -> Step:
    """Returns the linear model as a system."""
    return lambda states, inputs: states @ prior.A.T + inputs @ prior.B.T


@dataclass(frozen=True, eq=False)
class Certified:
    """A robot's prior and what speaks for it.

    Attributes:
        prior: the prior.
        certificate: what its inequalities measure.
        nonlinear: what the simulator does on the boundary.
        disagreement: largest difference of an entry of the linear model that Pinocchio computes, in states over their scale and
            actions over their range.
        plant: the simulator that was asked.
    """

    prior: LmiPrior
    certificate: lmi.Certificate
    nonlinear: NonlinearCheck
    disagreement: float
    plant: Plant


def certify_robot(name: str | Path, rate: float = 0.0) -> Certified:
    """Certifies what a robot's safety.yaml describes, in simulation above an empty floor.

    Args:
        name: of the robot, or the path to its robot.yaml.
        rate: control rate, Hz; 0: the robot's own.

    Raises:
        UserError: there is no such robot or safety.yaml.
        InfeasibleSafePrior, CertificateError: as `certify`; also if MuJoCo and Pinocchio disagree about the linear model.
    """
    spec = load_robot(name, rate)
    safe, simulated = load_safe_set(spec, name)
    model, coordinates = build(spec, "floor"), Coordinates(spec, safe.state_names, safe.state_equilibrium)
    plant = Plant(model, coordinates, safe.action_equilibrium)
    drift, effect = rigid_body(spec, coordinates, safe.action_equilibrium)
    prior, certificate, nonlinear = certify(safe, plant.step, simulated, round(_ADVERSARY_TIME * spec.control_rate))
    positions = np.array([name.partition(".")[0] in POSITIONS for name in safe.state_names])
    a, b = semi_implicit(drift, effect, positions, float(model.mj.opt.timestep), model.substeps)
    off = np.hstack([(prior.A - a) * safe.scale, (prior.B - b) * safe.action_range]) / safe.scale[:, None]
    if not np.abs(off).max() <= AGREEMENT:
        row, column = np.unravel_index(np.abs(off).argmax(), off.shape)
        cause = (*safe.state_names, *safe.action_names)[column]
        raise CertificateError(
            f"certificate: MuJoCo and Pinocchio differ by {np.abs(off).max():.3g} in what {cause} does to {safe.state_names[row]}; "
            "the robot touches something, or one of them reads it wrongly"
        )
    return Certified(prior, certificate, nonlinear, float(np.abs(off).max()), plant)

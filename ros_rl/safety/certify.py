"""From a description of what is safe to a certified prior: linear model, ellipsoid and gain, nonlinear check, sharpness."""

from dataclasses import dataclass, replace

import numpy as np

from ros_rl.errors import UserError
from ros_rl.safety import lmi
from ros_rl.safety.prior import CertificateError, LmiPrior
from ros_rl.safety.safe_set import SafeSet
from ros_rl.safety.sharpness import boundary, certified_sharpness, simulated_sharpness
from ros_rl.sim.linearise import differences
from ros_rl.sim.plant import Step

BOUNDARY_STATES = 2000
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


def certify(safe: SafeSet, step: Step, simulated: bool = False, seed: int = 0) -> tuple[LmiPrior, lmi.Certificate, NonlinearCheck]:
    """Returns a prior for a system, what its certificate measures, and how the system itself behaves on the boundary.

    Args:
        safe: what shall be certified.
        step: one control period of the system, see `ros_rl.sim.plant.Step`.
        simulated: whether the sharpness bound may be raised above the proven one to what an adversary cannot break in simulation.
        seed: of the states that are tried.

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
    bound = certified_sharpness(prior)
    if simulated:
        bound = simulated_sharpness(prior, step, bound, seed=seed)
    return replace(prior, sharpness_bound=bound, empirical=simulated), lmi.check(problem, prior.P, prior.F), nonlinear


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

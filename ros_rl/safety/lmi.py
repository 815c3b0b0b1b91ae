"""A feedback and an ellipsoid that it never leaves, from a linear model, by linear matrix inequalities; and the check of both.

With Q = inv(P) and R = F Q, the conditions on a quadratic V(s) = s'Ps are linear in Q and R (Boyd et al., Linear Matrix
Inequalities in System and Control Theory, 1994, chapters 5 and 7).
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.bmat import bmat
from cvxpy.atoms.log_det import log_det
from scipy.linalg import solve_discrete_lyapunov

from ros_rl.errors import UserError
from ros_rl.safety.prior import CertificateError, InfeasibleSafePrior

_SMALLEST = 1e-6  # eigenvalue of Q in scaled states: an ellipsoid thinner than that is none
_TOLERANCE = 1e-6  # that a certificate may miss an inequality by, relative; the solver leaves about 1e-8


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """What the ellipsoid and its feedback must fulfil.

    Attributes:
        A: of s+ = A s + B u, shape (n, n).
        B: shape (n, m).
        box: rows h of the safe box |h s| <= 1, shape (k, n).
        action_range: largest |u|, shape (m,).
        contraction: largest V(s+) / V(s), in (0, 1).
        scale: typical size of each state, shape (n,); the solver works with s / scale. None: 1.
        state_names: for messages, n of them; "state 0", … if empty.
        action_names: for messages, m of them; "action 0", … if empty.
        inside: "box": the ellipsoid is inside the box. "ball": it is inside the smaller set |H s| <= 1 of Euclidean norms,
            with all rows of the box in H.

    Raises:
        UserError: shapes do not fit, or a number is out of its range.
    """

    A: np.ndarray
    B: np.ndarray
    box: np.ndarray
    action_range: np.ndarray
    contraction: float
    scale: np.ndarray | None = None
    state_names: Sequence[str] = ()
    action_names: Sequence[str] = ()
    inside: Literal["box", "ball"] = "box"

    def __post_init__(self) -> None:
        """Makes the arrays float64 and checks them."""
        for name in ("A", "B", "box", "action_range", "scale"):
            value = np.ones(len(self.A)) if getattr(self, name) is None else np.array(getattr(self, name), dtype=float)
            if not np.isfinite(value).all():
                raise UserError(f"safe prior: {name} is not finite")
            object.__setattr__(self, name, value)
        if self.A.ndim != 2 or self.A.shape[0] != self.A.shape[1]:
            raise UserError(f"safe prior: A must be square, it has the shape {self.A.shape}")
        n = len(self.A)
        if self.B.ndim != 2 or len(self.B) != n or not self.B.size:
            raise UserError(f"safe prior: B must have the {n} rows of A and a column for each action, it has the shape {self.B.shape}")
        for name, shape in (("box", (len(self.box), n)), ("action_range", (self.B.shape[1],)), ("scale", (n,))):
            if getattr(self, name).shape != shape or not getattr(self, name).size:
                raise UserError(f"safe prior: {name} must have the shape {shape}, it has {getattr(self, name).shape}")
        for name, kind, count in (("state_names", "state", n), ("action_names", "action", self.B.shape[1])):
            names = tuple(getattr(self, name)) or tuple(f"{kind} {index}" for index in range(count))
            if len(names) != count:
                raise UserError(f"safe prior: {count} {name} are needed, got {', '.join(names)}")
            object.__setattr__(self, name, names)
        if not (self.action_range > 0).all() or not (np.asarray(self.scale) > 0).all():
            raise UserError(f"safe prior: action_range {self.action_range.tolist()} and scale must be more than 0")
        if not 0.0 < self.contraction < 1.0:
            raise UserError(f"safe prior: contraction must be between 0 and 1, got {self.contraction}")

    def row_name(self, index: int) -> str:
        """Returns a row of the box in words."""
        row = self.box[index]
        (states,) = np.nonzero(row)
        return f"|{self.state_names[states[0]]}| <= {1 / abs(row[states[0]]):g}" if len(states) == 1 else f"row {index} of the safe box"


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a gain and an ellipsoid reach, measured on their numbers.

    Attributes:
        contraction: largest V(s+) / V(s) of the linear model.
        spectral_radius: of A + B F, at most the square root of the contraction.
        box_reach: largest |h s| on the ellipsoid for each row of the box, shape (k,); 1 touches it.
        action_reach: largest |u| on the ellipsoid over its range, shape (m,); 1 saturates.
    """

    contraction: float
    spectral_radius: float
    box_reach: np.ndarray
    action_reach: np.ndarray


def synthesise(problem: LinearProblem) -> tuple[np.ndarray, np.ndarray]:
    """Returns P (n, n) of the ellipsoid s'Ps <= 1 of largest volume, and the gain F (m, n) of u = F s that keeps it.

    Raises:
        InfeasibleSafePrior: there is none; the message names the mode that no input moves, or the constraints that conflict.
        CertificateError: the solver's numbers do not fulfil the inequalities.
    """
    _refuse_immovable_modes(problem)
    q, r, constraints = _programme(problem)
    status = _solve(cp.Maximize(log_det(q)), constraints.values())
    if status != cp.OPTIMAL:
        raise InfeasibleSafePrior(_explain(problem, status))
    scale = np.asarray(problem.scale)
    spread = (q.value + q.value.T) / 2 * np.outer(scale, scale)
    gain = problem.action_range[:, None] * np.linalg.solve(q.value.T, r.value.T).T / scale
    # The solver meets box and actions up to its tolerance; of the same shape and a trifle smaller, the ellipsoid meets them exactly.
    lyapunov = _shrunk(problem, np.linalg.inv(spread), gain)
    check(problem, lyapunov, gain)
    return lyapunov, gain


def lyapunov_ellipsoid(problem: LinearProblem, gain: np.ndarray) -> np.ndarray:
    """Returns P (n, n) of an ellipsoid that a feedback which is given keeps, as large as box and actions allow.

    Its shape solves the Lyapunov equation P - (A + B F)'P (A + B F) = W with W = diag(1 / scale²). It is not the largest there is.

    Args:
        problem: what the ellipsoid must fulfil.
        gain: F of u = F s, physical, shape (m, n).

    Raises:
        InfeasibleSafePrior: the feedback does not damp the system.
        CertificateError: it damps it less than asked for.
    """
    closed = problem.A + problem.B @ gain
    if not (radius := float(np.abs(np.linalg.eigvals(closed)).max())) < 1.0:
        raise InfeasibleSafePrior(f"safe prior: the feedback does not damp the system, A + B F has the spectral radius {radius:.4g}")
    lyapunov = solve_discrete_lyapunov(closed.T, np.diag(np.asarray(problem.scale) ** -2.0))
    lyapunov = (lyapunov + lyapunov.T) / 2
    lyapunov *= float(np.concatenate(_reach(problem, lyapunov, gain)).max() ** 2)
    check(problem, lyapunov, gain)
    return lyapunov


def _shrunk(problem: LinearProblem, lyapunov: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Returns P (n, n) scaled so that its ellipsoid leaves neither the box nor the range of an action."""
    lyapunov = (lyapunov + lyapunov.T) / 2
    return lyapunov * max(float(np.concatenate(_reach(problem, lyapunov, gain)).max() ** 2), 1.0)


def check(problem: LinearProblem, lyapunov: np.ndarray, gain: np.ndarray) -> Certificate:
    """Measures what an ellipsoid and a gain reach, from their numbers alone, whoever found them.

    Raises:
        CertificateError: an inequality does not hold; the message names it and gives the number.
    """
    if not (np.isfinite(lyapunov).all() and np.isfinite(gain).all()):
        raise CertificateError("certificate: P or F is not finite")
    lyapunov = (lyapunov + lyapunov.T) / 2
    eigenvalues = np.linalg.eigvalsh(lyapunov)
    if eigenvalues[0] <= 0:
        raise CertificateError(f"certificate: P is not positive definite, its smallest eigenvalue is {eigenvalues[0]:.3g}")
    # In the coordinates w = L's with P = L L', V is |w|² and the largest ratios are norms.
    root = np.linalg.cholesky(lyapunov)
    closed = problem.A + problem.B @ gain
    box_reach, action_reach = _reach(problem, lyapunov, gain)
    certificate = Certificate(
        contraction=float(np.linalg.norm(np.linalg.solve(root, (root.T @ closed).T), 2) ** 2),
        spectral_radius=float(np.abs(np.linalg.eigvals(closed)).max()),
        box_reach=box_reach,
        action_reach=action_reach,
    )
    slack = 1.0 + _TOLERANCE
    if not certificate.contraction <= problem.contraction * slack:
        raise CertificateError(f"certificate: contraction is {certificate.contraction:.6f}, {problem.contraction:g} was asked for")
    if not (certificate.box_reach <= slack).all():
        row = int(np.argmax(certificate.box_reach))
        raise CertificateError(f"certificate: the ellipsoid reaches {certificate.box_reach[row]:.6f} of {problem.row_name(row)}")
    if not (certificate.action_reach <= slack).all():
        row = int(np.argmax(certificate.action_reach))
        raise CertificateError(
            f"certificate: {problem.action_names[row]} reaches {certificate.action_reach[row]:.6f} of its range on the ellipsoid"
        )
    return certificate


def box_rows(names: Sequence[str], equilibrium: np.ndarray, bounds: dict[str, tuple[float, float]]) -> np.ndarray:
    """Returns the rows h, shape (k, n), of the largest box |h s| <= 1 about the equilibrium that is within bounds.

    Args:
        names: of the states.
        equilibrium: shape (n,).
        bounds: name to lowest and highest value, not as deviation. States without one are free.

    Raises:
        UserError: a state is unknown, or the equilibrium is not between its bounds.
    """
    rows = []
    for name, (lower, upper) in bounds.items():
        if name not in names:
            raise UserError(f"safe box: there is no state '{name}' (known: {', '.join(names)})")
        index = list(names).index(name)
        if not lower < equilibrium[index] < upper:
            raise UserError(f"safe box: {name} is {equilibrium[index]:g} at the equilibrium, that is not between {lower:g} and {upper:g}")
        row = np.zeros(len(names))
        row[index] = 1.0 / min(upper - equilibrium[index], equilibrium[index] - lower)
        rows.append(row)
    return np.array(rows).reshape(-1, len(names))


def _programme(problem: LinearProblem) -> tuple[Any, Any, dict[str, Any]]:
    """Returns the variables Q and R in scaled states and actions, and the constraints by the name a user knows them by."""
    scale = np.asarray(problem.scale)
    a = problem.A * scale / scale[:, None]
    b = problem.B * problem.action_range / scale[:, None]
    box = problem.box * scale
    n, m = b.shape
    q, r = cp.Variable((n, n), symmetric=True), cp.Variable((m, n))
    after = a @ q + b @ r
    constraints = {
        "volume": q >> _SMALLEST * np.eye(n),
        f"contraction {problem.contraction:g}": bmat([[problem.contraction * q, after.T], [after, q]]) >> 0,
    }
    if problem.inside == "ball":
        constraints["safe box"] = np.eye(len(box)) - box @ q @ box.T >> 0
    else:
        constraints |= {problem.row_name(index): row @ q @ row <= 1 for index, row in enumerate(box)}
    for index, (name, limit) in enumerate(zip(problem.action_names, problem.action_range, strict=True)):
        row = r[index : index + 1]
        constraints[f"|{name}| <= {limit:g}"] = bmat([[q, row.T], [row, np.eye(1)]]) >> 0
    return q, r, constraints


def _solve(objective: Any, constraints: Iterable[Any]) -> str:
    programme = cp.Problem(objective, list(constraints))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")  # the status says so as well
        try:
            programme.solve(solver=cp.CLARABEL)
        except cp.error.SolverError:
            return "solver_error"
    return str(programme.status)


def _reach(problem: LinearProblem, lyapunov: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest |h s| of each row of the box and the largest |u| over its range of each action, on the ellipsoid."""
    root = np.linalg.cholesky(lyapunov)
    box = np.linalg.norm(np.linalg.solve(root, problem.box.T), axis=0)
    return box, np.linalg.norm(np.linalg.solve(root, gain.T), axis=0) / problem.action_range


def _refuse_immovable_modes(problem: LinearProblem) -> None:
    """Refuses a model of which a mode that must be damped cannot be (Popov, Belevitch, Hautus)."""
    scale = np.asarray(problem.scale)
    a, b = problem.A * scale / scale[:, None], problem.B * problem.action_range / scale[:, None]
    values, left = np.linalg.eig(a.T)
    for value, mode in zip(values, left.T, strict=True):
        moved = np.linalg.svd(np.hstack([value * np.eye(len(a)) - a, b / max(np.abs(b).max(), 1e-300)]), compute_uv=False)[-1]
        if moved < 1e-9 and abs(value) ** 2 > problem.contraction:
            what = "is not stable" if abs(value) >= 1 else f"decays slower than a contraction of {problem.contraction:g} asks"
            state = problem.state_names[int(np.argmax(np.abs(mode)))]
            raise InfeasibleSafePrior(
                f"safe prior: no action moves the mode of A with eigenvalue {abs(value):.6g} in magnitude (mainly {state}), which {what}"
            )


def _explain(problem: LinearProblem, status: str) -> str:
    """Says which constraints conflict: those that the first two rule out one by one, or else those without which there is one."""
    *_, constraints = _programme(problem)
    names = list(constraints)

    def feasible(chosen: Iterable[str]) -> bool:
        return _solve(cp.Minimize(0), [constraints[name] for name in chosen]) == cp.OPTIMAL

    fault = [name for name in names[2:] if not feasible([*names[:2], name])]
    fault = fault or [name for name in names[2:] if feasible([other for other in names if other != name])]
    conflict = f"{', '.join(fault or names[2:])} cannot hold with {names[1]}"
    reach = ", ".join(f"{1 / np.abs(row).max():g}" for row in problem.box)
    return (
        f"safe prior: no ellipsoid found (solver: {status}): {conflict} on an ellipsoid that has a volume. Box half-widths {reach}, "
        f"action range {problem.action_range.tolist()}; try a larger contraction, another box, or stronger actions"
    )

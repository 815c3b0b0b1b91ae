"""Linear models of a robot about an equilibrium, computed twice: by differences of the simulator, and by Pinocchio."""

import numpy as np
from scipy.linalg import expm

from ros_rl.errors import UserError
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.plant import Step

_AXES = ("x", "y", "z")
_REST = 1e-6  # m/s² or rad/s² that a robot at its equilibrium may accelerate with


def differences(step: Step, state_step: np.ndarray, input_step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns A (n, n) and B (n, m) of s+ = A s + B u by central differences about the origin.

    Args:
        step: one control period of the system; it is called once.
        state_step: how far each state is moved to either side, shape (n,); sizes that matter little, such as 1e-4 of its range.
        input_step: how far each input is moved, shape (m,).
    """
    n, m = len(state_step), len(input_step)
    moves = np.diag(np.concatenate([state_step, input_step]))
    points = np.concatenate([moves, -moves])
    after = step(points[:, :n], points[:, n:])
    slopes = (after[: n + m] - after[n + m :]).T / (2 * np.concatenate([state_step, input_step]))
    return slopes[:, :n], slopes[:, n:]


def zero_order_hold(drift: np.ndarray, effect: np.ndarray, period: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns A and B over a period, s, of ds/dt = `drift` s + `effect` u with u held constant in between."""
    n, m = effect.shape
    block = expm(np.block([[drift, effect], [np.zeros((m, n + m))]]) * period)
    return block[:n, :n], block[:n, n:]


def semi_implicit(
    drift: np.ndarray, effect: np.ndarray, positions: np.ndarray, timestep: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns A and B over `steps` steps of the integrator that the simulator uses, MuJoCo's `implicitfast`.

    A step computes the velocities v+ = v + timestep·(acceleration at the old positions and at v+), then the positions with v+. It
    differs from `zero_order_hold` by a part of the order of the timestep.

    Args:
        drift: of ds/dt = drift s + effect u, shape (n, n).
        effect: shape (n, m).
        positions: which of the states are positions, shape (n,); the others are velocities.
        timestep: of the physics, s.
        steps: in a control period.
    """
    n, m = effect.shape
    moved = np.diag(positions.astype(float))
    # The new velocities count in every row, the new positions in none: in the rows of positions `drift` has only velocities.
    implicit = np.eye(n) - timestep * drift @ (np.eye(n) - moved)
    a = np.linalg.solve(implicit, np.eye(n) + timestep * (np.eye(n) - moved) @ drift @ moved)
    b = np.linalg.solve(implicit, timestep * effect)
    over = np.linalg.matrix_power(np.block([[a, b], [np.zeros((m, n)), np.eye(m)]]), steps)
    return over[:n, :n], over[:n, n:]


def rigid_body(spec: RobotSpec, coordinates: Coordinates, action_equilibrium: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the matrices (n, n) and (n, m) of ds/dt = drift s + effect u about rest, from Pinocchio's derivatives.

    Gravity, inertia and the viscous damping of the URDF count. Velocities are zero at the equilibrium, so that Coriolis forces,
    which are quadratic in them, do not.

    Args:
        spec: the robot; it is commanded by efforts and touches nothing.
        coordinates: of the state; what they leave out is at home.
        action_equilibrium: efforts that hold the robot there, shape (m,).

    Raises:
        UserError: the robot is commanded otherwise, has dry friction, is not at rest there, or the state misses a coordinate
            that moves one of the others.
    """
    if spec.command_mode != "effort":
        raise UserError(f"robot '{spec.name}' takes {spec.command_mode} commands; its rigid-body model needs efforts")
    model = RobotModel(spec)
    rest = dict(zip(coordinates.names, coordinates.equilibrium, strict=True))
    q = np.array([rest.get(f"joint_position.{name}", home) for name, home in zip(spec.measured_names, spec.home, strict=True)])
    base = _base(spec, rest)
    mobility = np.linalg.inv(model.mass_matrix(q, base))
    forces = _forces(spec, model, q, base)
    unrest = mobility @ (forces @ action_equilibrium - model.gravity(q, base))
    if np.abs(unrest).max() > _REST:
        raise UserError(f"robot '{spec.name}' does not rest at its equilibrium, it accelerates at {np.abs(unrest).max():.3g}")
    nv = model.nv
    drift = np.zeros((2 * nv, 2 * nv))
    drift[:nv, nv:] = np.eye(nv)
    drift[nv:, :nv] = -mobility @ model.gravity_slope(q, base)
    drift[nv:, nv:] = -mobility @ model.damping()
    effect = np.vstack([np.zeros_like(forces), mobility @ forces])
    return _select(coordinates.names, _names(spec, model), drift, effect)


def _base(spec: RobotSpec, rest: dict[str, float]) -> np.ndarray | None:
    if not spec.floating_base:
        return None
    position = [rest.get(f"base_position.{axis}", home) for axis, home in zip(_AXES, spec.base_position, strict=True)]
    return np.array([*position, 1.0, 0.0, 0.0, 0.0])


def _forces(spec: RobotSpec, model: RobotModel, q: np.ndarray, base: np.ndarray | None) -> np.ndarray:
    """Returns the matrix (nv, m) from commands to generalised forces."""
    columns = np.zeros((model.nv, len(spec.joints)))
    for index, joint in enumerate(spec.joints):
        if joint.kind == "thruster":
            assert joint.frame is not None
            turn = model.frame_pose(joint.frame, q, base).rotation
            wrench = np.concatenate([turn @ joint.wrench[:3], turn @ joint.wrench[3:]])
            columns[:, index] = model.jacobian(joint.frame, q, base).T @ wrench
        else:
            columns[model.nv - len(model.names) + model.names.index(joint.name), index] = 1.0
    return columns


def _names(spec: RobotSpec, model: RobotModel) -> list[str]:
    """Returns the coordinates of the whole robot: positions, then velocities, in the order of `RobotModel`."""
    names = []
    for linear, angular, joint in (("base_position", "base_rotation", "joint_position"), ("base_velocity", "base_gyro", "joint_velocity")):
        names += [f"{kind}.{axis}" for kind in (linear, angular) for axis in _AXES] if spec.floating_base else []
        names += [f"{joint}.{name}" for name in model.names]
    return names


def _select(wanted: tuple[str, ...], names: list[str], drift: np.ndarray, effect: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the part of the model that the wanted coordinates make up."""
    keep = [names.index(name) for name in wanted]
    for index, name in enumerate(names):
        if name not in wanted and np.abs(drift[keep, index]).max() > 1e-9:
            moved = wanted[int(np.argmax(np.abs(drift[keep, index])))]
            raise UserError(f"the state lacks {name}, which moves {moved}")
    return drift[np.ix_(keep, keep)], effect[keep]


def regress(states: np.ndarray, inputs: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns A (n, n) and B (n, m) of s+ = A s + B u that fit observed steps best, by least squares.

    Args:
        states: before each step, shape (k, n).
        inputs: shape (k, m).
        after: states after it, shape (k, n).

    Raises:
        UserError: the steps do not tell all states and inputs apart, or a number is not finite.
    """
    seen = np.concatenate([states, inputs], axis=1)
    if not (np.isfinite(seen).all() and np.isfinite(after).all()):
        raise UserError("linear model: a state or an input is not finite")
    scale = np.maximum(np.abs(seen).max(axis=0), 1e-300)
    found, _, rank, _ = np.linalg.lstsq(seen / scale, after, rcond=None)
    if rank < seen.shape[1]:
        raise UserError(f"linear model: {len(seen)} steps tell {rank} of {seen.shape[1]} states and inputs apart; take more that differ")
    matrices = (found / scale[:, None]).T
    return matrices[:, : states.shape[1]], matrices[:, states.shape[1] :]

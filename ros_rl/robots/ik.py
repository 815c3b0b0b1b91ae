"""Differential inverse kinematics: small joint steps that carry a frame towards a target pose, within the robot's limits."""

import numpy as np
import pink
import pinocchio as pin
from pink.limits import ConfigurationLimit, VelocityLimit

from ros_rl.errors import RobotFault, UserError
from ros_rl.robots.model import Pose, RobotModel

_POSITION_COST = 1.0  # per m
ROTATION_COST = 0.5  # per rad, as at a lever of half a metre
_POSTURE_COST = 1e-3  # per rad off the posture
_POSTURE_TIME = 1.0  # s: time constant of the motion towards the posture
_LIMIT_GAIN = 0.9  # share of the distance to a position limit that one step may use
_DAMPING = 0.3  # times the remaining error; more is slower and smoother
_LEAST_DAMPING = 1e-9  # keeps the quadratic programme strictly convex
_SINGULAR = 0.08  # m/rad; smallest singular value of the weighted Jacobian below which singularity damping sets in
_SINGULAR_DAMPING = 0.04**2  # (m/rad)²; its greatest value, at the singularity
_TARGET = "ik target"

_SOLVE_STEP = 0.1  # s
_SOLVE_STEPS = 80
_STARTS = 20


class Unreachable(UserError):
    """No joint position was found that brings the frame to the target."""


class DifferentialIK:
    """Moves one frame of a robot by the commanded joints that carry it. All others, such as a gripper's, stay.

    Each step solves a quadratic programme, formulated by Pink and solved by DAQP: reach the target, drift to a rest
    posture where the target leaves freedom, stay within the limits of joint positions and velocities.
    Damping in proportion to the remaining error keeps the motion bounded near singularities and for targets out of
    reach, and fades where the target is met (Fan and Yuan, "On the quadratic convergence of the Levenberg-Marquardt
    method without nonsingularity assumption", 2005).

    Joint positions are those of all measured joints, shape (n + passive,), in the order of `RobotSpec.measured_names`.
    Poses are given in the root link.
    """

    def __init__(
        self,
        model: RobotModel,
        frame: str,
        posture: np.ndarray | None = None,
        rotation_cost: float = ROTATION_COST,
        singularity_damping: bool = False,
    ):
        """
        Args:
            model: the robot; a floating base is taken as fixed.
            frame: the link to move.
            posture: rest position of all measured joints; the home pose if None.
            rotation_cost: how many m off in position are as bad as 1 rad off in rotation, where both cannot be had. An arm
                of fewer than six joints keeps to the place with a small one, and turns the frame as it must.
            singularity_damping: whether to trade accuracy for slower joints near singularities. For targets that move only
                a little ahead of the frame, as a person's do: the error alone damps little there.

        Raises:
            UserError: there is no such frame, no joint moves it, or one that does is not commanded.
        """
        spec = model.spec
        carrying = _carrying_joints(model, frame)
        self._frame = frame
        self._carrying = np.array([spec.joint_names.index(name) for name in carrying])
        self._lower, self._upper = spec.lower[self._carrying], spec.upper[self._carrying]
        self._random_range = np.nan_to_num(self._lower, neginf=-np.pi), np.nan_to_num(self._upper, posinf=np.pi)
        self._speed = spec.velocity[self._carrying]
        self._chain = _chain(model, self._carrying, frame)
        self._limits = [ConfigurationLimit(self._chain, _LIMIT_GAIN), VelocityLimit(self._chain, self._speed)]
        self._state = pink.Configuration(self._chain, self._chain.createData(), pin.neutral(self._chain), copy_data=False)
        self._reach = pink.FrameTask(_TARGET, position_cost=_POSITION_COST, orientation_cost=rotation_cost)
        self._costs = np.repeat([_POSITION_COST, rotation_cost], 3)
        self._singularity_damping = singularity_damping
        self._rest = pink.PostureTask(cost=_POSTURE_COST)
        self._rest.set_target(self._pin((spec.home if posture is None else posture)[self._carrying]))

    def step(self, q: np.ndarray, target: Pose, dt: float) -> np.ndarray:
        """Returns the joint positions one step of `dt` s closer to the target.

        The step is as large as the velocity limits allow: to move slower, move the target slower. A joint that is
        outside its limits counts as being at the nearer one.

        Raises:
            RobotFault: `q` or the target is not finite, or the quadratic programme has no solution.
        """
        if not (np.isfinite(q).all() and np.isfinite(target.position).all() and np.isfinite(target.rotation).all()):
            raise RobotFault(f"inverse kinematics of '{self._frame}': not finite: q={q}, target={target}")
        here = np.clip(q[self._carrying], self._lower, self._upper)
        self._state.update(self._pin(here))
        self._reach.set_target(pin.SE3(target.rotation, target.position))
        self._rest.gain = min(1.0, dt / _POSTURE_TIME)
        damping = _LEAST_DAMPING + _DAMPING * np.linalg.norm(self._costs * self._reach.compute_error(self._state))
        if self._singularity_damping:
            damping += self._damping_here()
        try:
            velocity = pink.solve_ik(self._state, [self._reach, self._rest], dt, solver="daqp", damping=damping, limits=self._limits)
        except pink.PinkError as error:
            raise RobotFault(f"inverse kinematics of '{self._frame}': {error}") from None
        # The solver keeps its constraints to a tolerance, the guard behind it does not.
        there = here + np.clip(velocity, -self._speed, self._speed) * dt
        moved = np.array(q, dtype=float)
        moved[self._carrying] = np.clip(there, self._lower, self._upper)
        return moved

    def _damping_here(self) -> float:
        """Returns the damping for the present distance to a singularity.

        It grows from 0 as the square root of what is left of a circle (Chiaverini, Siciliano and Egeland, "Review of the
        damped least-squares inverse kinematics", 1994, eq. 18).
        """
        weighted = self._costs[:, None] * self._state.get_frame_jacobian(_TARGET)
        smallest = np.linalg.svd(weighted, compute_uv=False)[-1]
        return _SINGULAR_DAMPING * max(0.0, 1.0 - (smallest / _SINGULAR) ** 2)

    def error(self, q: np.ndarray, target: Pose) -> tuple[float, float]:
        """Returns how far the frame is from the target: distance in m, angle in rad."""
        self._state.update(self._pin(q[self._carrying]))
        pose = self._state.get_transform_frame_to_world(_TARGET)
        turn = pose.rotation.T @ target.rotation
        return float(np.linalg.norm(target.position - pose.translation)), float(np.linalg.norm(pin.log3(turn)))

    def solve(self, q: np.ndarray, target: Pose, distance: float = 1e-4, angle: float = 1e-3) -> np.ndarray:
        """Returns joint positions at which the frame has the target pose.

        Steps go on from `q`, and where they end in a local minimum from random positions within the limits. Position
        limits hold, the time to get there is not considered. The same arguments always give the same solution.

        Args:
            q: where to start; the solution is near it where it can be.
            target: pose of the frame.
            distance: greatest remaining distance, m.
            angle: greatest remaining angle, rad.

        Raises:
            Unreachable: no start led to the target; the message says how near the best one came.
            RobotFault: `q` or the target is not finite.
        """
        random = np.random.default_rng(0)
        nearest = (np.inf, np.inf)
        start = np.array(q, dtype=float)
        for _ in range(_STARTS):
            for _ in range(_SOLVE_STEPS):
                start = self.step(start, target, _SOLVE_STEP)
                remaining = self.error(start, target)
                if remaining[0] <= distance and remaining[1] <= angle:
                    return start
            nearest = min(nearest, remaining)
            start[self._carrying] = random.uniform(*self._random_range)
        position = ", ".join(f"{x:.3f}" for x in target.position)
        raise Unreachable(
            f"'{self._frame}' cannot be brought to ({position}) m with the asked rotation: "
            f"the nearest of {_STARTS} tries is {nearest[0]:.4f} m and {nearest[1]:.4f} rad off"
        )

    def _pin(self, joints: np.ndarray) -> np.ndarray:
        """Returns Pinocchio's configuration of the carrying joints."""
        return pin.integrate(self._chain, pin.neutral(self._chain), joints)


def _carrying_joints(model: RobotModel, frame: str) -> list[str]:
    """Returns the joints between the root link and the frame, from the root outwards."""
    link = model.pin.frames[model.link_index(frame)]
    first = 2 if model.spec.floating_base else 1
    carrying = [model.pin.names[joint] for joint in model.pin.supports[link.parentJoint] if joint >= first]
    if not carrying:
        raise UserError(f"robot '{model.spec.name}': no joint moves '{frame}'")
    for name in carrying:
        if name not in model.spec.joint_names:
            raise UserError(f"robot '{model.spec.name}': '{frame}' cannot be moved, its joint '{name}' takes no command")
    return carrying


def _chain(model: RobotModel, carrying: np.ndarray, frame: str) -> pin.Model:
    """Returns the Pinocchio model of the carrying joints alone, with the frame under a name that no joint has."""
    joints = [model.spec.joints[index] for index in carrying]
    names = {joint.name for joint in joints}
    locked = [index for index, name in enumerate(model.pin.names) if index > 0 and name not in names]
    chain = pin.buildReducedModel(model.pin, locked, pin.neutral(model.pin))
    link = chain.frames[chain.getFrameId(frame, pin.FrameType.BODY)]
    chain.addFrame(pin.Frame(_TARGET, link.parentJoint, link.placement, pin.FrameType.OP_FRAME))
    # robot.yaml may be stricter than the URDF. A continuous joint has no limits here either.
    for joint, in_chain in zip(joints, chain.joints[1:], strict=True):
        if joint.kind != "continuous":
            chain.lowerPositionLimit[in_chain.idx_q] = joint.lower
            chain.upperPositionLimit[in_chain.idx_q] = joint.upper
    return chain

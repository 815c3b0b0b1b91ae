"""Smooth motion from one tool pose to another."""

import numpy as np
import pinocchio as pin

from ros_rl.errors import UserError
from ros_rl.robots.model import Pose
from ros_rl.robots.spec import RobotSpec

PEAK = 1.875  # the greatest slope of `quintic`
_SHORTEST_LAG = 1e-6  # s, of a joint without damping


def tool_frame(robot: RobotSpec) -> str:
    """Returns the frame that is moved.

    Raises:
        UserError: the robot has none.
    """
    if robot.tool_frame is None:
        raise UserError(f"robot '{robot.name}' has no tool_frame in its robot.yaml, its policy needs one to move")
    return robot.tool_frame


def quintic(progress: float) -> float:
    """Returns the polynomial of degree five from 0 to 1 that starts and ends without velocity and acceleration.

    Progress outside 0 to 1 counts as the nearer end.
    """
    s = min(max(progress, 0.0), 1.0)
    return s**3 * (10.0 - 15.0 * s + 6.0 * s * s)


def angle_between(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the angle of the turn from one rotation (3, 3) to another, rad."""
    return float(np.linalg.norm(pin.log3(first.T @ second)))


def duration(start: Pose, end: Pose, speed: float, turn: float) -> float:
    """Returns how long a quintic motion takes, s, that reaches `speed` (m/s) or `turn` (rad/s) at its fastest."""
    return PEAK * max(float(np.linalg.norm(end.position - start.position)) / speed, angle_between(start.rotation, end.rotation) / turn)


def between(start: Pose, end: Pose, fraction: float) -> Pose:
    """Returns the pose on the straight line from start to end, turned about one axis on the way (slerp)."""
    turn = pin.exp3(fraction * pin.log3(start.rotation.T @ end.rotation))
    return Pose(start.position + fraction * (end.position - start.position), start.rotation @ turn)


class SteadyStateTrim:
    """Integral action on top of joint controllers that give way under gravity.

    The command leads the wanted position by the integral of what the joint is short of it. A position-controlled joint
    follows a moving target late by its damping over its stiffness; that part of the error is expected and not
    integrated. The gripper is left alone: when it holds something it is meant to be short of its target. So are other
    prismatic joints, whose shortfall is in m.
    """

    def __init__(self, robot: RobotSpec, gain: float, limit: float):
        """
        Args:
            robot: what the command is for.
            gain: 1/s.
            limit: largest trim of a joint that turns, rad.
        """
        self._gain = gain
        gripper = robot.gripper.joint if robot.gripper else None
        self._limit = np.array([0.0 if joint.name == gripper or joint.kind == "prismatic" else limit for joint in robot.joints])
        self._lag = np.array([max(joint.damping / joint.stiffness, _SHORTEST_LAG) for joint in robot.joints])
        self._lower, self._upper = robot.lower, robot.upper
        self._trim = np.zeros(len(robot.joints))
        self._expected: np.ndarray | None = None

    def command(self, wanted: np.ndarray, measured: np.ndarray, dt: float) -> np.ndarray:
        """Returns the joint command, rad (m), for the next `dt` s, within the position limits; arrays hold the commanded joints, (n,)."""
        if self._expected is None:
            self._expected = measured.copy()
        self._trim = np.clip(self._trim + self._gain * dt * (self._expected - measured), -self._limit, self._limit)
        self._expected += (wanted - self._expected) * -np.expm1(-dt / self._lag)
        command: np.ndarray = np.clip(wanted + self._trim, self._lower, self._upper)
        return command

"""From what a device says to a command for every joint of a robot."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pinocchio as pin

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.ik import ROTATION_COST, DifferentialIK
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.spec import RobotSpec
from ros_rl.teleop.device import Sample

_FEW_JOINTS = 1e-2  # m/rad, rotation cost of an arm that cannot reach every pose
_LARGEST_STEP = 0.05  # s, or two control periods; a longer gap between observations is not made up for
_RECENT = 0.5  # s; a command that was sent longer ago says nothing of where the robot is to be


class JointMapping:
    """For devices that tell every joint by name: a leader arm, a script."""

    def __init__(self, spec: RobotSpec):
        self._spec = spec

    def restart(self, sent: JointCommand | None) -> None:
        """Does nothing: every sample says it all."""

    def command(self, sample: Sample, observation: Observation) -> JointCommand:
        """Returns the device's joints, with the stamp of the observation.

        Raises:
            UserError: they are not one finite value for each joint of the robot.
        """
        if sample.joints is None:
            raise UserError("the device tells no joints")
        values = sample.joints.in_order_of(self._spec)
        return JointCommand(self._spec.joint_names, values, observation.stamp)


class VelocityMapping:
    """For walking robots: a twist of the base becomes the target velocity of its policy."""

    def __init__(self, spec: RobotSpec, speed: float, turn: float):
        """Takes the robot and its greatest speeds, m/s over ground and rad/s."""
        self._root = spec.read_urdf().root
        self._speed, self._turn = speed, turn

    def velocity(self, sample: Sample) -> np.ndarray:
        """Returns forward m/s, left m/s and turn rad/s, shape (3,).

        Raises:
            UserError: the sample has no finite twist, or one in the axes of another link than the base.
        """
        if sample.twist is None or np.shape(sample.twist) != (6,) or not np.isfinite(sample.twist).all():
            raise UserError(f"a walking robot needs a twist of six finite numbers, got {sample.twist}")
        if sample.frame not in ("", self._root):
            raise UserError(f"a walking robot needs a twist in the axes of its base '{self._root}', got one of '{sample.frame}'")
        return np.concatenate([_at_most(sample.twist[:2], self._speed), _at_most(sample.twist[5:], self._turn)])


def can_be_turned(spec: RobotSpec) -> bool:
    """Whether an arm has joints enough to turn its tool without moving it."""
    return len(spec.joints) - (spec.gripper is not None) >= 6


class CartesianMapping:
    """For devices that move the tool: by a twist, or towards a pose.

    The commanded joints follow the tool by differential inverse kinematics, within the limits of position and velocity and
    slowed down near singularities. The tool starts from where the last command left it, whoever gave it, or, where the robot is
    not near that any more, from where it is. It does not leave the workspace, though it may come back into it.
    """

    def __init__(self, spec: RobotSpec, speed: float, turn: float, workspace: Sequence[float]):
        """
        Args:
            spec: a robot in position mode with a `tool_frame`.
            speed: greatest speed of the tool on its way to a pose and as the length of a twist, m/s.
            turn: the same of its rotation, rad/s.
            workspace: where the tool may go in the root link: least x, y, z, then greatest x, y, z, m.

        Raises:
            UserError: the robot has no tool, or takes no positions, or the workspace is empty.
        """
        check_tool(spec, workspace)
        assert spec.tool_frame is not None
        self._spec = spec
        self._tool = spec.tool_frame
        self._speed, self._turn = speed, turn
        self._lower, self._upper = np.array(workspace[:3]), np.array(workspace[3:])
        self._model = RobotModel(spec)
        cost = ROTATION_COST if can_be_turned(spec) else _FEW_JOINTS
        self._ik = DifferentialIK(self._model, spec.tool_frame, rotation_cost=cost, singularity_damping=True)
        self._q: np.ndarray | None = None  # measured joints, of which the commanded ones are where they were told to go
        self._stamp = -np.inf
        self._sent: JointCommand | None = None
        self._gripper = np.array([spec.gripper is not None and name == spec.gripper.joint for name in spec.joint_names])

    def restart(self, sent: JointCommand | None) -> None:
        """Forgets where the tool was led: another may have moved the robot since.

        Args:
            sent: the command that the robot got last, where it is known: its arm does not sag, nor does its gripper let go.
        """
        self._q, self._sent = None, sent

    def command(self, sample: Sample, observation: Observation) -> JointCommand:
        """Returns the joints that take the tool one step further.

        Raises:
            UserError: the sample has neither twist nor pose, is not finite, or is in a frame that the robot has not.
        """
        q = self._start(observation)
        dt = min(max(observation.stamp - self._stamp, 0.0), max(_LARGEST_STEP, 2.0 * self._spec.period))
        self._q, self._stamp = q, observation.stamp
        if dt > 0.0:
            target = self._target(sample, q, dt)
            try:
                q = self._ik.step(q, target, dt)
            except RobotFault as error:
                raise UserError(str(error)) from None
            self._q = self._grip(sample, q, dt)
        return JointCommand(self._spec.joint_names, self._q[: len(self._spec.joints)].copy(), observation.stamp)

    def _start(self, observation: Observation) -> np.ndarray:
        """Returns the joints to go on from: the last command while the robot is near it.

        So a tap on a key does not let the arm sag by what its controller gives way under load.
        """
        measured, count = observation.joint_position, len(self._spec.joints)
        if self._q is None or observation.stamp < self._stamp:
            held, self._stamp = self._last_sent(observation), observation.stamp
        else:
            held = self._q[:count]
        q = measured.copy()
        # What pushes the arm does not leave a target behind that it would fall back to. The gripper stays where it was
        # told to be, however thick the thing it holds is.
        near = (np.abs(held - measured[:count]) <= self._spec.lead) | self._gripper
        q[:count] = np.where(near.all() | self._gripper, held, measured[:count])
        if not near.all():
            self._stamp = observation.stamp
        return q

    def _last_sent(self, observation: Observation) -> np.ndarray:
        """Returns the joints that were commanded last, whoever did, or else where they are, shape (n,)."""
        sent, self._sent = self._sent, None
        if sent is not None and abs(observation.stamp - sent.stamp) <= _RECENT:
            with suppress(UserError):  # a policy's, which the guard has rejected
                return sent.in_order_of(self._spec)
        return observation.joint_position[: len(self._spec.joints)]

    def _target(self, sample: Sample, q: np.ndarray, dt: float) -> Pose:
        here = self._model.frame_pose(self._tool, q)
        if sample.twist is not None:
            if np.shape(sample.twist) != (6,) or not np.isfinite(sample.twist).all():
                raise UserError(f"a twist is six finite numbers, got {np.asarray(sample.twist).tolist()}")
            axes = self._model.frame_pose(sample.frame, q).rotation if sample.frame else np.eye(3)
            move, turn = axes @ sample.twist[:3] * dt, axes @ sample.twist[3:] * dt
        elif sample.pose is not None:
            if not (np.isfinite(sample.pose.position).all() and np.isfinite(sample.pose.rotation).all()):
                raise UserError("the pose to go to is not finite")
            move = sample.pose.position - here.position
            turn = here.rotation @ pin.log3(here.rotation.T @ sample.pose.rotation)
        else:
            raise UserError("the device tells neither a twist nor a pose")
        there = here.position + _at_most(move, self._speed * dt)
        # Outside already: not further out, and never thrown back in.
        there = np.clip(there, np.minimum(self._lower, here.position), np.maximum(self._upper, here.position))
        return Pose(there, pin.exp3(_at_most(turn, self._turn * dt)) @ here.rotation)

    def _grip(self, sample: Sample, q: np.ndarray, dt: float) -> np.ndarray:
        gripper = self._spec.gripper
        if gripper is None or sample.gripper is None:
            return q
        if not np.isfinite(sample.gripper):
            raise UserError("the gripper's opening is not finite")
        index = self._spec.joint_names.index(gripper.joint)
        goal = gripper.closed + float(np.clip(sample.gripper, 0.0, 1.0)) * (gripper.open - gripper.closed)
        step = self._spec.velocity[index] * dt
        q[index] = np.clip(goal, q[index] - step, q[index] + step)
        return q


def check_tool(spec: RobotSpec, workspace: Sequence[float]) -> None:
    """Refuses a robot or a workspace in which no tool can be moved; arguments as of `CartesianMapping`.

    Raises:
        UserError: the robot has no tool, or takes no positions, or the workspace is empty.
    """
    if spec.tool_frame is None or spec.command_mode != "position":
        lacks = "tool_frame" if spec.tool_frame is None else "command_mode position"
        raise UserError(f"robot '{spec.name}' has no {lacks} in its robot.yaml, so that no tool can be moved; use leader or scripted")
    if not (np.array(workspace[:3]) < np.array(workspace[3:])).all():
        raise UserError(f"workspace must be least x, y, z, then greatest x, y, z, got {list(workspace)}")


def _at_most(vector: np.ndarray, length: float) -> np.ndarray:
    """Returns a vector, shortened to a length where it is longer."""
    norm = float(np.linalg.norm(vector))
    return vector if norm <= length else vector * (length / norm)

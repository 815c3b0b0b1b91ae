"""Rigid-body kinematics and dynamics of a robot, computed by Pinocchio in the conventions of this stack."""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from ros_rl.errors import UserError, unknown
from ros_rl.robots.spec import RobotSpec
from ros_rl.robots.urdf import Urdf

GRAVITY = 9.81  # m/s²


@dataclass(frozen=True, eq=False)
class Pose:
    """Where a frame is: `position` (3,) in m, `rotation` (3, 3) from the frame's axes to the reference's axes."""

    position: np.ndarray
    rotation: np.ndarray


class RobotModel:
    """Answers where a robot's frames are and which efforts move it.

    Arguments and results follow these conventions, where p is the number of joints in `names`:

    - `q`, shape (n + passive,): positions of all measured joints in the order of `RobotSpec.measured_names`. The
      entries of thrusters, which have no position, are not read.
    - `base`, shape (7,): position (m) and attitude (w, x, y, z) of the root link in the world. For floating bases only,
      where it is the origin when left out. The frames of a robot with a fixed base are given in its root link.
    - velocities, accelerations and generalised forces, shape (nv,): one entry per joint of `names`. With a floating base
      six come first: the root link's linear part in the world's axes, then its angular part in the root link's own
      axes, as MuJoCo's free joint has them. nv is p, or p + 6.
    - joints that mimic another move with it and have no entry of their own: what they carry counts for their leader.

    One instance serves one thread: Pinocchio computes in a workspace that belongs to it.

    Attributes:
        spec: the robot.
        names: the joints that have a position, in the order of `RobotSpec.measured_names`.
        frames: the links of the URDF; each is a frame that can be asked for.
        pin: the Pinocchio model. Its conventions are Pinocchio's, and mimicking joints move freely in it.
    """

    def __init__(self, spec: RobotSpec):
        """
        Raises:
            UserError: a joint mimics one that is neither commanded nor measured.
        """
        self.spec = spec
        root = (pin.JointModelFreeFlyer(),) if spec.floating_base else ()
        urdf = spec.read_urdf()
        self.pin = pin.buildModelFromXML(urdf.xml, *root)
        self._data = self.pin.createData()
        self._neutral = pin.neutral(self.pin)
        self._measured = np.array([i for i, joint in enumerate(spec.joints + spec.passive) if joint.kind != "thruster"], dtype=int)
        self.names = tuple(spec.measured_names[i] for i in self._measured)
        self.frames = urdf.links
        # The type tells a link from a joint of the same name.
        self._links = {link: self.pin.getFrameId(link, pin.FrameType.BODY) for link in urdf.links}
        self._base = 6 if spec.floating_base else 0
        self._follow, self._offset = self._joint_map(urdf)

    @property
    def nv(self) -> int:
        """Number of degrees of freedom: one for each joint of `names`, and six for a floating base."""
        return self._follow.shape[1]

    def frame_pose(self, frame: str, q: np.ndarray, base: np.ndarray | None = None) -> Pose:
        """Returns the pose of a link's frame.

        Raises:
            UserError: there is no such link.
        """
        link = self.link_index(frame)
        pin.forwardKinematics(self.pin, self._data, self._configuration(q, base))
        placement = pin.updateFramePlacement(self.pin, self._data, link)
        return Pose(placement.translation.copy(), placement.rotation.copy())

    def jacobian(self, frame: str, q: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """Returns the matrix (6, nv) from velocities to the twist of a link's frame.

        Rows 0 to 2 are the linear velocity of the frame's origin, rows 3 to 5 its angular velocity, both along the axes
        of the world (of the root link for a fixed base).

        Raises:
            UserError: there is no such link.
        """
        link = self.link_index(frame)
        jacobian = pin.computeFrameJacobian(self.pin, self._data, self._configuration(q, base), link, pin.LOCAL_WORLD_ALIGNED)
        return jacobian @ self._velocity_map(base)

    def mass_matrix(self, q: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """Returns the joint-space inertia matrix, symmetric, shape (nv, nv)."""
        inertia = pin.crba(self.pin, self._data, self._configuration(q, base))
        to_pin = self._velocity_map(base)
        return to_pin.T @ inertia @ to_pin

    def inverse_dynamics(self, q: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """Returns the generalised forces (nv,) that cause `acceleration`, with gravity, without friction and contacts."""
        to_pin = self._velocity_map(base)
        pin_velocity = to_pin @ velocity
        pin_acceleration = to_pin @ acceleration
        if self._base:
            # Pinocchio's base velocity is R^T v: its derivative also has the part that comes from the turning of R.
            pin_acceleration[:3] -= np.cross(pin_velocity[3:6], pin_velocity[:3])
        return to_pin.T @ pin.rnea(self.pin, self._data, self._configuration(q, base), pin_velocity, pin_acceleration)

    def gravity(self, q: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """Returns the generalised forces (nv,) that hold the robot still against gravity."""
        return self._velocity_map(base).T @ pin.computeGeneralizedGravity(self.pin, self._data, self._configuration(q, base))

    def gravity_slope(self, q: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """Returns how the forces of `gravity`, told in the base's own axes, change with the configuration, shape (nv, nv).

        A step of the configuration is one along the velocities of this class. Told in the base's axes, a thrust that turns with
        the base is constant.
        """
        to_pin = self._velocity_map(base)
        return to_pin.T @ pin.computeGeneralizedGravityDerivatives(self.pin, self._data, self._configuration(q, base)) @ to_pin

    def damping(self) -> np.ndarray:
        """Returns the matrix (nv, nv) from velocities to the forces of viscous friction that the URDF states.

        Raises:
            UserError: it states dry friction as well, which no matrix describes.
        """
        dry = [name for name in self.names if self.pin.lowerDryFrictionLimit[self.pin.joints[self.pin.getJointId(name)].idx_v]]
        if dry:
            raise UserError(f"robot '{self.spec.name}': joint '{dry[0]}' has dry friction, about which nothing is linear")
        return self._follow.T @ np.diag(self.pin.damping) @ self._follow

    def link_index(self, frame: str) -> int:
        """Returns which of `pin.frames` is a link's.

        Raises:
            UserError: there is no such link; the message lists those that exist.
        """
        if frame not in self._links:
            raise unknown(f"link of robot '{self.spec.name}'", frame, self._links)
        return self._links[frame]

    def _joint_map(self, urdf: Urdf) -> tuple[np.ndarray, np.ndarray]:
        """Returns A (pin.nv, nv) and b (pin.nv,): joints of the Pinocchio model move by A·v and are at A·q + b."""
        follow = np.zeros((self.pin.nv, self._base + len(self.names)))
        offset = np.zeros(self.pin.nv)
        follow[: self._base, : self._base] = np.eye(self._base)
        for name in self.pin.names[2 if self._base else 1 :]:
            leader, multiplier, start = urdf.joints[name].mimic or (name, 1.0, 0.0)
            if leader not in self.names:
                raise UserError(f"{urdf.path}: joint '{name}' mimics '{leader}', which is not one of {', '.join(self.names)}")
            row = self.pin.joints[self.pin.getJointId(name)].idx_v
            follow[row, self._base + self.names.index(leader)] = multiplier
            offset[row] = start
        return follow, offset

    def _configuration(self, q: np.ndarray, base: np.ndarray | None) -> np.ndarray:
        """Returns Pinocchio's configuration, in which a continuous joint is (cos, sin) and a quaternion ends with w."""
        joints = self._follow[:, self._base :] @ np.asarray(q, dtype=float)[self._measured] + self._offset
        configuration = pin.integrate(self.pin, self._neutral, joints)
        if base is not None:
            self._refuse_fixed_base()
            quaternion = np.asarray(base[3:], dtype=float) / np.linalg.norm(base[3:])
            configuration[:7] = [*base[:3], *quaternion[1:], quaternion[0]]
        return configuration

    def _velocity_map(self, base: np.ndarray | None) -> np.ndarray:
        """Returns the matrix (pin.nv, nv) from this stack's velocities to Pinocchio's, whose base moves in its own axes."""
        if base is None:
            return self._follow
        self._refuse_fixed_base()
        to_pin = self._follow.copy()
        w, x, y, z = np.asarray(base[3:], dtype=float) / np.linalg.norm(base[3:])
        to_pin[:3, :3] = pin.Quaternion(w, x, y, z).toRotationMatrix().T
        return to_pin

    def _refuse_fixed_base(self) -> None:
        if not self._base:
            raise UserError(f"robot '{self.spec.name}' has a fixed base, it takes no base pose")

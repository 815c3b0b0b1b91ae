"""Do MuJoCo and Pinocchio read a robot's URDF alike? Kinematics, inertia and dynamics of the two, compared at random states."""

import math
from dataclasses import dataclass

import mujoco
import numpy as np

from ros_rl.errors import UserError
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.repair import Repair
from ros_rl.robots.spec import RobotSpec
from ros_rl.robots.urdf import Urdf
from ros_rl.sim.from_urdf import read_into_mujoco

STATES = 100
_FAR = 2.0  # m or rad: how far a floating base and joints without limits are sampled from zero


@dataclass(frozen=True)
class Agreement:
    """The largest differences that were found.

    Attributes:
        fk: of any link, in position (m) or in an entry of its rotation matrix.
        mass_matrix: of any entry, relative to the largest entry.
        inverse_dynamics: of any generalised force, relative to the largest one.
    """

    fk: float
    mass_matrix: float
    inverse_dynamics: float


class MujocoReading:
    """What MuJoCo makes of a robot's URDF alone, in the conventions of `RobotModel`.

    Attributes:
        mj: the compiled model; joint friction and constraints are off, so that inverse dynamics is the rigid body's.
        data: the configuration last placed.
        repairs: what was done to the URDF and its meshes.
    """

    def __init__(self, spec: RobotSpec, meshes: bool = False):
        """
        Args:
            spec: the robot.
            meshes: whether to load the meshes, which only shapes and pictures depend on.

        Raises:
            UserError: MuJoCo cannot load the URDF or its meshes.
        """
        urdf = spec.read_urdf()
        self.mj, self.repairs = _compile(urdf, spec.floating_base, meshes)
        self.mj.opt.disableflags = mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_DAMPER
        self.data = mujoco.MjData(self.mj)
        self._base = 6 if spec.floating_base else 0
        measured = [joint.name for joint in spec.joints + spec.passive if joint.kind != "thruster"]
        self._follow = np.zeros((self.mj.nv, self._base + len(measured)))
        self._follow[: self._base, : self._base] = np.eye(self._base)
        self._offset = np.zeros(self.mj.nv)
        for index in range(1 if spec.floating_base else 0, self.mj.njnt):
            name = self.mj.joint(index).name
            leader, multiplier, start = urdf.joints[name].mimic or (name, 1.0, 0.0)
            row = self.mj.jnt_dofadr[index]
            self._follow[row, self._base + measured.index(leader)] = multiplier
            self._offset[row] = start

    def place(self, joints: np.ndarray, base: np.ndarray | None) -> None:
        """Puts the robot into a configuration: joints (p,), base (7,) as for `RobotModel`."""
        positions = self._follow[:, self._base :] @ joints + self._offset
        self.data.qpos[:] = positions if base is None else np.concatenate([base, positions[6:]])
        mujoco.mj_fwdPosition(self.mj, self.data)

    def link_pose(self, link: str) -> Pose:
        """Returns the pose of a link's frame."""
        body = self.data.body(link)
        return Pose(body.xpos.copy(), body.xmat.reshape(3, 3).copy())

    def mass_matrix(self) -> np.ndarray:
        """Returns the joint-space inertia matrix, shape (nv, nv)."""
        inertia = np.zeros((self.mj.nv, self.mj.nv))
        mujoco.mj_fullM(self.mj, self.data, inertia)
        return self._follow.T @ inertia @ self._follow

    def inverse_dynamics(self, velocity: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
        """Returns the generalised forces (nv,) that cause `acceleration`."""
        self.data.qvel[:] = self._follow @ velocity
        self.data.qacc[:] = self._follow @ acceleration
        mujoco.mj_inverse(self.mj, self.data)
        return self._follow.T @ self.data.qfrc_inverse

    def overlaps(self) -> list[tuple[str, str]]:
        """Returns the pairs of links whose collision shapes touch; a link and its parent may."""
        flags, self.mj.opt.disableflags = self.mj.opt.disableflags, 0
        mujoco.mj_fwdPosition(self.mj, self.data)
        self.mj.opt.disableflags = flags
        pairs = ({self.mj.body(int(self.mj.geom_bodyid[geom])).name for geom in contact.geom} for contact in self.data.contact)
        return sorted({tuple(sorted(pair)) for pair in pairs})

    def large_links(self, size: float) -> list[tuple[str, float]]:
        """Returns the links that have a shape longer than `size` m, and its length."""
        lengths: dict[str, float] = {}
        for geom in range(self.mj.ngeom):
            # The box around a plane, which has no end, is of size 0.
            link, length = self.mj.body(int(self.mj.geom_bodyid[geom])).name, 2 * float(self.mj.geom_aabb[geom, 3:].max())
            lengths[link] = max(lengths.get(link, 0.0), length)
        return [(link, length) for link, length in lengths.items() if length > size]


def _compile(urdf: Urdf, floating_base: bool, meshes: bool) -> tuple[mujoco.MjModel, tuple[Repair, ...]]:
    """Loads the robot alone."""
    robot = read_into_mujoco(urdf, meshes)
    if floating_base:
        robot.mj.body(urdf.root).add_freejoint()
    try:
        return robot.mj.compile(), urdf.repairs + robot.repairs
    except ValueError as error:
        raise UserError(f"{urdf.path}: {' '.join(str(error).split())}") from None


def compare(spec: RobotSpec) -> Agreement:
    """Compares the two at `STATES` random positions within the limits, with random base poses, velocities and accelerations."""
    random = np.random.default_rng(0)
    ours, theirs = RobotModel(spec), MujocoReading(spec)
    joints = spec.joints + spec.passive
    lower = np.array([joint.lower if math.isfinite(joint.lower) else -_FAR for joint in joints])
    upper = np.array([joint.upper if math.isfinite(joint.upper) else _FAR for joint in joints])
    moving = [joint.name in ours.names for joint in joints]
    worst = np.zeros(3)
    for _ in range(STATES):
        q = random.uniform(lower, upper)
        base = _random_base(random) if spec.floating_base else None
        velocity, acceleration = random.normal(size=(2, ours.nv))
        theirs.place(q[moving], base)
        fk = max(_pose_difference(ours.frame_pose(link, q, base), theirs.link_pose(link)) for link in ours.frames)
        mass = _relative(ours.mass_matrix(q, base), theirs.mass_matrix())
        forces = _relative(ours.inverse_dynamics(q, velocity, acceleration, base), theirs.inverse_dynamics(velocity, acceleration))
        worst = np.maximum(worst, [fk, mass, forces])  # keeps a NaN, as max() does not
    return Agreement(*worst.tolist())


def reading_at_home(spec: RobotSpec) -> MujocoReading:
    """Returns MuJoCo's reading of a robot with its meshes, at the home pose.

    Raises:
        UserError: MuJoCo cannot load the URDF or its meshes.
    """
    reading = MujocoReading(spec, meshes=True)
    home = [joint.home for joint in spec.joints + spec.passive if joint.kind != "thruster"]
    reading.place(np.array(home), np.array([0.0, 0, 0, 1, 0, 0, 0]) if spec.floating_base else None)
    return reading


def _random_base(random: np.random.Generator) -> np.ndarray:
    quaternion = random.normal(size=4)
    return np.concatenate([random.uniform(-_FAR, _FAR, 3), quaternion / np.linalg.norm(quaternion)])


def _pose_difference(pose: Pose, reference: Pose) -> float:
    entries = [pose.position - reference.position, *(pose.rotation - reference.rotation)]
    return float(np.abs(entries).max())


def _relative(value: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(value - reference).max() / np.abs(reference).max())

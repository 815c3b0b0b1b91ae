"""Builds MuJoCo models: the robot's URDF placed in an MJCF world, with actuators, sensors and cameras from its spec."""

import logging
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import mujoco
import numpy as np
from mujoco import mjtObj

from ros_rl import paths
from ros_rl.errors import UserError
from ros_rl.robots.spec import EXTERNAL_CAMERA_RATE, Camera, Joint, RobotSpec
from ros_rl.robots.urdf import MOVING, Urdf
from ros_rl.sim.from_urdf import WORLD, read_into_mujoco
from ros_rl.sim.task import SCENE_FILES
from ros_rl.sim.terrain import Terrain

ROBOT_FRAME = "robot"
FOLLOW_CAMERA = "follow"
IMU_SENSORS = {
    "base_quat": mujoco.mjtSensor.mjSENS_FRAMEQUAT,
    "base_gyro": mujoco.mjtSensor.mjSENS_GYRO,
    "base_acc": mujoco.mjtSensor.mjSENS_ACCELEROMETER,
}
_IMU_SITE = "imu_site"
_BASE_JOINT = "floating_base"
_LONGEST_TIMESTEP = 0.002  # s; the physics step used divides the control period evenly
_COLLISION_GROUP = 3  # MuJoCo's viewers and renderers do not draw this group unless asked

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SimModel:
    """A robot in a world, compiled, and where its parts are in MuJoCo's arrays.

    Attributes:
        spec: the robot.
        mj: the compiled model; its timestep is in s.
        substeps: physics steps in one control period.
        positioned: indices into `spec.measured_names` of the joints that have a position (thrusters have none), shape (p,).
        qpos: where those joints' positions are in `MjData.qpos`, shape (p,).
        qvel: where their velocities are in `MjData.qvel`, shape (p,).
        actuators: the actuator of each commanded joint, in command order, shape (n,).
        mimics: (joint, qpos address, leader's qpos address, multiplier, offset) of joints that follow another.
        base: body id of the robot's root link.
        base_joint: joint id of the floating base, or None.
        objects: name to body id of each body of the scene that moves freely.
        scene_joints: name to joint id of each other joint of the scene.
        cameras: every camera by name: the robot's, the scene's and, for floating bases, one that follows the robot.
    """

    spec: RobotSpec
    mj: mujoco.MjModel
    substeps: int
    positioned: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray
    actuators: np.ndarray
    mimics: tuple["Mimic", ...]
    base: int
    base_joint: int | None
    objects: Mapping[str, int]
    scene_joints: Mapping[str, int]
    cameras: Mapping[str, Camera]

    def free_qpos(self, joint: int) -> slice:
        """Returns where a free joint's pose [x y z qw qx qy qz] is in `MjData.qpos`."""
        start = int(self.mj.jnt_qposadr[joint])
        return slice(start, start + 7)

    def free_qvel(self, joint: int) -> slice:
        """Returns where a free joint's velocity is in `MjData.qvel`: linear in the world, angular in the body's frame."""
        start = int(self.mj.jnt_dofadr[joint])
        return slice(start, start + 6)

    @cached_property
    def imu(self) -> Mapping[str, slice]:
        """Where the IMU's measurements are in `MjData.sensordata`, by the name that they have in `Observation`."""
        if not self.spec.imu_frame:
            return {}
        sensors = {name: self.mj.sensor(name) for name in IMU_SENSORS}
        return {name: slice(int(sensor.adr[0]), int(sensor.adr[0] + sensor.dim[0])) for name, sensor in sensors.items()}

    def follow(self, qpos: np.ndarray) -> None:
        """Puts the joints that follow another one where that has them; changes `qpos` (nq,) in place."""
        for mimic in self.mimics:
            qpos[mimic.follower] = mimic.multiplier * qpos[mimic.leader] + mimic.offset

    def object_joint(self, name: str) -> int:
        """Returns the joint id of an object's free joint."""
        return int(self.mj.body_jntadr[self.objects[name]])


@dataclass(frozen=True)
class Mimic:
    """A joint that follows another one: position = multiplier · leader + offset. `follower`, `leader` are qpos addresses."""

    follower: int
    leader: int
    multiplier: float
    offset: float


def scene_names() -> list[str]:
    """Returns the names of the worlds that ship."""
    return paths.names(SCENE_FILES)


def build(spec: RobotSpec, scene: str | Path, terrain: Terrain | None = None) -> SimModel:
    """Places a robot in a world and compiles both.

    Joints, links and objects keep the names they have in the URDF and in the scene.

    Args:
        spec: the robot.
        scene: the name of a world that ships, or the path of an MJCF file with a frame named "robot" where the robot's
            root link is put.
        terrain: takes the place of the scene's plane named "floor".

    Raises:
        UserError: the scene and the robot do not fit together; the message names the file and what is missing or there twice.
    """
    path = paths.find("scene", SCENE_FILES, scene)
    urdf = spec.read_urdf()
    quieten_mujoco()
    world = _read_mjcf(path)
    if terrain is not None:
        terrain.lay(world)
    robot = _read_robot(spec, urdf)
    _refuse_shared_names(path, world, urdf, robot)
    frame = world.frame(ROBOT_FRAME)
    if frame is None:
        raise UserError(f'{path}: has no <frame name="{ROBOT_FRAME}"/> that says where the robot stands')
    substeps = max(1, math.ceil(spec.period / _LONGEST_TIMESTEP - 1e-9))
    world.option.timestep = spec.period / substeps
    world.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    # A diverged simulation must be reported; MuJoCo would otherwise go on from the initial state without a word.
    world.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    with warnings.catch_warnings():
        # An empty prefix matters only for writing the composed model back to XML, which nothing does.
        warnings.filterwarnings("ignore", message="Attaching a spec with an empty prefix")
        world.attach(robot, prefix="", frame=frame)
        cameras = _prepare_rendering(spec, world)
        model = _compile(path, world)
        if _exclude_home_contacts(spec, urdf, world, model):
            model = _compile(path, world)
    return _index(path, spec, urdf, model, substeps, cameras)


def cameras_in(spec: RobotSpec, scene: str | Path) -> dict[str, Camera]:
    """Returns the cameras of a robot in a world by name, the robot's first; nothing is compiled. One that follows it is optional.

    Raises:
        UserError: there is no such world, or it cannot be read.
    """
    quieten_mujoco()
    world = _read_mjcf(paths.find("scene", SCENE_FILES, scene))
    external = [_external(camera) for camera in world.cameras]
    if spec.floating_base:
        external.append(replace(_external(mujoco.MjSpec().worldbody.add_camera(name=FOLLOW_CAMERA, **_FOLLOW_VIEW)), optional=True))
    return {camera.name: camera for camera in (*spec.cameras, *external)}


def quieten_mujoco() -> None:
    """Sends MuJoCo's warnings to the log: its own handler writes MUJOCO_LOG.TXT into the working directory."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log.debug)


def _read_mjcf(path: Path) -> mujoco.MjSpec:
    try:
        return mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise UserError(f"{path}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _compile(path: Path, world: mujoco.MjSpec) -> mujoco.MjModel:
    try:
        return world.compile()
    except ValueError as error:
        raise UserError(f"{path}: {_one_line(error)}") from None


def _read_robot(spec: RobotSpec, urdf: Urdf) -> mujoco.MjSpec:
    """Returns the URDF with what the robot's spec adds: base joint, actuators, IMU and cameras."""
    robot = read_into_mujoco(urdf).mj
    for body in robot.bodies:
        _hide_collision_shapes(body)
        body.gravcomp = float(spec.gravity_compensation)
    for equality in robot.equalities:  # MuJoCo makes one of each <mimic>
        # As stiff as a gear: by default light fingers that mimic each other would drift centimetres apart under load.
        equality.solref, equality.solimp = [0.005, 1.0], [0.999, 0.9999, 0.001, 0.5, 2.0]
    root = robot.body(urdf.root)
    for part in (root,) if urdf.root != WORLD else (*root.bodies, *root.geoms):
        part.pos = np.asarray(part.pos) + spec.base_position
    if spec.floating_base:
        root.add_freejoint(name=_BASE_JOINT)
        root.add_camera(name=FOLLOW_CAMERA, mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACK, **_FOLLOW_VIEW)
    for joint in spec.joints:
        _add_actuator(spec, robot, joint)
    if spec.imu_frame:
        robot.body(spec.imu_frame).add_site(name=_IMU_SITE, group=_COLLISION_GROUP)
        for name, kind in IMU_SENSORS.items():
            robot.add_sensor(name=name, type=kind, objtype=mjtObj.mjOBJ_SITE, objname=_IMU_SITE)
    for camera in spec.cameras:
        # An optical frame looks along +z with y down, a MuJoCo camera along -z with y up: half a turn about x.
        robot.body(camera.frame).add_camera(name=camera.name, quat=[0, 1, 0, 0], fovy=camera.fovy, resolution=[camera.width, camera.height])
    return robot


_FOLLOW_VIEW = {"pos": [0.8, -0.95, 0.4], "xyaxes": [0.7649, 0.6441, 0, -0.1975, 0.2345, 0.9519], "resolution": [640, 480], "fovy": 45}


def _hide_collision_shapes(body: mujoco.MjsBody) -> None:
    """Leaves the visual shapes to be seen where a link has both; a URDF's visual shapes never collide."""
    collide = [geom for geom in body.geoms if geom.contype or geom.conaffinity]
    if len(collide) < len(body.geoms):
        for geom in collide:
            geom.group = _COLLISION_GROUP


def _add_actuator(spec: RobotSpec, robot: mujoco.MjSpec, joint: Joint) -> None:
    if joint.kind == "thruster":
        robot.body(joint.frame).add_site(name=joint.name, group=_COLLISION_GROUP)
        actuator = robot.add_actuator(name=joint.name, trntype=mujoco.mjtTrn.mjTRN_SITE, target=joint.name, gear=list(joint.wrench))
        actuator.set_to_motor()
        _limit(actuator, "ctrl", joint.lower, joint.upper)
        return
    actuator = robot.add_actuator(name=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint.name)
    _limit(actuator, "force", -joint.effort, joint.effort)
    if spec.command_mode == "position":
        if joint.stiffness <= 0:
            raise UserError(f"robot '{spec.name}': joint '{joint.name}' has stiffness {joint.stiffness}, position mode needs more than 0")
        actuator.set_to_position(kp=joint.stiffness, kv=joint.damping)
        _limit(actuator, "ctrl", joint.lower, joint.upper)
    elif spec.command_mode == "velocity":
        if joint.damping <= 0:
            raise UserError(f"robot '{spec.name}': joint '{joint.name}' has damping {joint.damping}, velocity mode needs more than 0")
        actuator.set_to_velocity(kv=joint.damping)
        _limit(actuator, "ctrl", -joint.velocity, joint.velocity)
    else:
        actuator.set_to_motor()
        _limit(actuator, "ctrl", -joint.effort, joint.effort)


def _limit(actuator: mujoco.MjsActuator, what: str, lower: float, upper: float) -> None:
    if math.isfinite(lower) and math.isfinite(upper):
        setattr(actuator, f"{what}range", [lower, upper])
        setattr(actuator, f"{what}limited", mujoco.mjtLimited.mjLIMITED_TRUE)


def _refuse_shared_names(path: Path, world: mujoco.MjSpec, urdf: Urdf, robot: mujoco.MjSpec) -> None:
    for kind in ("bodies", "joints", "cameras", "sites", "sensors", "actuators"):
        ours = {item.name for item in getattr(robot, kind)} - {"", "world"}
        shared = ours & {item.name for item in getattr(world, kind)}
        if shared:
            raise UserError(f"{path}: {kind} named {', '.join(sorted(shared))} are also in {urdf.path}; rename them in the scene")


def _prepare_rendering(spec: RobotSpec, world: mujoco.MjSpec) -> dict[str, Camera]:
    """Returns all cameras and makes the offscreen buffer as large as the largest of them."""
    of_robot = {camera.name: camera for camera in spec.cameras}
    cameras = {}
    for camera in world.cameras:
        cameras[camera.name] = of_robot.get(camera.name) or _external(camera)
    visual = world.visual
    visual.global_.offwidth = max([visual.global_.offwidth, *(camera.width for camera in cameras.values())])
    visual.global_.offheight = max([visual.global_.offheight, *(camera.height for camera in cameras.values())])
    # In software rendering these two cost 20 to 30 times what everything else does.
    visual.quality.shadowsize = 0
    visual.quality.offsamples = 0
    return cameras


def _external(camera: mujoco.MjsCamera) -> Camera:
    """Returns a camera that stands in the world."""
    width, height = (int(size) for size in camera.resolution)
    return Camera(camera.name, camera.name, width, height, float(camera.fovy), EXTERNAL_CAMERA_RATE)


def _exclude_home_contacts(spec: RobotSpec, urdf: Urdf, world: mujoco.MjSpec, model: mujoco.MjModel) -> bool:
    """Lets links pass through each other whose shapes overlap at home, as a URDF's often do around a joint."""
    data = mujoco.MjData(model)
    for joint in spec.joints + spec.passive:
        if joint.kind != "thruster":
            data.joint(joint.name).qpos = joint.home
    mujoco.mj_forward(model, data)
    touching = {tuple(sorted(model.body(int(model.geom_bodyid[geom])).name for geom in contact.geom)) for contact in data.contact}
    overlapping = sorted(pair for pair in touching if set(pair) <= set(urdf.links) - {WORLD})
    for first, second in overlapping:
        world.add_exclude(name=f"{first}|{second}", bodyname1=first, bodyname2=second)
    return bool(overlapping)


def _index(path: Path, spec: RobotSpec, urdf: Urdf, model: mujoco.MjModel, substeps: int, cameras: dict[str, Camera]) -> SimModel:
    measured = spec.joints + spec.passive
    positioned = [index for index, joint in enumerate(measured) if joint.kind != "thruster"]
    joints = np.array([_id(path, model, mjtObj.mjOBJ_JOINT, measured[index].name) for index in positioned], dtype=int)
    links = {_id(path, model, mjtObj.mjOBJ_BODY, link) for link in urdf.links}
    objects, scene_joints = {}, {}
    for joint in range(model.njnt):
        body = int(model.jnt_bodyid[joint])
        if body in links:
            continue
        free = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE
        name = model.body(body).name if free else model.joint(joint).name
        if not name:
            raise UserError(f"{path}: a {'body with a free joint' if free else 'joint'} has no name")
        if free:
            objects[name] = body
        elif model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_BALL:
            raise UserError(f"{path}: joint '{name}' is a ball joint; scenes have hinge, slide and free joints")
        else:
            scene_joints[name] = joint
    return SimModel(
        spec=spec,
        mj=model,
        substeps=substeps,
        positioned=np.array(positioned, dtype=int),
        qpos=model.jnt_qposadr[joints].astype(int),
        qvel=model.jnt_dofadr[joints].astype(int),
        actuators=np.array([_id(path, model, mjtObj.mjOBJ_ACTUATOR, name) for name in spec.joint_names]),
        mimics=_mimics(urdf, model),
        base=model.body(urdf.root).id,
        base_joint=model.joint(_BASE_JOINT).id if spec.floating_base else None,
        objects=objects,
        scene_joints=scene_joints,
        cameras=cameras,
    )


def _id(path: Path, model: mujoco.MjModel, kind: mjtObj, name: str) -> int:
    index = mujoco.mj_name2id(model, kind, name)
    if index < 0:
        raise UserError(f"{path}: the model has no {kind.name.removeprefix('mjOBJ_').lower()} '{name}'")
    return index


def _mimics(urdf: Urdf, model: mujoco.MjModel) -> tuple[Mimic, ...]:
    """MuJoCo turns <mimic> into an equality constraint; resets also need it as a formula."""
    address = {name: int(model.joint(name).qposadr[0]) for name, joint in urdf.joints.items() if joint.kind in MOVING}
    follow = [(name, *joint.mimic) for name, joint in urdf.joints.items() if joint.mimic]
    return tuple(Mimic(address[name], address[leader], multiplier, offset) for name, leader, multiplier, offset in follow)

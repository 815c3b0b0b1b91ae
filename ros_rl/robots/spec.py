"""What the stack knows of a robot: joints in command order, limits, gains, frames and sensors."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic

from ros_rl import paths
from ros_rl.config import STRICT, Count, Finite, NotNegative, Positive, Vector3, fault, read_yaml
from ros_rl.errors import UserError, closest, unknown
from ros_rl.robots.packages import candidates, package_of
from ros_rl.robots.servos import ENCODER_TICKS, SERVO_SPEEDS
from ros_rl.robots.urdf import MOVING, FixedFrame, Urdf, UrdfJoint, read_urdf

CommandMode = Literal["position", "velocity", "effort"]
DeviceUnitName = Literal["degree", "tick", "percent"]
ROBOT_FILES = "urdf/*/robot.yaml"
_EXTRAS = {"example-robot-data": "robots"}  # packages that an extra of ours brings
_LEAD_TIME = 0.5  # s, see `RobotSpec.lead`
EXTERNAL_CAMERA_RATE = 30.0  # Hz, of a camera that stands in the world and not on the robot


@dataclass(frozen=True)
class DeviceUnit:
    """How the device of a joint counts, where it does not speak SI.

    A joint at position q reads `rate`·q + `zero`; `rate` is negative where the device counts against the joint.
    """

    name: DeviceUnitName
    rate: float
    zero: float


@dataclass(frozen=True)
class Servo:
    """The servo of a joint on a serial bus.

    Attributes:
        id: its address on the bus.
        model: one of `ros_rl.robots.servos`.
        unit: how it counts positions.
        torque_per_count: N·m that one count of its measured load or current stands for; 0 where that is not known.
    """

    id: int
    model: str
    unit: DeviceUnit
    torque_per_count: float


@dataclass(frozen=True)
class Joint:
    """One channel that is measured and, unless passive, commanded.

    Positions in rad (m for prismatic joints), velocities per second, efforts in N·m (N for prismatic joints).
    `kind` is ``revolute``, ``continuous``, ``prismatic`` or ``thruster``. A thruster has no position: its command is a
    scalar u between `lower` and `upper`, which applies the wrench u·`wrench` (force then torque) in the frame `frame`.
    `hold` is the command that keeps the robot safe when nobody commands it (see `Guard`); None means "the last target"
    in position mode and 0 otherwise. `device` is how a controller of ros2_control counts, None where it speaks SI, and
    `servo` is what moves the joint where the stack talks to a servo bus itself; everything else here is SI always.
    """

    name: str
    kind: str
    lower: float
    upper: float
    velocity: float
    effort: float
    home: float = 0.0
    stiffness: float = 0.0
    damping: float = 0.0
    hold: float | None = None
    frame: str | None = None
    wrench: tuple[float, ...] = ()
    device: DeviceUnit | None = None
    servo: Servo | None = None


@dataclass(frozen=True)
class Camera:
    """A camera fixed to a link. `frame` is an optical frame (REP 103: z forward, x right, y down); `fovy` in degrees.

    One that is `optional` is used where it is named, and not where all cameras are meant.
    """

    name: str
    frame: str
    width: int
    height: int
    fovy: float
    rate: float
    optional: bool = False

    def frame_index(self, stamp: float) -> int:
        """Returns the number of the newest frame due at a time in s; the first frame, number 0, is due at 0."""
        # A small part of a frame is added so that a frame due now is not missed by rounding.
        return math.floor(stamp * self.rate + 1e-6)


@dataclass(frozen=True)
class Gripper:
    """The commanded joint that opens and closes a gripper, and where it is open and closed, rad (m)."""

    joint: str
    open: float
    closed: float

    def opening(self, position: np.ndarray) -> np.ndarray:
        """Returns how far open the gripper is at positions of its joint, shape (...): 0 is closed, 1 open."""
        return (position - self.closed) / (self.open - self.closed)


@dataclass(frozen=True)
class RobotSpec:
    """A robot: what it takes as commands, what it measures, and where its limits are.

    Every array of joint values in the stack is in the order of `joints`; arrays of measurements append `passive`
    joints, which are measured but not driven. A mapping from and to messages is always by name.

    Attributes:
        control_rate: Hz, of reading and commanding the robot.
        command_mode: what a command means: positions, velocities or efforts.
        base_position: of the root link in the world at home, m.
        tool_frame: link that is moved to a target, at the grasp centre, z forward; None where there is no tool.
        gripper: what it grasps with; None where it cannot.
        imu_frame: link that the IMU is fixed to; None without one.
        odometry: whether position and velocity of the base are estimated.
        gravity_compensation: whether the robot's own controller carries the weight of its links; a simulation then does.
        frames: links that its description has beyond those in the file `urdf`.
    """

    name: str
    urdf: Path
    joints: tuple[Joint, ...]
    passive: tuple[Joint, ...]
    control_rate: float
    command_mode: CommandMode
    floating_base: bool
    base_position: tuple[float, float, float]
    tool_frame: str | None
    cameras: tuple[Camera, ...]
    imu_frame: str | None
    odometry: bool
    gravity_compensation: bool = False
    description: str = ""
    gripper: Gripper | None = None
    frames: tuple[FixedFrame, ...] = ()

    @cached_property
    def servos(self) -> tuple[Servo, ...]:
        """Servos of all measured joints, in the order of `measured_names`; empty where the joints have none."""
        return tuple(joint.servo for joint in self.joints + self.passive if joint.servo is not None)

    def read_urdf(self) -> Urdf:
        """Reads the robot's description: the URDF, repaired, with the frames added to it.

        Raises:
            UserError: see `ros_rl.robots.urdf.read_urdf`.
        """
        return read_urdf(self.urdf).with_frames(self.frames)

    @property
    def period(self) -> float:
        """Control period in s."""
        return 1.0 / self.control_rate

    @cached_property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the commanded joints, in command order."""
        return tuple(joint.name for joint in self.joints)

    @cached_property
    def measured_names(self) -> tuple[str, ...]:
        """Names of all measured joints: the commanded ones, then the passive ones."""
        return self.joint_names + tuple(joint.name for joint in self.passive)

    @cached_property
    def home(self) -> np.ndarray:
        """Home position of all measured joints, shape (n + passive,)."""
        return np.array([joint.home for joint in self.joints + self.passive])

    @cached_property
    def lower(self) -> np.ndarray:
        """Lower position limits of the commanded joints, shape (n,)."""
        return np.array([joint.lower for joint in self.joints])

    @cached_property
    def upper(self) -> np.ndarray:
        """Upper position limits of the commanded joints, shape (n,)."""
        return np.array([joint.upper for joint in self.joints])

    @cached_property
    def velocity(self) -> np.ndarray:
        """Velocity limits of the commanded joints, shape (n,)."""
        return np.array([joint.velocity for joint in self.joints])

    @cached_property
    def effort(self) -> np.ndarray:
        """Effort limits of the commanded joints, shape (n,)."""
        return np.array([joint.effort for joint in self.joints])

    def camera(self, name: str) -> Camera:
        """Returns one of the robot's cameras, or else an external one, of which only name and rate are known."""
        external = Camera(name, name, 0, 0, 45.0, EXTERNAL_CAMERA_RATE)
        return next((camera for camera in self.cameras if camera.name == name), external)

    @cached_property
    def command_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of a command in the robot's command mode, each of shape (n,)."""
        if self.command_mode == "position":
            return self.lower, self.upper
        if self.command_mode == "velocity":
            return -self.velocity, self.velocity
        thruster = np.array([joint.kind == "thruster" for joint in self.joints])
        return np.where(thruster, self.lower, -self.effort), np.where(thruster, self.upper, self.effort)

    @cached_property
    def lead(self) -> np.ndarray:
        """How far a position target may be from the measured position, shape (n,), rad or m.

        A target further ahead than (effort + damping·velocity) / stiffness makes no difference while all goes well: the
        actuator gives its whole effort already. Where no gains are stated it is what the joint travels in half a second.
        """
        return np.array([_lead(joint) for joint in self.joints])

    def rest(self, measured: np.ndarray) -> np.ndarray:
        """Returns the command that keeps the robot where it is, shape (..., n), or (n,) where it is the same for all.

        In position mode that is the measured position, and finite if that is. In velocity and effort mode it is the joints'
        `hold`, within the command limits and always finite.

        Args:
            measured: positions of all measured joints, shape (..., n + passive).
        """
        return measured[..., : len(self.joints)].copy() if self.command_mode == "position" else self._hold.copy()

    @cached_property
    def _hold(self) -> np.ndarray:
        return np.clip([joint.hold or 0.0 for joint in self.joints], *self.command_limits)


def _lead(joint: Joint) -> float:
    if joint.stiffness > 0 and math.isfinite(joint.effort):
        return (joint.effort + joint.damping * joint.velocity) / joint.stiffness
    return joint.velocity * _LEAD_TIME


@pydantic.dataclasses.dataclass(config=STRICT)
class _ServoFile:
    id: Annotated[int, pydantic.Field(ge=0, le=252)]
    model: str
    torque_per_count: NotNegative = 0.0


@pydantic.dataclasses.dataclass(config=STRICT)
class _JointFile:
    """What robot.yaml may say of a joint; limits may only be tighter than the URDF's.

    `device_offset` is what the device reads where it would read 0 without: at joint position 0, in percent at the end of
    the URDF's range that `device_sign` makes 0 %. With a `servo`, the device is the servo.
    """

    home: Finite = 0.0
    stiffness: NotNegative = 0.0
    damping: NotNegative = 0.0
    lower: Finite | None = None
    upper: Finite | None = None
    velocity: Positive | None = None
    effort: Positive | None = None
    hold: Finite | None = None
    device_unit: DeviceUnitName | None = None
    device_sign: Literal[1, -1] = 1
    device_offset: Finite = 0.0
    ticks_per_turn: Positive | None = None
    servo: _ServoFile | None = None


@pydantic.dataclasses.dataclass(config=STRICT)
class _ThrusterFile:
    frame: str
    wrench: Annotated[list[Finite], pydantic.Field(min_length=6, max_length=6)]
    lower: Finite
    upper: Finite
    hold: Finite = 0.0


@pydantic.dataclasses.dataclass(config=STRICT)
class _GripperFile:
    joint: str
    open: Finite
    closed: Finite


@pydantic.dataclasses.dataclass(config=STRICT)
class _FrameFile:
    link: str
    xyz: Vector3 = field(default_factory=lambda: [0.0, 0.0, 0.0])
    rpy: Vector3 = field(default_factory=lambda: [0.0, 0.0, 0.0])


@pydantic.dataclasses.dataclass(config=STRICT)
class _CameraFile:
    frame: str
    width: Count = 640
    height: Count = 480
    fovy: Annotated[float, pydantic.Field(gt=0, lt=180)] = 45.0
    rate: Positive = 30.0
    optional: bool = False


@pydantic.dataclasses.dataclass(config=STRICT)
class _RobotFile:
    """The contents of robot.yaml."""

    name: str
    urdf: str
    control_rate: Positive
    command_mode: CommandMode
    description: str = ""
    joints: dict[str, _JointFile] = field(default_factory=dict)
    passive: dict[str, _JointFile] = field(default_factory=dict)
    thrusters: dict[str, _ThrusterFile] = field(default_factory=dict)
    floating_base: bool = False
    base_position: Vector3 = field(default_factory=lambda: [0.0, 0.0, 0.0])
    frames: dict[str, _FrameFile] = field(default_factory=dict)
    tool_frame: str | None = None
    gripper: _GripperFile | None = None
    imu_frame: str | None = None
    odometry: bool = False
    gravity_compensation: bool = False
    cameras: dict[str, _CameraFile] = field(default_factory=dict)


def robot_names() -> list[str]:
    """Returns the names of the robots that ship."""
    return paths.names(ROBOT_FILES)


def load_robot(name: str | Path, control_rate: float = 0.0) -> RobotSpec:
    """Reads a robot by name, or from a path to its robot.yaml.

    Args:
        name: of a robot that ships, or the path.
        control_rate: Hz, instead of the robot's own; 0: its own.

    Raises:
        UserError: there is no such robot, or robot.yaml and the URDF do not fit together; the message starts with
            ``file:line``. Or the control rate is none.
    """
    if not 0.0 <= control_rate < math.inf:
        raise UserError(f"the control rate is {control_rate:g} Hz, it must be more than 0 (or 0, for the robot's own)")
    path = paths.find("robot", ROBOT_FILES, name)
    if path.suffix == ".urdf":
        raise UserError(f"{path}: a robot is named by its robot.yaml, which says its URDF, joints and gains; 'ros-rl robot new' writes one")
    file = read_yaml(path, _RobotFile)
    frames = tuple(_frame(key, entry) for key, entry in file.frames.items())
    urdf = read_urdf(_find_urdf(path, file))
    _check_frames(path, frames, urdf)
    urdf = urdf.with_frames(frames)
    _check_names(path, file, urdf)
    joints = tuple(_joint(path, urdf, ("joints", key), entry) for key, entry in file.joints.items())
    _check_limited(path, urdf, file.command_mode, joints)
    joints += tuple(_thruster(path, key, entry) for key, entry in file.thrusters.items())
    passive = tuple(_joint(path, urdf, ("passive", key), entry) for key, entry in file.passive.items())
    _check_servos(path, file)
    gripper = _gripper(path, file.gripper, joints) if file.gripper else None
    return RobotSpec(
        name=file.name,
        urdf=urdf.path,
        joints=joints,
        passive=passive,
        control_rate=float(control_rate or file.control_rate),
        command_mode=file.command_mode,
        floating_base=file.floating_base,
        base_position=(file.base_position[0], file.base_position[1], file.base_position[2]),
        tool_frame=file.tool_frame,
        cameras=tuple(Camera(key, c.frame, c.width, c.height, float(c.fovy), float(c.rate), c.optional) for key, c in file.cameras.items()),
        imu_frame=file.imu_frame,
        odometry=file.odometry,
        gravity_compensation=file.gravity_compensation,
        description=file.description,
        gripper=gripper,
        frames=frames,
    )


def _find_urdf(path: Path, file: _RobotFile) -> Path:
    """Returns the file that `urdf` means."""
    found = candidates(file.urdf, path)
    if (there := next((candidate for candidate in found if candidate.is_file()), None)) is not None:
        return there.resolve()
    package = package_of(file.urdf)
    if package is None and found:
        why = f"'{file.urdf}', which is {'a folder' if found[0].is_dir() else 'not there'} ({found[0]}); it must be a file"
    elif not package:
        why = f"'{file.urdf}'; it must be a path, from the folder of this file, or package://NAME/PATH"
    elif any(folder.is_dir() for folder in candidates(f"package://{package}", path)):
        why = f"{file.urdf}, which that package does not have"
    else:
        why = f"the package {package}, which is not installed here"
        why += f"; pip install 'ros_rl[{_EXTRAS[package]}]'" if package in _EXTRAS else ""
    raise fault(path, ("urdf",), f"robot '{file.name}' reads its URDF from {why}")


def _frame(name: str, entry: _FrameFile) -> FixedFrame:
    (x, y, z), (roll, pitch, yaw) = map(float, entry.xyz), map(float, entry.rpy)
    return FixedFrame(name, entry.link, (x, y, z), (roll, pitch, yaw))


def _check_frames(path: Path, frames: tuple[FixedFrame, ...], urdf: Urdf) -> None:
    """Refuses frames that the URDF has already, or whose link it does not have, and names that no frame can have."""
    for frame in frames:
        if not frame.name.strip():
            raise fault(path, ("frames", frame.name), "a frame needs a name, this one is empty")
        if frame.name == "world":
            raise fault(path, ("frames", frame.name), "no frame can be called 'world', that is what stands still; give another name")
        if frame.name in urdf.links or f"{frame.name}_joint" in urdf.joints:
            raise fault(path, ("frames", frame.name), f"{urdf.path.name} has a link or joint '{frame.name}' already; give another name")
        if frame.link not in urdf.links:
            raise fault(
                path, ("frames", frame.name, "link"), f"'{frame.link}' is no link of {urdf.path.name}{closest(frame.link, urdf.links)}"
            )


def _gripper(path: Path, entry: _GripperFile, joints: tuple[Joint, ...]) -> Gripper:
    moving = {joint.name: joint for joint in joints if joint.kind != "thruster"}
    joint = moving.get(entry.joint)
    if joint is None:
        hint = f"{closest(entry.joint, moving)} (there: {', '.join(moving) or 'none'})"
        raise fault(path, ("gripper", "joint"), f"the gripper's joint '{entry.joint}' is not under 'joints'{hint}")
    for key, position in (("open", entry.open), ("closed", entry.closed)):
        if not joint.lower <= position <= joint.upper:
            message = f"the gripper is {key} at {position}, outside {joint.lower} to {joint.upper} of joint '{joint.name}'"
            raise fault(path, ("gripper", key), message)
    if entry.open == entry.closed:
        raise fault(path, ("gripper",), f"the gripper is open and closed at {entry.open}, the two must differ")
    return Gripper(joint.name, float(entry.open), float(entry.closed))


def _moving(urdf: Urdf) -> list[str]:
    """Names of the joints that have a position of their own: moving and not mimicking another."""
    return [joint.name for joint in urdf.joints.values() if joint.kind in MOVING and joint.mimic is None]


def _check_names(path: Path, file: _RobotFile, urdf: Urdf) -> None:
    """Refuses names that stand twice, that are missing, or that the URDF does not have."""
    moving = _moving(urdf)
    sections: dict[str, Iterable[str]] = {"joints": file.joints, "passive": file.passive, "thrusters": file.thrusters}
    where: dict[str, str] = {}
    for section, names in sections.items():
        for name in names:
            if name in where:
                raise fault(path, (section, name), f"'{name}' stands under '{section}' and under '{where[name]}'")
            where[name] = section
            if section != "thrusters" and name not in moving:
                message = f"joint '{name}' is no moving joint of {urdf.path.name}{closest(name, moving)} (it has: {', '.join(moving)})"
                raise fault(path, (section, name), message)
    if not file.joints and not file.thrusters:
        raise fault(path, ("joints",), f"'joints' is empty; {urdf.path.name} has {', '.join(moving) or 'no moving joint'}")
    if file.thrusters and file.command_mode != "effort":
        raise fault(path, ("command_mode",), f"thrusters need command_mode: effort, this is {file.command_mode}")
    if forgotten := [name for name in moving if name not in where]:
        raise fault(path, ("joints",), f"the URDF's joints {', '.join(forgotten)} are in neither 'joints' nor 'passive'")
    if file.floating_base and urdf.root == "world":
        raise fault(path, ("floating_base",), "the root link 'world' stands still in MuJoCo, so floating_base must be false")
    frames: dict[tuple[str, ...], str | None] = {("tool_frame",): file.tool_frame, ("imu_frame",): file.imu_frame}
    frames |= {("cameras", key, "frame"): camera.frame for key, camera in file.cameras.items()}
    frames |= {("thrusters", key, "frame"): thruster.frame for key, thruster in file.thrusters.items()}
    for location, frame in frames.items():
        if frame is not None and frame not in urdf.links:
            raise fault(path, location, f"{'.'.join(location)} '{frame}' is no link of {urdf.path.name}{closest(frame, urdf.links)}")


def _joint(path: Path, urdf: Urdf, location: tuple[str, str], entry: _JointFile) -> Joint:
    name = location[1]
    base = urdf.joints[name]
    limits = {}
    for key, widest, tighter in (
        ("lower", base.lower, max),
        ("upper", base.upper, min),
        ("velocity", base.velocity, min),
        ("effort", base.effort, min),
    ):
        asked = getattr(entry, key)
        if asked is not None and tighter(asked, widest) != asked:
            raise fault(path, (*location, key), f"joint '{name}' asks for {key} {asked}, wider than the URDF's {widest}")
        limits[key] = widest if asked is None else float(asked)
    _check_order(path, location, f"joint '{name}'", limits["lower"], limits["upper"])
    if not limits["lower"] <= entry.home <= limits["upper"]:
        outside = f"outside {limits['lower']} to {limits['upper']}"
        raise fault(path, (*location, "home"), f"joint '{name}' has its home at {entry.home}, {outside}")
    device = _device(path, location, base, entry)
    return Joint(
        name,
        base.kind,
        lower=limits["lower"],
        upper=limits["upper"],
        velocity=limits["velocity"],
        effort=limits["effort"],
        home=float(entry.home),
        stiffness=float(entry.stiffness),
        damping=float(entry.damping),
        hold=entry.hold,
        device=None if entry.servo else device,
        servo=_servo(path, location, entry.servo, device, (limits["lower"], limits["upper"])) if entry.servo else None,
    )


def _servo(path: Path, location: tuple[str, str], entry: _ServoFile, device: DeviceUnit | None, ends: tuple[float, float]) -> Servo:
    if entry.model not in SERVO_SPEEDS:
        raise fault(path, (*location, "servo", "model"), str(unknown("servo model", entry.model, SERVO_SPEEDS)))
    if device is None or device.name != "tick":
        message = f"joint '{location[1]}' has a servo, which counts in ticks: give device_unit: tick and ticks_per_turn"
        raise fault(path, (*location, "servo"), message)
    low, high = sorted(device.rate * end + device.zero for end in ends)
    if not (low >= -0.5 and high <= ENCODER_TICKS - 0.5):
        raise fault(
            path,
            (*location, "servo"),
            f"joint '{location[1]}' goes from tick {low:.0f} to {high:.0f}, and its encoder counts from 0 to {ENCODER_TICKS - 1}; "
            "set the servo's homing_offset and device_offset, or narrow lower and upper",
        )
    return Servo(entry.id, entry.model, device, float(entry.torque_per_count))


def _check_servos(path: Path, file: _RobotFile) -> None:
    """Refuses a robot of which only some joints have servos, ids that stand twice, and commands that a bus does not take."""
    entries = {(section, name): e.servo for section in ("joints", "passive") for name, e in getattr(file, section).items()}
    if not any(entries.values()):
        return
    seen: dict[int, str] = {}
    for (section, name), servo in entries.items():
        if servo is None:
            raise fault(path, (section, name), f"joint '{name}' has no servo and others have; give all joints one, or none")
        if servo.id in seen:
            message = f"joint '{name}' has the servo id {servo.id} of joint '{seen[servo.id]}'; every servo on a bus needs its own"
            raise fault(path, (section, name, "servo", "id"), message)
        seen[servo.id] = name
    if file.command_mode != "position":
        raise fault(path, ("command_mode",), f"joints with a servo take positions; command_mode is {file.command_mode}")


def _check_limited(path: Path, urdf: Urdf, mode: CommandMode, joints: tuple[Joint, ...]) -> None:
    """Refuses a commanded joint without the limits that the guard needs: in this command mode, and where a range was forgotten."""
    key = "effort" if mode == "effort" else "velocity"
    for joint in joints:
        if joint.name in urdf.without_range and not (math.isfinite(joint.lower) and math.isfinite(joint.upper)):
            missing = f"joint '{joint.name}' is revolute and the URDF states no range for it, so give lower and upper here"
            raise fault(path, ("joints", joint.name), missing)
        if not math.isfinite(getattr(joint, key)):
            raise fault(path, ("joints", joint.name), f"joint '{joint.name}' has no {key} limit; the URDF states none, so give it here")


def _device(path: Path, location: tuple[str, str], base: UrdfJoint, entry: _JointFile) -> DeviceUnit | None:
    name = location[1]
    if (entry.device_unit == "tick") != (entry.ticks_per_turn is not None):
        raise fault(path, location, f"joint '{name}': device_unit 'tick' and ticks_per_turn go together")
    if entry.device_unit is None:
        if entry.device_sign != 1 or entry.device_offset:
            raise fault(path, location, f"joint '{name}' has device_sign or device_offset without a device_unit")
        return None
    if entry.device_unit == "percent":
        if not math.isfinite(base.upper - base.lower):
            raise fault(path, (*location, "device_unit"), f"joint '{name}' has no limits, so there is no percent of its range")
        rate = entry.device_sign * 100.0 / (base.upper - base.lower)
        return DeviceUnit("percent", rate, entry.device_offset - rate * (base.lower if rate > 0 else base.upper))
    if base.kind == "prismatic":
        raise fault(path, (*location, "device_unit"), f"joint '{name}' is prismatic, so its device_unit can only be percent")
    rate = entry.device_sign * (math.degrees(1.0) if entry.ticks_per_turn is None else entry.ticks_per_turn / math.tau)
    return DeviceUnit(entry.device_unit, rate, entry.device_offset)


def _thruster(path: Path, name: str, entry: _ThrusterFile) -> Joint:
    location = ("thrusters", name)
    _check_order(path, location, f"thruster '{name}'", entry.lower, entry.upper)
    if not entry.lower <= entry.hold <= entry.upper:
        raise fault(path, (*location, "hold"), f"thruster '{name}' has hold {entry.hold}, outside {entry.lower} to {entry.upper}")
    widest = max(abs(entry.lower), abs(entry.upper))
    return Joint(
        name,
        "thruster",
        float(entry.lower),
        float(entry.upper),
        float("inf"),
        widest,
        hold=float(entry.hold),
        frame=entry.frame,
        wrench=tuple(entry.wrench),
    )


def _check_order(path: Path, location: tuple[str, str], what: str, lower: float, upper: float) -> None:
    if not lower < upper:
        raise fault(path, location, f"{what} has lower {lower} and upper {upper}, lower must be below upper")

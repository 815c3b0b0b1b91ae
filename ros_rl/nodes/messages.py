"""Between the types of the data path and ROS messages; every joint is mapped by name."""

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, Image, Imu, JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from ros_rl.errors import UserError
from ros_rl.hardware.interface import NANOSECONDS, JointCommand, Observation
from ros_rl.robots.spec import Camera, CommandMode

COMMAND_QOS = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)
# The writer keeps more than the readers ask for, so that a recorder which reads deeper misses nothing.
STREAM_QOS = QoSProfile(depth=100, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)
# For a reader that wants every message, however long it is kept from reading.
RECORDER_QOS = QoSProfile(depth=10_000)
LATCHED_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# The outcome of an episode and what comes next follow each other at once; whoever counts episodes reads this deep.
TASK_STATE_QOS = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# What one device says must not push out what another has said.
CLAIM_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
IMAGE_QOS = qos_profile_sensor_data
# Whoever wants every image, as a recorder does, can have what was lost sent again; readers with the QoS of sensor data get the
# newest. An image of 640x480 is larger than what Fast DDS shares between processes at once, so that many are lost at first.
IMAGE_STREAM_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
LOCKSTEP_IMAGE_QOS = QoSProfile(depth=40, reliability=ReliabilityPolicy.RELIABLE)
_POINT_FIELD: dict[CommandMode, str] = {"position": "positions", "velocity": "velocities", "effort": "effort"}


def to_time(stamp: float) -> Time:
    """Turns a stamp in s into a ROS time."""
    seconds, nanoseconds = divmod(round(stamp * NANOSECONDS), NANOSECONDS)
    return Time(sec=seconds, nanosec=nanoseconds)


def from_time(time: Time) -> float:
    """Turns a ROS time into a stamp in s; the inverse of `to_time`, bit for bit."""
    return (int(time.sec) * NANOSECONDS + int(time.nanosec)) / NANOSECONDS


def to_array(values: np.ndarray) -> "array[float]":
    """Turns a vector into what rclpy's double[] fields take without a copy for each element."""
    return array("d", np.ascontiguousarray(values, dtype=np.float64).tobytes())


class JointReader:
    """Reads joint messages into arrays in a fixed order of names."""

    def __init__(self, names: Sequence[str]):
        """Keeps the order.

        Args:
            names: the joints to read; a message may have more.
        """
        self.names = tuple(names)
        self._order_of: dict[tuple[str, ...], np.ndarray] = {}

    def order(self, names: Sequence[str]) -> np.ndarray:
        """Returns where each joint stands in a message.

        Raises:
            UserError: a joint is missing; both lists are named.
        """
        key = tuple(names)
        if key not in self._order_of:
            missing = [name for name in self.names if name not in key]
            if missing:
                raise UserError(
                    f"joint state lacks {', '.join(missing)}; it has {', '.join(key) or 'none'}, needed are {', '.join(self.names)}"
                )
            self._order_of[key] = np.array([key.index(name) for name in self.names], dtype=np.intp)
        return self._order_of[key]

    def read(self, message: JointState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns position, velocity and effort, each of shape (n,); velocity and effort are zero where not sent.

        Raises:
            UserError: a joint is missing, or a field that is sent has not one value for each name.
        """
        order = self.order(message.name)
        count = len(message.name)
        fields = {"position": message.position, "velocity": message.velocity, "effort": message.effort}
        for name, field in fields.items():
            if len(field) != count and (name == "position" or len(field)):
                raise UserError(f"joint state has {count} names, but the number of values in '{name}' is {len(field)}")
        position, velocity, effort = (np.array(field)[order] if len(field) else np.zeros(len(order)) for field in fields.values())
        return position, velocity, effort

    def fields(self, message: JointState) -> dict[str, np.ndarray]:
        """Returns what `read` does as fields of an observation."""
        return dict(zip(("joint_position", "joint_velocity", "joint_effort"), self.read(message), strict=True))


def to_joint_state(stamp: float, names: Sequence[str], position: np.ndarray, velocity: np.ndarray, effort: np.ndarray) -> JointState:
    """Builds a joint state."""
    message = JointState(name=list(names), position=to_array(position), velocity=to_array(velocity), effort=to_array(effort))
    message.header.stamp = to_time(stamp)
    return message


def to_trajectory(command: JointCommand, mode: CommandMode) -> JointTrajectory:
    """Builds a trajectory of one point; its header's stamp is that of the observation answered, its frame the source."""
    point = JointTrajectoryPoint()
    setattr(point, _POINT_FIELD[mode], to_array(command.values))
    message = JointTrajectory(joint_names=list(command.joint_names), points=[point])
    message.header.stamp = to_time(command.stamp)
    message.header.frame_id = command.source
    return message


def from_trajectory(message: JointTrajectory, mode: CommandMode) -> JointCommand:
    """Reads the first point of a trajectory; whether it makes sense is for the guard to say."""
    values = np.array(getattr(message.points[0], _POINT_FIELD[mode])) if message.points else np.empty(0)
    return JointCommand(tuple(message.joint_names), values, from_time(message.header.stamp), message.header.frame_id)


def to_imu(observation: Observation, frame: str | None) -> Imu:
    """Builds an IMU message from an observation of a robot that has one; `frame` is the sensor's.

    An attitude that is not finite is none, which the message says as the first element -1 of its covariance and a quaternion of zeros.
    """
    quat, gyro, acc = observation.base_quat, observation.base_gyro, observation.base_acc
    assert quat is not None and gyro is not None and acc is not None
    message = Imu()
    message.header.stamp = to_time(observation.stamp)
    message.header.frame_id = frame or ""
    o, w, a = message.orientation, message.angular_velocity, message.linear_acceleration
    if np.isfinite(quat).all():
        o.w, o.x, o.y, o.z = quat.tolist()
    else:
        o.w = 0.0
        message.orientation_covariance[0] = -1.0
    w.x, w.y, w.z = gyro.tolist()
    a.x, a.y, a.z = acc.tolist()
    return message


def from_imu(message: Imu) -> dict[str, np.ndarray]:
    """Returns attitude, angular velocity and acceleration as fields of an observation.

    The attitude is NaN where the message has none: the first element of its covariance is then -1, as `sensor_msgs/Imu` has it, or
    the quaternion is zero.
    """
    o, w, a = message.orientation, message.angular_velocity, message.linear_acceleration
    quat = np.array([o.w, o.x, o.y, o.z])
    return {
        "base_quat": quat if message.orientation_covariance[0] != -1.0 and quat.any() else np.full(4, np.nan),
        "base_gyro": np.array([w.x, w.y, w.z]),
        "base_acc": np.array([a.x, a.y, a.z]),
    }


def to_odometry(observation: Observation) -> Odometry:
    """Builds an odometry message from an observation that has one; the velocity is in the world, and so is `child_frame_id`."""
    position, velocity = observation.base_position, observation.base_velocity
    assert position is not None and velocity is not None
    message = Odometry(child_frame_id="odom")
    message.header.stamp = to_time(observation.stamp)
    message.header.frame_id = "odom"
    p, v = message.pose.pose.position, message.twist.twist.linear
    p.x, p.y, p.z = position.tolist()
    v.x, v.y, v.z = velocity.tolist()
    return message


def from_odometry(message: Odometry) -> dict[str, np.ndarray]:
    """Returns position and linear velocity in the world as fields of an observation.

    Where the twist is in the body (`child_frame_id` differs from `frame_id`, as REP 147 has it), it is rotated by the
    message's own attitude.
    """
    p, v, o = message.pose.pose.position, message.twist.twist.linear, message.pose.pose.orientation
    position, velocity = np.array([p.x, p.y, p.z]), np.array([v.x, v.y, v.z])
    if message.child_frame_id != message.header.frame_id:
        axis = np.array([o.x, o.y, o.z])
        velocity = velocity + 2.0 * np.cross(axis, np.cross(axis, velocity) + o.w * velocity)
    return {"base_position": position, "base_velocity": velocity}


def to_image(stamp: float, frame: str, image: np.ndarray) -> Image:
    """Builds an rgb8 image from (height, width, 3) uint8."""
    height, width, _ = image.shape
    message = Image(height=height, width=width, encoding="rgb8", step=3 * width, data=array("B", image.tobytes()))
    message.header.stamp = to_time(stamp)
    message.header.frame_id = frame
    return message


def from_image(message: Image) -> np.ndarray:
    """Returns (height, width, 3) uint8 RGB.

    Raises:
        UserError: the encoding is neither rgb8 nor bgr8, or the data is not as long as width and height say.
    """
    if message.encoding not in ("rgb8", "bgr8"):
        raise UserError(f"image encoding '{message.encoding}' is not supported, rgb8 and bgr8 are")
    if message.step < 3 * message.width or len(message.data) != message.height * message.step:
        size = f"{message.width} x {message.height} with a step of {message.step}"
        raise UserError(f"an image of {size} bytes has {len(message.data)} bytes")
    rows = np.frombuffer(message.data, dtype=np.uint8).reshape(message.height, message.step)
    image = rows[:, : 3 * message.width].reshape(message.height, message.width, 3)
    return image[:, :, ::-1].copy() if message.encoding == "bgr8" else image.copy()


def to_camera_info(stamp: float, camera: Camera) -> CameraInfo:
    """Builds the pinhole model of a camera from its field of view."""
    focal = camera.height / 2.0 / np.tan(np.radians(camera.fovy) / 2.0)
    cx, cy = camera.width / 2.0, camera.height / 2.0
    message = CameraInfo(height=camera.height, width=camera.width, distortion_model="plumb_bob", d=[0.0] * 5)
    message.k = [focal, 0.0, cx, 0.0, focal, cy, 0.0, 0.0, 1.0]
    message.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    message.p = [focal, 0.0, cx, 0.0, 0.0, focal, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    message.header.stamp = to_time(stamp)
    message.header.frame_id = camera.frame
    return message


def to_privileged(stamp: float, state: Mapping[str, np.ndarray]) -> JointState:
    """Packs simulator state into one stamped message: names are ``<key>[<index>]``, values are in `position`."""
    names = [f"{key}[{index}]" for key, values in state.items() for index in range(len(values))]
    message = JointState(name=names, position=to_array(np.concatenate(list(state.values())) if state else np.empty(0)))
    message.header.stamp = to_time(stamp)
    return message


def from_privileged(message: JointState) -> dict[str, np.ndarray]:
    """Unpacks what `to_privileged` packed."""
    state: dict[str, list[float]] = {}
    for name, value in zip(message.name, message.position, strict=True):
        state.setdefault(name.rpartition("[")[0], []).append(value)
    return {key: np.array(values) for key, values in state.items()}

"""ROS 2 messages without ROS: the definitions that a log carries, and their encoding (CDR, little endian)."""

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from ros_rl.errors import UserError

# Fields of the standard messages that travel on the topics of this stack, without comments and constants.
DEFINITIONS = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec",
    "builtin_interfaces/Duration": "int32 sec\nuint32 nanosec",
    "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id",
    "std_msgs/Float64": "float64 data",
    "std_msgs/String": "string data",
    "std_msgs/Int64": "int64 data",
    "geometry_msgs/Vector3": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Point": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Quaternion": "float64 x\nfloat64 y\nfloat64 z\nfloat64 w",
    "geometry_msgs/Pose": "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation",
    "geometry_msgs/Twist": "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular",
    "geometry_msgs/TwistStamped": "std_msgs/Header header\ngeometry_msgs/Twist twist",
    "geometry_msgs/PoseWithCovariance": "geometry_msgs/Pose pose\nfloat64[36] covariance",
    "geometry_msgs/TwistWithCovariance": "geometry_msgs/Twist twist\nfloat64[36] covariance",
    "nav_msgs/Odometry": (
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/PoseWithCovariance pose\ngeometry_msgs/TwistWithCovariance twist"
    ),
    "sensor_msgs/JointState": "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort",
    "sensor_msgs/Imu": (
        "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
        "geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n"
        "geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance"
    ),
    "sensor_msgs/Image": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
    ),
    "sensor_msgs/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data",
    "trajectory_msgs/JointTrajectory": ("std_msgs/Header header\nstring[] joint_names\ntrajectory_msgs/JointTrajectoryPoint[] points"),
    "trajectory_msgs/JointTrajectoryPoint": (
        "float64[] positions\nfloat64[] velocities\nfloat64[] accelerations\nfloat64[] effort\nbuiltin_interfaces/Duration time_from_start"
    ),
    "diagnostic_msgs/KeyValue": "string key\nstring value",
    "diagnostic_msgs/DiagnosticStatus": ("byte level\nstring name\nstring message\nstring hardware_id\ndiagnostic_msgs/KeyValue[] values"),
}
_SCALARS = {
    "bool": "?", "byte": "B", "uint8": "B", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip


def schema_text(name: str) -> str:
    """Returns the definition of a message with those that it is made of, as a log stores it.

    Args:
        name: such as ``sensor_msgs/JointState``.
    """
    needed = _needed(name)
    parts = [DEFINITIONS[name], *(f"MSG: {part}\n{DEFINITIONS[part]}" for part in needed if part != name)]
    return f"\n{'=' * 80}\n".join(parts) + "\n"


def _needed(name: str) -> list[str]:
    found = [name]
    for part in found:
        found += [kind for kind, _, _ in _fields(part) if kind in DEFINITIONS and kind not in found]
    return found


@cache
def _fields(name: str) -> list[tuple[str, str, int | None]]:
    """Returns type, name and length of each field; a length of 0 stands for a sequence, None for a single value."""
    fields = []
    for line in DEFINITIONS[name].splitlines():
        kind, field = line.split()
        base, _, size = kind.partition("[")
        fields.append((base, field, int(size.rstrip("]") or 0) if size else None))
    return fields


def encode(name: str, values: Mapping[str, Any]) -> bytes:
    """Encodes a message as ROS 2 sends it.

    Args:
        name: its type, such as ``sensor_msgs/JointState``.
        values: every field; messages within as mappings, sequences of numbers as arrays, of bytes as bytes.
    """
    buffer = bytearray()
    _encode(buffer, name, values)
    return b"\x00\x01\x00\x00" + bytes(buffer)


def _encode(buffer: bytearray, name: str, values: Mapping[str, Any]) -> None:
    for kind, field, length in _fields(name):
        value = values[field]
        if length is None:
            _encode_one(buffer, kind, value)
            continue
        if length == 0:
            _encode_one(buffer, "uint32", len(value))
        elif len(value) != length:
            raise ValueError(f"{name}.{field} has {len(value)} values, {length} are right")
        if kind in ("byte", "uint8"):
            buffer += bytes(value)
        elif kind in _SCALARS:
            array = np.asarray(value, dtype="<" + _SCALARS[kind])
            if array.size:
                _align(buffer, array.itemsize)
                buffer += array.tobytes()
        else:
            for one in value:
                _encode_one(buffer, kind, one)


def _encode_one(buffer: bytearray, kind: str, value: Any) -> None:
    if kind == "string":
        text = value.encode() + b"\x00"
        _encode_one(buffer, "uint32", len(text))
        buffer += text
    elif kind in _SCALARS:
        packed = struct.pack("<" + _SCALARS[kind], value)
        _align(buffer, len(packed))
        buffer += packed
    else:
        _encode(buffer, kind, value)


def _align(buffer: bytearray, size: int) -> None:
    buffer += bytes(-len(buffer) % size)


def read_image(data: bytes) -> tuple[str, np.ndarray]:
    """Returns encoding and pixels of an encoded ``sensor_msgs/Image`` in rgb8 or bgr8; a view of (height, width, 3), uint8.

    Rows may be padded.

    Raises:
        UserError: it has another encoding, which is named, or is shorter than it says.
    """
    try:
        return _read_image(data)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise UserError("an image is cut off in its header") from None


def _read_image(data: bytes) -> tuple[str, np.ndarray]:
    order = "<" if data[1] & 1 else ">"
    _, _, length = struct.unpack_from(f"{order}iII", data, 4)
    place = _aligned(16 + length)
    height, width, length = struct.unpack_from(f"{order}III", data, place)
    encoding = data[place + 12 : place + 11 + length].decode()
    if encoding not in ("rgb8", "bgr8"):
        raise UserError(f"an image of {width}×{height} is in {encoding}; rgb8 or bgr8 is right")
    place = _aligned(place + 12 + length + 1)
    step, size = struct.unpack_from(f"{order}II", data, place)
    if step < 3 * width or size != height * step or len(data) < place + 8 + size:
        raise UserError(f"an image of {width}×{height} with a step of {step} has {size} bytes")
    rows = np.frombuffer(data, np.uint8, size, place + 8).reshape(height, step)
    return encoding, rows[:, : 3 * width].reshape(height, width, 3)


def _aligned(place: int) -> int:
    """Returns the next place of a number of four bytes; the four that come before every message do not count, but are four."""
    return place + -place % 4


def header(stamp: int, frame: str = "") -> dict[str, Any]:
    """Returns a header with a stamp in ns."""
    return {"stamp": dict(zip(("sec", "nanosec"), divmod(stamp, 1_000_000_000), strict=True)), "frame_id": frame}


def header_stamp(data: bytes) -> int:
    """Returns the stamp in ns of an encoded message that begins with a header."""
    seconds, nanoseconds = struct.unpack_from("<iI" if data[1] & 1 else ">iI", data, 4)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)

"""Writes logs as a recorder would: values that tell their time."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ros_rl.data.convert import about
from ros_rl.data.features import DatasetSpec
from ros_rl.data.log import EpisodeLog
from ros_rl.data.messages import encode, header

ROBOT = DatasetSpec("arm", 30, ("shoulder", "elbow"), ("shoulder", "elbow"), (("front", (48, 64)), ("wrist", (32, 32))))


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def joint_state(time: float, names: tuple[str, ...] = ROBOT.measured) -> bytes:
    """Of joints whose position is the time, times their place among the robot's joints."""
    values = np.array([(ROBOT.measured.index(name) + 1) * time for name in names])
    return encode(
        "sensor_msgs/JointState",
        {"header": header(ns(time)), "name": list(names), "position": values, "velocity": 10 * values, "effort": []},
    )


def trajectory(time: float, values: Iterable[float], source: str = "policy", names: tuple[str, ...] = ROBOT.commanded) -> bytes:
    point = {"positions": list(values), "velocities": [], "accelerations": [], "effort": [], "time_from_start": {"sec": 0, "nanosec": 0}}
    return encode("trajectory_msgs/JointTrajectory", {"header": header(ns(time), source), "joint_names": list(names), "points": [point]})


def image(time: float, size: tuple[int, int], grey: int) -> bytes:
    values = {"height": size[0], "width": size[1], "encoding": "rgb8", "is_bigendian": 0, "step": 3 * size[1]}
    return encode("sensor_msgs/Image", {"header": header(ns(time)), **values, "data": bytes([grey]) * (3 * size[0] * size[1])})


Stream = tuple[str, str, Iterable[tuple[float, bytes]]]  # topic, type, (time it came, message)


def write_log(path: Path, streams: Iterable[Stream], spec: DatasetSpec = ROBOT, instruction: str = "lift") -> Path:
    """Writes what came on several topics, in the order in which it came."""
    messages = sorted((time, topic, kind, data) for topic, kind, stream in streams for time, data in stream)
    with EpisodeLog(path, about(spec, instruction)) as log:
        for time, topic, kind, data in messages:
            log.write(topic, kind, data, ns(time))
    return path


def usual(
    seconds: float = 1.0, rates: Mapping[str, float] = {"joints": 200.0, "front": 30.0, "wrist": 30.0}, start: float = 100.0
) -> list[Stream]:
    """Streams of joints, commands and two cameras, each with its own rate and phase."""

    def times(rate: float, phase: float) -> np.ndarray:
        return start + phase + np.arange(round(seconds * rate)) / rate

    joints = times(rates["joints"], 0.0)
    front, wrist = times(rates["front"], 0.004), times(rates["wrist"], 0.011)
    return [
        ("joint_states", "sensor_msgs/JointState", [(t + 0.001, joint_state(t)) for t in joints]),
        ("joint_command", "trajectory_msgs/JointTrajectory", [(t + 0.002, trajectory(t, (-t, -2 * t))) for t in joints]),
        ("camera/front/image_raw", "sensor_msgs/Image", [(t + 0.02, image(t, (48, 64), (7 * i) % 200)) for i, t in enumerate(front)]),
        ("camera/wrist/image_raw", "sensor_msgs/Image", [(t + 0.02, image(t, (32, 32), (11 * i) % 200)) for i, t in enumerate(wrist)]),
    ]

"""What the messages of a log say. What says nothing usable is refused with the reason; its reader leaves it out and counts it."""

import json
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from ros_rl.data.log import Entry
from ros_rl.data.messages import read_image
from ros_rl.errors import UserError


def joint_state(message: Any, joints: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns positions, velocities and efforts of the joints, in their order.

    Velocities and efforts that are empty or not finite are those of a robot that does not measure them: 0.

    Raises:
        UserError: it lacks a joint or a position, or a position is not finite.
    """
    names = list(message.name)
    if missing := [joint for joint in joints if joint not in names]:
        raise UserError(f"lacks {', '.join(missing)}, it has {', '.join(names) or 'none'}")
    order = [names.index(joint) for joint in joints]
    parts = {part: np.array(getattr(message, part), dtype=float) for part in ("position", "velocity", "effort")}
    for part, values in parts.items():
        if len(values) != len(names) and (part == "position" or len(values)):
            raise UserError(f"has {len(values)} values of {part} for {len(names)} joints")
    position = parts["position"][order]
    if not np.isfinite(position).all():
        raise UserError("has a position that is not finite")
    velocity, effort = (parts[key][order] if len(parts[key]) else np.zeros(len(order)) for key in ("velocity", "effort"))
    return position, np.nan_to_num(velocity, posinf=0.0, neginf=0.0), np.nan_to_num(effort, posinf=0.0, neginf=0.0)


def command(message: Any, joints: Sequence[str]) -> tuple[np.ndarray, str]:
    """Returns the values of a command, in the order of the joints, and its source.

    Raises:
        UserError: the guard would reject it, so it was never sent.
    """
    point = message.points[0] if message.points else None
    values = point and next((row for row in (point.positions, point.velocities, point.effort) if len(row)), None)
    names = list(message.joint_names)
    if values is None or sorted(names) != sorted(joints) or len(values) != len(joints):
        raise UserError(f"has {0 if values is None else len(values)} values for {', '.join(names) or 'no joint'}")
    by_name = dict(zip(names, values, strict=True))
    ordered = np.array([by_name[joint] for joint in joints])
    if not np.isfinite(ordered).all():
        raise UserError("is not finite")
    return ordered, message.header.frame_id


def number(text: Any) -> float:
    """Returns a number that is finite.

    Raises:
        UserError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise UserError(f"{text!r} is no finite number")
    return value


def said(message: Any) -> dict[str, Any]:
    """Returns the JSON of a string, empty where it is none."""
    try:
        values = json.loads(message.data)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def picture(entry: Entry) -> np.ndarray:
    """Returns an image as (height, width, 3) uint8 RGB.

    Raises:
        UserError: it cannot be decoded.
    """
    if entry.kind == "sensor_msgs/CompressedImage":
        data = np.frombuffer(entry.message.data, np.uint8)
        found = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
        if found is None:
            raise UserError("cannot be decoded")
        return cv2.cvtColor(found, cv2.COLOR_BGR2RGB)
    encoding, pixels = read_image(entry.data)
    return pixels[..., ::-1] if encoding == "bgr8" else pixels

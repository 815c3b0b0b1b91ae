"""What goes between a robot and a policy server: msgpack maps with arrays as plain bytes. Nothing is unpickled, and sizes are checked."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgpack
import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.interface import ObservationKey, PolicySpec

VERSION = 1
LARGEST = 64 * 2**20  # bytes in a message: some dozens of images
_KINDS = ("float64", "float32", "uint8", "int64", "bool")


def pack(message: Mapping[str, Any]) -> bytes:
    """Returns a message as bytes."""
    packed: bytes = msgpack.packb(dict(message), default=_plain, use_bin_type=True)
    return packed


def unpack(data: bytes | str) -> dict[str, Any]:
    """Returns the message of some bytes.

    Raises:
        UserError: they are none.
    """
    if not isinstance(data, bytes):
        raise UserError("the other side sent text, not a message of this protocol")
    try:
        message = msgpack.unpackb(data, object_hook=_array, raw=False, strict_map_key=False)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise UserError(f"the other side sent what is no message ({error})") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise UserError("the other side sent what is no message of this protocol")
    return message


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.name in _KINDS:
        return {"__array__": value.dtype.name, "shape": list(value.shape), "data": value.tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be sent")


def _array(value: dict[str, Any]) -> Any:
    if "__array__" not in value:
        return value
    kind, shape, data = value["__array__"], value["shape"], value["data"]
    if kind not in _KINDS or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"an array of kind {kind!r} and shape {shape!r}")
    if len(data) != math.prod(shape) * np.dtype(kind).itemsize:
        raise ValueError(f"an array of shape {shape} with {len(data)} bytes")
    return np.frombuffer(data, dtype=kind).reshape(shape).copy()


def observation_message(observation: Observation, spec: PolicySpec) -> dict[str, Any]:
    """Returns what a policy reads of an observation, as plain values."""
    wanted = {key.name.split(".")[0] for key in spec.observation} | {"stamp", "joint_position", "joint_velocity", "joint_effort"}
    names = [entry.name for entry in fields(Observation) if entry.name in wanted]
    message = {name: getattr(observation, name) for name in names if getattr(observation, name) is not None}
    read = {key.name.partition(".")[2] for key in spec.observation if "." in key.name}
    for group in ("images", "privileged"):
        if group in message:
            message[group] = {name: value for name, value in message[group].items() if name in read}
    return message


def observation_of(message: Mapping[str, Any]) -> Observation:
    """Returns the observation of a message.

    Raises:
        UserError: it is none.
    """
    try:
        return Observation(**message)
    except TypeError as error:
        raise UserError(f"the other side sent no observation ({error})") from None


def spec_message(spec: PolicySpec) -> dict[str, Any]:
    """Returns a spec as plain values."""
    keys = [[key.name, list(key.shape), key.history] for key in spec.observation]
    names = ("robot", "rate", "chunk", "command_mode")
    return {**{name: getattr(spec, name) for name in names}, "joints": list(spec.joint_names), "observation": keys}


def spec_of(message: Mapping[str, Any]) -> PolicySpec:
    """Returns the spec of a message.

    Raises:
        UserError: it is none.
    """
    try:
        keys = tuple(ObservationKey(name, tuple(shape), history) for name, shape, history in message["observation"])
        rate, chunk = float(message["rate"]), int(message["chunk"])
        if not (0 < rate < math.inf and chunk >= 1):
            raise ValueError(f"chunks of {chunk} rows at {rate:g} Hz")
        return PolicySpec(message["robot"], tuple(message["joints"]), keys, rate, chunk, message["command_mode"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the other side sent no policy spec ({error})") from None


def chunk_of(message: Mapping[str, Any], spec: PolicySpec) -> ActionChunk:
    """Returns the chunk of a message.

    Raises:
        UserError: it is none for this policy.
    """
    values = message.get("values")
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.shape[1] != len(spec.joint_names) or not len(values):
        raise UserError(f"the policy server sent no chunk for {len(spec.joint_names)} joints")
    if not np.isfinite(values).all():
        raise UserError("the policy server sent a chunk that is not finite")
    try:
        dt, stamp, source = float(message["dt"]), float(message["stamp"]), str(message["source"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the policy server sent no chunk ({error!r})") from None
    if len(values) > spec.chunk or not abs(dt * spec.rate - 1.0) < 1e-6 or not math.isfinite(stamp):
        raise UserError(
            f"the policy server sent {len(values)} rows that are {dt:g} s apart, from {stamp:g} s on; "
            f"its policy gives at most {spec.chunk}, {1.0 / spec.rate:g} s apart"
        )
    return ActionChunk(spec.joint_names, values.astype(float), dt, stamp, source)

"""Policy bundles: a folder of policy.yaml, weights.safetensors and metrics.json that says how a policy was made."""

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
import yaml
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ros_rl import paths
from ros_rl.config import STRICT, Count, Positive, read_yaml
from ros_rl.errors import UserError
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.robots.spec import CommandMode, RobotSpec
from ros_rl.safety.region import Region

BUNDLE_FILES = "policies/*/policy.yaml"


@dataclass(frozen=True)
class Bundle:
    """A policy on disk.

    Attributes:
        name: the folder's name.
        actor: which class acts, see `ros_rl.policies.actors`.
        method: how it was made, such as "scripted" or "sac".
        spec: what it reads and commands.
        parameters: settings of the actor.
        tensors: its weights: name to array.
        training: `command`, `revision` and `data` that made it.
        metrics: what was measured, and how.
        region: of a policy that brings a legged robot back from the brink of a fall: where it does; see `ros_rl.safety.recovery`.
    """

    name: str
    actor: str
    method: str
    spec: PolicySpec
    parameters: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    training: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    region: Region | None = None


@pydantic.dataclasses.dataclass(config=STRICT)
class _KeyFile:
    name: str
    shape: list[Annotated[int, pydantic.Field(ge=0)]]
    history: Count = 1


@pydantic.dataclasses.dataclass(config=STRICT)
class _SpecFile:
    robot: str
    joints: list[str]
    observation: list[_KeyFile]
    rate: Positive
    command_mode: CommandMode
    chunk: Count = 1


@pydantic.dataclasses.dataclass(config=STRICT)
class _RegionFile:
    d: Positive
    tilt_limit: Positive
    drop_limit: Positive | None = None
    height: Positive | None = None


@pydantic.dataclasses.dataclass(config=STRICT)
class _PolicyFile:
    """The contents of policy.yaml."""

    actor: str
    method: str
    spec: _SpecFile
    training: dict[str, str]
    parameters: dict[str, Any] = field(default_factory=dict)
    region: _RegionFile | None = None


def bundle_names() -> list[str]:
    """Returns the names of the bundles that ship."""
    return paths.names(BUNDLE_FILES)


def load_bundle(name: str | Path) -> Bundle:
    """Reads a bundle by name, or from a path to its folder, or makes one of a policy server's address, ws://host:port.

    Nothing is unpickled.

    Raises:
        UserError: there is no such bundle or server, or a file of it is missing or damaged.
    """
    if str(name).startswith(("ws://", "wss://")):
        from ros_rl.policies.remote import remote_bundle  # which brings in websockets

        return remote_bundle(str(name))
    folder = Path(name)
    path = folder / "policy.yaml" if (folder / "policy.yaml").is_file() else paths.find("policy bundle", BUNDLE_FILES, name)
    if path.is_dir():
        raise UserError(f"{path}: the bundle lacks policy.yaml")
    file = read_yaml(path, _PolicyFile)
    folder = path.parent
    try:
        tensors = load_file(folder / "weights.safetensors")
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder}: the bundle lacks {Path(error.filename or 'weights.safetensors').name}") from None
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{folder}: damaged bundle: {error}") from None
    if not isinstance(metrics, dict):
        raise UserError(f"{folder}: damaged bundle: metrics.json holds no mapping")
    keys = tuple(ObservationKey(key.name, tuple(key.shape), key.history) for key in file.spec.observation)
    spec = PolicySpec(file.spec.robot, tuple(file.spec.joints), keys, float(file.spec.rate), file.spec.chunk, file.spec.command_mode)
    try:
        region = Region(**asdict(file.region)) if file.region else None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return Bundle(folder.name, file.actor, file.method, spec, file.parameters, tensors, file.training, metrics, region)


def save_bundle(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle beside its place and renames it there, so that no reader ever sees half of one.

    An older bundle at `folder` is replaced.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    spec = bundle.spec
    file = {
        "actor": bundle.actor,
        "method": bundle.method,
        "spec": {
            "robot": spec.robot,
            "joints": list(spec.joint_names),
            "observation": [{"name": key.name, "shape": list(key.shape), "history": key.history} for key in spec.observation],
            "rate": spec.rate,
            "command_mode": spec.command_mode,
            "chunk": spec.chunk,
        },
        "parameters": bundle.parameters,
        "training": bundle.training,
    }
    if bundle.region is not None:
        file["region"] = {name: value for name, value in asdict(bundle.region).items() if value is not None}
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(fresh, bundle, file)
        _put(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(fresh: Path, bundle: Bundle, file: dict[str, Any]) -> None:
    (fresh / "policy.yaml").write_text(yaml.safe_dump(file, sort_keys=False), encoding="utf-8")
    save_file({name: np.asarray(value, order="C") for name, value in bundle.tensors.items()}, fresh / "weights.safetensors")
    (fresh / "metrics.json").write_text(json.dumps(bundle.metrics, indent=2) + "\n", encoding="utf-8")
    fresh.chmod(0o755)


def _put(fresh: Path, folder: Path) -> None:
    """Moves a folder to its place; an older one there comes back if that fails."""
    if not folder.exists():
        os.replace(fresh, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        os.replace(folder, old / folder.name)
        try:
            os.replace(fresh, folder)
        except BaseException:
            os.rename(old / folder.name, folder)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def check_fits(bundle: Bundle, robot: RobotSpec) -> None:
    """Refuses a bundle that was made for a robot with other joints, measurements, rates or another command mode.

    Raises:
        UserError: names both sides.
    """
    spec = bundle.spec
    if spec.joint_names != robot.joint_names:
        raise UserError(
            f"bundle '{bundle.name}' commands the joints {', '.join(spec.joint_names)} (robot '{spec.robot}'), "
            f"robot '{robot.name}' has {', '.join(robot.joint_names)}"
        )
    if spec.command_mode != robot.command_mode:
        raise UserError(
            f"bundle '{bundle.name}' gives {spec.command_mode} commands, robot '{robot.name}' takes {robot.command_mode} commands"
        )
    periods = robot.control_rate / spec.rate
    if periods < 1 or abs(periods - round(periods)) > 1e-9:
        raise UserError(
            f"bundle '{bundle.name}' acts at {spec.rate:g} Hz, which does not divide the {robot.control_rate:g} Hz of robot '{robot.name}'"
        )
    measured = {
        "joint_position": (len(robot.measured_names),),
        "joint_velocity": (len(robot.measured_names),),
        "joint_effort": (len(robot.measured_names),),
        "command": (3,),
        "base_quat": (4,) if robot.imu_frame else None,
        "base_gyro": (3,) if robot.imu_frame else None,
        "base_acc": (3,) if robot.imu_frame else None,
        "base_position": (3,) if robot.odometry else None,
        "base_velocity": (3,) if robot.odometry else None,
        **{f"images.{camera.name}": (camera.height, camera.width, 3) for camera in robot.cameras},
    }
    for key in spec.observation:
        if key.name in measured and key.shape != measured[key.name]:
            has = f"measures it with shape {measured[key.name]}" if measured[key.name] else "does not measure it"
            raise UserError(f"bundle '{bundle.name}' reads '{key.name}' with shape {key.shape}, robot '{robot.name}' {has}")

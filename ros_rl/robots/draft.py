"""A first robot.yaml for a URDF: every joint commanded, with a home, gains and frames that a person then improves."""

import dataclasses
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from ros_rl.errors import UserError
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import Camera, Joint, RobotSpec
from ros_rl.robots.urdf import MOVING, Urdf, UrdfJoint, read_urdf

_CONTROL_RATE = 100.0  # Hz
_BANDWIDTH = 30.0  # rad/s: natural frequency of a joint that carries its own inertia only
_FASTEST = 250.0  # rad/s: a simulation in steps of 2 ms follows this, not much more
_HALF_TURN = 3.1416  # rad: range to either side of a revolute joint for which the URDF states none
_SLOW = 1.0, 0.1  # rad/s and m/s: velocity limit where the URDF has none, which the guard needs
_FULL_EFFORT = 0.5  # rad (or m): position error at which a joint pushes with all it has
_STATES = 20  # at which a joint's inertia is looked at
_MARGIN = 0.05  # share of a joint's range that zero must be from its limits to be the home position
_TOOL = re.compile(r"(^|_)(tool|tcp|ee|eef|grasp|gripper_frame|end_effector|hand)(_|\d|$)", re.IGNORECASE)
_OPTICAL = re.compile(r"_?optical(_frame|_link)?$", re.IGNORECASE)
_COLOURLESS = re.compile(r"depth|infra|_ir_|gyro|accel|fisheye", re.IGNORECASE)
_IMU = re.compile(r"(^|_)imu(_|$)", re.IGNORECASE)


def draft_robot(path: str | Path, name: str | None = None, floating_base: bool = False) -> RobotSpec:
    """Returns a robot with all that can be told from its URDF alone.

    - home: zero, or the middle of a joint's range where zero is outside or close to its limits;
    - stiffness k: the joint then swings at 30 rad/s with the largest inertia m that it has at 20 random states, or gives
      its full effort at half a radian (half a metre) if that is stiffer, but never swings at more than 250 rad/s;
      damping: critical, 2·√(k·m);
    - tool frame, for a fixed base: the deepest link that is named like a tool, else the last link of the longest chain;
    - cameras: the links that are named as optical frames of colour cameras;
    - a floating base stands as high as its lowest link is below it at home.

    Args:
        path: the URDF.
        name: the robot's; that in the URDF if None.
        floating_base: whether the root link moves freely.

    Raises:
        UserError: the URDF is none, none of its joints moves, or its base cannot float.
    """
    urdf = read_urdf(path)
    moving = [joint for joint in _outwards(urdf, urdf.root) if joint.kind in MOVING and joint.mimic is None]
    if not moving:
        raise UserError(f"{urdf.path}: no joint moves, so there is nothing to command; a flying robot needs a robot.yaml with thrusters")
    if floating_base and urdf.root == "world":
        raise UserError(f"{urdf.path}: its root link 'world' is what stands still, so the base cannot float")
    bare = RobotSpec(
        name=name or urdf.path.stem,
        urdf=urdf.path,
        joints=tuple(_joint(joint) for joint in moving),
        passive=(),
        control_rate=_CONTROL_RATE,
        command_mode="position",
        floating_base=False,
        base_position=(0.0, 0.0, 0.0),
        tool_frame=None if floating_base else _tool_frame(urdf),
        cameras=_cameras(urdf),
        imu_frame=next((link for link in urdf.links if _IMU.search(link)), None),
        odometry=False,
        description=f"Drafted from {urdf.path.name}",
    )
    model = RobotModel(bare)
    joints = _with_gains(bare, model)
    height = -min(model.frame_pose(link, bare.home).position[2] for link in urdf.links) if floating_base else 0.0
    return dataclasses.replace(bare, joints=joints, floating_base=floating_base, base_position=(0.0, 0.0, round(float(height), 4)))


def robot_yaml(spec: RobotSpec, folder: Path) -> str:
    """Returns the text of a robot.yaml that `load_robot` reads as this robot; it is to stand in `folder`."""
    urdf, folder = spec.urdf.resolve(), folder.resolve()
    beside = urdf.is_relative_to(folder.parent)
    lines = [
        f"name: {_quoted(spec.name)}",
        f"description: {_quoted(spec.description)}",
        f"urdf: {_quoted(os.path.relpath(urdf, folder) if beside else str(urdf))}",
        f"control_rate: {spec.control_rate:g}",
        f"command_mode: {spec.command_mode}",
    ]
    if spec.floating_base:
        x, y, z = spec.base_position
        lines += ["floating_base: true", f"base_position: [{x}, {y}, {z}]  # of the root link at home, m"]
    lines += [f"{key}: {_quoted(frame)}" for key in ("tool_frame", "imu_frame") if (frame := getattr(spec, key))]
    lines += [
        "",
        "# Stiffness in N·m/rad (N/m), damping in N·m·s/rad (N·s/m), from each joint's inertia. Joints that are measured",
        *_HINTS,
    ]
    lines += ["joints:"]
    without_range = spec.read_urdf().without_range
    for joint in spec.joints:
        numbers = f"home: {joint.home:.6g}, stiffness: {joint.stiffness:.4g}, damping: {joint.damping:.4g}"
        if joint.name in without_range:
            numbers += f", lower: {-_HALF_TURN}, upper: {_HALF_TURN}"
        if not math.isfinite(joint.velocity):
            numbers += f", velocity: {_SLOW[joint.kind == 'prismatic']}"
        lines.append(f"  {_quoted(joint.name)}: {{{numbers}}}")
    if spec.cameras:
        lines += ["", "cameras:"]
        lines += [
            f"  {_quoted(camera.name)}: {{frame: {_quoted(camera.frame)}, width: {camera.width}, height: {camera.height}, "
            f"fovy: {camera.fovy:g}, rate: {camera.rate:g}}}"
            for camera in spec.cameras
        ]
    return "\n".join(lines) + "\n"


_HINTS = (
    "# but not driven belong under 'passive'. Add lower, upper, velocity or effort to a joint to keep it within tighter limits",
    "# than the URDF's.",
)


def _quoted(text: str) -> str:
    """Returns a string as it stands in YAML: with quotes only where it would be read as something else."""
    return str(yaml.safe_dump(text, width=10_000, allow_unicode=True)).removesuffix("...\n").strip()


def _outwards(urdf: Urdf, link: str) -> Iterator[UrdfJoint]:
    """Yields the joints that a link carries, chain by chain."""
    for joint in urdf.joints.values():
        if joint.parent == link:
            yield joint
            yield from _outwards(urdf, joint.child)


def _joint(joint: UrdfJoint) -> Joint:
    home = 0.0
    if math.isfinite(joint.upper - joint.lower):
        margin = _MARGIN * (joint.upper - joint.lower)
        if not joint.lower + margin <= 0.0 <= joint.upper - margin and 0.0 not in (joint.lower, joint.upper):
            home = float(f"{(joint.lower + joint.upper) / 2:.4g}")
    return Joint(joint.name, joint.kind, joint.lower, joint.upper, joint.velocity, joint.effort, home=home)


def _with_gains(spec: RobotSpec, model: RobotModel) -> tuple[Joint, ...]:
    random = np.random.default_rng(0)
    lower, upper = (np.nan_to_num(limit, neginf=-math.pi, posinf=math.pi) for limit in (spec.lower, spec.upper))
    states = [spec.home, *random.uniform(lower, upper, (_STATES, len(lower)))]
    inertias = np.array([np.diag(model.mass_matrix(q)) for q in states])
    joints = []
    for joint, least, most in zip(spec.joints, inertias.min(axis=0).tolist(), inertias.max(axis=0).tolist(), strict=True):
        strength = joint.effort / _FULL_EFFORT if math.isfinite(joint.effort) else 0.0
        stiffness = min(max(most * _BANDWIDTH**2, strength), least * _FASTEST**2)
        joints.append(dataclasses.replace(joint, stiffness=stiffness, damping=2 * math.sqrt(stiffness * most)))
    return tuple(joints)


def _tool_frame(urdf: Urdf) -> str:
    joint_of = {joint.child: joint for joint in urdf.joints.values()}

    def depth(link: str) -> tuple[int, int]:
        """How many moving joints, and how many joints, carry a link."""
        moving = joints = 0
        while link in joint_of:
            joint = joint_of[link]
            # What opens and closes a gripper is no part of the arm.
            moving += joint.kind in ("revolute", "continuous") and joint.mimic is None
            joints += 1
            link = joint.parent
        return moving, joints

    named = [link for link in urdf.links if _TOOL.search(link) and depth(link)[0]]
    return max(named or urdf.links, key=depth)


def _cameras(urdf: Urdf) -> tuple[Camera, ...]:
    cameras: dict[str, Camera] = {}
    for link in urdf.links:
        if _OPTICAL.search(link) and not _COLOURLESS.search(link):
            name = _OPTICAL.sub("", link) or link
            cameras[name] = Camera(name, link, 640, 480, 45.0, 30.0)
    return tuple(cameras.values())

"""Reading of URDF files: joints with their limits, links, repairs, and errors that name file and line."""

import copy
import dataclasses
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from ros_rl.errors import UserError, closest
from ros_rl.robots.repair import Repair, repair

MOVING = ("revolute", "continuous", "prismatic")
KINDS = (*MOVING, "fixed", "floating", "planar")
# Attributes that hold numbers, and how many. <limit> and <mimic> are read with the joint.
_NUMBERS = {
    "origin": {"xyz": 3, "rpy": 3},
    "axis": {"xyz": 3},
    "mass": {"value": 1},
    "inertia": {"ixx": 1, "ixy": 1, "ixz": 1, "iyy": 1, "iyz": 1, "izz": 1},
    "box": {"size": 3},
    "sphere": {"radius": 1},
    "cylinder": {"radius": 1, "length": 1},
    "capsule": {"radius": 1, "length": 1},
    "mesh": {"scale": 3},
}


@dataclass(frozen=True)
class UrdfJoint:
    """One joint as the URDF states it; positions in rad (m for prismatic joints), efforts in N·m (N).

    `mimic` is ``(joint, multiplier, offset)`` where the position follows another joint, else None.
    """

    name: str
    kind: str
    parent: str
    child: str
    lower: float
    upper: float
    velocity: float
    effort: float
    mimic: tuple[str, float, float] | None


@dataclass(frozen=True)
class FixedFrame:
    """A link to be added to a URDF: fixed to `link`, at `xyz` (m) and `rpy` (rad, as in a URDF) in its frame."""

    name: str
    link: str
    xyz: tuple[float, float, float]
    rpy: tuple[float, float, float]


@dataclass(frozen=True)
class Urdf:
    """A robot's description: its joints in the order of the file, its links, its root link.

    Attributes:
        path: the file.
        xml: the description as everything in this stack reads it, repaired.
        repairs: what was changed in it.
    """

    path: Path
    joints: dict[str, UrdfJoint]
    links: tuple[str, ...]
    root: str
    xml: str
    repairs: tuple[Repair, ...]

    @property
    def without_range(self) -> set[str]:
        """The revolute joints for which no range is stated, so that they were taken as continuous."""
        forgotten = {repair.where for repair in self.repairs if repair.kind == "limits"}
        return {name for name, joint in self.joints.items() if joint.kind == "continuous" and f"joint '{name}'" in forgotten}

    def with_frames(self, frames: Sequence[FixedFrame]) -> "Urdf":
        """Returns the description with links added that carry nothing, each by a fixed joint `<link>_joint`.

        Raises:
            UserError: a link of that name is there already, or the one it is fixed to is not.
        """
        if not frames:
            return self
        robot = etree.fromstring(self.xml)
        for frame in frames:
            etree.SubElement(robot, "link", name=frame.name)
            joint = etree.SubElement(robot, "joint", name=f"{frame.name}_joint", type="fixed")
            etree.SubElement(joint, "parent", link=frame.link)
            etree.SubElement(joint, "child", link=frame.name)
            etree.SubElement(joint, "origin", xyz=" ".join(map(repr, frame.xyz)), rpy=" ".join(map(repr, frame.rpy)))
        links, joints, _ = _read_tree(self.path, robot)
        return dataclasses.replace(self, links=links, joints=joints, xml=etree.tostring(robot, encoding="unicode"))


def read_urdf(path: str | Path) -> Urdf:
    """Reads joints and links of a URDF file, and repairs what physics engines would refuse.

    A file whose name ends in ``.xacro`` is expanded first, by the xacro that is installed here.

    Raises:
        UserError: the file is missing, is no well-formed XML, or is no URDF that describes one tree of links;
            the message starts with ``file:line``.
    """
    robot = _parse(path)
    path = Path(path)
    _check_numbers(path, robot)
    _read_tree(path, robot)
    repairs = repair(robot)
    links, joints, root = _read_tree(path, robot)
    return Urdf(path, joints, links, root, _text(robot), tuple(repairs))


def _parse(path: str | Path) -> etree._Element:
    """Returns the outermost element of a URDF, without comments."""
    if re.match(r"[a-z]+:/", str(path)):
        raise UserError(f"{path}: is an address; download the robot with its meshes and give the path of its URDF")
    path = Path(path)
    if path.is_dir():
        inside = ", ".join(sorted(file.name for pattern in ("*.urdf", "*.xacro") for file in path.glob(pattern)))
        raise UserError(f"{path}: is a folder, not a URDF file" + (f"; in it there is {inside}" if inside else ""))
    parser = etree.XMLParser(remove_comments=True, resolve_entities=False)
    try:
        robot = etree.fromstring(_expand(path) if path.suffix == ".xacro" else path.read_bytes(), parser)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: not well-formed XML: {error.msg}") from None
    if robot.tag != "robot":
        raise UserError(f"{path}:{robot.sourceline}: the outermost element is <{robot.tag}>, a URDF starts with <robot>")
    return robot


def _expand(path: Path) -> bytes:
    """Returns the URDF that a xacro file stands for."""
    if not path.exists():
        raise UserError(f"{path}: cannot be read (No such file or directory)")
    if (program := shutil.which("xacro") or shutil.which("xacro", path=Path(sys.executable).parent)) is None:
        raise UserError(f"{path}: is a xacro file, and xacro is not installed here; 'pip install xacro', or give the URDF it makes")
    result = subprocess.run([program, str(path)], capture_output=True)
    if result.returncode:
        lines = result.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {result.returncode}"]
        raise UserError(f"{path}: xacro cannot expand it: {lines[0]}")
    return result.stdout


def _read_tree(path: Path, robot: etree._Element) -> tuple[tuple[str, ...], dict[str, UrdfJoint], str]:
    """Returns links, joints and the root link."""
    links: list[str] = []
    for element in robot.findall("link"):
        name = _attribute(path, element, "name")
        if name in links:
            raise UserError(f"{path}:{element.sourceline}: link '{name}' is there twice")
        links.append(name)
    if not links:
        raise UserError(f"{path}:{robot.sourceline}: there is no <link>")
    joints: dict[str, UrdfJoint] = {}
    parent_of: dict[str, str] = {}
    for element in robot.findall("joint"):
        joint = _read_joint(path, element, links)
        if joint.name in joints:
            raise UserError(f"{path}:{element.sourceline}: joint '{joint.name}' is there twice")
        if joint.child in parent_of:
            raise UserError(
                f"{path}:{element.sourceline}: link '{joint.child}' has two parents, '{parent_of[joint.child]}' and '{joint.parent}'"
            )
        joints[joint.name] = joint
        parent_of[joint.child] = joint.parent
    return tuple(links), joints, _root(path, links, parent_of)


def _text(robot: etree._Element) -> str:
    """Returns the XML, with the velocity and effort limits that are not given: Pinocchio wants a number, 0 is none to MuJoCo."""
    robot = copy.deepcopy(robot)
    for limit in robot.iterfind("joint/limit"):
        for key in ("velocity", "effort"):
            if key not in limit.attrib:
                limit.set(key, "0")
    return etree.tostring(robot, encoding="unicode")


def _check_numbers(path: Path, robot: etree._Element) -> None:
    """Refuses numbers that are none, in what engines compute with."""
    for part in (*robot.findall("link"), *robot.findall("joint")):
        for element in part.iter(*_NUMBERS):
            for key, count in _NUMBERS[element.tag].items():
                text = element.get(key)
                try:
                    values = [float(word) for word in text.split()] if text is not None else [0.0] * count
                except ValueError:
                    values = []
                if len(values) != count or not all(map(math.isfinite, values)):
                    right = "a number" if count == 1 else "three numbers"
                    raise UserError(f"{path}:{element.sourceline}: <{element.tag}> {key}='{text}' is not {right}")
        axis = part.find("axis")
        if part.get("type") in MOVING and axis is not None and not any(map(float, axis.get("xyz", "1 0 0").split())):
            raise UserError(f"{path}:{axis.sourceline}: joint '{part.get('name')}' moves about an axis of length 0")


def _root(path: Path, links: list[str], parent_of: dict[str, str]) -> str:
    """Returns the one link without a parent from which every other link is reached."""
    roots = [link for link in links if link not in parent_of]
    if len(roots) != 1:
        raise UserError(f"{path}: a URDF has one root link, this has {len(roots)}: {', '.join(roots) or 'the links form a loop'}")
    for link in links:
        seen = {link}
        while link in parent_of:
            link = parent_of[link]
            if link in seen:
                raise UserError(f"{path}: the links {', '.join(sorted(seen))} form a loop")
            seen.add(link)
    return roots[0]


def _read_joint(path: Path, element: etree._Element, links: list[str]) -> UrdfJoint:
    name = _attribute(path, element, "name")
    kind = _attribute(path, element, "type")
    line = element.sourceline
    if kind not in KINDS:
        raise UserError(f"{path}:{line}: joint '{name}' has the type '{kind}'{closest(kind, KINDS)} (known: {', '.join(KINDS)})")
    ends = {}
    for end in ("parent", "child"):
        child = element.find(end)
        if child is None:
            raise UserError(f"{path}:{line}: joint '{name}' has no <{end}>")
        ends[end] = _attribute(path, child, "link")
        if ends[end] not in links:
            raise UserError(
                f"{path}:{child.sourceline}: joint '{name}' names the {end} link '{ends[end]}', "
                f"which is not there{closest(ends[end], links)}"
            )
    limit = element.find("limit")
    if limit is None and kind in ("revolute", "prismatic"):
        raise UserError(f"{path}:{line}: {kind} joint '{name}' has no <limit>")
    lower = _number(path, limit, "lower", 0.0) if kind != "continuous" else -math.inf
    upper = _number(path, limit, "upper", 0.0) if kind != "continuous" else math.inf
    if kind in ("revolute", "prismatic") and lower > upper:
        raise UserError(
            f"{path}:{limit.sourceline}: joint '{name}' has the limits lower={lower} and upper={upper}, lower must be below upper"
        )
    element_mimic = element.find("mimic")
    mimic = None
    if element_mimic is not None:
        mimic = (
            _attribute(path, element_mimic, "joint"),
            _number(path, element_mimic, "multiplier", 1.0),
            _number(path, element_mimic, "offset", 0.0),
        )
    return UrdfJoint(
        name, kind, ends["parent"], ends["child"], lower, upper,
        velocity=_largest(path, limit, "velocity", name),
        effort=_largest(path, limit, "effort", name),
        mimic=mimic,
    )  # fmt: skip


def _largest(path: Path, limit: etree._Element | None, key: str, joint: str) -> float:
    """Returns a velocity or effort limit; infinite where none is stated, and 0 is how exporters write that."""
    value = _number(path, limit, key, math.inf)
    if value < 0:
        assert limit is not None
        raise UserError(f"{path}:{limit.sourceline}: joint '{joint}' has {key}={value}, a limit is above 0")
    return value or math.inf


def _attribute(path: Path, element: etree._Element, key: str) -> str:
    value = element.get(key)
    if not value:
        raise UserError(f"{path}:{element.sourceline}: <{element.tag}> has no '{key}'")
    return str(value)


def _number(path: Path, element: etree._Element | None, key: str, default: float) -> float:
    if element is None or (text := element.get(key)) is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UserError(f"{path}:{element.sourceline}: <{element.tag}> {key}='{text}' is not a number")
    return value

"""Reading of URDF files: joints with their limits, links, and errors that name file and line."""

import math
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from ros_rl.errors import UserError, closest

MOVING = ("revolute", "continuous", "prismatic")
KINDS = (*MOVING, "fixed", "floating", "planar")


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
class Urdf:
    """The names in a URDF: its joints in the order of the file, its links, its root link."""

    path: Path
    joints: dict[str, UrdfJoint]
    links: tuple[str, ...]
    root: str


def read_urdf(path: Path) -> Urdf:
    """Reads joints and links of a URDF file.

    Raises:
        UserError: the file is missing, is no well-formed XML, or is no URDF that describes one tree of links;
            the message starts with ``file:line``.
    """
    path = Path(path)
    try:
        tree = etree.parse(str(path), etree.XMLParser(remove_comments=True, resolve_entities=False))
    except OSError:
        raise UserError(f"{path}: cannot be read") from None
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: not well-formed XML: {error.msg}") from None
    robot = tree.getroot()
    if robot.tag != "robot":
        raise UserError(f"{path}:{robot.sourceline}: the outermost element is <{robot.tag}>, a URDF starts with <robot>")
    _check_vectors(path, robot)
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
    for joint, element in zip(joints.values(), robot.findall("joint"), strict=True):
        if joint.mimic and joint.mimic[0] not in joints:
            line = element.find("mimic").sourceline
            raise UserError(
                f"{path}:{line}: joint '{joint.name}' mimics '{joint.mimic[0]}', which is not there{closest(joint.mimic[0], joints)}"
            )
    return Urdf(path, joints, tuple(links), _root(path, links, parent_of))


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
    if kind in ("revolute", "prismatic") and not lower < upper:
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


def _check_vectors(path: Path, robot: etree._Element) -> None:
    """Refuses a position, rotation or axis that is not three numbers: the libraries below would not say where it is."""
    for element in robot.iter(etree.Element):
        for key in ("xyz", "rpy"):
            words = element.get(key, "0 0 0").split()
            try:
                fine = len(words) == 3 and all(math.isfinite(float(word)) for word in words)
            except ValueError:
                fine = False
            if not fine:
                raise UserError(f"{path}:{element.sourceline}: <{element.tag}> {key}='{element.get(key)}' is not three numbers")


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

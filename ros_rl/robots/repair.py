"""Repairs of URDFs: what a physics engine refuses although the robot it means is plain, and what was done about each."""

import math
from dataclasses import dataclass

import numpy as np
from lxml import etree

from ros_rl.errors import closest

_LIGHTEST = 1e-3  # kg: mass of a moving link to which the URDF gives none
_DENSITY = 1000.0  # kg/m³, of the sphere that stands for an inertia that is not there
_LEAST = 1e-13  # kg or kg·m²: what engines take for nothing
_SLENDER = 1e-3  # least principal moment of a repaired inertia, as a share of the largest
_ROUNDING = 1e-9  # relative; engines find principal moments to about this
_SIZES = {"box": ("size",), "sphere": ("radius",), "cylinder": ("radius", "length"), "capsule": ("radius", "length")}
_SHAPES = ("visual", "collision")
_FREED = "the mimic is left out, the joint moves by itself"


@dataclass(frozen=True)
class Repair:
    """One thing that was changed.

    Attributes:
        kind: ``joint``, ``limits``, ``mimic``, ``inertia``, ``mass``, ``shape`` or ``mesh``.
        where: the link, joint or file it is about, as in "link 'arm'".
        what: what stands there now.
        why: what was wrong.
    """

    kind: str
    where: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}; {self.what}"


def repair(robot: etree._Element) -> list[Repair]:
    """Repairs a URDF in place. Every link and joint keeps its name, and every joint its place in the file.

    The links form one tree and all numbers are finite: `read_urdf` sees to that first. What is sound stays as it is.

    Args:
        robot: the outermost element.

    Returns:
        what was done, in the order of the file within each kind.
    """
    steps = (_joint_kinds, _mimics, _limits, _inertias, _masses, _shapes)
    return [done for step in steps for done in step(robot)]


def _joint_kinds(robot: etree._Element) -> list[Repair]:
    """Fixes joints of more than one degree of freedom, which take no command."""
    repairs = []
    for joint in robot.findall("joint"):
        if (kind := joint.get("type")) in ("floating", "planar"):
            joint.set("type", "fixed")
            why = f"a {kind} joint takes no command here"
            what = "fixed at zero (a robot that moves freely has 'floating_base: true' in its robot.yaml)"
            repairs.append(Repair("joint", f"joint '{joint.get('name')}'", what, why))
    return repairs


def _mimics(robot: etree._Element) -> list[Repair]:
    """Leaves only followers that move by a leader that moves by itself, which is what both engines understand."""
    joints = {joint.get("name"): joint for joint in robot.findall("joint")}
    return [*_loose_mimics(joints), *_chained_mimics(joints)]


def _loose_mimics(joints: dict[str, etree._Element]) -> list[Repair]:
    repairs = []
    for name, joint in joints.items():
        mimic = joint.find("mimic")
        if mimic is None:
            continue
        leader = mimic.get("joint")
        if joint.get("type") == "fixed":
            repairs.append(Repair("mimic", f"joint '{name}'", "the mimic is left out", "a fixed joint cannot follow another"))
        elif leader not in joints:
            why = f"it follows '{leader}', which is not there{closest(leader, joints)}"
            repairs.append(Repair("mimic", f"joint '{name}'", _FREED, why))
        else:
            continue
        joint.remove(mimic)
    return repairs


def _chained_mimics(joints: dict[str, etree._Element]) -> list[Repair]:
    repairs = []
    for name, joint in joints.items():
        where, chain, multiplier, offset = f"joint '{name}'", [name], 1.0, 0.0
        while (mimic := joints[chain[-1]].find("mimic")) is not None and chain.count(chain[-1]) == 1:
            offset += multiplier * float(mimic.get("offset", 0.0))
            multiplier *= float(mimic.get("multiplier", 1.0))
            chain.append(mimic.get("joint"))
        leader = chain[-1]
        if mimic is not None:
            joint.remove(joint.find("mimic"))
            repairs.append(Repair("mimic", where, _FREED, f"it follows itself ({' follows '.join(chain)})"))
        elif len(chain) > 1 and (joints[leader].get("type") == "fixed" or multiplier == 0.0):
            _lock(joint, offset)
            repairs.append(Repair("mimic", where, f"fixed at {offset:g}", f"the joint '{leader}' that it follows does not move it"))
        elif len(chain) > 2:
            joint.find("mimic").attrib.update({"joint": leader, "multiplier": repr(multiplier), "offset": repr(offset)})
            what = f"follows '{leader}' directly, multiplier {multiplier:g}, offset {offset:g}"
            repairs.append(Repair("mimic", where, what, f"it follows '{chain[1]}', which follows another"))
    return repairs


def _limits(robot: etree._Element) -> list[Repair]:
    """Mends limits of zero width.

    Exporters write 0 and 0 for a range that nobody gave, and so reads a limit without lower and upper. A range of zero
    width elsewhere, and any such range of a slide, says that the joint is locked; what follows it then is, too.
    """
    repairs = []
    for joint in robot.findall("joint"):
        name, kind, limit = joint.get("name"), joint.get("type"), joint.find("limit")
        if kind not in ("revolute", "prismatic") or limit is None:
            continue
        position, upper = float(limit.get("lower", 0.0)), float(limit.get("upper", 0.0))
        if position != upper:
            continue
        why = f"the limits are of zero width, lower and upper are both {position:g}"
        if position == 0 and kind == "revolute":
            joint.set("type", "continuous")
            repairs.append(Repair("limits", f"joint '{name}'", "taken as a continuous joint, without limits", why))
            continue
        _lock(joint, position)
        repairs.append(Repair("limits", f"joint '{name}'", "fixed there", why))
        for mimic in robot.xpath("joint/mimic[@joint=$leader]", leader=name):
            follower = mimic.getparent()
            there = float(mimic.get("multiplier", 1.0)) * position + float(mimic.get("offset", 0.0))
            _lock(follower, there)
            repairs.append(
                Repair("mimic", f"joint '{follower.get('name')}'", f"fixed at {there:g}", f"it follows '{name}', which is fixed")
            )
    return repairs


def _lock(joint: etree._Element, position: float) -> None:
    """Turns a moving joint into a fixed one at a position; it then follows none."""
    for mimic in joint.findall("mimic"):
        joint.remove(mimic)
    origin = joint.find("origin")
    if origin is None:
        origin = etree.SubElement(joint, "origin")
    xyz, rotation = _vector(origin, "xyz", (0, 0, 0)), _rotation(_vector(origin, "rpy", (0, 0, 0)))
    axis = _vector(joint.find("axis"), "xyz", (1, 0, 0))
    axis = axis / (np.linalg.norm(axis) or 1.0)
    if joint.get("type") == "prismatic":
        xyz = xyz + rotation @ axis * position
    else:
        x, y, z = axis
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        rotation = rotation @ (np.eye(3) + math.sin(position) * cross + (1 - math.cos(position)) * cross @ cross)
    if position:
        origin.set("xyz", " ".join(map(repr, xyz.tolist())))
        origin.set("rpy", " ".join(map(repr, _rpy(rotation))))
    joint.set("type", "fixed")


def _inertias(robot: etree._Element) -> list[Repair]:
    """Mends inertias that no body has: of a negative mass, not positive, or against the triangle inequality."""
    repairs = []
    for link in robot.findall("link"):
        inertial = link.find("inertial")
        if inertial is None:
            continue
        where = f"link '{link.get('name')}'"
        if (mass := _number(inertial.find("mass"), "value")) < 0:
            link.remove(inertial)
            repairs.append(Repair("mass", where, "taken as without mass", f"the mass is {mass:g} kg"))
        elif (mended := _mend_inertia(_inertia(inertial))) is not None:
            _write_inertia(inertial, mended[0])
            repairs.append(Repair("inertia", where, *mended[1:]))
    return repairs


def _mend_inertia(matrix: np.ndarray) -> tuple[np.ndarray, str, str] | None:
    """Returns the inertia (3, 3) of a body near to this one, what was done and why; None if it is one, or zero."""
    moments, axes = np.linalg.eigh(matrix)
    positive = moments[0] > _LEAST
    if not matrix.any() or (positive and moments[0] + moments[1] >= moments[2] * (1 + _ROUNDING)):
        return None
    why = (
        f"the principal moments of inertia {_list(moments)} kg·m² {'break the triangle inequality' if positive else 'are not all positive'}"
    )
    if moments[2] <= _LEAST:
        return np.zeros((3, 3)), "taken as 0", why
    raised = moments if positive else np.maximum(moments, max(_SLENDER * moments[2], 2 * _LEAST))
    missing = raised[2] * (1 + 2 * _ROUNDING) - raised[0] - raised[1]
    raised = raised + np.array([1, 1, 0]) * max(0.0, missing) / 2
    return axes @ np.diag(raised) @ axes.T, f"raised to {_list(raised)}", why


def _masses(robot: etree._Element) -> list[Repair]:
    """Gives mass and inertia to links that move without, unless a link fixed to them has both."""
    links = {link.get("name"): link for link in robot.findall("link")}
    fixed_to: dict[str, list[str]] = {}
    moving = []
    for joint in robot.findall("joint"):
        child = joint.find("child").get("link")
        if joint.get("type") == "fixed":
            fixed_to.setdefault(joint.find("parent").get("link"), []).append(child)
        else:
            moving.append(child)

    def is_body(name: str) -> bool:
        inertial = links[name].find("inertial")
        own = inertial is not None and _number(inertial.find("mass"), "value") > _LEAST and bool(_inertia(inertial).any())
        return own or any(is_body(child) for child in fixed_to.get(name, []))

    return [_make_body(links[name]) for name in moving if not is_body(name)]


def _make_body(link: etree._Element) -> Repair:
    """Gives a link what it lacks of mass and inertia."""
    where = f"link '{link.get('name')}'"
    inertial = link.find("inertial")
    if inertial is None:
        inertial = etree.SubElement(link, "inertial")
    mass = _number(inertial.find("mass"), "value")
    if massless := mass <= _LEAST:
        mass = _LIGHTEST
        for element in inertial.findall("mass"):
            inertial.remove(element)
        etree.SubElement(inertial, "mass").set("value", repr(mass))
    if not _inertia(inertial).any():
        radius = (3 * mass / (4 * math.pi * _DENSITY)) ** (1 / 3)
        _write_inertia(inertial, np.eye(3) * max(0.4 * mass * radius**2, 2 * _LEAST))
    if massless:
        return Repair("mass", where, f"given {mass * 1000:g} g", "it moves and has no mass")
    return Repair("inertia", where, f"given that of a sphere of {mass:.3g} kg as dense as water", "it moves and has no inertia")


def _shapes(robot: etree._Element) -> list[Repair]:
    """Leaves out shapes without extent, and names of shapes that stand twice."""
    repairs = []
    names: set[str] = set()
    for link in robot.findall("link"):
        where = f"link '{link.get('name')}'"
        for shape in [shape for tag in _SHAPES for shape in link.findall(tag)]:
            if why := _no_extent(shape):
                link.remove(shape)
                repairs.append(Repair("shape", where, "left out", why))
            elif name := shape.get("name"):
                if name in names:
                    del shape.attrib["name"]
                    repairs.append(Repair("shape", where, "the name is left out", f"the name '{name}' of its <{shape.tag}> stands twice"))
                names.add(name)
    return repairs


def _no_extent(shape: etree._Element) -> str | None:
    """Says what a shape lacks; None if nothing."""
    geometry = shape.find("geometry")
    solid = next((child for child in geometry if child.tag in (*_SIZES, "mesh")), None) if geometry is not None else None
    if solid is None:
        return f"a <{shape.tag}> has no geometry"
    for key in _SIZES.get(solid.tag, ()):
        sizes = _vector(solid, key, (0,))
        if not (sizes > 0).all():
            return f"a <{solid.tag}> of the <{shape.tag}> has the {key} {' '.join(f'{size:g}' for size in sizes)}"
    if solid.tag == "mesh" and not _vector(solid, "scale", (1, 1, 1)).all():
        return f"a <mesh> of the <{shape.tag}> has the scale {solid.get('scale')}"
    return None


def _list(numbers: np.ndarray) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def _inertia(inertial: etree._Element) -> np.ndarray:
    """Returns the inertia matrix (3, 3) about the centre of mass, kg·m²."""
    xx, xy, xz, yy, yz, zz = (_number(inertial.find("inertia"), key) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _write_inertia(inertial: etree._Element, matrix: np.ndarray) -> None:
    element = inertial.find("inertia")
    if element is None:
        element = etree.SubElement(inertial, "inertia")
    for row, column, key in ((0, 0, "ixx"), (0, 1, "ixy"), (0, 2, "ixz"), (1, 1, "iyy"), (1, 2, "iyz"), (2, 2, "izz")):
        element.set(key, repr(float(matrix[row, column])))


def _number(element: etree._Element | None, key: str) -> float:
    """Returns an attribute as a number, 0 where there is none."""
    return float(element.get(key, 0.0)) if element is not None else 0.0


def _vector(element: etree._Element | None, key: str, default: tuple[float, ...]) -> np.ndarray:
    text = element.get(key) if element is not None else None
    return np.array(text.split() if text else default, dtype=float)


def _rotation(rpy: np.ndarray) -> np.ndarray:
    """Returns the matrix (3, 3) of a URDF's roll, pitch and yaw about fixed axes, in this order."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def _rpy(rotation: np.ndarray) -> list[float]:
    """Returns roll, pitch and yaw of a rotation matrix; where pitch is a right angle, the roll is 0."""
    pitch = math.atan2(-rotation[2, 0], math.hypot(rotation[0, 0], rotation[1, 0]))
    if math.cos(pitch) < 1e-9:
        return [0.0, pitch, math.atan2(-rotation[0, 1], rotation[1, 1])]
    return [math.atan2(rotation[2, 1], rotation[2, 2]), pitch, math.atan2(rotation[1, 0], rotation[0, 0])]

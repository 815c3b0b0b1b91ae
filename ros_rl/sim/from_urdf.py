"""A robot's URDF as a MuJoCo model: no link merged, no shape dropped, no inertia guessed, whatever format its meshes have."""

import math
from dataclasses import dataclass
from pathlib import Path

import mujoco
from lxml import etree

from ros_rl.errors import UserError
from ros_rl.robots.repair import Repair
from ros_rl.robots.urdf import Urdf
from ros_rl.sim.meshes import Mesh, convert_mesh, find_mesh

WORLD = "world"  # MuJoCo's name for what stands still; a root link of this name becomes it
_GREY = (0.6, 0.6, 0.62, 1.0)
_VISUAL_GROUP = 1  # where MuJoCo's own reader puts visual shapes


@dataclass(frozen=True)
class MujocoRobot:
    """A robot as MuJoCo reads it, and what had to be done to its meshes."""

    mj: mujoco.MjSpec
    repairs: tuple[Repair, ...]


def read_into_mujoco(urdf: Urdf, meshes: bool = True) -> MujocoRobot:
    """Returns a robot's description as a MuJoCo model, to be added to and compiled.

    MuJoCo's own reader takes the links, joints and simple shapes. Meshes are added here: that reader knows no
    ``package://``, no Collada, and one mesh only of those that share a file name.

    Args:
        urdf: the robot.
        meshes: whether to load the meshes; without, kinematics and dynamics are the same.

    Raises:
        UserError: a mesh is missing or cannot be read, or MuJoCo refuses the robot.
    """
    tree = etree.fromstring(urdf.xml)
    if WORLD in urdf.links and urdf.root != WORLD:
        raise UserError(f"{urdf.path}: only the root link may be called '{WORLD}', which is what stands still; the root is '{urdf.root}'")
    settings = tree.find("mujoco/compiler")
    if settings is None:
        settings = etree.SubElement(etree.SubElement(tree, "mujoco"), "compiler")
    for key in ("discardvisual", "fusestatic", "inertiafromgeom", "balanceinertia", "strippath"):
        settings.set(key, "false")
    shapes = _take_meshes(tree)
    try:
        robot = mujoco.MjSpec.from_string(etree.tostring(tree, encoding="unicode"))
    except ValueError as error:
        raise UserError(f"{urdf.path}: {' '.join(str(error).split())}") from None
    repairs = _add_meshes(robot, urdf.path, shapes) if meshes else []
    return MujocoRobot(robot, tuple(repairs))


@dataclass(frozen=True)
class _MeshShape:
    """A <visual> or <collision> that is a mesh; position in m and roll, pitch, yaw in rad, in the link's frame."""

    link: str
    collides: bool
    reference: str
    scale: tuple[float, ...]
    position: tuple[float, ...]
    rpy: tuple[float, ...]
    rgba: tuple[float, ...] | None


def _take_meshes(tree: etree._Element) -> list[_MeshShape]:
    """Takes the shapes that are meshes out of a URDF."""
    named = {material.get("name"): material for material in tree.iter("material") if material.find("color") is not None}
    shapes = []
    for link in tree.findall("link"):
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            mesh = shape.find("geometry/mesh")
            if mesh is None:
                continue
            material = shape.find("material")
            if material is not None and material.find("color") is None:
                material = named.get(material.get("name"))
            colour = material.find("color") if material is not None else None
            shapes.append(
                _MeshShape(
                    link.get("name"),
                    shape.tag == "collision",
                    mesh.get("filename") or "",
                    _numbers(mesh, "scale", (1.0, 1.0, 1.0)),
                    _numbers(shape.find("origin"), "xyz", (0.0, 0.0, 0.0)),
                    _numbers(shape.find("origin"), "rpy", (0.0, 0.0, 0.0)),
                    _numbers(colour, "rgba", _GREY) if colour is not None else None,
                )
            )
            link.remove(shape)
    return shapes


def _add_meshes(robot: mujoco.MjSpec, path: Path, shapes: list[_MeshShape]) -> list[Repair]:
    """Adds the shapes to the bodies of their links; a mesh that several shapes show is loaded once."""
    converted: dict[tuple[Path, bool], Mesh] = {}
    loaded: dict[tuple[Path, tuple[float, ...]], str] = {}
    repairs = []
    for shape in shapes:
        file = find_mesh(shape.reference, path)
        if (file, shape.collides) not in converted:
            mesh = converted[file, shape.collides] = convert_mesh(file, shape.collides)
            if mesh.mended:
                repairs.append(Repair("mesh", f"mesh '{shape.reference}'", *mesh.mended))
        for part in converted[file, shape.collides].parts:
            key = part.file, shape.scale
            if key not in loaded:
                loaded[key] = f"{file.stem}_{len(loaded)}"
                robot.add_mesh(
                    name=loaded[key],
                    file=str(part.file.absolute()),
                    content_type="model/stl",
                    scale=shape.scale,
                    inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,  # needs no closed surface; the URDF says the link's inertia
                )
            _add_shape(robot, shape, loaded[key], shape.rgba or part.rgba or _GREY)
    return repairs


def _add_shape(robot: mujoco.MjSpec, shape: _MeshShape, mesh: str, rgba: tuple[float, ...]) -> None:
    half = [angle / 2 for angle in shape.rpy]
    (cr, cp, cy), (sr, sp, sy) = map(math.cos, half), map(math.sin, half)
    robot.body(shape.link).add_geom(
        type=mujoco.mjtGeom.mjGEOM_MESH,
        meshname=mesh,
        pos=shape.position,
        quat=[cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy, cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy],
        rgba=rgba,
        contype=int(shape.collides),
        conaffinity=int(shape.collides),
        group=0 if shape.collides else _VISUAL_GROUP,
    )


def _numbers(element: etree._Element | None, key: str, default: tuple[float, ...]) -> tuple[float, ...]:
    text = element.get(key) if element is not None else None
    return tuple(float(word) for word in text.split()) if text else default

"""Meshes of robots for MuJoCo: finds the file that a URDF means, and turns what MuJoCo cannot read into what it can."""

import hashlib
import io
import itertools
import json
import os
import re
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree
from scipy.spatial import ConvexHull, QhullError

from ros_rl.errors import UserError
from ros_rl.robots.packages import candidates

_VERSION = 2  # of what is cached; to be raised when the conversion changes
_MOST_FACES = 200_000  # of one mesh in MuJoCo
_FEWER_FACES = 100_000  # what a mesh with more than that is brought down to
_THICKNESS = 1e-4  # of a flat mesh that collides, as a share of its extent
_SLICES = 8  # of a hollow mesh that collides
_HOLLOW = 0.62  # share of its convex hull that the hulls of the slices of a hollow mesh fill at most
_FLAT = 1e-6  # share of a mesh's extent below which it is flat

_STL_HEADER = 84
_STL_FACE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


@dataclass(frozen=True)
class MeshPart:
    """A binary STL, and its colour (red, green, blue, alpha; 0 to 1), or None where the mesh has none."""

    file: Path
    rgba: tuple[float, float, float, float] | None


@dataclass(frozen=True)
class Mesh:
    """A mesh as MuJoCo reads it.

    Attributes:
        parts: the mesh by colour; where it collides all of it as one part, or a hull for each slice of a hollow one.
        mended: what was changed and why, or None.
    """

    parts: tuple[MeshPart, ...]
    mended: tuple[str, str] | None


def find_mesh(reference: str, urdf: Path) -> Path:
    """Returns the file that a URDF means, see `ros_rl.robots.packages.candidates`.

    Args:
        reference: the path or address in the URDF.
        urdf: the URDF's path.

    Raises:
        UserError: there is no such file; the message lists the paths that were tried.
    """
    tried = candidates(reference, urdf)
    for path in tried:
        if path.is_file():
            return path
    where = ", ".join(map(str, tried[:8])) + (f" and {len(tried) - 8} more" if len(tried) > 8 else "")
    raise UserError(f"{urdf}: mesh '{reference}' is not there, tried {where or 'no path: this kind of address is not known'}")


def convert_mesh(path: Path, collides: bool) -> Mesh:
    """Returns a mesh in a form that MuJoCo reads.

    A binary STL that MuJoCo takes stays where it is. Everything else that trimesh reads (Collada, OBJ, text STL, PLY, …)
    becomes binary STL: transforms and units of a Collada scene applied, its up axis not, as ROS does it. The result is
    kept in the user's cache under the hash of the file, so that the second time is quick.

    Args:
        path: the file.
        collides: whether it is a collision shape; MuJoCo then takes its convex hull, which must have a volume. A hollow
            mesh, such as a jaw beside which things are held, is cut into slices first, to keep most of its hollow.

    Raises:
        UserError: the file cannot be read, or holds no face.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ros_rl" / "meshes"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if content.startswith(b"version https://git-lfs"):
        raise UserError(f"{path}: is a pointer of Git LFS; 'git lfs pull' in its repository gets the mesh")
    key = hashlib.sha256(f"{_VERSION} {version('trimesh')} {path.suffix.lower()} {collides}".encode())
    key.update(content)
    if path.suffix.lower() == ".obj":  # colours are in a file beside it
        for name in re.findall(rb"^mtllib\s+(\S+)", content, re.MULTILINE):
            library = path.parent / os.fsdecode(name)
            key.update(library.read_bytes() if library.is_file() else b"")
    folder = cache / key.hexdigest()[:32]
    if not (folder / _INDEX).is_file():
        _keep(folder, _convert(path, content, collides))
    return _recall(folder, path)


_INDEX = "parts.json"


@dataclass
class _Surface:
    """Triangles in m, shape (faces, 3, 3), and their colour."""

    corners: np.ndarray
    rgba: tuple[float, ...] | None


def _convert(path: Path, content: bytes, collides: bool) -> tuple[list[_Surface] | None, tuple[str, str] | None]:
    """Returns the mesh in parts (None: as it is), and what was mended."""
    corners = _read_binary_stl(content) if path.suffix.lower() == ".stl" else None
    surfaces = [_Surface(corners, None)] if corners is not None else _load(path, content)
    surfaces = [_Surface(surface.corners[_has_area(surface.corners)], surface.rgba) for surface in surfaces]
    surfaces = [surface for surface in surfaces if len(surface.corners)]
    if not surfaces:
        raise UserError(f"{path}: holds no face")
    if collides:
        surfaces = [_Surface(np.concatenate([surface.corners for surface in surfaces]), None)]
    mended = None
    for surface in surfaces:
        if (faces := len(surface.corners)) > _MOST_FACES:
            surface.corners = _simplify(surface.corners)
            mended = f"simplified to {len(surface.corners)} faces", f"it has {faces} faces, MuJoCo takes {_MOST_FACES}"
        needs_volume = collides or len(np.unique(surface.corners.reshape(-1, 3), axis=0)) < 4
        if needs_volume and (normal := _flat_normal(surface.corners)) is not None:
            thickness = _THICKNESS * float(np.ptp(surface.corners.reshape(-1, 3), axis=0).max())
            shift = normal * thickness / 2
            surface.corners = np.concatenate([surface.corners + shift, surface.corners - shift])
            mended = f"made {thickness:.1g} thick, in its units", "it is flat, MuJoCo wants a volume"
    if collides and (slices := _slices(surfaces[0].corners)):
        return [_Surface(part, None) for part in slices], mended
    unchanged = corners is not None and mended is None and len(content) == _STL_HEADER + len(corners) * _STL_FACE.itemsize
    return None if unchanged else surfaces, mended


def _load(path: Path, content: bytes) -> list[_Surface]:
    """Reads any mesh, one surface for each colour."""
    import trimesh  # only meshes other than binary STL need it

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if path.suffix.lower() == ".dae":
                scene = trimesh.load_scene(io.BytesIO(_without_loose_ends(content)), file_type="dae", process=False)
            else:
                scene = trimesh.load_scene(path, process=False)
        scale = trimesh.units.unit_conversion(scene.units, "meters") if scene.units else 1.0
        by_colour: dict[tuple[float, ...] | None, list[np.ndarray]] = {}
        for node in scene.graph.nodes_geometry:
            transform, name = scene.graph[node]
            mesh = scene.geometry[name]
            if not isinstance(mesh, trimesh.Trimesh):
                continue
            vertices = (mesh.vertices @ transform[:3, :3].T + transform[:3, 3]) * scale
            by_colour.setdefault(_colour(mesh), []).append(vertices[mesh.faces])
    except Exception as error:  # trimesh lets through whatever its many readers raise
        raise UserError(f"{path}: cannot be read as a mesh: {' '.join(str(error).split()) or type(error).__name__}") from None
    return [_Surface(np.concatenate(corners), colour) for colour, corners in by_colour.items()]


def _without_loose_ends(content: bytes) -> bytes:
    """Returns a Collada file without textures and missing materials: their shapes would be dropped with them."""
    scene = etree.fromstring(content, etree.XMLParser(huge_tree=True, resolve_entities=False))
    for texture in list(scene.iter("{*}texture")):
        colour = etree.Element(etree.QName(texture, "color"))
        colour.text = "0.6 0.6 0.62 1"
        texture.getparent().replace(texture, colour)
    for picture in [*scene.iterfind(".//{*}newparam/{*}surface"), *scene.iterfind(".//{*}newparam/{*}sampler2D")]:
        parameter = picture.getparent()
        parameter.getparent().remove(parameter)
    known = {f"#{material.get('id')}" for material in scene.iter("{*}material")}
    for material in list(scene.iter("{*}instance_material")):
        if material.get("target") not in known:
            material.getparent().remove(material)
    return etree.tostring(scene)


def _colour(mesh: Any) -> tuple[float, ...] | None:
    """Returns the one colour of a mesh, None where it has none or a picture."""
    material = getattr(mesh.visual, "material", None)
    if material is not None:
        if getattr(material, "image", None) is not None or getattr(material, "baseColorTexture", None) is not None:
            return None
        colour = material.main_color
    elif mesh.visual.defined:
        colour = mesh.visual.main_color
    else:
        return None
    return tuple((np.asarray(colour, dtype=float) / 255).round(3).tolist())


def _read_binary_stl(content: bytes) -> np.ndarray | None:
    """Returns the corners, shape (faces, 3, 3); None where the file is no binary STL, or not a sound one."""
    count = int.from_bytes(content[80:_STL_HEADER], "little")
    if len(content) < _STL_HEADER + count * _STL_FACE.itemsize or count == 0:
        return None
    if len(content) != _STL_HEADER + count * _STL_FACE.itemsize and content.lstrip().startswith(b"solid"):
        return None
    corners = np.frombuffer(content, _STL_FACE, count, _STL_HEADER)["corners"]
    return corners if np.isfinite(corners).all() else None


def _has_area(corners: np.ndarray) -> np.ndarray:
    """Tells which triangles are finite and no point, shape (faces,)."""
    return np.isfinite(corners).all(axis=(1, 2)) & (np.ptp(corners, axis=1) > 0).any(axis=1)


def _flat_normal(corners: np.ndarray) -> np.ndarray | None:
    """Returns the normal (3,) of the plane that all corners lie in; None where they span a volume."""
    points = corners.reshape(-1, 3).astype(float)
    points = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(points.T @ points)
    extents = np.ptp(points @ axes, axis=0)
    return axes[:, 0] if extents[0] < _FLAT * extents.max() else None


def _slices(corners: np.ndarray) -> list[np.ndarray]:
    """Returns the convex hulls of the slices of a hollow mesh, cut across the axis at which they fill least; [] for other meshes."""
    whole = _hull(corners.reshape(-1, 3))
    if whole is None:
        return []
    cuts = []
    for axis in range(3):
        low, high = corners[..., axis].min(), corners[..., axis].max()
        bounds = np.linspace(low, high, _SLICES + 1)
        hulls = [_hull(_between(corners, axis, *pair)) for pair in itertools.pairwise(bounds)]
        cuts.append([hull for hull in hulls if hull is not None])
    volume, best = min((sum(hull.volume for hull in cut), index) for index, cut in enumerate(cuts))
    return [_outside(hull) for hull in cuts[best]] if volume < _HOLLOW * whole.volume else []


def _hull(points: np.ndarray) -> ConvexHull | None:
    """Returns the convex hull of points (n, 3); None where they span no volume."""
    if len(points) < 4 or (np.ptp(points, axis=0) < _FLAT).any():
        return None
    try:
        return ConvexHull(points.astype(float))
    except QhullError:
        return None


def _between(corners: np.ndarray, axis: int, low: float, high: float) -> np.ndarray:
    """Returns the corners (n, 3) of a mesh's part between two planes across an axis."""
    start, end = corners.reshape(-1, 3), np.roll(corners, -1, axis=1).reshape(-1, 3)
    points = [start[(start[:, axis] >= low) & (start[:, axis] <= high)]]
    for plane in (low, high):
        crossing = (start[:, axis] < plane) != (end[:, axis] < plane)
        a, b = start[crossing], end[crossing]
        points.append(a + ((plane - a[:, axis]) / (b[:, axis] - a[:, axis]))[:, None] * (b - a))
    return np.concatenate(points)


def _outside(hull: ConvexHull) -> np.ndarray:
    """Returns the triangles of a hull, shape (faces, 3, 3), each counter-clockwise as seen from outside."""
    faces = hull.points[hull.simplices]
    normals = np.cross(faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0])
    inward = np.einsum("ij,ij->i", normals, hull.equations[:, :3]) < 0
    faces[inward] = faces[inward][:, ::-1]
    return faces


def _simplify(corners: np.ndarray) -> np.ndarray:
    """Merges corners that are close on a grid, as fine as the number of faces allows (Rossignac and Borrel, 1993)."""
    points = corners.reshape(-1, 3)
    low, extent = points.min(axis=0), np.ptp(points, axis=0).max()
    cells = 1024
    while True:
        grid = np.floor((points - low) / extent * cells).astype(np.int64)
        _, cell = np.unique(grid @ (1, 2048, 2048**2), return_inverse=True)
        count = np.bincount(cell)
        means = np.stack([np.bincount(cell, points[:, axis]) / count for axis in range(3)], axis=1)
        faces = cell.reshape(-1, 3)
        apart = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
        faces = faces[apart]
        _, first = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)
        if len(first) <= _FEWER_FACES:
            return means[faces[first]]
        cells = cells * 3 // 4


def _keep(folder: Path, converted: tuple[list[_Surface] | None, tuple[str, str] | None]) -> None:
    """Writes a converted mesh into the cache: whole or not at all, though several processes may do so at once."""
    surfaces, mended = converted
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for number, surface in enumerate(surfaces or ()):
            faces = np.zeros(len(surface.corners), _STL_FACE)
            faces["corners"] = surface.corners
            count = len(faces).to_bytes(4, "little")
            (scratch / f"{number}.stl").write_bytes(bytes(80) + count + faces.tobytes())
        colours = None if surfaces is None else [surface.rgba for surface in surfaces]
        (scratch / _INDEX).write_text(json.dumps({"colours": colours, "mended": mended}))
        scratch.rename(folder)
    except OSError:
        if not (folder / _INDEX).is_file():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _recall(folder: Path, path: Path) -> Mesh:
    index = json.loads((folder / _INDEX).read_text())
    mended = tuple(index["mended"]) if index["mended"] else None
    if index["colours"] is None:
        return Mesh((MeshPart(path, None),), mended)
    parts = (MeshPart(folder / f"{i}.stl", tuple(rgba) if rgba else None) for i, rgba in enumerate(index["colours"]))
    return Mesh(tuple(parts), mended)

"""Meshes: where `package://` leads, and that every format comes out with the same points and colours."""

import os
import threading

import numpy as np
import pytest
import trimesh

from ros_rl.errors import UserError
from ros_rl.sim.meshes import convert_mesh, find_mesh

POINTS = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3.0]])
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A mesh cache of the test's own."""
    for variable in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ros_rl" / "meshes"


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("reference", "mesh", "urdf"),
    [
        ("a.stl", "r/urdf/a.stl", "r/urdf/r.urdf"),
        ("../meshes/a.stl", "r/meshes/a.stl", "r/urdf/r.urdf"),
        ("package://r_description/meshes/a.stl", "r_description/meshes/a.stl", "r_description/urdf/r.urdf"),
        ("package://other/a.stl", "src/other/a.stl", "src/r_description/urdf/r.urdf"),
        ("package:///share-name/robots/a.stl", "share-name/robots/a.stl", "share-name/robots/r/r.urdf"),
        ("model://r/a.stl", "r/a.stl", "r/model.urdf"),
    ],
)
def test_found_from_the_urdf(reference, mesh, urdf, tmp_path):
    mesh = touch(tmp_path / mesh)
    assert find_mesh(reference, touch(tmp_path / urdf)).resolve() == mesh


def test_found_where_ros_has_its_packages(tmp_path, monkeypatch):
    urdf = touch(tmp_path / "elsewhere/r.urdf")
    old, new = touch(tmp_path / "ws/src/stack/legs/a.stl"), touch(tmp_path / "install/share/arms/a.stl")
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"{tmp_path}/nothing{os.pathsep}{tmp_path}/ws/src")
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path}/install")
    assert find_mesh("package://legs/a.stl", urdf) == old
    assert find_mesh("package://arms/a.stl", urdf) == new


def test_found_in_a_checkout_of_another_name(tmp_path):
    mesh, urdf = touch(tmp_path / "checkout-main/meshes/a.stl"), touch(tmp_path / "checkout-main/urdf/r.urdf")
    (tmp_path / "checkout-main/package.xml").write_text("<package><name>r_description</name></package>")
    assert find_mesh("package://r_description/meshes/a.stl", urdf) == mesh


def test_a_file_address_is_absolute(tmp_path):
    mesh = touch(tmp_path / "a.stl")
    assert find_mesh(f"file://{mesh}", touch(tmp_path / "urdf/r.urdf")) == mesh


def test_what_is_not_there_is_named_with_the_paths_tried(tmp_path):
    urdf = touch(tmp_path / "r.urdf")
    with pytest.raises(UserError, match=f"mesh 'package://p/a.stl' is not there, tried {tmp_path}/p/a.stl, "):
        find_mesh("package://p/a.stl", urdf)
    with pytest.raises(UserError, match=r"mesh 'http://p/a\.stl' is not there, tried no path: this kind of address is not known"):
        find_mesh("http://p/a.stl", urdf)


def text_stl() -> str:
    facets = (
        "facet normal 0 0 0\nouter loop\n" + "".join(f"vertex {x} {y} {z}\n" for x, y, z in POINTS[face]) + "endloop\nendfacet\n"
        for face in FACES
    )
    return "solid it\n" + "".join(facets) + "endsolid it\n"


def obj(head: str = "", colour: str = "") -> str:
    vertices = "".join(f"v {x} {y} {z}\n" for x, y, z in POINTS)
    return head + vertices + colour + "".join("f " + " ".join(str(index + 1) for index in face) + "\n" for face in FACES)


def collada(unit: float = 1.0, matrix: str = "1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", diffuse: str = "<color>0.8 0.2 0.4 1</color>") -> str:
    numbers = " ".join(str(value) for value in POINTS.ravel())
    return f"""<?xml version="1.0" encoding="utf-8"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset><unit name="it" meter="{unit}"/><up_axis>Y_UP</up_axis></asset>
  <library_effects><effect id="effect"><profile_COMMON>
    <newparam sid="picture-surface"><surface type="2D"><init_from>picture</init_from></surface></newparam>
    <newparam sid="picture-sampler"><sampler2D><source>picture-surface</source></sampler2D></newparam>
    <technique sid="common"><lambert><diffuse>{diffuse}</diffuse></lambert></technique>
  </profile_COMMON></effect></library_effects>
  <library_materials><material id="material"><instance_effect url="#effect"/></material></library_materials>
  <library_geometries><geometry id="it"><mesh>
    <source id="points"><float_array id="array" count="12">{numbers}</float_array>
      <technique_common><accessor source="#array" count="4" stride="3">
        <param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/>
      </accessor></technique_common></source>
    <vertices id="vertices"><input semantic="POSITION" source="#points"/></vertices>
    <triangles material="symbol" count="4"><input semantic="VERTEX" source="#vertices" offset="0"/>
      <p>{" ".join(str(index) for index in FACES.ravel())}</p></triangles>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="scene"><node id="node"><matrix>{matrix}</matrix>
    <instance_geometry url="#it"><bind_material><technique_common>
      <instance_material symbol="symbol" target="#material"/>
    </technique_common></bind_material></instance_geometry>
  </node></visual_scene></library_visual_scenes>
  <scene><instance_visual_scene url="#scene"/></scene>
</COLLADA>
"""


def corners(path) -> np.ndarray:
    """The triangles of a binary STL, shape (faces, 3, 3)."""
    content = path.read_bytes()
    faces = np.frombuffer(content[84:], np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")]))
    return faces["corners"]


@pytest.mark.parametrize(
    ("name", "content", "scale"),
    [
        ("it.stl", text_stl(), 1.0),
        ("it.STL", text_stl(), 1.0),
        ("it.obj", obj(), 1.0),
        ("it.dae", collada(), 1.0),
        ("it.DAE", collada(unit=0.001), 0.001),
        ("it.dae", collada(matrix="2 0 0 0 0 2 0 0 0 0 2 0 0 0 0 1"), 2.0),
    ],
)
@pytest.mark.parametrize("collides", [True, False])
def test_every_format_gives_the_same_triangles(name, content, scale, collides, tmp_path):
    (tmp_path / name).write_text(content)
    mesh = convert_mesh(tmp_path / name, collides)
    assert mesh.mended is None
    (part,) = mesh.parts
    np.testing.assert_allclose(corners(part.file), POINTS[FACES] * scale, rtol=1e-6)


def test_a_binary_stl_stays_where_it_is_unless_it_is_untidy(tmp_path):
    (tmp_path / "it.obj").write_text(obj())
    sound = convert_mesh(tmp_path / "it.obj", False).parts[0].file.read_bytes()
    for content, stays in ((sound, True), (b"solid".ljust(80) + sound[80:], True), (sound + b"more", False)):
        (tmp_path / "it.stl").write_bytes(content)
        (part,) = convert_mesh(tmp_path / "it.stl", True).parts
        assert (part.file == tmp_path / "it.stl") is stays
        np.testing.assert_allclose(corners(part.file), POINTS[FACES])


def test_the_up_axis_of_collada_is_ignored_as_ros_does(tmp_path):
    (tmp_path / "it.dae").write_text(collada())
    assert corners(convert_mesh(tmp_path / "it.dae", False).parts[0].file).max(axis=(0, 1)).tolist() == [1, 2, 3]


def test_colours(tmp_path):
    (tmp_path / "it.dae").write_text(collada())
    assert convert_mesh(tmp_path / "it.dae", False).parts[0].rgba == pytest.approx((0.8, 0.2, 0.4, 1.0), abs=0.01)
    (tmp_path / "it.mtl").write_text("newmtl blue\nKd 0 0 1\nnewmtl red\nKd 1 0 0\n")
    halves = obj("mtllib it.mtl\n", "usemtl blue\n").split("f ")
    (tmp_path / "it.obj").write_text("f ".join(halves[:3]) + "usemtl red\nf " + "f ".join(halves[3:]))
    parts = convert_mesh(tmp_path / "it.obj", False).parts
    assert sorted(part.rgba[:3] for part in parts) == [(0.0, 0.0, 1.0), (1.0, 0.0, 0.0)]
    assert [len(corners(part.file)) for part in parts] == [2, 2]
    assert len(convert_mesh(tmp_path / "it.obj", True).parts) == 1


@pytest.mark.parametrize(
    "content",
    [collada(diffuse='<texture texture="picture-sampler" texcoord="UV"/>'), collada().replace('target="#material"', 'target="#none"')],
    ids=["picture", "material"],
)
def test_a_shape_whose_looks_are_missing_is_kept(content, tmp_path):
    (tmp_path / "it.dae").write_text(content)
    assert len(corners(convert_mesh(tmp_path / "it.dae", False).parts[0].file)) == 4


def test_a_mesh_is_converted_once_and_again_when_it_changes(tmp_path, cache):
    path = tmp_path / "it.obj"
    path.write_text(obj())
    first = convert_mesh(path, False)
    written = first.parts[0].file.stat().st_mtime_ns
    assert convert_mesh(path, False) == first
    assert first.parts[0].file.stat().st_mtime_ns == written
    path.write_text(obj().replace("v 1.0", "v 1.5"))
    assert corners(convert_mesh(path, False).parts[0].file).max() == 3
    assert convert_mesh(path, False) != first
    assert len(list(cache.iterdir())) == 2


def test_a_mesh_changes_with_the_colours_beside_it(tmp_path):
    (tmp_path / "it.obj").write_text(obj("mtllib it.mtl\n", "usemtl paint\n"))
    for colour in ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)):
        (tmp_path / "it.mtl").write_text("newmtl paint\nKd {} {} {}\n".format(*colour))
        assert convert_mesh(tmp_path / "it.obj", False).parts[0].rgba[:3] == colour


def test_threads_that_convert_the_same_mesh_at_once(tmp_path, cache):
    (tmp_path / "it.obj").write_text(obj())
    found = []
    threads = [threading.Thread(target=lambda: found.append(convert_mesh(tmp_path / "it.obj", False))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "content"), [("it.dae", "<COLLADA/>"), ("it.obj", "nonsense"), ("it.xyzzy", "x"), ("it.dae", "<"), ("it.stl", "")]
)
def test_what_is_no_mesh_is_named(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=rf"{name}: (cannot be read as a mesh: .|holds no face)") as caught:
        convert_mesh(tmp_path / name, False)
    assert "\n" not in str(caught.value)


def boxes(*sizes_and_centres) -> bytes:
    """A binary STL of boxes."""
    return trimesh.util.concatenate(
        [trimesh.creation.box(size, trimesh.transformations.translation_matrix(centre)) for size, centre in sizes_and_centres]
    ).export(file_type="stl")


FORK = boxes(((0.02, 0.02, 0.1), (0.04, 0, 0.07)), ((0.02, 0.02, 0.1), (-0.04, 0, 0.07)), ((0.1, 0.02, 0.02), (0, 0, 0.01)))


def test_a_hollow_mesh_that_collides_keeps_its_hollow(tmp_path):
    """A fork of two prongs: nothing is between them but next to the handle, and each point of the fork is in some slice."""
    path = tmp_path / "fork.stl"
    path.write_bytes(FORK)
    parts = [corners(part.file).astype(float) for part in convert_mesh(path, True).parts]
    assert len(parts) > 1
    between = np.array([[0.0, 0.0, z] for z in (0.05, 0.08, 0.11)])
    assert not any(contains(part, between).any() for part in parts)
    inside = np.array([[0.04, 0, 0.1], [-0.04, 0, 0.05], [0.02, 0, 0.01]])
    assert np.any([contains(part, inside) for part in parts], axis=0).all()
    points = np.concatenate(parts).reshape(-1, 3)
    np.testing.assert_allclose([points.min(axis=0), points.max(axis=0)], [[-0.05, -0.01, 0], [0.05, 0.01, 0.12]], atol=1e-7)


def contains(part: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Tells which points are behind every face of a convex part whose faces, (faces, 3, 3), look outwards."""
    normals = np.cross(part[:, 1] - part[:, 0], part[:, 2] - part[:, 0])
    return (np.einsum("fd,pfd->pf", normals, points[:, None] - part[:, 0]) <= 1e-12).all(axis=1)


@pytest.mark.parametrize("content", [boxes(((1, 1, 1), (0, 0, 0))), boxes(((1, 1, 0), (0, 0, 0)))], ids=["full", "flat"])
def test_another_mesh_that_collides_stays_whole(tmp_path, content):
    path = tmp_path / "box.stl"
    path.write_bytes(content)
    assert len(convert_mesh(path, True).parts) == 1


def test_a_hollow_mesh_that_only_shows_stays_whole(tmp_path):
    path = tmp_path / "fork.stl"
    path.write_bytes(FORK)
    assert convert_mesh(path, False).parts[0].file == path

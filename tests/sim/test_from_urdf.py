"""URDFs with meshes in MuJoCo: each shape where Pinocchio's reader has it, names kept, and robots that start at the world."""

import mujoco
import numpy as np
import pinocchio as pin
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.draft import draft_robot, robot_yaml
from ros_rl.robots.spec import load_robot
from ros_rl.robots.urdf import read_urdf
from ros_rl.sim.build import build
from ros_rl.sim.from_urdf import read_into_mujoco

TETRAHEDRON = np.array([[0, 0, 0], [0.1, 0, 0], [0, 0.2, 0], [0, 0, 0.3]])
FACES = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]

URDF = """\
<robot name="it">
  <material name="paint"><color rgba="0.1 0.2 0.3 1"/></material>
  <link name="{root}"/>
  <link name="arm">
    <inertial><mass value="1"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
    <visual><origin xyz="0.1 0.2 0.3" rpy="0.4 -0.5 0.6"/><geometry><mesh filename="seen/arm.obj" scale="1 -2 0.5"/></geometry>
      <material name="paint"/></visual>
    <visual><geometry><mesh filename="seen/arm.obj" scale="3 3 3"/></geometry></visual>
    <collision><origin xyz="-0.1 0 0"/><geometry><mesh filename="felt/arm.obj"/></geometry></collision>
  </link>
  <joint name="turn" type="revolute"><parent link="{root}"/><child link="arm"/><origin xyz="0 0 0.5"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" velocity="1" effort="10"/></joint>
</robot>
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    faces = "".join("f " + " ".join(str(index + 1) for index in face) + "\n" for face in FACES)
    for name, size in (("seen", 1.0), ("felt", 2.0)):
        (tmp_path / name).mkdir()
        vertices = "".join(f"v {x} {y} {z}\n" for x, y, z in TETRAHEDRON * size)
        (tmp_path / name / "arm.obj").write_text("mtllib arm.mtl\n" + vertices + "usemtl red\n" + faces)
        (tmp_path / name / "arm.mtl").write_text("newmtl red\nKd 1 0 0\n")
    return tmp_path


def write(folder, root="base"):
    path = folder / "it.urdf"
    path.write_text(URDF.format(root=root))
    return path


def points(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> np.ndarray:
    """The vertices of a mesh in the world, sorted."""
    mesh = model.geom_dataid[geom]
    vertices = model.mesh_vert[model.mesh_vertadr[mesh] :][: model.mesh_vertnum[mesh]]
    found = vertices @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
    return found[np.lexsort(found.round(5).T)]


def test_meshes_are_where_the_urdf_puts_them(folder):
    """Files of one name are two meshes, as are two scales of one file; a scale may mirror; a link's shapes are in the link's frame."""
    model = read_into_mujoco(read_urdf(write(folder))).mj.compile()
    data = mujoco.MjData(model)
    data.qpos[0] = 0.3
    mujoco.mj_kinematics(model, data)
    link = pin.SE3(pin.rpy.rpyToMatrix(0, 0, 0.3), np.array([0, 0, 0.5]))
    seen = link * pin.SE3(pin.rpy.rpyToMatrix(0.4, -0.5, 0.6), np.array([0.1, 0.2, 0.3]))
    felt = link * pin.SE3(np.eye(3), np.array([-0.1, 0, 0]))
    for geom, pose, scale, collides in ((0, seen, [1, -2, 0.5], 0), (1, link, [3, 3, 3], 0), (2, felt, [2, 2, 2], 1)):
        expected = (TETRAHEDRON * scale) @ pose.rotation.T + pose.translation
        np.testing.assert_allclose(points(model, data, geom), expected[np.lexsort(expected.round(5).T)], atol=1e-6)
        assert model.geom_contype[geom] == model.geom_conaffinity[geom] == collides


def test_the_paint_of_the_urdf_hides_the_colour_of_the_mesh(folder):
    model = read_into_mujoco(read_urdf(write(folder))).mj.compile()
    np.testing.assert_allclose(model.geom_rgba[:2], [[0.1, 0.2, 0.3, 1], [1, 0, 0, 1]], atol=1e-6)


def test_without_meshes_the_bodies_are_the_same(folder):
    urdf = read_urdf(write(folder))
    full, bare = (read_into_mujoco(urdf, meshes).mj.compile() for meshes in (True, False))
    assert (full.ngeom, bare.ngeom) == (3, 0)
    for field in ("body_mass", "body_inertia", "body_ipos", "body_pos", "jnt_range"):
        np.testing.assert_array_equal(getattr(full, field), getattr(bare, field))


@pytest.mark.parametrize("root", ["base", "world"])
def test_a_robot_with_meshes_stands_in_a_scene(root, folder):
    spec = draft_robot(write(folder, root))
    text = robot_yaml(spec, folder) + "base_position: [1.0, 2.0, 0.5]\n"
    (folder / "robot.yaml").write_text(text)
    model = build(load_robot(folder / "robot.yaml"), "floor")
    data = mujoco.MjData(model.mj)
    mujoco.mj_forward(model.mj, data)
    np.testing.assert_allclose(data.body("arm").xpos, [1, 2, 1])
    assert data.ncon == 0
    mujoco.mj_step(model.mj, data, 200)
    assert np.abs(data.qpos).max() < 1e-6


def test_the_floor_stays_solid_under_a_robot_that_starts_at_the_world(folder):
    """Links that overlap at home may pass through each other, but the floor is no link even where one is called 'world'."""
    spec = draft_robot(write(folder, "world"))
    (folder / "robot.yaml").write_text(robot_yaml(spec, folder) + "base_position: [0.0, 0.0, -0.6]\n")
    model = build(load_robot(folder / "robot.yaml"), "floor")
    assert model.mj.nexclude == 0


def test_the_world_does_not_float(folder):
    with pytest.raises(UserError, match=r"it\.urdf: its root link 'world' is what stands still, so the base cannot float"):
        draft_robot(write(folder, "world"), floating_base=True)
    spec = draft_robot(write(folder, "world"))
    (folder / "robot.yaml").write_text(robot_yaml(spec, folder) + "floating_base: true\n")
    with pytest.raises(UserError, match=r"robot\.yaml:\d+: the root link 'world' stands still in MuJoCo, so floating_base must be false"):
        load_robot(folder / "robot.yaml")

"""A robot drafted from its URDF: home, gains and frames, and that the robot.yaml it becomes says the same."""

import dataclasses

import numpy as np
import pytest

from ros_rl.paths import share_dir
from ros_rl.robots.draft import draft_robot, robot_yaml
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot, robot_names

WITH_JOINTS = [name for name in robot_names() if (share_dir() / "urdf" / name / f"{name}.urdf").exists() and name != "quadrotor"]

JOINT = (
    '<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/><origin xyz="0 0 0.2"/><axis xyz="0 1 0"/>'
    '<limit lower="{}" upper="{}" velocity="1" effort="{}"/></joint>'
)
FIXED = '<joint name="to_{1}" type="fixed"><parent link="{0}"/><child link="{1}"/></joint>'
LINK = '<link name="{}"><inertial><mass value="{}"/><inertia ixx="{}" ixy="0" ixz="0" iyy="{}" iyz="0" izz="{}"/></inertial></link>'


def urdf(folder, *parts):
    path = folder / "it.urdf"
    path.write_text(f'<robot name="it">{"".join(parts)}</robot>')
    return path


def one_joint(folder, lower=-1.0, upper=1.0, effort=1.0, inertia=1.0, more=()):
    link = LINK.format("arm", 1, inertia, inertia, inertia)
    return urdf(folder, '<link name="base"/>', link, JOINT.format("turn", "base", "arm", lower, upper, effort), *more)


@pytest.mark.parametrize("name", WITH_JOINTS)
def test_the_file_it_becomes_is_read_as_the_same_robot(name, tmp_path):
    floating = load_robot(name).floating_base
    spec = draft_robot(load_robot(name).urdf, f"my {name}: 2", floating)
    (tmp_path / "robot.yaml").write_text(robot_yaml(spec, tmp_path))
    loaded = load_robot(tmp_path / "robot.yaml")
    for read, drafted in zip(loaded.joints, spec.joints, strict=True):
        if drafted.velocity == np.inf:  # the guard needs a limit
            drafted = dataclasses.replace(drafted, velocity=1.0)
        assert dataclasses.replace(read, home=0, stiffness=0, damping=0) == dataclasses.replace(drafted, home=0, stiffness=0, damping=0)
        assert (read.home, read.stiffness, read.damping) == pytest.approx((drafted.home, drafted.stiffness, drafted.damping), rel=1e-3)
    assert dataclasses.replace(loaded, joints=()) == dataclasses.replace(spec, joints=())


def test_the_path_of_the_urdf_is_relative_where_the_two_stay_together(tmp_path):
    spec = draft_robot(one_joint(tmp_path))
    assert "urdf: it.urdf\n" in robot_yaml(spec, tmp_path)
    assert "urdf: ../it.urdf\n" in robot_yaml(spec, tmp_path / "it")
    assert f"urdf: {tmp_path}/it.urdf\n" in robot_yaml(spec, tmp_path.parent / "elsewhere" / "it")


@pytest.mark.parametrize(("lower", "upper", "home"), [(-1, 1, 0), (0, 2, 0), (-2, 0, 0), (0.5, 1.5, 1), (-0.001, 2, 0.9995), (-3, -1, -2)])
def test_home_is_zero_or_the_middle_of_the_range(lower, upper, home, tmp_path):
    assert draft_robot(one_joint(tmp_path, lower, upper)).home[0] == pytest.approx(home)


@pytest.mark.parametrize(
    ("effort", "inertia", "stiffness"),
    [
        (1.0, 2.0, 2.0 * 30**2),  # swings at 30 rad/s
        (50.0, 0.01, 100.0),  # gives its effort at half a radian
        (50.0, 1e-5, 1e-5 * 250**2),  # but swings at 250 rad/s at most
        (0.0, 2.0, 2.0 * 30**2),  # without effort limit
    ],
)
def test_gains_come_from_inertia_and_effort(effort, inertia, stiffness, tmp_path):
    (joint,) = draft_robot(one_joint(tmp_path, effort=effort, inertia=inertia)).joints
    assert joint.stiffness == pytest.approx(stiffness)
    assert joint.damping == pytest.approx(2 * np.sqrt(stiffness * inertia))


def test_gains_suit_the_lightest_pose(tmp_path):
    """The shoulder moves a weight at the end of the arm, close to its axis where the elbow is folded."""
    links = [LINK.format("a", 1, 1, 1, 1), LINK.format("b", 1e-6, 1e-9, 1e-9, 1e-9), LINK.format("c", 1e-6, 1e-9, 1e-9, 1e-9)]
    weight = LINK.format("d", 0.1, 1e-5, 1e-5, 1e-5)
    end = '<joint name="end" type="fixed"><parent link="c"/><child link="d"/><origin xyz="0 0 0.2"/></joint>'
    joints = [JOINT.format("shoulder", "a", "b", -3, 3, 1e6), JOINT.format("elbow", "b", "c", -3, 3, 1e6)]
    spec = draft_robot(urdf(tmp_path, *links, weight, *joints, end))
    straight = RobotModel(spec).mass_matrix(np.zeros(2))[0, 0]
    assert 0 < spec.joints[0].stiffness < straight * 250**2 / 2


def test_joints_are_in_the_order_of_the_chain(tmp_path):
    links = [LINK.format(name, 1, 1, 1, 1) for name in "abcd"]
    joints = [JOINT.format(*names, -1, 1, 1) for names in (("wrist", "c", "d"), ("shoulder", "a", "b"), ("elbow", "b", "c"))]
    assert draft_robot(urdf(tmp_path, *links, *joints)).joint_names == ("shoulder", "elbow", "wrist")


@pytest.mark.parametrize(
    ("names", "tool"), [(("flange", "tcp"), "tcp"), (("flange", "gripper_frame_link"), "gripper_frame_link"), ((), "arm")]
)
def test_tool_frame(names, tool, tmp_path):
    more = [f'<link name="{name}"/>' + FIXED.format("arm", name) for name in names]
    assert draft_robot(one_joint(tmp_path, more=more)).tool_frame == tool


def test_cameras_and_imu_are_found_by_their_names(tmp_path):
    names = ("imu_link", "wrist_color_optical_frame", "wrist_depth_optical_frame", "head_camera_optical_frame")
    more = [f'<link name="{name}"/>' + FIXED.format("arm", name) for name in names]
    spec = draft_robot(one_joint(tmp_path, more=more))
    assert spec.imu_frame == "imu_link"
    assert {camera.name: camera.frame for camera in spec.cameras} == {
        "wrist_color": "wrist_color_optical_frame",
        "head_camera": "head_camera_optical_frame",
    }


def test_a_floating_base_stands_on_its_lowest_link():
    spec = draft_robot(load_robot("quadruped").urdf, floating_base=True)
    model = RobotModel(spec)
    base = np.array([*spec.base_position, 1, 0, 0, 0])
    assert min(model.frame_pose(link, spec.home, base).position[2] for link in model.frames) == pytest.approx(0, abs=1e-4)
    assert spec.tool_frame is None

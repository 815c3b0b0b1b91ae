"""Repairs: what they leave alone, and that a repaired robot is where and as heavy as the faulty one meant."""

import numpy as np
import pinocchio as pin
import pytest
from lxml import etree

from ros_rl.robots.repair import repair
from ros_rl.robots.spec import load_robot, robot_names

INERTIAL = '<inertial><mass value="1"/><inertia ixx="{}" ixy="{}" ixz="0" iyy="{}" iyz="0" izz="{}"/></inertial>'
LIMIT = '<limit lower="{}" upper="{}" velocity="1" effort="1"/>'


def link(name: str, ixx=1.0, iyy=1.0, izz=1.0, ixy=0.0) -> str:
    return f'<link name="{name}">{INERTIAL.format(ixx, ixy, iyy, izz)}</link>'


def joint(name: str, parent: str, child: str, kind="revolute", lower=-1.0, upper=1.0, more="") -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="0.1 0.2 0.3" rpy="0.4 -0.5 0.6"/><axis xyz="0.6 0 0.8"/>{LIMIT.format(lower, upper)}{more}</joint>'
    )


def robot(*parts: str) -> etree._Element:
    return etree.fromstring(f'<robot name="it">{"".join(parts)}</robot>')


def chain(*joints: str) -> etree._Element:
    """Links a, b, c and d, one after the other."""
    return robot(*(link(name) for name in "abcd"), *joints)


@pytest.mark.parametrize("name", robot_names())
def test_robots_that_ship_need_none_or_one_that_we_know(name):
    assert [repair.where for repair in load_robot(name).read_urdf().repairs] == (["link 'base'"] if name == "go1" else [])


@pytest.mark.parametrize(("kind", "position"), [("revolute", 0.7), ("revolute", -2.0), ("prismatic", 0.7), ("prismatic", 0.0)])
def test_a_locked_joint_stays_where_it_was_locked(kind, position):
    joints = [joint("j1", "a", "b"), joint("j2", "b", "c", kind, position, position), joint("j3", "c", "d")]
    faulty = pin.buildModelFromXML(etree.tostring(chain(*joints), encoding="unicode"))
    mended = chain(*joints)
    assert [done.kind for done in repair(mended)] == ["limits"]
    mended = pin.buildModelFromXML(etree.tostring(mended, encoding="unicode"))
    expected, found = placement(faulty, np.array([0.3, position, -0.2])), placement(mended, np.array([0.3, -0.2]))
    np.testing.assert_allclose(found.homogeneous, expected.homogeneous, atol=1e-12)


def placement(model: pin.Model, q: np.ndarray) -> pin.SE3:
    """The pose of link d."""
    data = model.createData()
    pin.framesForwardKinematics(model, data, q)
    return data.oMf[model.getFrameId("d", pin.FrameType.BODY)]


def test_a_joint_locked_straight_up_has_a_rotation_at_all():
    """At a pitch of a right angle roll and yaw turn about the same axis."""
    tree = chain(joint("j1", "a", "b"), joint("j2", "b", "c", lower=np.pi / 2, upper=np.pi / 2), joint("j3", "c", "d"))
    j2 = tree.findall("joint")[1]
    j2.find("origin").set("rpy", "0.3 0 0")
    j2.find("axis").set("xyz", "0 1 0")
    faulty = pin.buildModelFromXML(etree.tostring(tree, encoding="unicode"))
    repair(tree)
    mended = pin.buildModelFromXML(etree.tostring(tree, encoding="unicode"))
    expected, found = placement(faulty, np.array([0.3, np.pi / 2, -0.2])), placement(mended, np.array([0.3, -0.2]))
    np.testing.assert_allclose(found.homogeneous, expected.homogeneous, atol=1e-7)


def test_followers_of_a_follower_follow_the_leader():
    tree = chain(
        joint("j1", "a", "b"),
        joint("j2", "b", "c", more='<mimic joint="j1" multiplier="2" offset="0.1"/>'),
        joint("j3", "c", "d", more='<mimic joint="j2" multiplier="-3" offset="0.2"/>'),
    )
    assert [str(done) for done in repair(tree)] == [
        "joint 'j3': it follows 'j2', which follows another; follows 'j1' directly, multiplier -6, offset -0.1"
    ]
    mimic = tree.findall("joint")[2].find("mimic")
    assert (mimic.get("joint"), float(mimic.get("multiplier")), float(mimic.get("offset"))) == ("j1", -6, pytest.approx(-0.1))


def test_followers_of_a_locked_joint_are_locked_too():
    tree = chain(
        joint("j1", "a", "b"),
        joint("j2", "b", "c", lower=0.5, upper=0.5),
        joint("j3", "c", "d", more='<mimic joint="j2" multiplier="2" offset="0.1"/>'),
    )
    assert [(done.kind, done.where, done.what) for done in repair(tree)] == [
        ("limits", "joint 'j2'", "fixed there"),
        ("mimic", "joint 'j3'", "fixed at 1.1"),
    ]
    assert [element.get("type") for element in tree.findall("joint")] == ["revolute", "fixed", "fixed"]


def test_joints_that_follow_each_other_are_freed():
    tree = chain(
        joint("j1", "a", "b", more='<mimic joint="j2"/>'),
        joint("j2", "b", "c", more='<mimic joint="j1"/>'),
        joint("j3", "c", "d"),
    )
    assert [str(done) for done in repair(tree)] == [
        "joint 'j1': it follows itself (j1 follows j2 follows j1); the mimic is left out, the joint moves by itself"
    ]


def test_a_fixed_joint_follows_none():
    tree = chain(joint("j1", "a", "b"), joint("j2", "b", "c", "fixed", more='<mimic joint="j1"/>'), joint("j3", "c", "d"))
    assert [(done.where, done.why) for done in repair(tree)] == [("joint 'j2'", "a fixed joint cannot follow another")]


@pytest.mark.parametrize("moments", [(1, 1, 2), (1e-7, 1e-7, 1e-7), (0.3, 0.5, 0.7)])
def test_inertias_of_bodies_are_left_alone(moments):
    """A thin plate has the largest moment equal to the sum of the others; engines round, so a hair is added to it."""
    tree = robot(link("a"), link("b", *moments), joint("j", "a", "b"))
    repair(tree)
    inertia = tree.findall("link")[1].find("inertial/inertia")
    np.testing.assert_allclose([float(inertia.get(key)) for key in ("ixx", "iyy", "izz")], moments, rtol=1e-8)


@pytest.mark.parametrize("moments", [(0.1, 0.1, 1.0), (-0.1, 0.5, 1.0), (-1.0, -1.0, 1e-6), (0, 0, 0.3)])
def test_repaired_inertias_keep_their_axes_and_largest_moment(moments):
    turn = pin.rpy.rpyToMatrix(0.1, 0.2, 0.3)
    matrix = turn @ np.diag(moments) @ turn.T
    tree = robot(link("a"), link("b"), joint("j", "a", "b"))
    element = tree.findall("link")[1].find("inertial/inertia")
    for row, column, key in ((0, 0, "ixx"), (0, 1, "ixy"), (0, 2, "ixz"), (1, 1, "iyy"), (1, 2, "iyz"), (2, 2, "izz")):
        element.set(key, repr(float(matrix[row, column])))
    assert [done.kind for done in repair(tree)] == ["inertia"]
    values = {key: float(element.get(key)) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")}
    xx, xy, xz, yy, yz, zz = values.values()
    mended = turn.T @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn
    np.testing.assert_allclose(mended, np.diag(np.diag(mended)), atol=1e-9)
    a, b, c = np.diag(mended)
    assert min(a, b, c) > 0 and a + b >= c
    assert c == pytest.approx(moments[2], rel=1e-6)


def test_a_link_that_carries_a_body_needs_no_mass():
    tree = robot(link("a"), '<link name="b"/>', link("c"), joint("j", "a", "b"), joint("k", "b", "c", "fixed"))
    assert repair(tree) == []


def test_a_link_without_mass_keeps_its_inertia_and_centre():
    inertial = '<inertial><origin xyz="1 2 3"/><mass value="0"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
    tree = robot(link("a"), f'<link name="b">{inertial}</link>', joint("j", "a", "b"))
    assert [done.why for done in repair(tree)] == ["it moves and has no mass"]
    inertial = tree.findall("link")[1].find("inertial")
    assert inertial.find("origin").get("xyz") == "1 2 3"
    assert (inertial.find("mass").get("value"), inertial.find("inertia").get("ixx")) == ("0.001", "1")

"""`ros-rl robot` on URDFs of every kind of fault, each with the one line that is to be read."""

import json
import re
import struct

import cv2
import numpy as np
import pytest

from ros_rl.cli.main import main
from ros_rl.robots.spec import load_robot, robot_names

LINKS = """\
  <link name="base"/>
  <link name="arm">
    <inertial><origin xyz="0 0 0.1"/><mass value="2"/><inertia ixx="0.02" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.04"/></inertial>
    <collision><origin xyz="0 0 0.1"/><geometry><box size="0.1 0.1 0.2"/></geometry></collision>
  </link>
  <link name="hand">
    <inertial><mass value="1"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial>
    <visual><origin xyz="0 0 0.05"/><geometry><mesh filename="hand.stl"/></geometry></visual>
    <collision><origin xyz="0 0 0.05"/><geometry><sphere radius="0.05"/></geometry></collision>
  </link>
"""
JOINTS = """\
  <joint name="turn" type="revolute">
    <parent link="base"/><child link="arm"/><axis xyz="0 0 1"/><limit lower="-1" upper="2" velocity="3" effort="4"/>
  </joint>
  <joint name="slide" type="prismatic">
    <parent link="arm"/><child link="hand"/><origin xyz="0 0 0.4"/><axis xyz="0 1 0"/>
    <limit lower="0" upper="0.1" velocity="1" effort="5"/>
  </joint>
"""
SOUND = f'<robot name="two">\n{LINKS}{JOINTS}</robot>\n'
TURN_LIMITS = 'lower="-1" upper="2"'
ARM_INERTIA = 'ixx="0.02" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.04"'
FOLLOW = '<limit lower="0" upper="0.1" velocity="1" effort="5"/>'
TETRAHEDRON = np.array([[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]])
SIDES = TETRAHEDRON[[[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]]


def binary_stl(corners: np.ndarray) -> bytes:
    """A binary STL of triangles, shape (faces, 3, 3)."""
    faces = np.zeros(len(corners), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    faces["corners"] = corners
    return bytes(80) + struct.pack("<I", len(corners)) + faces.tobytes()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the sound robot `two.urdf` and its mesh; the working directory, with a mesh cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.urdf").write_text(SOUND)
    (tmp_path / "hand.stl").write_bytes(binary_stl(SIDES))
    return tmp_path


def check(capsys, *words) -> dict:
    """Returns what `ros-rl robot check --json` says."""
    code = main(["robot", "check", *words, "--json"])
    output = capsys.readouterr()
    assert output.err == ""
    findings = json.loads(output.out)
    assert code == 0 and findings["ok"]
    return findings


@pytest.mark.parametrize("name", robot_names())
def test_robots_that_ship(name, capsys):
    findings = check(capsys, name)
    assert {repair["kind"] for repair in findings["repairs"]} == ({"inertia", "mesh"} if name == "go1" else set())
    assert all("overlap at the home pose" in warning for warning in findings["warnings"])
    assert [joint["name"] for joint in findings["joints"]] == list(load_robot(name).measured_names)
    assert findings["fk_error"] < 1e-9
    assert findings["mass_matrix_error"] < 1e-6
    assert main(["robot", "check", name]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok"


def test_a_sound_urdf(folder, capsys):
    findings = check(capsys, "two.urdf")
    assert [joint["name"] for joint in findings["joints"]] == ["turn", "slide"]
    assert [(joint["kind"], joint["lower"], joint["upper"]) for joint in findings["joints"]] == [("revolute", -1, 2), ("prismatic", 0, 0.1)]
    assert findings["repairs"] == findings["warnings"] == []
    assert findings["fk_error"] < 1e-12 and findings["mass_matrix_error"] < 1e-12


# What is replaced in the sound URDF, by what, and how the one line begins (after the path).
FAULTS = {
    "empty": (SOUND, "", ":1: not well-formed XML: Document is empty"),
    "no XML": ("</robot>", "", ":20: not well-formed XML: "),
    "another format": (SOUND, "<mujoco/>", ":1: the outermost element is <mujoco>, a URDF starts with <robot>"),
    "no links": (LINKS + JOINTS, "", ":1: there is no <link>"),
    "no actuated joint": (JOINTS, JOINTS.replace("revolute", "fixed").replace("prismatic", "fixed"), ": no joint moves, so there is noth"),
    "link twice": ('<link name="arm">', '<link name="base">', ":3: link 'base' is there twice"),
    "joint twice": ('joint name="slide"', 'joint name="turn"', ":15: joint 'turn' is there twice"),
    "loop": ('<parent link="base"/>', '<parent link="hand"/>', ": the links arm, hand form a loop"),
    "split tree": ('<link name="base"/>', '<link name="base"/><link name="stray"/>', ": a URDF has one root link, this has 2: base, stray"),
    "two parents": ('<child link="hand"/>', '<child link="arm"/>', ":15: link 'arm' has two parents, 'base' and 'arm'"),
    "missing link": (
        '<child link="hand"/>',
        '<child link="hnd"/>',
        ":16: joint 'slide' names the child link 'hnd', which is not there, did",
    ),
    "limits swapped": (TURN_LIMITS, 'lower="2" upper="-1"', ":13: joint 'turn' has the limits lower=2.0 and upper=-1.0, lower must be"),
    "no limits": ('<limit lower="-1" upper="2" velocity="3" effort="4"/>', "", ":12: revolute joint 'turn' has no <limit>"),
    "mass no number": ('mass value="2"', 'mass value="2 kg"', ":4: <mass> value='2 kg' is not a number"),
    "inertia infinite": ('ixx="0.02"', 'ixx="inf"', ":4: <inertia> ixx='inf' is not a number"),
    "origin of two": ('xyz="0 0 0.4"', 'xyz="0 0.4"', ":16: <origin> xyz='0 0.4' is not three numbers"),
    "axis of no length": ('axis xyz="0 1 0"', 'axis xyz="0 0 0"', ":16: joint 'slide' moves about an axis of length 0"),
    "world not the root": ('hand"', 'world"', ": only the root link may be called 'world', which is what stands still; the root is 'base'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_urdf_is_refused_in_one_line(fault, folder, capsys):
    right, wrong, message = FAULTS[fault]
    assert right in SOUND
    (folder / "two.urdf").write_text(SOUND.replace(right, wrong))
    assert main(["robot", "check", "two.urdf"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"ros-rl: two.urdf{message}")
    assert output.err.count("\n") == 1


def test_a_missing_mesh_is_refused_with_the_paths_tried(folder, capsys):
    (folder / "hand.stl").unlink()
    assert main(["robot", "check", "two.urdf"]) == 2
    assert capsys.readouterr().err == f"ros-rl: two.urdf: mesh 'hand.stl' is not there, tried {folder}/hand.stl\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"solid nothing\nendsolid nothing\n", "hand.stl: "),
        (binary_stl(SIDES)[:-20], "hand.stl: "),
        (binary_stl(np.zeros((4, 3, 3))), "hand.stl: holds no face"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n",
            "hand.stl: is a pointer of Git LFS; 'git lfs pull' in its repository",
        ),
    ],
)
def test_a_mesh_that_is_none(content, message, folder, capsys):
    (folder / "hand.stl").write_bytes(content)
    assert main(["robot", "check", "two.urdf"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"ros-rl: {folder}/{message}")
    assert error.count("\n") == 1


def test_what_is_no_file(folder, capsys):
    for word, message in {
        ".": ".: is a folder, not a URDF file; in it there is two.urdf",
        "https://example.com/two.urdf": "https://example.com/two.urdf: is an address; download the robot with its meshes and give the path",
        "none.urdf": "none.urdf: cannot be read (No such file or directory)",
        "tow": "unknown robot 'tow' (known: arm, ",
        "hand.stl": "hand.stl:1: not well-formed XML: ",
    }.items():
        assert main(["robot", "check", word]) == 2
        assert capsys.readouterr().err.startswith(f"ros-rl: {message}")


INERTIAL = '<inertial><mass value="1"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial>'
# What is replaced in the sound URDF, by what, and the repair: its kind, where, what and why.
REPAIRS = {
    "inertia breaks the triangle inequality": (
        'izz="0.04"',
        'izz="0.07"',
        (
            "inertia",
            "link 'arm'",
            "raised to 0.03, 0.04, 0.07",
            "the principal moments of inertia 0.02, 0.03, 0.07 kg·m² break the triangle inequality",
        ),
    ),
    "inertia not positive": (
        'ixx="0.02"',
        'ixx="-0.02"',
        (
            "inertia",
            "link 'arm'",
            "raised to 0.00502, 0.035, 0.04",
            "the principal moments of inertia -0.02, 0.03, 0.04 kg·m² are not all positive",
        ),
    ),
    "no inertia": (
        ARM_INERTIA,
        "",
        ("inertia", "link 'arm'", "given that of a sphere of 2 kg as dense as water", "it moves and has no inertia"),
    ),
    "no mass": (INERTIAL, "", ("mass", "link 'hand'", "given 1 g", "it moves and has no mass")),
    "negative mass": ('mass value="1"', 'mass value="-1"', ("mass", "link 'hand'", "taken as without mass", "the mass is -1 kg")),
    "no range": (
        TURN_LIMITS,
        'lower="0" upper="0"',
        (
            "limits",
            "joint 'turn'",
            "taken as a continuous joint, without limits",
            "the limits are of zero width, lower and upper are both 0",
        ),
    ),
    "locked": (
        TURN_LIMITS,
        'lower="0.5" upper="0.5"',
        ("limits", "joint 'turn'", "fixed there", "the limits are of zero width, lower and upper are both 0.5"),
    ),
    "planar joint": (
        'name="turn" type="revolute"',
        'name="turn" type="planar"',
        (
            "joint",
            "joint 'turn'",
            "fixed at zero (a robot that moves freely has 'floating_base: true' in its robot.yaml)",
            "a planar joint takes no command here",
        ),
    ),
    "mimic of nothing": (
        FOLLOW,
        FOLLOW + '<mimic joint="trun"/>',
        (
            "mimic",
            "joint 'slide'",
            "the mimic is left out, the joint moves by itself",
            "it follows 'trun', which is not there, did you mean 'turn'?",
        ),
    ),
    "mimic of itself": (
        FOLLOW,
        FOLLOW + '<mimic joint="slide"/>',
        ("mimic", "joint 'slide'", "the mimic is left out, the joint moves by itself", "it follows itself (slide follows slide)"),
    ),
    "shape without size": (
        'sphere radius="0.05"',
        'sphere radius="0"',
        ("shape", "link 'hand'", "left out", "a <sphere> of the <collision> has the radius 0"),
    ),
    "mesh without size": (
        'filename="hand.stl"',
        'filename="hand.stl" scale="1 0 1"',
        ("shape", "link 'hand'", "left out", "a <mesh> of the <visual> has the scale 1 0 1"),
    ),
    "shape names twice": (
        "<collision>",
        '<collision name="shape">',
        ("shape", "link 'hand'", "the name is left out", "the name 'shape' of its <collision> stands twice"),
    ),
}


@pytest.mark.parametrize("fault", REPAIRS)
def test_a_fault_that_is_repaired_and_told(fault, folder, capsys):
    right, wrong, repair = REPAIRS[fault]
    assert right in SOUND
    (folder / "two.urdf").write_text(SOUND.replace(right, wrong))
    findings = check(capsys, "two.urdf")
    assert findings["repairs"][0] == dict(zip(("kind", "where", "what", "why"), repair, strict=True))
    assert main(["robot", "check", "two.urdf"]) == 0
    _, where, what, why = repair
    assert f"\nrepaired: {where}: {why}; {what}\n" in capsys.readouterr().out


def test_a_gigantic_mesh_is_simplified(folder, capsys):
    """A sphere of a quarter of a million faces; the picture and the convex hull need no more than a few thousand."""
    (folder / "hand.stl").write_bytes(binary_stl(sphere(500)))
    repair = check(capsys, "two.urdf")["repairs"][0]
    assert repair["where"] == "mesh 'hand.stl'"
    assert repair["why"] == "it has 500000 faces, MuJoCo takes 200000"
    assert repair["what"].startswith("simplified to ")


def test_a_mesh_in_millimetres_is_warned_of(folder, capsys):
    (folder / "hand.stl").write_bytes(binary_stl(SIDES * 1000))
    assert check(capsys, "two.urdf")["warnings"] == [
        "link 'hand' is 141 m large; if its mesh is in millimetres, it needs scale=\"0.001 0.001 0.001\""
    ]


def sphere(size: int) -> np.ndarray:
    """Triangles of a sphere of 5 cm, shape (2·size², 3, 3)."""
    polar, azimuth = np.meshgrid(np.linspace(0.01, np.pi - 0.01, size + 1), np.linspace(0, 2 * np.pi, size + 1), indexing="ij")
    points = 0.05 * np.stack([np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)], axis=-1)
    a, b, c, d = points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]
    return np.concatenate([np.stack([a, b, c], axis=2), np.stack([a, c, d], axis=2)]).reshape(-1, 3, 3)


def test_a_flat_mesh_that_collides_gets_a_thickness(folder, capsys):
    (folder / "hand.stl").write_bytes(binary_stl(SIDES * [1, 1, 0]))
    (folder / "two.urdf").write_text(SOUND.replace('<sphere radius="0.05"/>', '<mesh filename="hand.stl"/>'))
    assert {repair["why"] for repair in check(capsys, "two.urdf")["repairs"]} == {"it is flat, MuJoCo wants a volume"}


def test_overlap_at_home_is_warned_of(folder, capsys):
    (folder / "two.urdf").write_text(
        SOUND.replace(
            '</link>\n  <link name="hand">',
            '</link>\n  <link name="palm"><collision><geometry><sphere radius="0.4"/></geometry></collision></link>\n  <link name="hand">',
        )
        .replace('<child link="hand"/>', '<child link="hand"/>')
        .replace("</robot>", '<joint name="mount" type="fixed"><parent link="base"/><child link="palm"/></joint></robot>')
    )
    assert "links 'hand' and 'palm' overlap at the home pose" in check(capsys, "two.urdf")["warnings"]


def test_a_robot_without_shapes_is_warned_of(folder, capsys):
    shapeless = re.sub("<(visual|collision)>.*</(visual|collision)>", "", SOUND)
    (folder / "two.urdf").write_text(shapeless)
    assert check(capsys, "two.urdf")["warnings"] == ["there are no shapes: nothing is to be seen, and nothing collides"]


def test_missing_limits_are_warned_of(folder, capsys):
    (folder / "two.urdf").write_text(SOUND.replace('velocity="3" effort="4"', 'velocity="3"'))
    assert check(capsys, "two.urdf")["warnings"] == ["joint 'turn' has no effort limit"]


def test_picture(folder, capsys):
    check(capsys, "two.urdf", "--picture", "pictures/two.png")
    picture = cv2.imread("pictures/two.png")
    assert picture.shape == (480, 640, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
    assert main(["robot", "check", "two.urdf", "--picture", "two.gif"]) == 2
    assert capsys.readouterr().err == "ros-rl: two.gif: the picture is a PNG; its name must end in .png\n"


def test_new_writes_a_robot_that_loads(folder, capsys):
    assert main(["robot", "new", "two.urdf", "--name", "mine"]) == 0
    assert capsys.readouterr().out == "wrote mine/robot.yaml with 2 joints; 'ros-rl robot check mine/robot.yaml' says what it is like\n"
    spec = load_robot("mine/robot.yaml")
    assert (spec.name, spec.joint_names, spec.tool_frame) == ("mine", ("turn", "slide"), "hand")
    assert check(capsys, "mine/robot.yaml")["warnings"] == []
    assert main(["robot", "new", "two.urdf", "--name", "mine"]) == 2
    assert capsys.readouterr().err == "ros-rl: mine/robot.yaml: is there already; choose another folder with --out, or delete it first\n"


def test_new_refuses_a_name_that_is_none(folder, capsys):
    assert main(["robot", "new", "two.urdf", "--name", "a/b"]) == 2
    assert capsys.readouterr().err == "ros-rl: 'a/b' is no name for a robot; a word such as 'my_arm' is\n"

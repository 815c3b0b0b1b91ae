"""Reading of URDF files: what a sound one gives, and one test per kind of fault."""

import math
import sys

import pytest

from ros_rl.errors import UserError
from ros_rl.robots.urdf import FixedFrame, read_urdf

SOUND = """\
<robot name="two">
  <link name="base"/>
  <link name="arm"/>
  <link name="finger"/>
  <joint name="turn" type="revolute">
    <parent link="base"/>
    <child link="arm"/>
    <limit lower="-1" upper="2" velocity="3" effort="4"/>
  </joint>
  <joint name="slide" type="prismatic">
    <parent link="arm"/>
    <child link="finger"/>
    <limit lower="0" upper="0.1"/>
    <mimic joint="turn" multiplier="0.5" offset="0.01"/>
  </joint>
</robot>
"""


def test_reads_joints_links_and_root(tmp_path):
    path = tmp_path / "two.urdf"
    path.write_text(SOUND)
    urdf = read_urdf(path)
    assert urdf.root == "base"
    assert urdf.links == ("base", "arm", "finger")
    assert list(urdf.joints) == ["turn", "slide"]
    turn, slide = urdf.joints.values()
    assert (turn.lower, turn.upper, turn.velocity, turn.effort, turn.mimic) == (-1, 2, 3, 4, None)
    assert (slide.velocity, slide.effort, slide.mimic) == (math.inf, math.inf, ("turn", 0.5, 0.01))


def test_zero_is_how_exporters_write_that_no_limit_is_stated(tmp_path):
    path = tmp_path / "two.urdf"
    path.write_text(SOUND.replace('velocity="3" effort="4"', 'velocity="0" effort="0"'))
    turn = read_urdf(path).joints["turn"]
    assert (turn.velocity, turn.effort) == (math.inf, math.inf)


def test_continuous_joint_has_no_position_limits(tmp_path):
    path = tmp_path / "two.urdf"
    path.write_text(SOUND.replace("revolute", "continuous"))
    turn = read_urdf(path).joints["turn"]
    assert (turn.lower, turn.upper, turn.velocity) == (-math.inf, math.inf, 3)


FAULTS = {
    "no XML": ("</robot>", "", ":17: not well-formed XML"),
    "no robot": ("robot", "model", ":1: the outermost element is <model>, a URDF starts with <robot>"),
    "no links": ("link name", "part name", ":1: there is no <link>"),
    "link twice": ('<link name="arm"/>', '<link name="base"/>', ":3: link 'base' is there twice"),
    "link without a name": ('<link name="arm"/>', "<link/>", ":3: <link> has no 'name'"),
    "joint twice": ('name="slide"', 'name="turn"', ":10: joint 'turn' is there twice"),
    "joint without a type": (' type="revolute"', "", ":5: <joint> has no 'type'"),
    "unknown type": ("revolute", "revolut", ":5: joint 'turn' has the type 'revolut', did you mean 'revolute'?"),
    "no parent": ('<parent link="base"/>', "", ":5: joint 'turn' has no <parent>"),
    "no child": ('<child link="arm"/>', "", ":5: joint 'turn' has no <child>"),
    "unknown child": (
        '<child link="finger"/>',
        '<child link="fingr"/>',
        ":12: joint 'slide' names the child link 'fingr', which is not there, did",
    ),
    "no limit": ('<limit lower="-1" upper="2" velocity="3" effort="4"/>', "", ":5: revolute joint 'turn' has no <limit>"),
    "limits swapped": ('lower="-1"', 'lower="3"', ":8: joint 'turn' has the limits lower=3.0 and upper=2.0, lower must be below upper"),
    "limit no number": ('upper="2"', 'upper="2 rad"', ":8: <limit> upper='2 rad' is not a number"),
    "limit not a number": ('upper="2"', 'upper="nan"', ":8: <limit> upper='nan' is not a number"),
    "limit below zero": ('effort="4"', 'effort="-4"', ":8: joint 'turn' has effort=-4.0, a limit is above 0"),
    "position of words": (
        '<child link="arm"/>',
        '<child link="arm"/><origin xyz="a b c"/>',
        ":7: <origin> xyz='a b c' is not three numbers",
    ),
    "axis of two numbers": ('<child link="arm"/>', '<child link="arm"/><axis xyz="0 1"/>', ":7: <axis> xyz='0 1' is not three numbers"),
    "two parents": ('<child link="finger"/>', '<child link="arm"/>', ":10: link 'arm' has two parents, 'base' and 'arm'"),
    "two roots": ('<link name="base"/>', '<link name="base"/><link name="stray"/>', ": a URDF has one root link, this has 2: base, stray"),
    "loop": ('<parent link="base"/>', '<parent link="finger"/>', ": the links arm, finger form a loop"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_names_the_place_of_a_fault(fault, tmp_path):
    right, wrong, message = FAULTS[fault]
    assert right in SOUND
    path = tmp_path / "two.urdf"
    path.write_text(SOUND.replace(right, wrong))
    with pytest.raises(UserError) as caught:
        read_urdf(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_names_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"none\.urdf: cannot be read"):
        read_urdf(tmp_path / "none.urdf")


XACRO = SOUND.replace("<robot ", '<robot xmlns:xacro="http://www.ros.org/wiki/xacro" ').replace('upper="2"', 'upper="${1 + 1}"')


def test_expands_xacro(tmp_path):
    pytest.importorskip("xacro")
    path = tmp_path / "two.urdf.xacro"
    path.write_text(XACRO)
    urdf = read_urdf(path)
    assert (urdf.path, urdf.joints["turn"].upper) == (path, 2.0)
    path.write_text(XACRO.replace("1 + 1", "nothing"))
    with pytest.raises(UserError, match=r"two\.urdf\.xacro: xacro cannot expand it: .*nothing"):
        read_urdf(path)
    with pytest.raises(UserError, match=r"none\.xacro: cannot be read"):
        read_urdf(tmp_path / "none.xacro")


def test_says_when_xacro_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "two.xacro").write_text(XACRO)
    with pytest.raises(UserError, match=r"two\.xacro: is a xacro file, and xacro is not installed here; 'pip install xacro'"):
        read_urdf(tmp_path / "two.xacro")


def test_the_repaired_text_is_what_the_joints_say(tmp_path):
    path = tmp_path / "two.urdf"
    path.write_text(SOUND.replace('lower="-1" upper="2"', 'lower="0" upper="0"'))
    urdf = read_urdf(path)
    assert [repair.kind for repair in urdf.repairs] == ["limits", "mass", "mass"]
    assert urdf.joints["turn"].kind == "continuous"
    repaired = tmp_path / "repaired.urdf"
    repaired.write_text(urdf.xml)
    assert read_urdf(repaired).joints.keys() == urdf.joints.keys()
    assert read_urdf(repaired).links == urdf.links


def test_frames_are_added_and_the_rest_stays(tmp_path):
    path = tmp_path / "two.urdf"
    path.write_text(SOUND)
    urdf = read_urdf(path)
    frame = FixedFrame("tip", "finger", (0.1, 0.2, 0.3), (0.0, 1.0, 0.0))
    more = urdf.with_frames([frame, FixedFrame("lens", "tip", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))])
    assert more.links == (*urdf.links, "tip", "lens")
    assert list(more.joints) == [*urdf.joints, "tip_joint", "lens_joint"]
    assert (more.joints["tip_joint"].kind, more.joints["tip_joint"].parent, more.root) == ("fixed", "finger", "base")
    assert {name: more.joints[name] for name in urdf.joints} == urdf.joints
    assert urdf.with_frames([]) == urdf
    with pytest.raises(UserError, match="link 'arm' is there twice"):
        urdf.with_frames([FixedFrame("arm", "finger", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))])

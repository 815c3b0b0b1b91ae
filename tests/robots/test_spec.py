"""robot.yaml: every robot that ships is sound, and one test per kind of fault in a file."""

import dataclasses
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
from fake_servos import write_robot

from ros_rl.errors import UserError
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import DeviceUnit, Gripper, load_robot, robot_names
from ros_rl.robots.urdf import read_urdf

URDF = """\
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
  </joint>
</robot>
"""
SOUND = """\
name: two
urdf: two.urdf
control_rate: 50
command_mode: effort
joints:
  turn: {home: 0.5, upper: 1.5, effort: 2}
passive:
  slide: {}
thrusters:
  jet: {frame: arm, wrench: [0, 0, 1, 0, 0, 0], lower: 0, upper: 5, hold: 1}
cameras:
  eye: {frame: finger, width: 320}
tool_frame: finger
frames:
  tip: {link: finger, xyz: [0, 0, 0.1], rpy: [0, 1.5, 0]}
gripper: {joint: turn, open: 1.5, closed: -0.5}
"""


def load(folder, text):
    (folder / "two.urdf").write_text(URDF)
    (folder / "robot.yaml").write_text(text)
    return load_robot(folder / "robot.yaml")


def test_urdf_and_yaml_together(tmp_path):
    spec = load(tmp_path, SOUND)
    assert spec.joint_names == ("turn", "jet")
    assert spec.measured_names == ("turn", "jet", "slide")
    assert spec.period == 0.02
    np.testing.assert_array_equal(spec.home, [0.5, 0, 0])
    np.testing.assert_array_equal(spec.lower, [-1, 0])
    np.testing.assert_array_equal(spec.upper, [1.5, 5])
    np.testing.assert_array_equal(spec.command_limits, [[-2, 0], [2, 5]])
    assert spec.joints[1].hold == 1
    assert (spec.cameras[0].width, spec.cameras[0].height) == (320, 480)
    assert spec.gripper == Gripper("turn", 1.5, -0.5)
    assert [spec.gripper.opening(position) for position in (-0.5, 1.5, 0.5)] == [0.0, 1.0, 0.5]


def test_frames_are_links_of_its_description_and_of_no_file(tmp_path):
    spec = load(tmp_path, SOUND.replace("tool_frame: finger", "tool_frame: tip"))
    assert read_urdf(spec.urdf).links == ("base", "arm", "finger")
    assert spec.read_urdf().links == ("base", "arm", "finger", "tip")
    pose = RobotModel(dataclasses.replace(spec, joints=spec.joints[:1])).frame_pose("tip", np.zeros(2))
    np.testing.assert_allclose(pose.position, [0, 0, 0.1], atol=1e-12)
    np.testing.assert_allclose(pose.rotation[:, 0], [np.cos(1.5), 0, -np.sin(1.5)], atol=1e-12)


@pytest.mark.parametrize(
    ("urdf", "message"),
    [
        ("package://no-such-package/a.urdf", "robot 'two' reads its URDF from the package no-such-package, which is not installed here"),
        ("nope.urdf", "robot 'two' reads its URDF from 'nope.urdf', which is not there ({}/nope.urdf); it must be a file"),
        ("file://nope.urdf", "robot 'two' reads its URDF from 'file://nope.urdf', which is not there ({}/nope.urdf); it must be a file"),
        ("has_no_such", "robot 'two' reads its URDF from 'has_no_such', which is a folder ({}/has_no_such); it must be a file"),
        *(
            (urdf, f"robot 'two' reads its URDF from '{urdf}'; it must be a path, from the folder of this file, or package://NAME/PATH")
            for urdf in ("http://example.org/a.urdf", "package://", "package:///")
        ),
        ("package://has_no_such/a.urdf", "robot 'two' reads its URDF from package://has_no_such/a.urdf, which that package does not have"),
    ],
)
def test_a_urdf_that_is_not_there(tmp_path, urdf, message):
    (tmp_path / "has_no_such").mkdir()
    with pytest.raises(UserError) as caught:
        load(tmp_path, SOUND.replace("two.urdf", urdf))
    assert str(caught.value) == f"{tmp_path / 'robot.yaml'}:2: {message.format(tmp_path)}"


def test_what_brings_the_robots_that_ship_without_a_urdf_is_named(monkeypatch):
    def distribution(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("ros_rl.robots.packages.distribution", distribution)
    for variable in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError) as caught:
        load_robot("panda")
    assert str(caught.value).endswith(
        "urdf/panda/robot.yaml:3: robot 'panda' reads its URDF from the package example-robot-data, which is not installed here; "
        "pip install 'ros_rl[robots]'"
    )


def test_a_range_that_the_urdf_forgot_must_be_given(tmp_path):
    (tmp_path / "two.urdf").write_text(URDF.replace('lower="-1" upper="2" ', ""))
    (tmp_path / "robot.yaml").write_text(SOUND.replace("upper: 1.5, ", ""))
    with pytest.raises(UserError, match=r"robot\.yaml:6: joint 'turn' is revolute and the URDF states no range for it"):
        load_robot(tmp_path / "robot.yaml")
    (tmp_path / "robot.yaml").write_text(SOUND.replace("upper: 1.5", "lower: -1, upper: 1.5"))
    assert load_robot(tmp_path / "robot.yaml").upper[0] == 1.5


def test_command_limits_follow_the_command_mode(tmp_path):
    spec = load(tmp_path, SOUND)
    turn = dataclasses.replace(spec, joints=spec.joints[:1])
    np.testing.assert_array_equal(dataclasses.replace(turn, command_mode="position").command_limits, [[-1], [1.5]])
    np.testing.assert_array_equal(dataclasses.replace(turn, command_mode="velocity").command_limits, [[-3], [3]])


def test_a_robot_runs_at_its_own_control_rate_or_another():
    assert load_robot("arm") == load_robot("arm", 0.0)
    faster = load_robot("arm", 500.0)
    assert (faster.control_rate, faster.period) == (500.0, 0.002)
    assert dataclasses.replace(faster, control_rate=load_robot("arm").control_rate) == load_robot("arm")


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_a_control_rate_that_is_none_is_refused(rate):
    with pytest.raises(UserError, match=f"the control rate is {rate:g} Hz, it must be more than 0"):
        load_robot("arm", rate)


def test_a_robot_rests_where_it_is_or_at_its_hold_within_the_limits(tmp_path):
    spec = load(tmp_path, SOUND)
    measured = np.array([0.3, np.nan])
    rest = dataclasses.replace(spec, command_mode="position").rest(measured)
    np.testing.assert_array_equal(rest, measured)
    assert not np.shares_memory(rest, measured)
    joints = (dataclasses.replace(spec.joints[0], hold=50.0, effort=2.0), dataclasses.replace(spec.joints[0], hold=None))
    effort = dataclasses.replace(spec, joints=joints, command_mode="effort")
    np.testing.assert_array_equal(effort.rest(measured), [2.0, 0.0])
    effort.rest(measured)[:] = np.nan
    np.testing.assert_array_equal(effort.rest(measured), [2.0, 0.0])


FAULTS = {
    "no YAML": ("tool_frame:", "tool_frame: [", ":14: not valid YAML: "),
    "no mapping": (SOUND, "- name\n", ":1: expected 'key: value' lines, found list"),
    "unknown key": ("tool_frame", "tool_fram", ":13: unknown key 'tool_fram', did you mean 'tool_frame'?"),
    "unknown key of a joint": ("home", "hme", ":6: unknown key 'joints.turn.hme'"),
    "missing key": ("control_rate: 50\n", "", ":1: key 'control_rate' is missing"),
    "missing key of a camera": ("frame: finger, ", "", ":12: key 'cameras.eye.frame' is missing"),
    "text for a number": ("50", "fast", ":3: 'control_rate' should be a valid number, got 'fast'"),
    "quoted number": ("50", "'50'", ":3: 'control_rate' should be a valid number, got '50'"),
    "rate of zero": ("50", "0", ":3: 'control_rate' should be greater than 0, got 0"),
    "infinite rate": ("50", ".inf", ":3: 'control_rate' should be a finite number, got inf"),
    "no limit to guard": (
        "turn: {home: 0.5, upper: 1.5, effort: 2}\npassive:\n",
        "turn: {}\n",
        ":7: joint 'slide' has no effort limit; the URDF states none, so give it here",
    ),
    "unknown mode": ("mode: effort", "mode: torque", ":4: 'command_mode' should be 'position', 'velocity' or 'effort', got 'torque'"),
    "short wrench": ("[0, 0, 1, 0, 0, 0]", "[0, 0, 1]", ":10: 'thrusters.jet.wrench' List should have at least 6 items"),
    "no joints": (
        SOUND,
        "name: x\nurdf: two.urdf\ncontrol_rate: 1\ncommand_mode: effort\n",
        ":1: 'joints' is empty; two.urdf has turn, slide",
    ),
    "unknown joint": ("turn:", "trun:", ":6: joint 'trun' is no moving joint of two.urdf, did you mean 'turn'? (it has: turn, slide)"),
    "joint forgotten": ("passive:\n  slide: {}\n", "", ":5: the URDF's joints slide are in neither 'joints' nor 'passive'"),
    "joint twice": ("passive:\n", "passive:\n  turn: {}\n", ":8: 'turn' stands under 'passive' and under 'joints'"),
    "wider limit": ("upper: 1.5", "upper: 2.5", ":6: joint 'turn' asks for upper 2.5, wider than the URDF's 2.0"),
    "limits swapped": ("upper: 1.5", "upper: -2", ":6: joint 'turn' has lower -1.0 and upper -2.0, lower must be below upper"),
    "home outside": ("home: 0.5", "home: 1.6", ":6: joint 'turn' has its home at 1.6, outside -1.0 to 1.5"),
    "unknown tool": (
        "tool_frame: finger",
        "tool_frame: fingers",
        ":13: tool_frame 'fingers' is no link of two.urdf, did you mean 'finger'?",
    ),
    "unknown camera frame": ("{frame: finger", "{frame: head", ":12: cameras.eye.frame 'head' is no link of two.urdf"),
    "unknown thruster frame": ("frame: arm", "frame: am", ":10: thrusters.jet.frame 'am' is no link of two.urdf, did you mean 'arm'?"),
    "thruster limits": ("lower: 0, upper: 5", "lower: 5, upper: 0", ":10: thruster 'jet' has lower 5.0 and upper 0.0, lower must be below"),
    "thruster hold": ("hold: 1", "hold: 6", ":10: thruster 'jet' has hold 6.0, outside 0.0 to 5.0"),
    "gripper of another joint": (
        "{joint: turn",
        "{joint: slide",
        ":16: the gripper's joint 'slide' is not under 'joints' (there: turn)",
    ),
    "gripper of a thruster": (
        "{joint: turn, open: 1.5, closed: -0.5}",
        "{joint: jet, open: 1.5, closed: 0.5}",
        ":16: the gripper's joint 'jet' is not under 'joints' (there: turn)",
    ),
    "gripper outside": ("open: 1.5", "open: 1.6", ":16: the gripper is open at 1.6, outside -1.0 to 1.5 of joint 'turn'"),
    "gripper that does not move": ("closed: -0.5", "closed: 1.5", ":16: the gripper is open and closed at 1.5, the two must differ"),
    "gripper without a place": (", closed: -0.5", "", ":16: key 'gripper.closed' is missing"),
    "frame on no link": ("{link: finger, ", "{link: fingr, ", ":15: 'fingr' is no link of two.urdf, did you mean 'finger'?"),
    "frame without a name": ("  tip:", "  '':", ":15: a frame needs a name, this one is empty"),
    "frame of the world": ("  tip:", "  world:", ":15: no frame can be called 'world', that is what stands still; give another name"),
    "frame that is there": ("  tip:", "  arm:", ":15: two.urdf has a link or joint 'arm' already; give another name"),
    "thruster in position mode": ("mode: effort", "mode: position", ":4: thrusters need command_mode: effort, this is position"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_names_the_place_of_a_fault(fault, tmp_path):
    right, wrong, message = FAULTS[fault]
    assert right in SOUND
    with pytest.raises(UserError) as caught:
        load(tmp_path, SOUND.replace(right, wrong))
    assert str(caught.value).startswith(f"{tmp_path / 'robot.yaml'}{message}")


def test_unknown_robot_lists_those_that_ship():
    with pytest.raises(UserError, match=r"unknown robot 'arn', did you mean 'arm'\? \(known: arm, cartpole, "):
        load_robot("arn")


@pytest.mark.parametrize("name", robot_names())
def test_robots_that_ship(name):
    spec = load_robot(name)
    assert spec.name == name
    assert spec.description
    assert np.isfinite(spec.lower).all()
    assert np.isfinite(spec.upper).all()
    assert (spec.effort > 0).all()
    for joint in spec.joints:
        assert joint.lower <= joint.home <= joint.upper
        if spec.command_mode == "position":
            assert joint.stiffness > 0
            assert joint.damping > 0
    if spec.floating_base:
        assert spec.imu_frame


def test_a_joint_with_a_servo_counts_as_its_servo_does_and_a_controller_speaks_si(tmp_path):
    spec = load_robot(write_robot(tmp_path))
    assert [joint.device for joint in spec.joints] == [None, None, None]
    assert [(servo.id, servo.model, servo.torque_per_count) for servo in spec.servos] == [
        (1, "sts3215", 0.003),
        (2, "sts3215", 0.002),
        (7, "sts3215", 0.0),
    ]
    assert spec.servos[1].unit == DeviceUnit("tick", -4096 / (2 * np.pi), 2000.0)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("servo: {id: 7, model: sts3215}", "hold: 0.0", "9: joint 'jaw' has no servo and others have; give all joints one, or none"),
        ("id: 7", "id: 2", "9: joint 'jaw' has the servo id 2 of joint 'lift'; every servo on a bus needs its own"),
        ("id: 7", "id: 253", "9: 'joints.jaw.servo.id' should be less than or equal to 252, got 253"),
        (
            "{id: 7, model: sts3215",
            "{id: 7, model: sts3216",
            "9: unknown servo model 'sts3216', did you mean 'sts3215'? (known: sts3215, sts3250, ",
        ),
        ("{id: 7, model: sts3215", "{id: 7", "9: key 'joints.jaw.servo.model' is missing"),
        (
            "jaw: {device_unit: tick, ticks_per_turn: 4096, device_offset: 1024, ",
            "jaw: {device_unit: degree, ",
            "9: joint 'jaw' has a servo, which counts in ticks: give device_unit: tick and ticks_per_turn",
        ),
        (
            "device_offset: 1024",
            "device_offset: 1500",
            "9: joint 'jaw' goes from tick 1500 to 4108, and its encoder counts from 0 to 4095; set the servo's homing_offset",
        ),
        ("device_offset: 2000", "device_offset: 1300", "8: joint 'lift' goes from tick -4 to 2604, and its encoder counts from 0"),
        ("command_mode: position", "command_mode: velocity", "4: joints with a servo take positions; command_mode is velocity"),
    ],
)
def test_a_wrong_servo_is_named_with_its_line(tmp_path, right, wrong, message):
    path = write_robot(tmp_path)
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))
    with pytest.raises(UserError) as caught:
        load_robot(path)
    assert str(caught.value).startswith(f"{path}:{message}")

"""Tests of ros_rl.hardware.units and of the keys in robot.yaml that it reads."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.hardware.units import UnitScale
from ros_rl.robots.spec import RobotSpec, load_robot, robot_names

URDF = """\
<robot name="mixed">
  <link name="l0"/><link name="l1"/><link name="l2"/><link name="l3"/><link name="l4"/><link name="l5"/>
  <joint name="shoulder" type="revolute"><parent link="l0"/><child link="l1"/><limit lower="-2" upper="2" velocity="3" effort="4"/></joint>
  <joint name="elbow" type="revolute"><parent link="l1"/><child link="l2"/><limit lower="-2" upper="2" velocity="3" effort="4"/></joint>
  <joint name="wrist" type="continuous"><parent link="l2"/><child link="l3"/><limit velocity="3" effort="4"/></joint>
  <joint name="gripper" type="prismatic"><parent link="l3"/><child link="l4"/>
    <limit lower="0.01" upper="0.05" velocity="1" effort="9"/></joint>
  <joint name="spring" type="revolute"><parent link="l4"/><child link="l5"/><limit lower="-1" upper="1" velocity="3" effort="4"/></joint>
</robot>
"""
JOINTS = """\
  shoulder: {device_unit: degree}
  elbow: {device_unit: tick, ticks_per_turn: 4096, device_offset: 2048, device_sign: -1}
  wrist: {}
  gripper: {home: 0.02, device_unit: percent, upper: 0.04}
"""


def load(folder, joints: str = JOINTS, mode: str = "position") -> RobotSpec:
    (folder / "mixed.urdf").write_text(URDF)
    text = f"name: mixed\nurdf: mixed.urdf\ncontrol_rate: 100\ncommand_mode: {mode}\njoints:\n{joints}"
    (folder / "robot.yaml").write_text(text + "passive:\n  spring: {device_unit: degree, device_sign: -1}\n")
    return load_robot(folder / "robot.yaml")


def measured(position, velocity=(0,) * 5, effort=(0,) * 5) -> Observation:
    return Observation(0.0, *(np.array(values, dtype=float) for values in (position, velocity, effort)))


def test_c4_every_joint_is_read_in_its_own_unit(tmp_path):
    scale = UnitScale.of(load(tmp_path))
    read = scale.to_si(measured([90, 1024, 0.3, 50, 45], [180, 4096, 0.2, 25, -90], [1, 2, 3, 4, 5]))
    np.testing.assert_allclose(read.joint_position, [1.570796, 1.570796, 0.3, 0.03, -0.785398], atol=1e-6)
    np.testing.assert_allclose(read.joint_velocity, [math.pi, -math.tau, 0.2, 0.01, math.pi / 2], atol=1e-12)
    np.testing.assert_array_equal(read.joint_effort, [1, -2, 3, 4, -5])


def test_c4_every_joint_is_commanded_in_its_own_unit(tmp_path):
    scale = UnitScale.of(load(tmp_path))
    np.testing.assert_allclose(scale.to_device(np.array([math.pi / 2, math.pi / 2, 0.3, 0.03])), [90, 1024, 0.3, 50])
    np.testing.assert_allclose(
        scale.to_device(np.array([[0, 0, 0, 0.01], [-1, -math.pi, 7, 0.05]])), [[0, 2048, 0, 0], [-57.29578, 4096, 7, 100]]
    )


@pytest.mark.parametrize(("mode", "sent"), [("velocity", [180, -2048, 0.2, 25]), ("effort", [math.pi, -math.pi, 0.2, 0.01])])
def test_c4_velocities_have_no_offset_and_efforts_only_a_sign(mode, sent, tmp_path):
    scale = UnitScale.of(load(tmp_path, mode=mode))
    np.testing.assert_allclose(scale.to_device(np.array([math.pi, math.pi, 0.2, 0.01])), sent)


def test_c4_a_percentage_may_count_from_the_upper_end(tmp_path):
    spec = load(tmp_path, JOINTS.replace("percent,", "percent, device_sign: -1, device_offset: 5,"))
    scale = UnitScale.of(spec)
    sent = [scale.to_device(np.array([0, 0, 0, position]))[3] for position in (0.05, 0.03, 0.01)]
    np.testing.assert_allclose(sent, [5, 55, 105])


def test_c4_a_round_trip_keeps_the_position(tmp_path):
    scale = UnitScale.of(load(tmp_path))
    for position in np.random.default_rng(0).uniform(-100, 100, (1000, 4)):
        read = scale.to_si(measured([*scale.to_device(position), 0.0]))
        np.testing.assert_allclose(read.joint_position[:4], position, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", robot_names())
def test_robots_that_speak_si_are_not_converted(name):
    assert UnitScale.of(load_robot(name)) is None


def test_limits_stay_in_si(tmp_path):
    spec = load(tmp_path)
    plain = replace(spec, joints=tuple(replace(joint, device=None) for joint in spec.joints))
    np.testing.assert_array_equal(spec.command_limits, plain.command_limits)
    assert spec.upper[3] == 0.04


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("degree}", "degrees}", "6: 'joints.shoulder.device_unit' should be 'degree', 'tick' or 'percent', got 'degrees'"),
        (", ticks_per_turn: 4096", "", "7: joint 'elbow': device_unit 'tick' and ticks_per_turn go together"),
        ("unit: tick", "unit: degree", "7: joint 'elbow': device_unit 'tick' and ticks_per_turn go together"),
        ("4096", "0", "7: 'joints.elbow.ticks_per_turn' should be greater than 0, got 0"),
        ("sign: -1", "sign: 2", "7: 'joints.elbow.device_sign' should be 1 or -1, got 2"),
        ("wrist: {}", "wrist: {device_unit: percent}", "8: joint 'wrist' has no limits, so there is no percent of its range"),
        ("wrist: {}", "wrist: {device_sign: -1}", "8: joint 'wrist' has device_sign or device_offset without a device_unit"),
        ("unit: percent", "unit: degree", "9: joint 'gripper' is prismatic, so its device_unit can only be percent"),
    ],
)
def test_a_wrong_unit_is_named_with_its_line(right, wrong, message, tmp_path):
    assert right in JOINTS
    with pytest.raises(UserError) as caught:
        load(tmp_path, JOINTS.replace(right, wrong))
    assert str(caught.value) == f"{tmp_path / 'robot.yaml'}:{message}"

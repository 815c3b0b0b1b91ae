"""Tests of ros_rl.teleop.leader: readings become joints of the robot by a calibration file, whose mistakes are named."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.spec import load_robot
from ros_rl.teleop.leader import LeaderArm, read_calibration

ARM = load_robot("arm")
NOTHING = Observation(0.0, np.zeros(0), np.zeros(0), np.zeros(0))
GOOD = """robot: arm
joints:
  base: {joint: joint1, sign: -1, offset: 0.5, range: [-3.0, 3.0]}
  joint2: {range: [-2.0, 2.0]}
  joint3: {range: [-3.0, 3.0]}
  joint4: {range: [-3.0, 3.0], offset: 1.0}
  joint5: {range: [-3.0, 3.0]}
  joint6: {range: [-1.0, 4.0]}
  joint7: {range: [-3.0, 3.0]}
  trigger: {joint: finger_joint1, range: [0.2, 1.2], stretch: true, sign: -1}
"""
NAMES = ["base", "joint2", "joint3", "joint4", "joint5", "joint6", "joint7", "trigger"]
READINGS = [0.75, 0.1, 0.2, -0.5, 0.4, 0.6, 0.7, 0.45]
# -(0.75 - 0.5), -0.5 - 1.0; the trigger is a quarter of its range in, so the finger three quarters of 0.04 m.
JOINTS = [-0.25, 0.1, 0.2, -1.5, 0.4, 0.6, 0.7, 0.03]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "leader.yaml"
    path.write_text(GOOD)
    return path


def test_c3_readings_become_joints_by_name_in_any_order(path):
    leader = LeaderArm(read_calibration(path, ARM), ARM, has_switch=False)
    assert leader.read(NOTHING, 0.0) is None
    order = [3, 0, 7, 1, 5, 2, 6, 4]
    leader.receive(["unrelated", *(NAMES[i] for i in order)], [9.0, *(READINGS[i] for i in order)], 2.0)
    sample = leader.read(NOTHING, 2.1)
    assert (sample.stamp, sample.engaged) == (2.0, True)
    np.testing.assert_allclose(sample.joints.in_order_of(ARM), JOINTS, atol=1e-15)


def test_a_sample_is_as_old_as_the_older_of_joints_and_switch(path):
    leader = LeaderArm(read_calibration(path, ARM), ARM, has_switch=True)
    leader.receive(NAMES, READINGS, 2.0)
    assert leader.read(NOTHING, 2.0) is None  # nobody knows yet whether it is pressed
    leader.switch(True, 1.0)
    assert (leader.read(NOTHING, 2.0).stamp, leader.read(NOTHING, 2.0).engaged) == (1.0, True)
    leader.switch(False, 3.0)
    assert (leader.read(NOTHING, 3.0).stamp, leader.read(NOTHING, 3.0).engaged) == (2.0, False)


@pytest.mark.parametrize(
    ("names", "readings", "problem"),
    [
        (NAMES[1:], READINGS[1:], "the leader lacks base; it has joint2"),
        (["bass", *NAMES[1:]], READINGS, "the leader lacks base; it has bass"),
        ([*NAMES, "base"], [*READINGS, 0.0], "the leader tells base twice"),
        (NAMES, READINGS[1:], "8 names and 7 positions"),
        (NAMES, [float("nan"), *READINGS[1:]], "'base' reads nan, outside of its range -3 to 3"),
        (NAMES, [*READINGS[:-1], 1.3], "'trigger' reads 1.3000, outside of its range 0.2 to 1.2"),
    ],
)
def test_c1_c2_a_joint_state_that_does_not_fit_is_refused_whole(path, names, readings, problem):
    leader = LeaderArm(read_calibration(path, ARM), ARM, has_switch=False)
    leader.receive(NAMES, READINGS, 0.0)
    with pytest.raises(UserError) as caught:
        leader.receive(names, readings, 0.1)
    assert problem in str(caught.value)
    assert leader.read(NOTHING, 0.1) is None


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("robot: arm", "robot: panda", 1, "the calibration is for robot 'panda', this is 'arm'"),
        ("joint: joint1", "joint: joint_1", 3, "robot 'arm' has no joint 'joint_1', did you mean 'joint1'? (has: joint1, joint2"),
        ("joint: joint1", "joint: joint2", 4, "joint 'joint2' follows 'base' already"),
        ("  joint3: {range: [-3.0, 3.0]}\n", "", 2, "no joint of the leader moves joint3 of robot 'arm'"),
        ("range: [-2.0, 2.0]", "range: [2.0, -2.0]", 4, "the range of 'joint2' is empty"),
        ("range: [-2.0, 2.0]", "range: [2.0]", 4, "joints.joint2.range"),
        ("range: [-2.0, 2.0]", "offset: 1.0", 4, "key 'joints.joint2.range' is missing"),
        ("sign: -1, offset", "sign: -2, offset", 3, "joints.base.sign"),
        ("offset: 0.5", "offset: .nan", 3, "joints.base.offset"),
        ("offset: 0.5", "ofset: 0.5", 3, "unknown key 'joints.base.ofset'"),
        ("stretch: true", "stretch: true, offset: 0.1", 10, "'trigger' is stretched over its range, which leaves nothing for an offset"),
        ("  joint3:", "  joint2:", 5, "the key 'joint2' is there twice"),
    ],
)
def test_a_mistake_in_a_calibration_is_named_with_its_line(path, old, new, line, problem):
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_calibration(path, ARM)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert problem in str(caught.value)


def test_a_joint_without_limits_has_no_range_to_stretch_over(path):
    joints = tuple(replace(joint, lower=-np.inf, upper=np.inf) if joint.name == "finger_joint1" else joint for joint in ARM.joints)
    with pytest.raises(UserError, match=r"leader.yaml:10: joint 'finger_joint1' has no limits to stretch the range over"):
        read_calibration(path, replace(ARM, joints=joints))


def test_a_robot_that_takes_no_positions_has_no_leader(tmp_path):
    path = tmp_path / "leader.yaml"
    path.write_text("robot: cartpole\njoints:\n  slider: {range: [-1.0, 1.0]}\n")
    with pytest.raises(UserError, match=r"leader.yaml:1: robot 'cartpole' takes commands of effort, a leader arm tells positions"):
        read_calibration(path, load_robot("cartpole"))

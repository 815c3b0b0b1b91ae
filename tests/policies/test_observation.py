"""Tests of ros_rl.policies.observation."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.observation import ObservationBuilder

SEEN = Observation(
    stamp=0.0,
    joint_position=np.array([1.0, 2.0]),
    joint_velocity=np.zeros(2),
    joint_effort=np.zeros(2),
    images={"wrist": np.zeros((4, 6, 3), np.uint8)},
    privileged={"block": np.arange(7.0)},
)


def builder(*keys: ObservationKey) -> ObservationBuilder:
    return ObservationBuilder(PolicySpec("arm", ("a", "b"), keys, 50.0))


def test_builds_what_is_asked_for_and_no_more():
    keys = [("joint_position", (2,)), ("images.wrist", (4, 6, 3)), ("privileged.block", (7,)), ("command", (3,)), ("instruction", ())]
    built = builder(*(ObservationKey(name, shape) for name, shape in keys)).build(SEEN)
    assert list(built) == ["joint_position", "images.wrist", "privileged.block", "command"]
    np.testing.assert_array_equal(built["joint_position"], [1, 2])
    np.testing.assert_array_equal(built["privileged.block"], range(7))
    assert built["images.wrist"].dtype == np.uint8


def test_a_history_is_stacked_oldest_first_and_starts_with_the_first_value():
    build = builder(ObservationKey("joint_position", (2,), 3), ObservationKey("joint_velocity", (2,)))
    got = [build.build(replace(SEEN, joint_position=np.array([float(tick), -float(tick)])))["joint_position"] for tick in range(5)]
    assert [history[:, 0].tolist() for history in got] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert got[0].shape == (3, 2)


def test_reset_forgets_the_history():
    build = builder(ObservationKey("joint_position", (2,), 2))
    build.build(SEEN)
    build.reset()
    np.testing.assert_array_equal(build.build(replace(SEEN, joint_position=np.array([9.0, 9.0])))["joint_position"], [[9, 9], [9, 9]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_c1_what_is_not_finite_is_refused_and_does_not_enter_the_history(bad):
    build = builder(ObservationKey("joint_position", (2,), 2))
    build.build(SEEN)
    with pytest.raises(UserError, match="'joint_position' is not finite"):
        build.build(replace(SEEN, joint_position=np.array([1.0, bad])))
    np.testing.assert_array_equal(build.build(SEEN)["joint_position"], [[1, 2], [1, 2]])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("joint_position", (3,), r"reads 'joint_position' with shape \(3,\), the robot gives \(2,\)"),
        ("images.wrist", (8, 6, 3), r"with shape \(8, 6, 3\), the robot gives \(4, 6, 3\)"),
        ("images.front", (4, 6, 3), "reads 'images.front', which this robot does not measure"),
        ("base_quat", (4,), "reads 'base_quat', which this robot does not measure"),
    ],
)
def test_what_is_missing_or_has_another_size_is_refused(name, shape, message):
    with pytest.raises(UserError, match=message):
        builder(ObservationKey(name, shape)).build(SEEN)


@pytest.mark.parametrize("name", ["joint_positions", "stamp", "images", "privileged", "images.", "joint_position.a", "told", ""])
def test_a_key_that_names_no_field_is_refused_at_once(name):
    with pytest.raises(UserError, match=rf"key '{name}' names no measured field \(known: .*images\.<name>, .*joint_position, "):
        builder(ObservationKey(name, (2,)))

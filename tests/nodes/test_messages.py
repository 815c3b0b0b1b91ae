"""Tests of ros_rl.nodes.messages: to a message and back changes no bit, and joints are mapped by name."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy")

from geometry_msgs.msg import Quaternion
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image, JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard
from ros_rl.hardware.interface import JointCommand, Observation, quantise
from ros_rl.nodes import messages
from ros_rl.nodes.messages import JointReader
from ros_rl.robots.spec import load_robot

RANDOM = np.random.default_rng(0)
ODD = np.array([0.1, -0.0, 1e-310, -1e300, np.pi])
NAMES = ("a", "b", "c", "d", "e")


def sent(message):
    """What a subscriber gets."""
    return deserialize_message(serialize_message(message), type(message))


def test_stamps_come_back_bit_for_bit():
    for stamp in [0.0, 1e-9, 0.005, 0.999999999, 1.0, 1.7e9, *(quantise(float(stamp)) for stamp in RANDOM.uniform(0, 1e6, 1000))]:
        assert messages.from_time(messages.to_time(stamp)) == stamp


def test_the_stamp_next_to_a_whole_second_is_carried_over():
    time = messages.to_time(1.9999999999)
    assert (time.sec, time.nanosec) == (2, 0)


def test_c3_a_joint_state_in_any_order_gives_the_same_bits():
    velocity, effort = RANDOM.normal(size=(2, 5))
    for order in itertools.permutations(range(5)):
        index = list(order)
        message = messages.to_joint_state(0.5, [NAMES[i] for i in order], ODD[index], velocity[index], effort[index])
        for got, expected in zip(JointReader(NAMES).read(sent(message)), (ODD, velocity, effort), strict=True):
            assert got.tobytes() == expected.tobytes()


def test_a_joint_state_may_hold_more_joints_and_no_velocities():
    reader = JointReader(("c", "a"))
    position, velocity, effort = reader.read(JointState(name=["a", "b", "c"], position=[1.0, 2.0, 3.0]))
    assert (position.tolist(), velocity.tolist(), effort.tolist()) == ([3, 1], [0, 0], [0, 0])


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], ["a", "b", "c", "d", "E"], []])
def test_c2_a_joint_state_that_lacks_a_joint_is_refused_with_both_lists(names):
    with pytest.raises(UserError) as caught:
        JointReader(NAMES).read(JointState(name=names, position=[0.0] * len(names)))
    missing = ", ".join(name for name in NAMES if name not in names)
    assert str(caught.value) == f"joint state lacks {missing}; it has {', '.join(names) or 'none'}, needed are a, b, c, d, e"


@pytest.mark.parametrize(
    "fields",
    [{}, {"position": [0.0] * 4}, {"position": [0.0] * 5, "velocity": [0.0] * 3}, {"position": [0.0] * 5, "effort": [0.0] * 6}],
)
def test_a_joint_state_of_uneven_length_is_refused(fields):
    with pytest.raises(UserError, match="joint state has 5 names, but the number of values in"):
        JointReader(NAMES).read(JointState(name=list(NAMES), **fields))


@pytest.mark.parametrize("mode", ["position", "velocity", "effort"])
def test_a_command_comes_back_bit_for_bit(mode):
    command = JointCommand(NAMES, ODD, 12.345678901, "teleop")
    got = messages.from_trajectory(sent(messages.to_trajectory(command, mode)), mode)
    assert (got.joint_names, got.stamp, got.source) == (NAMES, 12.345678901, "teleop")
    assert got.values.tobytes() == ODD.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_c1_what_is_not_finite_arrives_as_it_is_for_the_guard_to_reject(bad):
    spec = load_robot("arm")
    observation = Observation(0.0, spec.home, np.zeros(8), np.zeros(8))
    guard = Guard(spec)
    guard.reset(observation)
    for joint in range(8):
        values = spec.home.copy()
        values[joint] = bad
        got = messages.from_trajectory(sent(messages.to_trajectory(JointCommand(spec.joint_names, values, 0.0), "position")), "position")
        target, report = guard.check(got, observation, 0.0)
        assert f"{spec.joint_names[joint]} is not finite" in report.rejected
        np.testing.assert_array_equal(target, spec.home)


@pytest.mark.parametrize(
    "points", [[], [JointTrajectoryPoint()], [JointTrajectoryPoint(velocities=[0.0] * 8)], [JointTrajectoryPoint(positions=[0.0] * 7)]]
)
def test_c2_a_trajectory_without_a_position_for_every_joint_is_rejected(points):
    spec = load_robot("arm")
    observation = Observation(0.0, spec.home, np.zeros(8), np.zeros(8))
    guard = Guard(spec)
    guard.reset(observation)
    command = messages.from_trajectory(JointTrajectory(joint_names=list(spec.joint_names), points=points), "position")
    assert guard.check(command, observation, 0.0)[1].rejected.startswith("8 values are needed")


MEASURED = Observation(
    1.0, ODD, ODD, ODD, base_quat=ODD[:4], base_gyro=ODD[1:4], base_acc=ODD[2:], base_position=ODD[:3], base_velocity=ODD[2:]
)


def assert_same_bits(got, names):
    assert list(got) == names
    assert {name: values.tobytes() for name, values in got.items()} == {name: getattr(MEASURED, name).tobytes() for name in names}


def test_the_imu_comes_back_bit_for_bit():
    message = sent(messages.to_imu(MEASURED, "imu"))
    assert (messages.from_time(message.header.stamp), message.header.frame_id) == (1.0, "imu")
    assert_same_bits(messages.from_imu(message), ["base_quat", "base_gyro", "base_acc"])


def test_odometry_comes_back_bit_for_bit():
    message = sent(messages.to_odometry(MEASURED))
    assert messages.from_time(message.header.stamp) == 1.0
    assert_same_bits(messages.from_odometry(message), ["base_position", "base_velocity"])


def test_a_twist_in_the_body_is_turned_into_the_world():
    moving = Observation(1.0, ODD, ODD, ODD, base_position=np.zeros(3), base_velocity=np.array([1.0, 0.0, 0.5]))
    message = messages.to_odometry(moving)
    message.child_frame_id = "base_link"
    o = message.pose.pose.orientation
    o.w, o.z = np.cos(np.pi / 4), np.sin(np.pi / 4)  # 90° to the left
    np.testing.assert_allclose(messages.from_odometry(message)["base_velocity"], [0.0, 1.0, 0.5], atol=1e-15)


def test_an_image_comes_back_and_shares_no_memory():
    image = RANDOM.integers(0, 256, (6, 4, 3), np.uint8)
    message = sent(messages.to_image(1.5, "wrist", image))
    got = messages.from_image(message)
    np.testing.assert_array_equal(got, image)
    got[:] = 0
    np.testing.assert_array_equal(messages.from_image(message), image)


def test_bgr_images_and_padded_rows_are_read():
    image = RANDOM.integers(0, 256, (2, 3, 3), np.uint8)
    rows = np.zeros((2, 12), np.uint8)
    rows[:, :9] = image[:, :, ::-1].reshape(2, 9)
    message = Image(height=2, width=3, encoding="bgr8", step=12, data=rows.tobytes())
    np.testing.assert_array_equal(messages.from_image(message), image)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoding": "mono8"}, "image encoding 'mono8' is not supported"),
        ({"data": b"\0" * 17}, "an image of 3 x 2 with a step of 9 bytes has 17 bytes"),
        ({"data": b""}, "has 0 bytes"),
        ({"step": 6, "data": b"\0" * 12}, "with a step of 6 bytes"),
    ],
)
def test_an_image_that_is_not_what_it_says_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        messages.from_image(Image(**{"height": 2, "width": 3, "encoding": "rgb8", "step": 9, "data": b"\0" * 18} | change))


@pytest.mark.parametrize(("covariance", "w"), [(-1.0, 1.0), (0.0, 0.0)])
def test_an_imu_message_without_an_attitude_has_none(covariance, w):
    message = messages.to_imu(MEASURED, "imu")
    message.orientation = Quaternion(w=w)
    message.orientation_covariance[0] = covariance
    told = messages.from_imu(sent(message))
    assert np.isnan(told["base_quat"]).all()
    assert told["base_gyro"].tobytes() == MEASURED.base_gyro.tobytes()
    passed_on = sent(messages.to_imu(replace(MEASURED, **told), "imu"))
    assert (passed_on.orientation_covariance[0], passed_on.orientation.w) == (-1.0, 0.0)
    assert np.isnan(messages.from_imu(passed_on)["base_quat"]).all()


def test_simulator_state_comes_back_bit_for_bit():
    state = {"red_block": ODD, "base.pose[0]": ODD[:2]}
    got = messages.from_privileged(sent(messages.to_privileged(1.0, state)))
    assert {name: values.tobytes() for name, values in got.items()} == {name: values.tobytes() for name, values in state.items()}
    assert messages.from_privileged(messages.to_privileged(1.0, {})) == {}


def test_the_pinhole_model_spans_the_field_of_view():
    camera = load_robot("arm").camera("wrist")
    info = messages.to_camera_info(1.0, camera)
    focal, centre = info.k[4], info.k[5]
    assert np.degrees(2 * np.arctan(centre / focal)) == pytest.approx(camera.fovy)
    assert (info.width, info.height, info.k[2]) == (camera.width, camera.height, camera.width / 2)

"""Tests of ros_rl.nodes.assembler: an observation is whole or it is not made."""

import numpy as np
import pytest
from sensor_msgs.msg import Image, JointState

from ros_rl.nodes.assembler import ObservationAssembler
from ros_rl.nodes.base import StackNode
from ros_rl.nodes.messages import COMMAND_QOS, IMAGE_QOS, STREAM_QOS, to_image, to_joint_state
from ros_rl.robots.spec import load_robot

ARM = load_robot("arm")
WRIST = ARM.camera("wrist")
ZEROS = np.zeros(len(ARM.measured_names))


@pytest.fixture
def robot(ros):
    """Gives a test a function that starts an assembler; it returns its observations and functions to measure and to take images."""

    def start(lockstep):
        node, observations = ros.add(StackNode("assembler", (), namespace="test"), start=False), []
        ObservationAssembler(node, ARM, ["images.wrist"], [WRIST], observations.append, lockstep)
        states = ros.probe.create_publisher(JointState, "joint_states", STREAM_QOS)
        images = ros.probe.create_publisher(Image, "camera/wrist/image_raw", COMMAND_QOS if lockstep else IMAGE_QOS)
        ros.until(lambda: states.get_subscription_count() and images.get_subscription_count())

        def measure(stamp):
            states.publish(to_joint_state(stamp, ARM.measured_names, ZEROS, ZEROS, ZEROS))

        def take(stamp, value):
            images.publish(to_image(stamp, WRIST.frame, np.full((WRIST.height, WRIST.width, 3), value, np.uint8)))

        return node, observations, measure, take

    return start


def brightness(observation):
    return int(observation.images["wrist"][0, 0, 0])


def test_while_a_camera_stands_still_observations_are_withheld_and_it_recovers_by_itself(ros, robot):
    node, observations, measure, take = robot(lockstep=False)
    status = ros.diagnostics()
    measure(0.0)
    take(0.01, 1)
    ros.until(lambda: node._said == {} and ros.probe.count_publishers("joint_states"))

    def observed(stamp):
        measure(stamp)
        return bool(observations) and observations[-1].stamp == stamp

    ros.until(lambda: observed(0.2), "for an observation with an image that is fresh enough")
    assert (brightness(observations[-1]), observations[-1].image_stamps) == (1, {"wrist": 0.01})
    measure(0.51)  # the camera has stood still for 500 ms
    ros.until(
        lambda: "camera wrist: stale, the last image is 0.50 s old" in status("assembler").message, "for the stale image to be noticed"
    )
    assert observations[-1].stamp == 0.2
    take(0.5, 2)
    ros.until(lambda: observed(0.52), "for observations to go on")
    assert brightness(observations[-1]) == 2
    ros.until(lambda: status("assembler").message == "inactive", "for the problem to be over")


def test_a_camera_that_never_sends_is_named_once_its_first_image_is_late(ros, robot):
    node, observations, measure, take = robot(lockstep=False)
    said = []
    node.say = lambda topic, problem: said.append(problem) if topic == "camera wrist" else None
    for number, stamp in enumerate((7.0, 7.1, 7.5), 1):
        measure(stamp)
        ros.until(lambda number=number: len(said) == number)
    problem = "waits for camera/wrist/image_raw, no image has come"
    assert said == [None, None, problem]
    take(7.5, 3)

    def observed():
        measure(7.52)
        return bool(observations)

    ros.until(observed, "for an observation once the camera sends")
    assert said[-1] is None


def test_in_lockstep_an_observation_waits_for_the_image_that_is_due(ros, robot):
    _, observations, measure, take = robot(lockstep=True)
    measure(0.0)
    take(0.0, 1)
    ros.until(lambda: [observation.stamp for observation in observations] == [0.0])
    due = 1.5 / WRIST.rate
    measure(due)
    for _ in range(10):
        ros.executor.spin_once(timeout_sec=0.01)
    assert len(observations) == 1, "the image of this moment is not there"
    take(1.0 / WRIST.rate + 1e-9, 2)
    ros.until(lambda: len(observations) == 2)
    assert (observations[1].stamp, brightness(observations[1])) == (pytest.approx(due), 2)


def test_an_image_that_cannot_be_read_is_reported_until_one_can(ros, robot):
    _, observations, measure, take = robot(lockstep=True)
    status, images = ros.diagnostics(), ros.probe.create_publisher(Image, "camera/wrist/image_raw", COMMAND_QOS)
    ros.until(images.get_subscription_count)
    images.publish(Image(encoding="mono8"))
    ros.until(lambda: "image encoding 'mono8' is not supported" in status("assembler").message)
    measure(0.0)
    take(0.0, 1)
    ros.until(lambda: observations)
    ros.until(lambda: status("assembler").message == "inactive")

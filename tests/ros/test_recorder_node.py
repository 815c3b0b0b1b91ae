"""Tests of ros_rl.nodes.recorder_node: episodes of a running graph become those of a dataset."""

import json

import numpy as np
import pytest
from rclpy.parameter import Parameter
from rclpy.serialization import serialize_message
from sample_logs import ns
from sensor_msgs.msg import Image
from std_msgs.msg import String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.data.convert import Recording
from ros_rl.data.dataset import Dataset
from ros_rl.data.integrity import check
from ros_rl.data.log import LogReader
from ros_rl.errors import UserError
from ros_rl.nodes.messages import IMAGE_QOS, TASK_STATE_QOS, from_trajectory, to_joint_state, to_time
from ros_rl.nodes.recorder_node import RecorderNode
from ros_rl.robots.spec import load_robot


def start(ros, folder, **values):
    given = {"robot": "cartpole", "dataset": str(folder), "fps": 50, **values}
    overrides = [Parameter(key, value=value) for key, value in given.items()]
    return ros.add(RecorderNode(namespace="/test", parameter_overrides=overrides, use_global_arguments=False))


@pytest.fixture
def states(ros):
    return ros.hear(String, "recorder/status", TASK_STATE_QOS)


def newest(states):
    return json.loads(states[-1].data) if states else {"committed": 0, "state": ""}


def test_every_episode_of_the_task_node_becomes_one_of_the_dataset(ros, states, tmp_path):
    start(ros, tmp_path / "set")
    ros.up("cartpole", without=(), lockstep=True, episodes=2, pause=0.1)
    ros.until(lambda: newest(states)["committed"] == 2)
    dataset = Dataset.open(tmp_path / "set")
    assert check(dataset.root) == []
    assert [(episode.outcome, episode.tasks) for episode in dataset.episodes] == 2 * [("success", ("balance the pole",))]
    columns = dataset.columns(1)
    assert len(columns["action"]) == pytest.approx(50 * 5.0, abs=10)
    assert np.diff(columns["stamp"][:, 0] + columns["age"][:, 0]) == pytest.approx(0.02, abs=1e-6)
    assert columns["next.success"].tolist() == [False] * (len(columns["action"]) - 1) + [True]
    assert columns["next.reward"].sum() > 100 and columns["proposed"][:, 0].all() and not columns["intervention"].any()
    assert not list((tmp_path / "set/logs").iterdir())


def test_what_is_recorded_is_what_was_sent(ros, states, tmp_path):
    heard = ros.hear(JointTrajectory, "joint_command")
    spec = load_robot("cartpole")
    start(ros, tmp_path / "set", fps=round(spec.control_rate))
    ros.up("cartpole", without=(), lockstep=True, episodes=1)
    ros.until(lambda: newest(states)["committed"] == 1)
    sent = {ns(command.stamp): command.values for command in (from_trajectory(message, spec.command_mode) for message in heard)}
    columns = Dataset.open(tmp_path / "set").columns(0)
    stamps = columns["stamp"][:, 1]
    assert len(stamps) > 400
    for stamp, action in zip(stamps[:-1], columns["action"][:-1], strict=True):
        assert np.array_equal(sent[ns(stamp)], np.atleast_1d(action))  # bit for bit


def test_a_person_starts_and_stops_and_what_is_discarded_is_not_kept(ros, states, tmp_path):
    start(ros, tmp_path / "set", follow_task=False)
    ros.up("cartpole", without=("task_node",), lockstep=False)
    assert not ros.call(Trigger, "recorder/stop").success
    assert ros.call(Trigger, "recorder/start").success
    again = ros.call(Trigger, "recorder/start")
    assert not again.success and "already" in again.message
    ros.until(lambda: newest(states)["state"] == "recording" and newest(states)["messages"] > 100)
    assert ros.call(Trigger, "recorder/stop").success
    ros.until(lambda: newest(states)["committed"] == 1)
    assert Dataset.open(tmp_path / "set").columns(0)["next.truncated"][-1]


def test_a_discarded_episode_leaves_nothing(ros, states, tmp_path):
    start(ros, tmp_path / "set")
    ros.up("cartpole", without=(), lockstep=False, episodes=1)
    ros.until(lambda: newest(states)["state"] == "recording" and newest(states)["messages"] > 10)
    assert ros.call(Trigger, "task/discard").success
    ros.until(lambda: newest(states)["state"] == "idle")
    assert Dataset.open(tmp_path / "set").episodes == [] and not list((tmp_path / "set/logs").iterdir())


def test_a_reset_begins_the_log_anew(ros, tmp_path):
    node = start(ros, tmp_path / "set", follow_task=False)
    spec = load_robot("cartpole")
    zeros = np.zeros(len(spec.measured_names))

    sent = iter(range(1, 100))

    def say(seconds):
        node._on_joint_state(
            serialize_message(to_joint_state(seconds, spec.measured_names, zeros, zeros, zeros)), {"source_timestamp": next(sent)}
        )

    say(50.0)
    assert ros.call(Trigger, "recorder/start").success
    say(50.1)
    first = node._recorder._log.path
    say(0.0)  # what came before is the end of another episode
    assert node._recorder.recording and node._recorder._log.path != first and not first.exists()
    say(2.0)
    second = node._recorder._log.path
    say(0.0)
    assert node._recorder.recording and node._recorder._log.path != second and second.exists()


@pytest.mark.parametrize(("quality", "kind", "error"), [(0, "sensor_msgs/Image", 0), (95, "sensor_msgs/CompressedImage", 3)])
@pytest.mark.parametrize("encoding", ["rgb8", "bgr8"])
def test_images_are_logged_as_they_come_or_compressed(ros, tmp_path, quality, kind, error, encoding):
    camera = load_robot("arm").cameras[0]
    node = start(ros, tmp_path / "set", robot="arm", cameras=[camera.name], follow_task=False, jpeg_quality=quality)
    publisher = ros.probe.create_publisher(Image, f"camera/{camera.name}/image_raw", IMAGE_QOS)
    ros.until(lambda: publisher.get_subscription_count() == 1)
    node._on_joint_state(serialize_message(to_joint_state(1.0, ("a",), *np.zeros((3, 1)))), {"source_timestamp": 1})
    assert ros.call(Trigger, "recorder/start").success
    colour = np.array([200, 100, 50], np.uint8)
    message = Image(height=camera.height, width=camera.width, encoding=encoding, step=3 * camera.width)
    message.header.stamp = to_time(0.99)
    message.data = (colour if encoding == "rgb8" else colour[::-1]).tobytes() * (camera.height * camera.width)
    publisher.publish(message)
    late = Image(height=camera.height, width=camera.width, encoding=encoding, step=3 * camera.width, data=message.data)
    late.header.stamp = to_time(9.0)  # of the time before a reset
    ros.until(lambda: node._recorder.status()["messages"] == 1)
    publisher.publish(late)
    ros.until(lambda: node._stale == 1)
    path = node._recorder._log.path
    recording = Recording.read(path)
    (entry,) = LogReader(path).entries()
    assert entry.kind == kind and entry.stamp == ns(0.99) and entry.time == ns(1.0)
    picture = next(recording.frames(camera.name, [0]))
    assert picture.shape == (camera.height, camera.width, 3) and np.abs(picture.reshape(-1, 3).mean(0) - colour).max() <= error


@pytest.mark.parametrize(("values", "message"), [({"dataset": ""}, "name the folder"), ({"cameras": ["nose"]}, "'nose'")])
def test_bad_parameters_are_refused(ros, tmp_path, values, message):
    with pytest.raises(UserError, match=message):
        start(ros, tmp_path / "set", **values)

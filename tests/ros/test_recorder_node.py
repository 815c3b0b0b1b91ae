"""Tests of ros_rl.nodes.recorder_node: episodes of a running graph become those of a dataset."""

import json
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from sample_logs import ns
from sensor_msgs.msg import Image, JointState, Joy
from std_msgs.msg import String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.data.convert import Recording
from ros_rl.data.dataset import Dataset
from ros_rl.data.integrity import check
from ros_rl.data.log import LogReader
from ros_rl.errors import UserError
from ros_rl.nodes.base import ERROR
from ros_rl.nodes.messages import COMMAND_QOS, IMAGE_QOS, TASK_STATE_QOS, from_trajectory, to_joint_state, to_time
from ros_rl.nodes.recorder_node import RecorderNode
from ros_rl.robots.spec import load_robot


def start(ros, folder, **values):
    given = {"robot": "cartpole", "dataset": str(folder), "fps": 50, **values}
    overrides = [Parameter(key, value=value) for key, value in given.items()]
    return ros.add(RecorderNode(namespace="/test", parameter_overrides=overrides, use_global_arguments=False))


@pytest.fixture
def states(ros):
    return ros.hear(String, "recorder/status", TASK_STATE_QOS)


class Told:
    """Says to a recorder node of a cart-pole what comes on its topics, each message sent after the one before."""

    def __init__(self, node):
        self.node, self.sent = node, time.time_ns() - 10**12
        self.names = load_robot("cartpole").measured_names

    def joints(self, *seconds, sent=None):
        for stamp in seconds:
            self.sent += 1000
            data = serialize_message(to_joint_state(stamp, self.names, *np.zeros((3, len(self.names)))))
            self.node._on_joint_state(data, {"source_timestamp": sent or self.sent})

    def word(self, state, **said):
        self.sent += 1000
        self.node._on_task_state(String(data=json.dumps({"state": state, **said})), {"source_timestamp": self.sent})

    @property
    def stamps(self):
        """Those of the joint states in the open log, s."""
        return [entry.stamp / 1e9 for entry in LogReader(self.node._recorder._log.path).entries() if entry.topic == "joint_states"]

    @property
    def setup(self):
        return json.loads(LogReader(self.node._recorder._log.path).about["setup"])


@pytest.fixture
def told(ros, tmp_path, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.recorder_node._LATEST", 1e9)  # nothing is waited for in vain here
    return Told(start(ros, tmp_path / "set"))


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


def test_an_episode_begun_in_the_midst_of_another_has_its_own_task_and_seed_and_the_other_is_gone(told):
    told.joints(0.0)
    told.word("running", task="push", seed=4)
    told.joints(0.1, 2.0)
    assert (told.setup["task"], told.setup["seed"]) == ("push", 4)
    told.word("discarded")
    told.joints(0.0, 0.1)  # the reset
    told.word("running", task="lift", seed=5)
    told.joints(0.2)
    assert (told.setup["task"], told.setup["seed"]) == ("lift", 5)
    assert set(told.stamps) == {0.0, 0.1, 0.2}
    assert (told.node._recorder.kept, told.node._recorder.discarded) == (0, 1)


def test_an_episode_begun_without_a_word_of_the_one_before_has_its_own_task_and_seed(told):
    told.joints(0.0)
    told.word("running", task="push", seed=4)
    told.joints(0.1, 0.5)
    told.joints(0.0, 0.1)  # the task node began anew
    told.word("running", task="lift", seed=5)
    told.joints(0.2)
    assert (told.setup["task"], told.setup["seed"]) == ("lift", 5)
    assert set(told.stamps) == {0.0, 0.1, 0.2}
    assert len(list((told.node._recorder.root / "logs").iterdir())) == 1 and told.node._recorder.kept == 0


def test_an_episode_begins_with_its_reset_unless_the_recorder_came_later(told):
    told.joints(0.0, 0.01, 0.02)
    told.word("running", task="push", seed=4)
    told.joints(0.03)
    assert told.stamps == [0.0, 0.01, 0.02, 0.03]


def test_a_recorder_that_comes_in_the_midst_of_a_task_begins_with_the_word(told):
    told.joints(5.0, 5.01)
    told.word("running", task="push", seed=4)
    told.joints(5.02, 5.03)
    assert told.stamps == [5.03]  # which was sent after the word


def test_the_end_of_an_episode_by_a_person_waits_for_what_was_sent_before(ros, told, tmp_path):
    ros.call(Trigger, "recorder/start")
    told.joints(1.0)
    before = time.time_ns()
    assert ros.call(Trigger, "recorder/success").success
    told.joints(1.1, 1.2, sent=before)  # they were on their way
    assert told.stamps == [1.0, 1.1, 1.2]
    for word in ("stop", "success", "failure", "discard"):
        refused = ros.call(Trigger, f"recorder/{word}")
        assert not refused.success and "no episode is being recorded" in refused.message
    assert ros.call(Trigger, "recorder/start").success
    again = ros.call(Trigger, "recorder/start")
    assert not again.success and "already" in again.message
    first = told.node._recorder._log.path
    told.joints(1.3, sent=time.time_ns())
    assert told.node._recorder._log.path != first and told.stamps == [1.3]
    told.node._recorder._waiting.join()
    assert told.node._recorder.kept == 0  # nobody commanded anything: it made no episode, and used up none
    assert ros.call(Trigger, "recorder/discard").success and ros.call(Trigger, "recorder/start").success  # the next one may
    assert [entry.stamp for entry in LogReader(first).entries() if entry.topic == "joint_states"] == [ns(1.0), ns(1.1), ns(1.2)]


@pytest.mark.parametrize(
    ("words", "kept", "discarded", "outcome"),
    [
        ([], 1, 0, ""),
        (["success"], 1, 0, "success"),
        (["discarded"], 0, 1, None),
        (["discarded", "running", "success"], 0, 1, None),
        (["timeout", "finished"], 1, 0, "timeout"),
        (["", "finished", "failure"], 1, 0, "failure"),  # the first says nothing
    ],
)
def test_words_that_still_wait_when_the_recorder_ends_are_taken_in_their_order(told, monkeypatch, words, kept, discarded, outcome):
    monkeypatch.setattr("ros_rl.data.episode_recorder.commit_log", lambda *_: 0)
    ended = []
    monkeypatch.setattr("ros_rl.data.episode_recorder.end_log", lambda log, outcome, *_: ended.append(outcome))
    told.joints(0.0)
    told.word("running", task="push", seed=4)
    told.joints(0.1, 2.0)
    for word in words:
        told.word(word)
    assert told.node._recorder.recording
    told.node.trigger_deactivate()
    recorder = told.node._recorder
    assert not recorder.recording and not told.node._words
    assert (recorder.kept, recorder.discarded) == (kept, discarded)
    assert ended == ([outcome] if outcome is not None else [])


def test_a_joint_state_of_a_real_robot_that_comes_late_ends_no_episode(ros, tmp_path):
    node = start(ros, tmp_path / "set", follow_task=False, backend="ros2_control")
    spec = load_robot("cartpole")
    zeros = np.zeros(len(spec.measured_names))
    sent = iter(range(1, 100))

    def say(seconds):
        state = to_joint_state(seconds, spec.measured_names, zeros, zeros, zeros)
        node._on_joint_state(serialize_message(state), {"source_timestamp": next(sent)})

    say(50.0)
    assert ros.call(Trigger, "recorder/start").success
    log = node._recorder._log.path
    for seconds in (52.0, 51.6, 52.005):
        say(seconds)
    assert node._recorder._log.path == log and node._newest == ns(52.005)
    assert [ns(51.6), ns(52.005)] == [entry.stamp for entry in LogReader(log).entries()][-2:]
    say(51.4)  # more than half a second: the clock was set back
    assert node._recorder._log.path != log and node._newest == ns(51.4)


def test_an_episode_in_which_nothing_came_is_no_episode_and_whoever_ends_it_hears_so(ros, tmp_path):
    node = start(ros, tmp_path / "set", follow_task=False)
    assert ros.call(Trigger, "recorder/start").success
    ended = ros.call(Trigger, "recorder/success")
    assert not ended.success and "the episode is empty" in ended.message
    assert node.status()[0] == ERROR
    assert ros.call(Trigger, "recorder/start").success  # the next one may


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


def test_a_person_judges_where_no_task_node_does(ros, states, tmp_path):
    node = start(ros, tmp_path / "set", dataset_episodes=2)
    ros.up("cartpole", without=("task_node",), lockstep=False)
    for word in ("success", "discard", "failure"):
        assert ros.call(Trigger, "recorder/start").success
        ros.until(lambda: not node._words and node._recorder.status()["messages"] > 50)
        assert ros.call(Trigger, f"recorder/{word}").success
        refused = ros.call(Trigger, f"recorder/{word}")
        assert not refused.success and "no episode is being recorded" in refused.message
    full = ros.call(Trigger, "recorder/start")
    assert not full.success and "2 episodes are recorded, as many as dataset_episodes:= asked for" in full.message
    ros.until(lambda: newest(states)["committed"] == 2)
    assert (newest(states)["full"], newest(states)["kept"], newest(states)["discarded"]) == (True, 2, 1)
    assert [episode.outcome for episode in Dataset.open(tmp_path / "set").episodes] == ["success", "failure"]


def test_the_buttons_of_a_device_reach_the_recorder_where_there_is_no_task(ros, states, tmp_path):
    start(ros, tmp_path / "set", robot="arm")
    ros.up("arm", without=(), tasks="none", policy="arm_circle", teleop="joy", device_timeout=10.0)
    pad = ros.probe.create_publisher(Joy, "joy", COMMAND_QOS)

    actions = ros.hear(JointTrajectory, "policy/action")

    def hold(*buttons):
        pad.publish(Joy(axes=[0.0] * 8, buttons=[int(number in buttons) for number in range(8)]))

    ros.until(lambda: (hold(), pad.get_subscription_count() and len(actions) > 10)[1], "for actions")
    ros.until(lambda: (hold(7), newest(states)["state"] == "recording" and newest(states)["seconds"] > 0.5)[1], "for start")
    ros.until(lambda: (hold(3), newest(states)["kept"] == 1)[1], "for success")
    ros.until(lambda: newest(states)["committed"] == 1)
    assert Dataset.open(tmp_path / "set").episodes[0].outcome == "success"


def test_messages_that_the_recorder_was_too_slow_for_are_counted_by_source(ros, tmp_path):
    node = start(ros, tmp_path / "set", robot="arm", cameras=["wrist"], follow_task=False)
    names = load_robot("arm").measured_names
    node._on_joint_state(serialize_message(to_joint_state(1.0, names, *np.zeros((3, len(names))))), {"source_timestamp": 1})
    publisher = ros.probe.create_publisher(Image, "camera/wrist/image_raw", IMAGE_QOS)
    ros.until(lambda: not node._missing and publisher.get_subscription_count() == 1)
    assert ros.call(Trigger, "recorder/start").success
    for number in (5, 6, 9, 10, 14):
        node._count_lost("camera/wrist/image_raw", "wrist", {"publication_sequence_number": number})
    for number in (2, 1, 2, None, 3):  # a publisher that began anew, and a middleware that does not number
        node._count_lost("camera/wrist/image_raw", "wrist", {"publication_sequence_number": number})
    assert node._recorder.status()["dropped"] == {"wrist": 5}
    level, message, _ = node.status()
    assert level == DiagnosticStatus.WARN and message == "messages were lost on their way to the recorder: 5 of wrist"
    other = ros.probe.create_publisher(Image, "camera/wrist/image_raw", IMAGE_QOS)
    ros.until(lambda: node.count_publishers("camera/wrist/image_raw") == 2)
    node._count_lost("camera/wrist/image_raw", "wrist", {"publication_sequence_number": 100})  # two count for themselves
    assert node._recorder.status()["dropped"] == {"wrist": 5}
    ros.probe.destroy_publisher(other)


def test_a_queue_that_runs_over_is_counted_exactly(ros, tmp_path, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.recorder_node.RECORDER_QOS", QoSProfile(depth=4))
    node = start(ros, tmp_path / "set", follow_task=False)
    names = load_robot("cartpole").measured_names
    publisher = ros.probe.create_publisher(JointState, "joint_states", QoSProfile(depth=100))
    ros.until(lambda: publisher.get_subscription_count() == 1)

    def say(count):
        for _ in range(count):
            say.stamp += 0.01
            publisher.publish(to_joint_state(say.stamp, names, *np.zeros((3, len(names)))))

    say.stamp = 1.0
    say(1)
    ros.until(lambda: node._newest is not None)
    assert ros.call(Trigger, "recorder/start").success
    say(30)  # nobody listens meanwhile
    ros.until(lambda: node._newest == ns(say.stamp))
    status = node._recorder.status()
    assert status["messages"] + status["dropped"].get("joint_states", 0) == 30
    assert status["dropped"]["joint_states"] >= 26


def test_an_image_of_another_size_is_said_at_once_and_not_recorded(ros, tmp_path):
    node = start(ros, tmp_path / "set", robot="arm", cameras=["wrist"], follow_task=False)
    names = load_robot("arm").measured_names
    node._on_joint_state(serialize_message(to_joint_state(1.0, names, *np.zeros((3, len(names))))), {"source_timestamp": 1})
    diagnostics = ros.diagnostics()
    publisher = ros.probe.create_publisher(Image, "camera/wrist/image_raw", IMAGE_QOS)
    ros.until(lambda: not node._missing and publisher.get_subscription_count() == 1)
    assert ros.call(Trigger, "recorder/start").success
    small = Image(height=240, width=320, encoding="rgb8", step=960, data=bytes(240 * 960))
    ros.until(lambda: (publisher.publish(small), "an image is 320×240 in rgb8; the dataset takes 640×480" in node.status()[1])[1])
    ros.until(lambda: "an image is 320×240" in diagnostics("recorder_node").message)
    assert node._recorder.status()["messages"] == 0


def test_a_camera_that_nobody_publishes_is_named(ros, states, tmp_path):
    node = start(ros, tmp_path / "set", robot="arm", cameras=["wrist"])
    ros.until(lambda: states)
    assert newest(states)["missing"] == ["wrist"] and "nobody publishes images of wrist" in node.status()[1]


def test_a_scene_brings_its_cameras(ros, tmp_path):
    node = start(ros, tmp_path / "set", robot="arm", cameras=["wrist", "overhead"], task="push_button")
    assert node._recorder.spec.cameras == (("wrist", (480, 640)), ("overhead", (480, 640)))

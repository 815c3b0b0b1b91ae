"""The node that records: what is on the topics goes into a log, and after each episode into a dataset."""

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, Imu, JointState
from std_msgs.msg import Float64, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.data.cameras import recorded_cameras
from ros_rl.data.convert import COMMANDS, OUTCOMES
from ros_rl.data.decode import said
from ros_rl.data.episode_recorder import EpisodeRecorder, Message, Preroll
from ros_rl.data.features import DatasetSpec
from ros_rl.data.messages import encode, header, header_stamp, read_image
from ros_rl.errors import UserError
from ros_rl.hardware.interface import NANOSECONDS
from ros_rl.nodes.base import ERROR, WARN, StackNode, run
from ros_rl.nodes.messages import LATCHED_QOS, RECORDER_QOS, TASK_STATE_QOS
from ros_rl.nodes.parameters import RECORDER_NODE
from ros_rl.robots.spec import Camera, RobotSpec, load_robot
from ros_rl.sim.task import load_task

_TOPICS: dict[str, type] = {
    "imu/data": Imu,
    "odom": Odometry,
    "cmd_vel": Twist,
    "policy/action": JointTrajectory,
    "teleop/action": JointTrajectory,
    "teleop/engaged": String,
    "joint_command": JointTrajectory,
    "safety/status": DiagnosticStatus,
    "task/reward": Float64,
}
_SOURCES = {topic: source for source, topic in COMMANDS.items()}
# Deep enough for seconds in which the recorder does something else; not much more, for images are large.
_CAMERA_DEPTH = 120
_STATUS_PERIOD = 0.5  # s
_AHEAD = NANOSECONDS  # ns: a message that far ahead of the joint states is of the time before a reset
_LATE = NANOSECONDS // 2  # ns that a joint state of a real robot may be older than another before time has gone back
_PREROLL = 30 * NANOSECONDS, 100_000_000  # ns of the robot's time, and bytes: in lock-step seconds pass before word of an episode comes
_LATEST = 2.0  # s for which word of an episode waits for what was sent before
_EVERY_PERIOD = ("joint_states", "joint_command")  # what comes in every control period, whoever commands
_SERVICES = {"start": "start", "stop": "stopped", "success": "success", "failure": "failure", "discard": "discarded"}  # and their words
_BEGINS = ("start", "running")
_ENDS = ("stopped", "discarded", *OUTCOMES)


@dataclass(frozen=True)
class _Word:
    """Word of an episode: the state that the task node or a service named, all that the node said, when it was sent, ns of the wall
    clock, and when it came, s.
    """

    state: str
    said: dict[str, Any]
    sent: int
    came: float


class RecorderNode(StackNode):
    """Records from `recorder/start` to `recorder/stop`, and with `follow_task` each episode of the task node.

    `recorder/status` is JSON in a string, see `EpisodeRecorder.status`. Messages are logged by the robot's clock: that of the
    newest joint state. A reset of the simulation within an episode begins a new log.

    Topics are read at their own pace: on a busy machine joint states come later than word of the episode that they belong to. So
    what belongs together is told by when it was sent. Word of an episode waits until what was sent before it has come, and an
    episode begins with what came between its reset and word of it.
    """

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("recorder_node", RECORDER_NODE, **options)
        self._recorder: EpisodeRecorder | None = None
        self._preroll = Preroll(*_PREROLL)
        self._instruction = ""
        self._task: dict[str, Any] = {}  # name and seed of the task that the episode is of
        self._newest: int | None = None
        self._began: int | None = None
        self._words: deque[_Word] = deque()  # of the task node and of people, until what was sent before has come
        self._line = 0, 0  # stamp of the joint state with which this time line began, and when it was sent, ns
        self._line_before = 0  # the last stamp of the one before
        self._heard: dict[str, int] = {}  # when the last message of each source of the episode was sent, ns of the wall clock
        self._sequences: dict[str, int] = {}
        self._missing: list[Camera] = []  # cameras of which nobody publishes images yet
        self._stale = 0

    def configure(self) -> None:
        """Opens the dataset and the topics."""
        spec = load_robot(self.value("robot"), self.value("control_rate"))
        if not self.value("dataset"):
            raise UserError("recorder_node: name the folder to record into with dataset:=")
        cameras = recorded_cameras(spec, self._scene(spec), self.value("cameras"))
        setup = {"control_rate": spec.control_rate, "command_mode": spec.command_mode}
        setup |= {"lockstep": self.value("lockstep"), "simulated": self._simulated}
        folder = Path(self.value("dataset")).expanduser()
        self._recorder = EpisodeRecorder(folder, DatasetSpec.of(spec, self.value("fps"), cameras), setup)
        for path in self._recorder.left:
            self.get_logger().warning(f"{path} was not committed; 'ros-rl data repair {self._recorder.root}' makes an episode of it")
        self._status = self.create_publisher(String, "recorder/status", TASK_STATE_QOS)
        self.create_subscription(JointState, "joint_states", self._on_joint_state, RECORDER_QOS, with_info=True, raw=True)
        for topic, kind in _TOPICS.items():
            self._log_topic(topic, kind)
        self._missing = cameras
        self._find_cameras()
        self.create_subscription(String, "task/instruction", self._on_instruction, LATCHED_QOS, with_info=True)
        self.create_subscription(String, "task/state", self._on_task_state, TASK_STATE_QOS, with_info=True)
        for word in _SERVICES:
            self.create_service(Trigger, f"recorder/{word}", partial(self._on_word, word))
        self.every(_STATUS_PERIOD, self._look_around)

    def deactivate(self) -> None:
        """Takes the words that still wait, then ends the episode."""
        while self._words:
            word = self._words.popleft()
            if word.state != "running" or self._all_came(word.sent):  # else nothing of that episode has come
                self._take(word)
        if self._recorder is not None and self._recorder.recording:
            self._recorder.stop()

    def release(self) -> None:
        """Waits until all episodes are committed."""
        if self._recorder is None:
            return
        recorder, self._recorder = self._recorder, None
        if recorder.status()["waiting"]:
            self.get_logger().info(f"writes what was recorded into {recorder.root}")
        recorder.close()
        status = recorder.status()
        for line in status["cadence"]:
            self.get_logger().info(f"last episode: {line}")
        if status["problem"]:
            self.get_logger().error(status["problem"])

    @property
    def _simulated(self) -> bool:
        return bool(self.value("backend") == "mujoco")

    @property
    def _full(self) -> bool:
        """Whether as many episodes were recorded as were asked for."""
        assert self._recorder is not None
        return 0 < self.value("dataset_episodes") <= self._recorder.kept

    def _scene(self, spec: RobotSpec) -> str | None:
        if not self._simulated:
            return None
        return load_task(self.value("task"), spec.name).scene if self.value("task") else str(self.value("scene"))

    def status(self) -> tuple[bytes, str, Mapping[str, object]]:
        """Returns an error while what was recorded is not safe, a warning where a source came too seldom or was lost on the way."""
        if self._recorder is None:
            return super().status()
        values = {**self._recorder.status(), "stale": self._stale}
        level, message, _ = super().status()
        if values["problem"]:
            return ERROR, str(values["problem"]), values
        if values["dropped"]:
            lost = ", ".join(f"{count} of {source}" for source, count in values["dropped"].items())
            return WARN, f"messages were lost on their way to the recorder: {lost}", values
        if self._missing:
            return WARN, f"nobody publishes images of {', '.join(camera.name for camera in self._missing)}", values
        if values["remarks"] and level != WARN:
            return WARN, f"the last episode: {'; '.join(values['remarks'])}", values
        if values["short"] and level != WARN:
            return WARN, f"the last episode lacks messages: {'; '.join(values['cadence'])}", values
        return level, message, values

    # --- messages ---

    def _log_topic(self, topic: str, kind: type) -> None:
        name = _ros_name(kind)
        headed = "header" in kind.get_fields_and_field_types()  # type: ignore[attr-defined]

        def on_message(data: bytes, info: Mapping[str, Any]) -> None:
            self._count_lost(topic, _SOURCES.get(topic, topic), info)
            self._write(topic, name, data, header_stamp(data) if headed else None, info["source_timestamp"])

        self.create_subscription(kind, topic, on_message, RECORDER_QOS, with_info=True, raw=True)

    def _find_cameras(self) -> None:
        """Listens to cameras as soon as they are there, and asks for lost images again where they can be had."""
        for camera in list(self._missing):
            offers = self.get_publishers_info_by_topic(f"camera/{camera.name}/image_raw")
            if offers:
                reliable = all(offer.qos_profile.reliability == ReliabilityPolicy.RELIABLE for offer in offers)
                self._missing.remove(camera)
                self._log_camera(camera, ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT)

    def _log_camera(self, camera: Camera, reliability: ReliabilityPolicy) -> None:
        topic, quality = f"camera/{camera.name}/image_raw", self.value("jpeg_quality")
        qos = QoSProfile(depth=_CAMERA_DEPTH, reliability=reliability)

        def on_image(data: bytes, info: Mapping[str, Any]) -> None:
            self._count_lost(topic, camera.name, info)
            sent = info["source_timestamp"]
            if not self._listens:
                return
            encoding, pixels = read_image(data)
            if pixels.shape != (camera.height, camera.width, 3):
                found = f"{pixels.shape[1]}×{pixels.shape[0]} in {encoding}"
                raise UserError(f"an image is {found}; the dataset takes {camera.width}×{camera.height} in rgb8 or bgr8")
            stamp = header_stamp(data)
            if not quality:
                self._write(topic, "sensor_msgs/Image", data, stamp, sent)
                return
            self._write(f"{topic}/compressed", _COMPRESSED, _compressed(encoding, pixels, stamp, camera.frame, quality), stamp, sent)

        self.create_subscription(Image, topic, on_image, qos, with_info=True, raw=True)

    @property
    def _listens(self) -> bool:
        """Whether what comes may belong to an episode."""
        return self._recorder is not None and (self._recorder.recording or (self.value("follow_task") and not self._full))

    def _count_lost(self, topic: str, source: str, info: Mapping[str, Any]) -> None:
        """Counts what was published and did not come: a publisher numbers its messages."""
        number, before = info.get("publication_sequence_number"), self._sequences.get(topic)
        if not isinstance(number, int) or self._recorder is None:
            return
        self._sequences[topic] = number
        # A number that falls is of a publisher that began anew; several publishers each have their own numbers.
        if before is not None and number > before + 1 and self._recorder.recording and self.count_publishers(topic) == 1:
            self._recorder.drop(source, number - before - 1)

    def _write(self, topic: str, kind: str, data: bytes, stamp: int | None, sent: int) -> None:
        if not self._listens or self._newest is None:
            return
        assert self._recorder is not None
        end = self._end_of_episode()
        if end is not None and self._recorder.recording and sent <= end:  # time may have jumped back by now; this came before
            time_before = self._line_before if sent < self._line[1] else self._newest
            self._recorder.write(topic, kind, data, time_before if stamp is None else stamp)
            return
        began, begun = self._line
        if stamp is not None and (stamp > self._newest + _AHEAD or (sent < begun and stamp > began)):
            self._stale += 1
            return
        self._preroll.add(Message(topic, kind, data, self._newest, self._newest if stamp is None else stamp))
        self._heard[topic] = sent
        if end is None:
            self._recorder.write(topic, kind, data, self._newest)
        else:
            self._take_words()

    def _on_joint_state(self, data: bytes, info: Mapping[str, Any]) -> None:
        """Takes the robot's time from a joint state. That of a simulation goes back by a reset only, a driver's stamps waver."""
        stamp, sent = header_stamp(data), info["source_timestamp"]
        self._count_lost("joint_states", "joint_states", info)
        if self._newest is None or stamp < self._newest - (0 if self._simulated else _LATE):
            self._on_jump(stamp, sent)
            self._newest = stamp
        self._newest = max(self._newest, stamp)
        if self._began is None:
            self._began = stamp
        self._write("joint_states", "sensor_msgs/JointState", data, stamp, sent)
        self._take_words()

    def _on_jump(self, stamp: int, sent: int) -> None:
        """Time went back: what came before is another episode, or, if it is short, what was left of the one before."""
        self._line, self._line_before = (stamp, sent), self._newest or 0
        self._preroll.rewind(stamp)
        if self._recorder is None or not self._recorder.recording or self._end_of_episode() is not None:
            return
        if self._newest is not None and self._began is not None and self._newest - self._began > NANOSECONDS:
            self._recorder.stop()
        else:
            self._recorder.forget()
        self._start()

    # --- episodes ---

    def _start(self) -> None:
        assert self._recorder is not None
        if self._full:
            return
        self._recorder.start(self._instruction, self._task)
        self._began = None

    def _end_of_episode(self) -> int | None:
        """Returns when word of the end of the running episode was sent, None before it came."""
        return next((word.sent for word in self._words if word.state in _ENDS), None)

    def _on_instruction(self, message: String, info: Mapping[str, Any]) -> None:
        self._instruction = message.data
        text = encode("std_msgs/String", {"data": message.data})
        self._write("task/instruction", "std_msgs/String", text, None, info["source_timestamp"])

    def _on_task_state(self, message: String, info: Mapping[str, Any]) -> None:
        if self._recorder is None or not self.active or not self.value("follow_task"):
            return
        words = said(message)
        self._words.append(_Word(words.get("state", ""), words, info["source_timestamp"], time.monotonic()))
        self._take_words()

    def _take_words(self) -> None:
        """Begins and ends episodes as was said, each when all that was sent before has come."""
        while self._words and self._recorder is not None:
            word = self._words[0]
            # What a person begins waits for nothing, nor does the end of an episode in which nothing has come.
            at_once = word.state == "start" or (word.state in _ENDS and self._recorder.recording and self._recorder.empty)
            if not (at_once or self._all_came(word.sent) or time.monotonic() - word.came > _LATEST):
                return
            self._words.popleft()
            self._take(word)
            self._publish_status()

    def _take(self, word: _Word) -> None:
        if self._recorder is None:
            return
        begins = word.state == "start" or (word.state == "running" and not self._over())
        if begins and self._recorder.recording and self._task:
            self._recorder.forget()  # the task node has begun another one without a word of this one's end
        if not self._recorder.recording:
            if begins and not self._full:
                self._begin(word)
        elif word.state == "discarded":
            self._recorder.discard()
        elif word.state in _ENDS:
            self._recorder.stop(word.state if word.state in OUTCOMES else "")

    def _over(self) -> bool:
        """Whether the episode that a word begins has ended as well: one from before this node listened, of which nothing is known."""
        end = self._end_of_episode()
        return end is not None and self._all_came(end)

    def _all_came(self, sent: int) -> bool:
        """Whether each of those that speak in every control period has said something since then."""
        return all(self._heard.get(topic, sent + 1) > sent for topic in _EVERY_PERIOD) and "joint_states" in self._heard

    def _begin(self, word: _Word) -> None:
        assert self._recorder is not None
        self._instruction = word.said.get("instruction", self._instruction)
        self._task = {key: word.said[key] for key in ("task", "seed") if key in word.said}
        self._start()
        # A reset puts time to 0; else this node came in the midst of the task. Before a person's word nothing is remembered.
        for kept in self._preroll if word.state == "start" or self._line[0] == 0 else ():
            self._recorder.write(kept.topic, kept.kind, kept.data, kept.time)

    def _on_word(self, word: str, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self._recorder is None or not self.active:
            raise UserError("the recorder is not active")
        if word == "start":
            self._check_start()
            self._preroll.clear()
        elif not self._will_record():
            raise UserError("no episode is being recorded")
        self._words.append(_Word(_SERVICES[word], {}, time.time_ns(), time.monotonic()))
        self._take_words()
        self._publish_status()
        response.message = self._recorder.problem if word != "discard" else ""
        response.success = not response.message
        return response

    def _check_start(self) -> None:
        """Refuses an episode beside one that runs, and one more than were asked for; words that still wait count."""
        assert self._recorder is not None
        if self._will_record():
            raise UserError("an episode is being recorded already; stop it first")
        kept = self._recorder.kept + sum(word.state in _ENDS and word.state != "discarded" for word in self._words)
        if 0 < self.value("dataset_episodes") <= kept:
            raise UserError(f"{kept} episodes are recorded, as many as dataset_episodes:= asked for")

    def _will_record(self) -> bool:
        """Whether an episode is recorded once all words that still wait are taken."""
        assert self._recorder is not None
        said = [word.state in _BEGINS for word in self._words if word.state in _BEGINS + _ENDS]
        return said[-1] if said else self._recorder.recording

    def _look_around(self) -> None:
        self._take_words()  # also where nothing comes any more
        self._find_cameras()
        self._publish_status()

    def _publish_status(self) -> None:
        if self._recorder is None:
            return
        seconds = (self._newest - self._began) / NANOSECONDS if self._newest is not None and self._began is not None else 0.0
        status = {**self._recorder.status(), "instruction": self._instruction, "seconds": round(max(seconds, 0.0), 3), "full": self._full}
        status["missing"] = [camera.name for camera in self._missing]
        self._status.publish(String(data=json.dumps(status)))


_COMPRESSED = "sensor_msgs/CompressedImage"


def _compressed(encoding: str, pixels: np.ndarray, stamp: int, frame: str, quality: int) -> bytes:
    """Returns an image as an encoded JPEG message."""
    picture = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if encoding == "rgb8" else pixels
    done, jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise UserError("an image cannot be encoded")
    return encode(_COMPRESSED, {"header": header(stamp, frame), "format": "rgb8; jpeg compressed bgr8", "data": jpeg.tobytes()})


def _ros_name(kind: type) -> str:
    """Returns the name of a message type, such as ``sensor_msgs/Imu``."""
    return f"{kind.__module__.split('.')[0]}/{kind.__name__}"


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [RecorderNode()])

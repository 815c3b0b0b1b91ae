"""The node that records: what is on the topics goes into a log, and after each episode into a dataset."""

import json
from collections.abc import Mapping
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

from ros_rl.data.episode_recorder import EpisodeRecorder
from ros_rl.data.features import DatasetSpec
from ros_rl.data.messages import encode, header, header_stamp
from ros_rl.errors import UserError
from ros_rl.nodes.base import ERROR, WARN, StackNode, run
from ros_rl.nodes.messages import LATCHED_QOS, RECORDER_QOS, TASK_STATE_QOS
from ros_rl.nodes.parameters import RECORDER_NODE
from ros_rl.robots.spec import load_robot

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
_CAMERA_QOS = QoSProfile(depth=60, reliability=ReliabilityPolicy.BEST_EFFORT)
_STATUS_PERIOD = 0.5  # s
_AHEAD = 1_000_000_000  # ns: a message that far ahead of the joint states is of the time before a reset
_SECOND = 1_000_000_000
_JUDGED = ("success", "failure", "timeout")


class RecorderNode(StackNode):
    """Records from `recorder/start` to `recorder/stop`, and with `follow_task` each episode of the task node.

    `recorder/status` is JSON in a string, see `EpisodeRecorder.status`. Messages are logged by the robot's clock: that of the
    newest joint state. A reset of the simulation within an episode begins a new log.
    """

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("recorder_node", RECORDER_NODE, **options)
        self._recorder: EpisodeRecorder | None = None
        self._instruction = ""
        self._newest: int | None = None
        self._began: int | None = None
        self._stale = 0

    def configure(self) -> None:
        """Opens the dataset and the topics."""
        spec = load_robot(self.value("robot"), self.value("control_rate"))
        if not self.value("dataset"):
            raise UserError("recorder_node: name the folder to record into with dataset:=")
        chosen = DatasetSpec.of(spec, self.value("fps"), self.value("cameras"))
        self._recorder = EpisodeRecorder(Path(self.value("dataset")).expanduser(), chosen)
        for path in self._recorder.left:
            self.get_logger().warning(f"{path} was not committed; 'ros-rl data repair {self._recorder.root}' makes an episode of it")
        self._status = self.create_publisher(String, "recorder/status", TASK_STATE_QOS)
        self.create_subscription(JointState, "joint_states", self._on_joint_state, RECORDER_QOS, raw=True)
        for topic, kind in _TOPICS.items():
            self._log_topic(topic, kind)
        for name, _ in chosen.cameras:
            self._log_camera(f"camera/{name}/image_raw")
        self.create_subscription(String, "task/instruction", self._on_instruction, LATCHED_QOS)
        self.create_subscription(String, "task/state", self._on_task_state, TASK_STATE_QOS)
        self.create_service(Trigger, "recorder/start", self._on_start)
        self.create_service(Trigger, "recorder/stop", self._on_stop)
        self.every(_STATUS_PERIOD, self._publish_status)

    def deactivate(self) -> None:
        """Ends the episode."""
        if self._recorder is not None and self._recorder.recording:
            self._recorder.stop()

    def release(self) -> None:
        """Waits until all episodes are committed."""
        if self._recorder is not None:
            self._recorder.close()
            status = self._recorder.status()
            self._recorder = None
            for line in status["cadence"]:
                self.get_logger().info(f"last episode: {line}")

    def status(self) -> tuple[bytes, str, Mapping[str, object]]:
        """Returns an error while what was recorded is not safe, a warning where a source came too seldom."""
        if self._recorder is None:
            return super().status()
        values = {**self._recorder.status(), "stale": self._stale}
        if values["problem"]:
            return ERROR, str(values["problem"]), values
        if values["short"]:
            return WARN, f"the last episode lacks messages: {'; '.join(values['cadence'])}", values
        level, message, _ = super().status()
        return level, message, values

    def _log_topic(self, topic: str, kind: type) -> None:
        name = _ros_name(kind)
        headed = "header" in kind.get_fields_and_field_types()  # type: ignore[attr-defined]

        def on_message(data: bytes) -> None:
            self._write(topic, name, data, header_stamp(data) if headed else None)

        self.create_subscription(kind, topic, on_message, RECORDER_QOS, raw=True)

    def _log_camera(self, topic: str) -> None:
        quality = self.value("jpeg_quality")
        qos = RECORDER_QOS if self.value("lockstep") else _CAMERA_QOS

        def on_raw(data: bytes) -> None:
            self._write(topic, "sensor_msgs/Image", data, header_stamp(data))

        def on_image(message: Image) -> None:
            if self._recorder is None or not self._recorder.recording:
                return
            pixels = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
            picture = pixels[..., ::-1] if message.encoding == "rgb8" else pixels
            done, jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
            if not done:
                raise UserError(f"{topic}: an image cannot be encoded")
            stamp = message.header.stamp.sec * _SECOND + message.header.stamp.nanosec
            values = {"header": header(stamp, message.header.frame_id), "format": "rgb8; jpeg compressed bgr8", "data": jpeg.tobytes()}
            kind = "sensor_msgs/CompressedImage"
            self._write(f"{topic}/compressed", kind, encode(kind, values), stamp)

        self.create_subscription(Image, topic, on_image if quality else on_raw, qos, raw=not quality)

    def _write(self, topic: str, kind: str, data: bytes, stamp: int | None) -> None:
        if self._recorder is None or not self._recorder.recording or self._newest is None:
            return
        if stamp is not None and stamp > self._newest + _AHEAD:
            self._stale += 1
            return
        self._recorder.write(topic, kind, data, self._newest)

    def _on_joint_state(self, data: bytes) -> None:
        stamp = header_stamp(data)
        if self._newest is not None and stamp < self._newest:
            self._on_jump()
        self._newest = stamp
        if self._began is None:
            self._began = stamp
        self._write("joint_states", "sensor_msgs/JointState", data, stamp)

    def _on_jump(self) -> None:
        """Time went back: what came before is another episode, or, if it is short, what was left of the one before."""
        if self._recorder is None or not self._recorder.recording:
            return
        if self._newest is not None and self._began is not None and self._newest - self._began > _SECOND:
            self._recorder.stop()
        else:
            self._recorder.discard()
        self._start()

    def _start(self) -> None:
        assert self._recorder is not None
        self._recorder.start(self._instruction)
        self._began = None

    def _on_instruction(self, message: String) -> None:
        self._instruction = message.data
        self._write("task/instruction", "std_msgs/String", encode("std_msgs/String", {"data": message.data}), None)

    def _on_task_state(self, message: String) -> None:
        if self._recorder is None or not self.active or not self.value("follow_task"):
            return
        state = json.loads(message.data)["state"]
        if state == "running" and not self._recorder.recording:
            self._instruction = json.loads(message.data).get("instruction", self._instruction)
            self._start()
        self._write("task/state", "std_msgs/String", encode("std_msgs/String", {"data": message.data}), None)
        if not self._recorder.recording:
            return
        if state in _JUDGED:
            self._recorder.stop(state)
            self._publish_status()
        elif state == "discarded":
            self._recorder.discard()

    def _on_start(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if not self.active:
            raise UserError("the recorder is not active")
        self._start()
        response.success = True
        return response

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self._recorder is None:
            raise UserError("the recorder is not configured")
        self._recorder.stop()
        response.success = True
        return response

    def _publish_status(self) -> None:
        if self._recorder is not None:
            self._status.publish(String(data=json.dumps(self._recorder.status())))


def _ros_name(kind: type) -> str:
    """Returns the name of a message type, such as ``sensor_msgs/Imu``."""
    return f"{kind.__module__.split('.')[0]}/{kind.__name__}"


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [RecorderNode()])

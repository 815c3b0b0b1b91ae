"""Looks at a graph from outside, at a rate of its own: the newest of every topic, and which nodes there are."""

import json
import math
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.srv import GetState
from nav_msgs.msg import Odometry
from rclpy.callback_groups import CallbackGroup
from rclpy.client import Client
from rclpy.qos import QoSProfile
from rclpy.task import Future
from sensor_msgs.msg import Image, Imu, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from ros_rl.nodes.base import OK, StackNode
from ros_rl.nodes.messages import (
    COMMAND_QOS,
    IMAGE_QOS,
    LATCHED_QOS,
    JointReader,
    from_image,
    from_imu,
    from_odometry,
    from_privileged,
    from_trajectory,
)
from ros_rl.robots.spec import RobotSpec
from ros_rl.web.view import View

_IMAGE_PERIOD = 0.2  # s
_SURVEY_PERIOD = 1.0  # s between looks for nodes and cameras
_COUNTING = 0.5  # s of control periods that are averaged at least
_OLD = 1.0  # s after which what was heard is no longer said to be so
_OLD_DIAGNOSTICS = 5.0  # s; they come once a second
_OLD_AFTER = {
    "hardware": _OLD_DIAGNOSTICS,
    "trouble": _OLD_DIAGNOSTICS,
    "period": _OLD_DIAGNOSTICS,
    "task": math.inf,
    "recorder": 2 * _OLD,
}  # latched: sent once
_DIAGNOSTICS_QOS = QoSProfile(depth=50)


class _NotByExecutor(CallbackGroup):
    """Keeps subscriptions out of the executor: what comes waits, the newest of it, until somebody takes it.

    Else every message would wake this process, up to 500 times a second for joint states alone.
    """

    def can_execute(self, entity: object) -> bool:
        return False

    def beginning_execution(self, entity: object) -> bool:
        return False

    def ending_execution(self, entity: object) -> None:
        pass


class _Mailbox:
    """A topic whose messages are taken when it suits."""

    def __init__(self, node: StackNode, kind: type, topic: str, qos: QoSProfile):
        self._node = node
        self._topic = topic
        self._subscription = node.create_subscription(kind, topic, lambda _: None, qos, callback_group=_NotByExecutor())

    def take(self) -> tuple[Any, float] | None:
        """Returns the next message and when it was sent, s of the wall clock; None if there is none."""
        with self._subscription.handle:
            taken = self._subscription.handle.take_message(self._subscription.msg_type, self._subscription.raw)
        return None if taken is None else (taken[0], taken[1]["source_timestamp"] * 1e-9)

    def read(self, receive: Callable[[Any], None]) -> None:
        """Hands on the next message, if there is one; one that makes no sense is reported and left out."""
        taken = self.take()
        if taken is not None:
            self._node.contained(self._topic, receive)(taken[0])

    def close(self) -> None:
        """Ends the subscription."""
        self._node.destroy_subscription(self._subscription)


class GraphObserver:
    """Collects what is known of the robot in a node's namespace. It costs the graph its subscriptions, and nothing once closed."""

    def __init__(self, node: StackNode, spec: RobotSpec, simulated: bool):
        """Opens the subscriptions.

        Args:
            node: takes them; its namespace is looked at.
            spec: the robot.
            simulated: whether there is simulator state.
        """
        self._node = node
        self._spec = spec
        self._joints = JointReader(spec.measured_names)
        self._known: dict[str, tuple[Any, float]] = {}  # by the name in `View`, with when it was heard
        self._heard_at: float | None = None
        self._counted: tuple[float, int] | None = None
        self._images_at = self._survey_at = 0.0
        self._listening = False
        self._cameras: dict[str, _Mailbox] = {}
        self._lifecycles = _Lifecycles(node)
        self._diagnostics = _Mailbox(node, DiagnosticArray, "diagnostics", _DIAGNOSTICS_QOS)
        topics: list[tuple[type, str, QoSProfile, Callable[[Any], None]]] = [
            (JointState, "joint_states", COMMAND_QOS, self._on_joints),
            (JointTrajectory, "joint_command", COMMAND_QOS, self._on_command),
            (DiagnosticStatus, "safety/status", COMMAND_QOS, self._on_safety),
            (String, "task/state", LATCHED_QOS, lambda message: self._keep("task", json.loads(message.data))),
            (String, "recorder/status", LATCHED_QOS, lambda message: self._keep("recorder", json.loads(message.data))),
        ]
        if simulated:
            topics.append((JointState, "sim/privileged", COMMAND_QOS, lambda message: self._keep("truth", from_privileged(message))))
        if spec.floating_base and spec.imu_frame:
            topics.append((Imu, "imu/data", COMMAND_QOS, lambda message: self._keep("base_quat", from_imu(message)["base_quat"])))
        if spec.floating_base and spec.odometry:
            topics.append(
                (Odometry, "odom", COMMAND_QOS, lambda message: self._keep("base_position", from_odometry(message)["base_position"]))
            )
        self._mailboxes = [(_Mailbox(node, kind, topic, qos), receive) for kind, topic, qos, receive in topics]

    def view(self) -> View:
        """Takes what has come and returns all that is known now; what was not heard for a while is not known."""
        now = time.monotonic()
        for mailbox, receive in self._mailboxes:
            mailbox.read(receive)
        while (taken := self._diagnostics.take()) is not None:
            for status in taken[0].status:
                if status.name.rpartition("/")[2] == "hardware_node":
                    self._on_hardware(status, taken[1])
        images: dict[str, np.ndarray] = {}
        if now >= self._images_at + _IMAGE_PERIOD:
            self._images_at = now
            for name, mailbox in self._cameras.items():
                mailbox.read(partial(self._on_image, images, name))
        if now >= self._survey_at + _SURVEY_PERIOD:
            self._survey_at = now
            self._lifecycles.ask()
            self._find_cameras()
            self._listening = self._node.count_subscribers("teleop/page") > 0
        silence = None if self._heard_at is None else now - self._heard_at
        known = {name: value for name, (value, heard_at) in self._known.items() if now - heard_at <= _OLD_AFTER.get(name, _OLD)}
        return View(silence=silence, images=images, nodes=self._lifecycles.states, listening=self._listening, **known)

    def close(self) -> None:
        """Ends all subscriptions."""
        for mailbox in (self._diagnostics, *(mailbox for mailbox, _ in self._mailboxes), *self._cameras.values()):
            mailbox.close()
        self._lifecycles.close()

    def _keep(self, name: str, value: Any) -> None:
        self._known[name] = value, time.monotonic()

    def _on_joints(self, message: JointState) -> None:
        self._keep("joint_position", self._joints.read(message)[0])
        self._heard_at = time.monotonic()

    def _on_command(self, message: JointTrajectory) -> None:
        command = from_trajectory(message, self._spec.command_mode)
        self._keep("command", command.in_order_of(self._spec))

    def _on_safety(self, status: DiagnosticStatus) -> None:
        values = {pair.key: pair.value for pair in status.values}
        self._keep("safety", {"filter": status.name, "state": status.message, **values})

    def _on_image(self, images: dict[str, np.ndarray], name: str, message: Image) -> None:
        images[name] = from_image(message)

    def _on_hardware(self, status: DiagnosticStatus, sent: float) -> None:
        values = {pair.key: pair.value for pair in status.values}
        self._keep("hardware", values)
        self._keep("trouble", "" if status.level == OK else status.message)
        ticks = int(values.get("ticks", 0))
        if self._counted is None or ticks <= self._counted[1]:
            self._counted = sent, ticks
            self._keep("period", None)
        elif sent - self._counted[0] >= _COUNTING:
            self._keep("period", (sent - self._counted[0]) / (ticks - self._counted[1]))
            self._counted = sent, ticks

    def _find_cameras(self) -> None:
        """Subscribes to every camera that publishes in the namespace, a driver's as well as the simulation's."""
        pattern = re.compile(re.escape(self._node.get_namespace().rstrip("/")) + r"/camera/([^/]+)/image_raw")
        for topic, kinds in self._node.get_topic_names_and_types():
            match = pattern.fullmatch(topic)
            if match and match[1] not in self._cameras and "sensor_msgs/msg/Image" in kinds and self._node.count_publishers(topic):
                self._cameras[match[1]] = _Mailbox(self._node, Image, topic, IMAGE_QOS)


class _Lifecycles:
    """The lifecycle states of the nodes in a namespace."""

    def __init__(self, node: StackNode):
        self.states: dict[str, str] = {}
        self._node = node
        self._asked: dict[str, tuple[Client, Future | None]] = {}

    def ask(self) -> None:
        """Takes in the answers to the last time that it was asked, and asks again."""
        namespace = self._node.get_namespace()
        found = self._node.get_node_names_and_namespaces()
        names = {name for name, where in found if where == namespace and not name.startswith("_")}
        for name in set(self._asked) - names:
            self._forget(name)
        self.states = {name: self._state(name) for name in names}

    def close(self) -> None:
        """Ends the clients."""
        for name in list(self._asked):
            self._forget(name)

    def _state(self, name: str) -> str:
        if name == self._node.get_name():
            return "active"
        if name not in self._asked:
            self._asked[name] = self._node.create_client(GetState, f"{name}/get_state"), None
        client, answer = self._asked[name]
        if answer is None:
            state = "is being asked"
        elif answer.done():
            state = str(answer.result().current_state.label)
        else:
            client.remove_pending_request(answer)
            state = "does not answer"
        if not client.service_is_ready():
            # One without a lifecycle, such as the link to ros2_control, or one that comes up.
            self._asked[name] = client, None
            return "runs" if answer is None else state
        self._asked[name] = client, client.call_async(GetState.Request())
        return state

    def _forget(self, name: str) -> None:
        self._node.destroy_client(self._asked.pop(name)[0])

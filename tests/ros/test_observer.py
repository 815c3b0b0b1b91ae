"""Tests of ros_rl.nodes.observer: the newest of everything, taken when asked for, without waking anybody."""

from types import SimpleNamespace

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from harness import Ros
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes import observer as module
from ros_rl.nodes.base import StackNode
from ros_rl.nodes.messages import CLAIM_QOS, IMAGE_QOS, STREAM_QOS, TASK_STATE_QOS, to_image, to_joint_state, to_privileged, to_trajectory
from ros_rl.nodes.observer import GraphObserver
from ros_rl.nodes.parameters import WEB_NODE
from ros_rl.robots.spec import load_robot

SPEC = load_robot("arm")
N = len(SPEC.measured_names)


@pytest.fixture
def node(ros: Ros) -> StackNode:
    return ros.add(StackNode("looks", WEB_NODE, namespace="/test"), start=False)


@pytest.fixture
def observer(node, monkeypatch):
    monkeypatch.setattr(module, "_SURVEY_PERIOD", 0.1)
    monkeypatch.setattr(module, "_IMAGE_PERIOD", 0.0)
    made = GraphObserver(node, SPEC, simulated=True)
    yield made
    made.close()


def publisher(ros: Ros, kind: type, topic: str, qos=STREAM_QOS):
    made = ros.probe.create_publisher(kind, topic, qos)
    ros.until(lambda: made.get_subscription_count() > 0, f"for a reader of {topic}")
    return made


def test_the_newest_of_every_topic_is_what_is_seen(ros, observer):
    joints, command = publisher(ros, JointState, "joint_states"), publisher(ros, JointTrajectory, "joint_command")
    truth, safety = publisher(ros, JointState, "sim/privileged"), publisher(ros, DiagnosticStatus, "safety/status")
    task, recorder = publisher(ros, String, "task/state", TASK_STATE_QOS), publisher(ros, String, "recorder/status", TASK_STATE_QOS)
    block = np.array([0.4, 0.1, 0.02, 1.0, 0.0, 0.0, 0.0])
    for k in range(50):
        joints.publish(to_joint_state(0.1 * k, SPEC.measured_names[::-1], np.arange(N)[::-1] + float(k), np.zeros(N), np.zeros(N)))
        values = np.arange(len(SPEC.joints)) - float(k)
        command.publish(to_trajectory(JointCommand(SPEC.joint_names, values, 0.1 * k, "test"), SPEC.command_mode))
        truth.publish(to_privileged(0.1 * k, {"red_block": block + k}))
        safety.publish(DiagnosticStatus(name="cbf", message="active", values=[KeyValue(key="lambda", value=str(k))]))
        task.publish(String(data=f'{{"state": "running", "episode": {k}}}'))
        recorder.publish(String(data=f'{{"state": "recording", "messages": {k}}}'))
    ros.until(lambda: observer.view().joint_position is not None and observer.view().task.get("episode") == 49)
    ros.until(lambda: observer.view().safety.get("lambda") == "49" and observer.view().command is not None)
    ros.until(lambda: observer.view().truth["red_block"][0] == 49.4)
    ros.until(lambda: observer.view().recorder == {"state": "recording", "messages": 49})
    view = observer.view()
    assert view.joint_position == pytest.approx(np.arange(N) + 49.0)  # by name, though sent the other way round
    assert view.command == pytest.approx(np.arange(len(SPEC.joints)) - 49.0)
    assert view.safety == {"filter": "cbf", "state": "active", "lambda": "49"}


def test_whether_a_node_listens_to_pages_is_seen(ros, observer):
    ros.until(lambda: observer.view().silence is None and not observer.view().listening)
    listener = ros.probe.create_subscription(String, "teleop/page", lambda _: None, CLAIM_QOS)
    ros.until(lambda: observer.view().listening)
    ros.probe.destroy_subscription(listener)
    ros.until(lambda: not observer.view().listening)


def test_messages_that_nobody_takes_wake_nobody(ros, node, observer):
    joints = publisher(ros, JointState, "joint_states")
    woken = []
    for subscription in node.subscriptions:
        subscription.callback = woken.append
        assert not ros.executor.can_execute(subscription)
    state = to_joint_state(0.0, SPEC.measured_names, *(np.zeros(N),) * 3)
    for _ in range(20):
        joints.publish(state)
        ros.executor.spin_once(timeout_sec=0.01)
    assert not woken
    ros.until(lambda: observer.view().joint_position is not None)


def test_how_long_the_robot_has_been_silent(ros, observer, monkeypatch):
    assert observer.view().silence is None
    now = clock(monkeypatch)
    joints = publisher(ros, JointState, "joint_states")
    joints.publish(to_joint_state(0.0, SPEC.measured_names, *(np.zeros(N),) * 3))
    ros.until(lambda: observer.view().silence is not None)
    now[0] += 7.0
    assert observer.view().silence == pytest.approx(7.0)


def is_nothing(value: object) -> bool:
    return value is None or (not isinstance(value, np.ndarray) and not value)


def clock(monkeypatch) -> list[float]:
    """Returns the observer's time in s, which stands still unless it is changed."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_what_was_not_heard_for_a_while_is_not_known(ros, observer, monkeypatch):
    now = clock(monkeypatch)
    joints, safety = publisher(ros, JointState, "joint_states"), publisher(ros, DiagnosticStatus, "safety/status")
    task = publisher(ros, String, "task/state", TASK_STATE_QOS)
    joints.publish(to_joint_state(0.0, SPEC.measured_names, *(np.zeros(N),) * 3))
    safety.publish(DiagnosticStatus(name="cbf", message="active"))
    task.publish(String(data='{"state": "running"}'))
    ros.until(lambda: (view := observer.view()).joint_position is not None and view.safety and view.task)
    observer._on_hardware(hardware("ok", 1, DiagnosticStatus.WARN, "no command"), 0.0)

    def known() -> set[str]:
        view = observer.view()
        return {name for name in ("joint_position", "safety", "hardware", "trouble", "task") if not is_nothing(getattr(view, name))}

    for age, expected in (
        (0.9, {"joint_position", "safety", "hardware", "trouble", "task"}),
        (1.1, {"hardware", "trouble", "task"}),
        (4.9, {"hardware", "trouble", "task"}),
        (5.1, {"task"}),  # is sent only when it changes
    ):
        now[0] = 100.0 + age
        assert known() == expected, age
    joints.publish(to_joint_state(0.0, SPEC.measured_names, *(np.zeros(N),) * 3))
    ros.until(lambda: observer.view().joint_position is not None)


def test_a_message_that_makes_no_sense_is_reported_and_left_out(ros, node, observer):
    joints = publisher(ros, JointState, "joint_states")
    joints.publish(to_joint_state(0.0, ("other",), *(np.zeros(1),) * 3))
    ros.until(lambda: (observer.view(), "joint_states callback" in node._said)[1])
    assert observer.view().joint_position is None
    joints.publish(to_joint_state(0.0, SPEC.measured_names, *(np.zeros(N),) * 3))
    ros.until(lambda: observer.view().joint_position is not None)
    assert not node._said


def hardware(state: str, ticks: int, level=DiagnosticStatus.OK, message: str = "active") -> DiagnosticStatus:
    values = [KeyValue(key="state", value=state), KeyValue(key="ticks", value=str(ticks))]
    return DiagnosticStatus(name="/test/hardware_node", level=level, message=message, values=values)


def test_the_control_period_is_what_the_hardware_node_counts_over_the_time_between_its_reports(observer):
    reports = [
        (10.0, 100, None),
        (11.0, 300, 1 / 200),
        (11.1, 320, 1 / 200),  # too soon after the last: the guard's state changed
        (12.0, 400, 1 / 100),
        (13.0, 50, None),  # the node started anew
        (14.0, 150, 1 / 100),
    ]
    for sent, ticks, period in reports:
        observer._on_hardware(hardware("ok", ticks), sent)
        assert observer._known["period"][0] == (None if period is None else pytest.approx(period)), sent


def test_only_the_hardware_nodes_diagnostics_are_those_of_the_robot(ros, observer):
    diagnostics = publisher(ros, DiagnosticArray, "diagnostics", 10)
    other = DiagnosticStatus(name="/test/policy_node", level=DiagnosticStatus.ERROR, message="not this one")
    diagnostics.publish(DiagnosticArray(status=[hardware("estop", 1, DiagnosticStatus.ERROR, "estop service"), other]))
    diagnostics.publish(DiagnosticArray(status=[other]))
    ros.until(lambda: observer.view().hardware.get("state") == "estop")
    assert observer.view().trouble == "estop service"
    diagnostics.publish(DiagnosticArray(status=[hardware("ok", 2)]))
    ros.until(lambda: observer.view().hardware["state"] == "ok")
    assert observer.view().trouble == ""


def test_a_camera_that_begins_to_publish_is_found_and_each_image_is_seen_once(ros, observer):
    assert observer.view().images == {}
    camera = ros.probe.create_publisher(Image, "camera/wrist/image_raw", IMAGE_QOS)
    ros.probe.create_publisher(Image, "/other/camera/wrist/image_raw", IMAGE_QOS)
    ros.until(lambda: (observer.view(), camera.get_subscription_count())[1] > 0)
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    seen = []

    def look() -> bool:
        camera.publish(to_image(0.0, "wrist", image))
        seen.extend(observer.view().images.items())
        return bool(seen)

    ros.until(look)
    assert seen[0][0] == "wrist" and np.array_equal(seen[0][1], image)
    ros.until(lambda: observer.view().images == {})
    assert set(observer._cameras) == {"wrist"}


def test_nodes_are_listed_with_their_state_until_they_are_gone(ros, node, observer, monkeypatch):
    nodes = ros.up("cartpole", without=("task_node", "policy_node"))
    ros.until(lambda: observer.view().nodes.get("safety_node") == "active")
    assert observer.view().nodes["looks"] == "active"
    assert observer.view().nodes["probe"] == "runs"  # has no lifecycle
    ros.change("safety_node", "deactivate")
    ros.until(lambda: observer.view().nodes.get("safety_node") == "inactive")
    ros.executor.remove_node(nodes["safety_node"])  # stuck: it is there and does not answer
    ros.until(lambda: observer.view().nodes.get("safety_node") == "does not answer")
    ros.executor.add_node(nodes["safety_node"])
    ros.until(lambda: observer.view().nodes.get("safety_node") == "inactive")
    clients = len(list(node.clients))
    monkeypatch.setattr(node, "get_node_names_and_namespaces", lambda: [("hardware_node", "/test")])
    ros.until(lambda: set(observer.view().nodes) == {"hardware_node"})
    assert len(list(node.clients)) == clients - 2  # of safety_node and probe


def test_nodes_of_another_robot_are_not_listed(ros, observer):
    other = Node("hardware_node", namespace="/other")
    try:
        ros.until(lambda: "probe" in observer.view().nodes)
        assert "hardware_node" not in observer.view().nodes
    finally:
        other.destroy_node()


def test_nothing_is_left_when_it_is_closed(ros, node):
    def held() -> tuple[int, int]:
        return len(list(node.subscriptions)), len(list(node.clients))

    before = held()
    observer = GraphObserver(node, SPEC, simulated=True)
    ros.until(lambda: observer.view().nodes)
    assert held() > before
    observer.close()
    assert held() == before

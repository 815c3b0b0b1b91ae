"""Tests of ros_rl.nodes.web_node: the page shows the robot and stops it, and costs nothing while nobody looks."""

import socket
import threading
import time
from itertools import pairwise
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import yaml
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Twist
from harness import Ros, graph_of, run_node, value
from page_client import PageClient
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from ros_rl.bringup import BRINGUPS
from ros_rl.nodes.messages import CLAIM_QOS
from ros_rl.nodes.web_node import WebNode
from ros_rl.paths import share_dir
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.teleop.browser import PageState
from ros_rl.web.page import RELEASE

SPEC = load_robot("arm")
ROW = "<td>{}</td><td>{}</td>"
READ = ("joint_states", "joint_command", "sim/privileged", "safety/status", "task/state", "recorder/status", "diagnostics")
PATIENT = {"device_timeout": 10.0, "teleop_timeout": 10.0}  # nothing is lost because a machine is busy


def up(ros: Ros, bringup: str = "arm", without: tuple[str, ...] = ("task_node",), **arguments: object) -> tuple[dict, WebNode]:
    """Starts a bring-up with a page in this process."""
    nodes = ros.up(bringup, (*without, "web_node"), **arguments)
    described = graph_of(bringup, web=True, web_port=0, **arguments)
    web = ros.add(WebNode(namespace="/test", parameter_overrides=_overrides(**described.nodes[-1].parameters)))
    return nodes, web


def _overrides(**values: Any) -> list[Parameter]:
    return [Parameter(name, value=value) for name, value in values.items()]


def readers(ros: Ros, topic: str) -> int:
    return [info.node_name for info in ros.probe.get_subscriptions_info_by_topic(f"/test/{topic}")].count("web_node")


@pytest.mark.parametrize("bringup", BRINGUPS)
def test_the_page_of_every_robot_follows_it(ros, bringup):
    _, web = up(ros, bringup, without=())
    with PageClient(web.url) as page:
        ros.until(lambda: sum(page.moved.values()) > 20, "for the robot to move on the page")
        ros.until(lambda: page.says("runs") and page.says(ROW.format("policy_node", "active")) and page.says("· running"))
    assert not web._said


def test_only_while_a_page_is_open_the_node_reads_topics(ros):
    _, web = up(ros)
    assert [readers(ros, topic) for topic in READ] == [0] * len(READ)
    for _ in range(2):  # also when it is opened again
        with PageClient(web.url), PageClient(web.url):
            ros.until(lambda: [readers(ros, topic) for topic in READ] == [1] * len(READ), "for the node to read")
        ros.until(lambda: [readers(ros, topic) for topic in READ] == [0] * len(READ), "for the node to stop reading")
    assert web._observer is None and web._updater is None


def test_a_page_that_is_opened_again_while_the_robot_runs_shows_it_and_so_do_two_at_once(ros):
    _, web = up(ros, without=())
    for _ in range(2):
        with PageClient(web.url) as first, PageClient(web.url) as second:
            for page in (first, second):
                ros.until(lambda page=page: page.says("runs") and sum(page.moved.values()) > 5)
        ros.until(lambda: web._observer is None)


def test_the_emergency_stop_on_the_page_stops_the_robot_and_is_latched(ros):
    nodes, web = up(ros, without=())
    newest = ros.diagnostics()
    states = ros.hear(JointState, "joint_states")
    with PageClient(web.url) as page:
        ros.until(lambda: page.says("arm runs") and sum(page.moved.values()) > 20)
        assert page.find(label=RELEASE, visible=True) is None
        page.press("E-STOP")
        ros.until(lambda: value(newest("hardware_node"), "state") == "estop")
        ros.until(lambda: page.says("E-STOP is latched") and page.says("emergency stop latched"))
        guard = nodes["hardware_node"].robot
        assert guard.report.state == "estop"
        ros.until(lambda: np.abs(states[-1].velocity).max() < 1e-2, "for the arm to stand")
        seen, there = len(states), np.array(states[-1].position)
        ros.until(lambda: len(states) > seen + 100)
        assert np.array(states[-1].position) == pytest.approx(there, abs=1e-2)
        assert guard.report.state == "estop"
        page.press("start")
        ros.until(lambda: page.says("start: the e-stop is latched; release it first"))
        page.press(RELEASE)
        ros.until(lambda: page.says("released; press start to go on") and page.says("arm was stopped by the guard"))
        assert guard.report.state == "stop" and not nodes["policy_node"].active
        page.press("start")
        ros.until(lambda: page.says("arm runs") and guard.report.state == "ok")


def test_the_emergency_stop_waits_for_nothing_else_that_the_page_does(ros):
    nodes, web = up(ros)
    with PageClient(web.url) as page:
        ros.until(lambda: page.says("arm"))
        ros.executor.remove_node(web)  # from here on the web node is stuck: none of its callbacks ever runs
        stuck = threading.Event()
        for _ in range(64):  # and so is everything that its server keeps threads for
            web.server.viser._thread_executor.submit(stuck.wait)
        try:
            page.press("E-STOP")
            ros.until(lambda: nodes["hardware_node"].robot.report.state == "estop")
        finally:
            stuck.set()


def test_stop_and_start_on_the_page(ros):
    nodes, web = up(ros, without=())
    with PageClient(web.url) as page:
        ros.until(lambda: page.says("· running"))
        page.press("stop")
        ros.until(lambda: page.says("stop: stopped; the guard holds the robot"))
        assert not nodes["policy_node"].active and not nodes["task_node"].active
        ros.until(lambda: page.says(ROW.format("policy_node", "inactive")) and page.says("arm was stopped by the guard"))
        page.press("start")
        ros.until(lambda: page.says("start: started") and page.says(ROW.format("policy_node", "active")) and page.says("· running"))
        assert nodes["policy_node"].active and nodes["task_node"].active
        task = nodes["task_node"]
        ros.until(lambda: task._episode is not None)
        number = task._episode.number
        page.press("start")  # while all is active: the next episode
        ros.until(lambda: task._episode is not None and task._episode.number >= number + 1)


def test_reset_on_the_page_starts_the_episode_anew(ros):
    _, web = up(ros, tasks="arm_circle")
    states = ros.hear(JointState, "joint_states")
    with PageClient(web.url) as page:
        ros.until(lambda: states and states[-1].header.stamp.sec >= 1 and page.says("arm"))
        page.press("reset")
        ros.until(lambda: page.says("reset: seed 0"))
        ros.until(lambda: any(stamp(later) < stamp(earlier) for earlier, later in pairwise(states)), "for time to start anew")


def test_a_node_that_is_deactivated_lets_go_of_the_robot_and_takes_it_no_more(ros):
    web = ros.add(WebNode(namespace="/test", parameter_overrides=_overrides(robot="arm", web_port=0, device_timeout=10.0)))
    said = ros.hear(String, "teleop/page", CLAIM_QOS)
    ros.until(lambda: web._says.get_subscription_count() == 1)
    pilot = web._pilot

    def take() -> bool:
        pilot.beat(0, True, "", time.monotonic())
        return pilot.take(0, time.monotonic()) == "taken over"

    assert take()
    ros.until(lambda: said and PageState.of_json(said[-1].data).engaged)
    ros.change("web_node", "deactivate")
    ros.until(lambda: PageState.of_json(said[-1].data) == PageState(False, "its page stands still"))
    assert take()  # its buttons can be pressed still
    pilot.let_go(0)
    ros.until(lambda: PageState.of_json(said[-1].data) == PageState(False))
    assert [PageState.of_json(message.data).engaged for message in said] == [True, False, False]


def stamp(message: JointState) -> float:
    return message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec


def test_a_graph_without_a_robot_is_said_to_be_one(ros):
    web = ros.add(WebNode(namespace="/test", parameter_overrides=_overrides(web_port=0)))
    with PageClient(web.url) as page:
        ros.until(lambda: page.says("arm: no joint states yet") and page.says("No camera publishes"))
        page.press("E-STOP")
        ros.until(lambda: page.says("E-STOP NOT CONFIRMED: the hardware node does not answer; cut the power"))
        page.press("stop")
        ros.until(lambda: page.says("is not stopped: nobody offers"))


def test_images_of_a_camera_come_to_the_page(ros):
    _, web = up(ros, "quadruped", cameras="follow")
    with PageClient(web.url) as page:
        ros.until(lambda: page.find(label="follow", _format="jpeg"), "for an image")


@pytest.mark.parametrize("mode", ["sim", "robot"])
def test_in_robot_mode_there_is_no_reset_and_no_simulator(ros, mode):
    backend = {"sim": "mujoco", "robot": "ros2_control"}[mode]
    web = ros.add(WebNode(namespace="/test", parameter_overrides=_overrides(web_port=0, backend=backend)))
    with PageClient(web.url) as page:
        ros.until(lambda: page.says("no joint states yet"))
        ros.until(lambda: readers(ros, "joint_states") == 1)
        assert page.says("'start'") and page.says("'reset'") == (mode == "sim")
        assert readers(ros, "sim/privileged") == (1 if mode == "sim" else 0)


def test_a_robot_without_gains_which_cannot_be_simulated_is_shown(ros, tmp_path):
    arm = share_dir() / "urdf" / "arm"
    described = yaml.safe_load((arm / "robot.yaml").read_text()) | {"urdf": str(arm / "arm.urdf")}
    for joint in described["joints"].values():
        joint.pop("stiffness", None)
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(described))
    overrides = _overrides(web_port=0, backend="ros2_control", robot=str(tmp_path / "robot.yaml"))
    web = ros.add(WebNode(namespace="/test", parameter_overrides=overrides))
    with PageClient(web.url) as page:
        ros.until(lambda: page.says("arm: no joint states yet"))


def test_the_first_page_moves_the_arm_the_second_is_told_and_a_hidden_page_holds_it(ros):
    _, web = up(ros, tasks="arm_circle", teleop="browser", **PATIENT)
    statuses, commands = ros.hear(DiagnosticStatus, "safety/status"), ros.hear(JointTrajectory, "joint_command")

    def control() -> str:
        return value(statuses[-1], "control") if statuses else ""

    with PageClient(web.url, visible=True) as first, PageClient(web.url, visible=True) as second:
        ros.until(lambda: first.number is not None and second.number is not None and commands)
        assert first.number != second.number
        numbers = first.number, second.number
        pressing(ros, first, "take over", f"page {numbers[0]} has the robot")
        ros.until(lambda: control() == "teleop")
        assert commands[-1].header.frame_id == "teleop:browser" and value(statuses[-1], "intervention") == "true"
        pressing(ros, second, "take over", f"page {numbers[1]}: page {numbers[0]} has the robot")
        model, arm = RobotModel(SPEC), commands[-1]
        before = model.frame_pose(SPEC.tool_frame, np.array(arm.points[0].positions)).position
        first.keys = "r"

        def risen() -> float:
            return model.frame_pose(SPEC.tool_frame, np.array(commands[-1].points[0].positions)).position[2] - before[2]

        ros.until(lambda: risen() > 0.02, "for the tool to rise while the key is held")
        first.visible = False
        ros.until(lambda: control() == "hold" and "browser is lost: its page was hidden" in statuses[-1].message)
        ros.until(lambda: second.says(f"held for page {numbers[0]} · hold · its page was hidden"))
        first.visible, first.keys = True, "r"
        there = np.array(commands[-1].points[0].positions)
        seen = len(commands)
        ros.until(lambda: len(commands) > seen + 100)
        assert np.array_equal(commands[-1].points[0].positions, there) and control() == "hold"
        pressing(ros, second, "take over", f"page {numbers[1]} has the robot · teleop")
        pressing(ros, second, "give back", "given back to the policy")
        ros.until(lambda: control() == "policy" and commands[-1].header.frame_id == "arm_circle")


def pressing(ros: Ros, page: PageClient, label: str, answer: str) -> None:
    """Presses until the page gives an answer: the first beats of a page may still be on their way."""

    def answered() -> bool:
        page.press(label)
        return page.says(answer)

    ros.until(answered, f"for '{answer}'")


def test_a_page_that_is_closed_or_silent_holds_the_robot(ros):
    _, web = up(ros, tasks="arm_circle", teleop="browser", device_timeout=1.0, teleop_timeout=10.0)
    statuses = ros.hear(DiagnosticStatus, "safety/status")

    def held_for(reason: str) -> bool:
        return bool(statuses) and value(statuses[-1], "control") == "hold" and f"browser is lost: {reason}" in statuses[-1].message

    for lose, reason in (
        (lambda page: setattr(page, "visible", None), "its page fell silent"),
        (lambda page: page.__exit__(), "its page was closed"),
        (lambda page: page._beats.close(), "its page was closed"),
    ):
        with PageClient(web.url, visible=True) as page:
            ros.until(lambda page=page: page.number is not None)
            pressing(ros, page, "take over", f"page {page.number} has the robot")
            ros.until(lambda: value(statuses[-1], "control") in ("takeover", "teleop"))
            lose(page)
            ros.until(lambda reason=reason: held_for(reason), f"for '{reason}'")


def test_a_walking_robot_goes_where_the_page_tells_its_policy_and_stops_with_the_page(ros):
    _, web = up(ros, "quadruped", teleop="browser", linear_speed=0.3, **PATIENT)
    velocities = ros.hear(Twist, "cmd_vel")
    with PageClient(web.url, visible=True) as page:
        ros.until(lambda: page.number is not None)
        pressing(ros, page, "take over", f"page {page.number} has the robot")
        page.slide("forward", 0.5)
        ros.until(lambda: velocities and velocities[-1].linear.x == pytest.approx(0.15))
    ros.until(lambda: velocities[-1] == Twist())


def test_without_a_teleoperation_node_the_page_offers_no_takeover(ros):
    _, web = up(ros)
    with PageClient(web.url, visible=True) as page:
        ros.until(lambda: page.says("arm") and page.says("web_node"))
        assert page.find(label="Teleoperation", visible=True) is None and page.number is None
        ros.until(lambda: page.says("nothing records: no recorder node is heard"))


def test_the_address_stays_the_same_when_the_node_is_configured_anew(ros):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    web = ros.add(WebNode(namespace="/test", parameter_overrides=_overrides(web_port=port)))
    before = web.url
    assert urlopen(before, timeout=30).status == 200
    ros.change("web_node", "deactivate", "cleanup", "configure", "activate")
    assert web.url == before
    assert urlopen(before, timeout=30).status == 200


def test_a_port_that_is_taken_is_one_line_and_exit_code_2(domain):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = run_node("web_node", f"web_port:={port}")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"ros_rl: web_port {port} is taken; choose another with web_port:=PORT\n"

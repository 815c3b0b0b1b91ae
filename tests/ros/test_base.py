"""Tests of ros_rl.nodes.base: what every node of the stack shares."""

import pytest
from harness import run_node
from rcl_interfaces.srv import DescribeParameters, GetParameters, SetParameters
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from std_msgs.msg import String
from std_srvs.srv import Trigger

from ros_rl.nodes.base import StackNode, describe
from ros_rl.nodes.composed_node import NODE_CLASSES
from ros_rl.nodes.messages import COMMAND_QOS, to_time
from ros_rl.nodes.parameters import NODES
from ros_rl.nodes.recorder_node import RecorderNode
from ros_rl.nodes.sim_robot_node import SimRobotNode
from ros_rl.nodes.web_node import WebNode

CLASSES = {**NODE_CLASSES, "recorder_node": RecorderNode, "sim_robot_node": SimRobotNode, "web_node": WebNode}


def test_every_node_has_a_table_of_parameters():
    assert set(CLASSES) == set(NODES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_parameter_is_described_and_only_dynamic_ones_may_be_set(ros, name):
    ros.add(CLASSES[name](namespace="test", parameter_overrides=[Parameter("robot", value="cartpole")]), start=False)
    table = NODES[name]
    names = [parameter.name for parameter in table]
    described = ros.call(DescribeParameters, f"{name}/describe_parameters", DescribeParameters.Request(names=names)).descriptors
    assert [(entry.name, entry.description) for entry in described] == [(entry.name, entry.description) for entry in table]
    assert all(entry.additional_constraints == parameter.expected() for entry, parameter in zip(described, table, strict=True))
    current = ros.call(GetParameters, f"{name}/get_parameters", GetParameters.Request(names=names)).values
    changes = [Parameter.from_parameter_msg(_message(key, value)).to_parameter_msg() for key, value in zip(names, current, strict=True)]
    answers = ros.call(SetParameters, f"{name}/set_parameters", SetParameters.Request(parameters=changes)).results
    assert [answer.successful for answer in answers] == [parameter.dynamic for parameter in table]


def _message(name, value):
    from rcl_interfaces.msg import Parameter as ParameterMessage

    return ParameterMessage(name=name, value=value)


def test_a_dynamic_parameter_keeps_its_range(ros):
    ros.add(CLASSES["hardware_node"](namespace="test"), start=False)
    change = SetParameters.Request(parameters=[Parameter("seed", value=-1).to_parameter_msg()])
    answer = ros.call(SetParameters, "hardware_node/set_parameters", change).results[0]
    assert not answer.successful
    assert answer.reason == "Parameter seed out of range. Min: 0, Max: 2147483647, value: -1"


def test_simulated_time_drives_the_clock_of_a_node(ros):
    node = ros.add(CLASSES["safety_node"](namespace="test", parameter_overrides=[Parameter("use_sim_time", value=True)]), start=False)
    clock = ros.probe.create_publisher(Clock, "/clock", COMMAND_QOS)

    def follows():
        clock.publish(Clock(clock=to_time(42.5)))
        return node.get_clock().now().nanoseconds == 42_500_000_000

    ros.until(follows)


def test_an_exception_in_a_callback_is_reported_and_does_not_end_the_node(ros):
    node = ros.add(StackNode("fragile", (), namespace="test"), start=False)
    heard = []

    def take(message):
        heard.append({"good": 1}[message.data])

    def serve(request, response):
        raise KeyError("no answer")

    node.create_subscription(String, "word", take, COMMAND_QOS)
    node.create_service(Trigger, "ask", serve)
    status, publisher = ros.diagnostics(), ros.probe.create_publisher(String, "word", COMMAND_QOS)
    ros.until(publisher.get_subscription_count)
    publisher.publish(String(data="bad"))
    ros.until(lambda: "word callback: KeyError: 'bad' (test_base.py:" in status("fragile").message)
    answer = ros.call(Trigger, "ask")
    assert not answer.success
    assert "KeyError: 'no answer'" in answer.message
    publisher.publish(String(data="good"))
    ros.until(lambda: heard == [1])
    ros.until(lambda: status("fragile").message == "inactive")


def test_whatever_a_node_opens_is_closed_after_its_release_also_when_that_fails(ros):
    class Opener(StackNode):
        fails = False

        def configure(self):
            self.create_publisher(String, "said", COMMAND_QOS)
            self.create_subscription(String, "heard", print, COMMAND_QOS)
            self.create_service(Trigger, "ask", lambda request, response: response)
            self.create_client(Trigger, "asked")
            self.every(10.0, self.publish_diagnostics)
            if self.fails:
                raise KeyError("configure")

        def activate(self):
            self.create_publisher(String, "said/later", COMMAND_QOS)

        def release(self):
            if self.fails:
                raise KeyError("release")

    def entities():
        return [len(list(kind)) for kind in (node.publishers, node.subscriptions, node.services, node.clients, node.timers)]

    node = ros.add(Opener("opener", (), namespace="test"), start=False)
    before = entities()
    for _ in range(2):
        node.trigger_configure()
        node.trigger_activate()
        assert entities() == [count + more for count, more in zip(before, (2, 1, 1, 1, 1), strict=True)]
        node.trigger_deactivate()
        node.trigger_cleanup()
        assert entities() == before
    node.fails = True
    node.trigger_configure()
    assert str(node.failure) == "'configure'"
    assert entities() == before
    node.fails = False


def test_a_problem_is_logged_once_though_its_numbers_grow(ros, capfd):
    node = ros.add(StackNode("talker", (), namespace="test"), start=False)
    for problem in ("0.101 s old", "0.106 s old", "joint1 is not finite", "joint2 is not finite", None, None):
        node.say("guard", problem)
    log = capfd.readouterr().err
    assert [word for word in ("0.101", "0.106", "joint1", "joint2") if word in log] == ["0.101", "joint1", "joint2"]
    assert log.count("recovered") == 1


def test_an_unforeseen_error_says_where_it_came_from():
    with pytest.raises(ValueError, match="two") as caught:
        raise ValueError("two\nlines")
    assert describe(caught.value).startswith("ValueError: two lines (test_base.py:")


@pytest.mark.parametrize(
    ("node", "parameter", "message"),
    [
        ("hardware_node", "robot:=armm", "unknown robot 'armm', did you mean 'arm'? (known: arm, cartpole, "),
        ("hardware_node", "max_age:=-1.0", "hardware_node: max_age must be a number in s from 0.001 to 10, got '-1.0'"),
        ("policy_node", "policy:=cartpole_lqrr", "unknown policy bundle 'cartpole_lqrr', did you mean 'cartpole_lqr'?"),
        ("safety_node", "filter:=nonne", "safety_node: unknown value of filter 'nonne', did you mean 'none'?"),
        ("task_node", "episodes:=few", "task_node: episodes must be a whole number, at least 0, got 'few'"),
        ("sim_robot_node", "scene:=flor", "unknown scene 'flor', did you mean 'floor'?"),
        ("composed_node", "policy_node.policy:=nothing", "unknown policy bundle 'nothing'"),
        ("polcy_node", "robot:=arm", "name the node to run: one of hardware_node, policy_node, safety_node, task_node, "),
    ],
)
def test_bad_input_ends_a_node_with_one_line(node, parameter, message):
    _assert_one_line(run_node(node, parameter), message)


@pytest.mark.parametrize("domain", ["abc", "300"])
def test_a_bad_domain_is_named(domain):
    _assert_one_line(run_node("hardware_node", ROS_DOMAIN_ID=domain), f"ROS_DOMAIN_ID='{domain}' is no whole number from 0 to 232")


def _assert_one_line(result, message):
    assert result.returncode == 2
    assert result.stderr.startswith(f"ros_rl: {message}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""

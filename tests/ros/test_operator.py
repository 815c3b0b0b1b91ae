"""Tests of ros_rl.nodes.operator: what a person asks of a graph is done in an order that is safe, or said not to be."""

import threading

import pytest
from harness import Ros
from lifecycle_msgs.srv import ChangeState, GetState
from std_msgs.msg import String
from std_srvs.srv import Trigger

from ros_rl.nodes.base import StackNode
from ros_rl.nodes.messages import LATCHED_QOS
from ros_rl.nodes.operator import Operator
from ros_rl.nodes.parameters import WEB_NODE
from ros_rl.web.record import WORDS


@pytest.fixture
def ask(ros: Ros):
    """Gives a test a function that asks for something and returns everything that was said of it."""
    operator = Operator(ros.add(StackNode("person", WEB_NODE, namespace="/test"), start=False), simulated=True)

    def ask(name: str) -> list[str]:
        said: list[str] = []
        getattr(operator.actions, name)(said.append)
        ros.until(lambda: len(said) > 1, f"for an answer to {name}")
        ros.until(lambda: not operator._busy.locked())
        return said

    ask.operator = operator
    return ask


def test_the_policy_is_silenced_before_anything_else_is_asked(ros, ask):
    ros.up("cartpole", without=())
    ros.until(lambda: all(node.active for node in ros.nodes[1:]))
    asked = []
    call = ask.operator._call

    def spy(client, request):
        if not isinstance(request, GetState.Request):
            asked.append(client.srv_name)
        return call(client, request)

    ask.operator._call = spy
    assert ask("stop") == ["asked", "stopped; the guard holds the robot"]
    assert asked == ["policy_node/change_state", "task/discard", "task_node/change_state"]


def test_asking_twice_does_no_harm(ros, ask):
    nodes = ros.up("cartpole", without=())
    for _ in range(2):
        assert ask("stop")[-1] == "stopped; the guard holds the robot"
        assert not nodes["policy_node"].active and not nodes["task_node"].active
    for _ in range(2):
        assert ask("start")[-1] == "started"
        assert nodes["policy_node"].active and nodes["task_node"].active


def test_without_tasks_the_policy_starts_all_the_same_and_it_is_said(ros, ask):
    nodes = ros.up("cartpole", without=(), tasks="none", policy="cartpole_lqr")
    ask("stop")
    assert ask("start")[-1] == "started"
    assert nodes["policy_node"].active
    assert ask("start")[-1] == "the policy runs; no episode: the parameter 'tasks' is empty"


def test_what_nobody_offers_is_said(ros, ask):
    nobody = "is not stopped: nobody offers"
    assert ask("stop")[-1] == f"the policy {nobody} policy_node/get_state; the task {nobody} task_node/get_state"
    assert ask("start")[-1] == "nobody offers policy_node/get_state"
    assert ask("release")[-1] == "nobody offers estop/reset"
    assert ask("reset")[-1] == "nobody offers sim/reset"
    said: list[str] = []
    ask.operator.actions.estop(said.append)
    assert said == ["sent, but no hardware node is there to hear it"]


def test_a_node_that_is_not_configured_is_not_started(ros, ask):
    ros.up("cartpole", without=())
    ros.change("policy_node", "deactivate", "cleanup")
    assert ask("start")[-1] == "policy_node is unconfigured, so it cannot be started"
    assert ask("stop")[-1] == "stopped; the guard holds the robot"  # it is at rest already


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("task_node", "the policy is stopped; the task is not stopped: nobody offers task_node/get_state"),
        ("policy_node", "the policy is not stopped: nobody offers policy_node/get_state; the task is stopped"),
    ],
)
def test_of_two_parts_the_one_that_is_there_is_stopped_and_none_started_alone(ros, ask, missing, said):
    nodes = ros.up("cartpole", without=(missing,))
    left = nodes[{"task_node": "policy_node", "policy_node": "task_node"}[missing]]
    ros.until(lambda: left.active and ask.operator._lifecycles[left.get_name()][0].service_is_ready())
    assert ask("stop")[-1] == said
    assert not left.active
    assert ask("start")[-1] == f"nobody offers {missing}/get_state"
    assert not left.active


def test_one_request_at_a_time_but_the_emergency_stop_at_any_time(ros, ask, monkeypatch):
    nodes = ros.up("cartpole", without=("task_node",))
    held = threading.Event()
    monkeypatch.setattr(ask.operator, "_call", lambda *_: held.wait())
    first: list[str] = []
    ask.operator.actions.stop(first.append)
    second: list[str] = []
    ask.operator.actions.start(second.append)
    assert second == ["not now, the last request is still being answered"]
    stopped: list[str] = []
    ask.operator.actions.estop(stopped.append)
    ros.until(lambda: nodes["hardware_node"].robot.report.state == "estop")
    ros.until(lambda: stopped == ["sent", "emergency stop latched; estop/reset releases it"])
    held.set()
    ros.until(lambda: len(first) == 2)


def test_an_emergency_stop_is_sent_until_it_is_confirmed(ros, ask, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.operator._CONFIRMED_WITHIN", 0.05)
    asked: list[None] = []

    def latch(_, response):
        asked.append(None)
        response.success, response.message = len(asked) > 1, "latched" if len(asked) > 1 else "not yet"
        return response

    ros.probe.create_service(Trigger, "estop", latch)
    stop = ask.operator._estop
    ros.until(stop._client.service_is_ready)
    ros.executor.remove_node(ros.probe)  # it is there, and stuck
    said: list[str] = []
    for _ in range(2):
        ask.operator.actions.estop(said.append)
    ros.until(lambda: said.count("not confirmed, sent again") >= 20)
    assert ask.operator.actions.alarm() == "E-STOP NOT CONFIRMED: the hardware node does not answer; cut the power"
    assert len(stop._client._pending_requests) <= 11  # one may be sent between two looks
    ros.executor.add_node(ros.probe)
    ros.until(lambda: said[-1] == "latched")
    assert ask.operator.actions.alarm() == ""
    assert not stop._client._pending_requests and not stop._watched


def test_an_emergency_stop_that_is_refused_is_not_confirmed(ros, ask, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.operator._CONFIRMED_WITHIN", 0.05)
    refuse = [True]

    def latch(_, response):
        response.success, response.message = not refuse[0], "no" if refuse[0] else "latched"
        return response

    ros.probe.create_service(Trigger, "estop", latch)
    ros.until(ask.operator._estop._client.service_is_ready)
    said: list[str] = []
    ask.operator.actions.estop(said.append)
    ros.until(lambda: ask.operator.actions.alarm() == "E-STOP NOT CONFIRMED: the hardware node answers 'no'; cut the power")
    refuse[0] = False
    ros.until(lambda: said[-1] == "latched" and ask.operator.actions.alarm() == "")


def test_a_release_ends_an_emergency_stop_that_is_still_being_sent(ros, ask, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.operator._CONFIRMED_WITHIN", 0.05)
    said: list[str] = []
    ask.operator.actions.estop(said.append)
    ros.until(lambda: "not confirmed, sent again" in said)
    assert ask("release")[-1] == "nobody offers estop/reset"
    ros.until(lambda: not ask.operator._estop._watched)
    assert ask.operator.actions.alarm() == ""


def test_a_release_sets_nothing_in_motion(ros, ask):
    nodes = ros.up("cartpole", without=())
    guard = nodes["hardware_node"].robot
    ros.until(lambda: nodes["policy_node"].active and guard.report.state == "ok")
    ask("estop")
    ros.until(lambda: guard.report.state == "estop")
    assert nodes["policy_node"].active
    assert ask("release")[-1] == "released; press start to go on"
    assert not nodes["policy_node"].active and guard.report.state != "estop"


def test_a_policy_that_cannot_be_silenced_keeps_the_emergency_stop_latched(ros, ask):
    nodes = ros.up("cartpole", without=("task_node",))
    guard = nodes["hardware_node"].robot
    ask("estop")
    ros.until(lambda: guard.report.state == "estop")
    real = ask.operator._call
    ask.operator._call = lambda client, request: (
        ChangeState.Response(success=False) if isinstance(request, ChangeState.Request) else real(client, request)
    )
    assert ask("release")[-1] == "not released, the policy may still be active: policy_node refuses; its log says why"
    assert guard.report.state == "estop"


def test_without_a_policy_node_the_emergency_stop_can_be_released(ros, ask):
    nodes = ros.up("cartpole", without=("task_node", "policy_node"))
    ask("estop")
    ros.until(lambda: nodes["hardware_node"].robot.report.state == "estop")
    assert ask("release")[-1] == "released; press start to go on"


def test_a_service_that_does_not_answer_is_given_up(ros, ask, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.operator._PATIENCE", 0.2)
    answered = ros.probe.create_service(Trigger, "sim/reset", lambda _, response: response)
    ros.until(ask.operator._reset.service_is_ready)
    ros.executor.remove_node(ros.probe)  # it is there, and stuck
    assert ask("reset")[-1] == "sim/reset did not answer within 0.2 s"
    ros.executor.add_node(ros.probe)
    ros.probe.destroy_service(answered)


def test_a_node_that_refuses_is_named(ros, ask):
    ros.up("cartpole", without=())
    real = ask.operator._call

    def call(client, request):
        return ChangeState.Response(success=False) if isinstance(request, ChangeState.Request) else real(client, request)

    ask.operator._call = call
    assert ask("stop")[-1] == (
        "the policy is not stopped: policy_node refuses; its log says why; the task is not stopped: task_node refuses; its log says why"
    )


@pytest.fixture
def record(ros, ask):
    """Gives a test a function that presses a button of the record panel and returns the last thing said."""

    def record(word: str, instruction: str = "") -> str:
        said: list[str] = []
        ask.operator.actions.record(word, instruction, said.append)
        ros.until(lambda: len(said) > 1 and not ask.operator._busy.locked())
        return said[-1]

    return record


def offer(ros, name: str, success: bool, message: str = "") -> list[str]:
    """Offers a service and returns a list that grows by its calls."""
    asked: list[str] = []

    def answer(_, response):
        asked.append(name)
        response.success, response.message = success, message
        return response

    ros.probe.create_service(Trigger, name, answer)
    return asked


def test_without_a_recorder_and_a_task_it_is_said_who_is_missing(record):
    assert record("start") == "nobody offers recorder/start"


def test_a_task_node_that_judges_is_told_and_the_recorder_follows_it(ros, ask, record):
    task, recorder = offer(ros, "task/success", True), offer(ros, "recorder/success", True)
    ros.until(lambda: ask.operator._task["success"].service_is_ready() and ask.operator._recorder["success"].service_is_ready())
    assert record("success") == "done"
    assert (task, recorder) == (["task/success"], [])


@pytest.mark.parametrize("word", WORDS)
def test_a_recorder_is_told_itself_where_no_task_judges(ros, ask, record, word):
    task = offer(ros, f"task/{word}", False, "no episode runs") if word != "stop" else ["none"]
    recorder = offer(ros, f"recorder/{word}", True, "episode 3")
    ros.until(lambda: ask.operator._recorder[word].service_is_ready())
    ros.until(lambda: word == "stop" or ask.operator._task[word].service_is_ready())
    told = ros.hear(String, "task/instruction", LATCHED_QOS)
    assert record(word, "fold the towel") == "episode 3"
    assert len(task) == len(recorder) == 1
    if word == "start":
        ros.until(lambda: told)
    assert [message.data for message in told] == (["fold the towel"] if word == "start" else [])


def test_why_the_task_refuses_is_said_where_there_is_no_recorder(ros, ask, record):
    offer(ros, "task/failure", False, "no episode runs")
    ros.until(lambda: ask.operator._task["failure"].service_is_ready())
    assert record("failure") == "no episode runs; nobody offers recorder/failure"

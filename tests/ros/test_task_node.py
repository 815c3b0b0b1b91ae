"""Tests of ros_rl.nodes.task_node: episodes are set, run and judged, one after the other."""

import json

import pytest
from std_msgs.msg import Float64, String
from std_srvs.srv import Trigger

from ros_rl.nodes.messages import TASK_STATE_QOS


@pytest.fixture
def states(ros):
    """Returns the list of task states heard."""
    return ros.hear(String, "task/state", TASK_STATE_QOS)


def words(states):
    return [json.loads(message.data)["state"] for message in states]


def test_episodes_run_one_after_the_other_with_a_seed_each(ros, states):
    rewards = ros.hear(Float64, "task/reward")
    ros.up("cartpole", without=(), lockstep=True, episodes=2, pause=0.1, seed=5)
    ros.until(lambda: words(states)[-1:] == ["finished"])
    told = [json.loads(message.data) for message in states]
    assert words(states) == ["waiting", "running", "success", "running", "success", "finished"]
    assert [state["seed"] for state in told if state["state"] == "success"] == [5, 6]
    assert all(state["instruction"] == "balance the pole" for state in told[1:])
    assert all(5.0 <= state["seconds"] <= 10.0 for state in told if state["state"] == "success")
    assert rewards and all(0.0 <= reward.data <= 1.0 for reward in rewards)


def test_a_person_judges_an_episode_and_starts_another(ros, states):
    ros.up("cartpole", without=(), lockstep=True, episodes=10, pause=60.0)
    ros.until(lambda: words(states)[-1:] == ["running"])
    for word, state in (("success", "success"), ("failure", "failure"), ("discard", "discarded")):
        assert ros.call(Trigger, f"task/{word}").success
        ros.until(lambda state=state: words(states)[-1] == state)
        assert json.loads(states[-1].data)["reason"] == "said by a person"
        again = ros.call(Trigger, f"task/{word}")
        assert not again.success and again.message == "no episode runs"
        assert ros.call(Trigger, "task/start").success
        ros.until(lambda: words(states)[-1] == "running")


def test_a_reset_by_someone_else_starts_the_episode_again(ros, states):
    nodes = ros.up("cartpole", without=(), lockstep=True)
    ros.until(lambda: nodes["task_node"]._episode is not None and nodes["task_node"]._episode.seconds > 1.0)
    ros.call(Trigger, "sim/reset")
    ros.until(lambda: nodes["task_node"]._episode.seconds < 0.5)
    ros.until(lambda: words(states)[-1] == "finished")
    assert words(states) == ["waiting", "running", "success", "finished"]
    assert json.loads(states[-1].data)["seconds"] >= 5.0


def test_a_reset_by_someone_else_during_the_pause_does_not_make_it_longer(ros, states):
    nodes = ros.up("cartpole", without=(), lockstep=True, episodes=2, pause=1.0)
    ros.until(lambda: words(states)[-1:] == ["success"])
    ros.call(Trigger, "sim/reset")
    ros.until(lambda: words(states)[-1] == "running")
    assert nodes["task_node"]._last_stamp < 2.0


def test_deactivation_before_the_simulation_is_there_starts_nothing_later(ros, states):
    ros.up("cartpole", without=("hardware_node", "safety_node", "policy_node"), lockstep=True)
    ros.change("task_node", "deactivate", "activate")
    ros.up("cartpole", without=("task_node",), lockstep=True)
    ros.until(lambda: words(states)[-1:] == ["finished"])
    assert words(states) == ["waiting", "waiting", "running", "success", "finished"]


def test_a_refusal_of_the_hardware_node_ends_the_run_and_is_over_once_it_takes_the_task(ros, states):
    nodes = ros.up("cartpole", without=(), lockstep=True, episodes=10)
    status = ros.diagnostics()
    ros.until(lambda: words(states)[-1:] == ["running"])
    scene, nodes["hardware_node"]._scene = nodes["hardware_node"]._scene, "elsewhere"
    assert ros.call(Trigger, "task/start").success
    ros.until(lambda: words(states)[-2:] == ["failure", "finished"])
    assert "the hardware node refuses: task 'cartpole_balance' is in scene" in json.loads(states[-2].data)["reason"]
    nodes["hardware_node"]._scene = scene
    assert ros.call(Trigger, "task/start").success
    ros.until(lambda: words(states)[-1] == "running")
    count = len(states)
    nodes["task_node"].publish_diagnostics()
    ros.until(lambda: status("task_node").message == "active", "for the problem to be over")
    assert len(states) == count


def test_an_episode_that_another_one_cuts_short_is_discarded(ros, states):
    ros.up("cartpole", without=(), lockstep=True, episodes=10, seed=3)
    ros.until(lambda: words(states)[-1:] == ["running"])
    assert ros.call(Trigger, "task/start").success
    ros.until(lambda: words(states)[-2:] == ["discarded", "running"])
    assert [json.loads(state.data)["seed"] for state in states[-2:]] == [3, 4]


def test_without_tasks_only_the_services_answer(ros):
    ros.up("cartpole", without=(), tasks="none", policy="cartpole_lqr", lockstep=True)
    answer = ros.call(Trigger, "task/start")
    assert not answer.success and answer.message == "the parameter 'tasks' is empty"

"""Tests of ros_rl.nodes.parity: every way to run a graph computes what the in-process loop computes, bit for bit."""

import numpy as np
import pytest
from harness import DEEP
from sensor_msgs.msg import JointState

from ros_rl.bringup import BRINGUPS
from ros_rl.nodes.messages import from_time
from ros_rl.nodes.parity import Trajectory, compare, in_process, largest_difference, lockstep_graph
from ros_rl.robots.spec import load_robot


@pytest.mark.parametrize("robot", [*BRINGUPS, "panda"])
def test_the_node_graph_computes_what_the_loop_in_one_process_computes(robot):
    differences = compare(robot, 1, 60, lambda kind, count: None)
    assert differences == {"separate": 0.0, "composed": 0.0, "ros2_control": 0.0}


def test_robots_in_two_namespaces_do_not_disturb_each_other(ros):
    heard = {}
    for seed, namespace in enumerate(("left", "right")):
        ros.up("cartpole", lockstep=True, namespace=namespace, seed=seed)
        heard[namespace] = []
        ros.probe.create_subscription(JointState, f"/{namespace}/joint_states", heard[namespace].append, DEEP)
    ros.until(lambda: min(map(len, heard.values())) > 80)
    for seed, states in enumerate(heard.values()):
        expected = in_process(load_robot("cartpole"), "cartpole_balance", seed, 100)
        positions = dict(zip(expected.stamps, expected.positions, strict=True))
        common = [state for state in states if from_time(state.header.stamp) in positions]
        assert len(common) > 50
        assert all(list(state.position) == positions[from_time(state.header.stamp)].tolist() for state in common)


def test_a_difference_in_the_last_bit_or_a_missing_step_shows():
    one = Trajectory(np.array([0.0, 0.1]), np.ones((2, 3)), np.ones((2, 3)))
    assert largest_difference(one, one) == 0.0
    assert 0.0 < largest_difference(one, Trajectory(one.stamps, one.positions, np.nextafter(one.commands, 2.0))) < 1e-15
    assert largest_difference(one, Trajectory(one.stamps[:1], one.positions[:1], one.commands[:1])) == float("inf")


def test_the_tabletop_is_compared_with_its_own_policy_and_the_images_that_it_reads():
    described = lockstep_graph("tabletop", "press_button:green", 3, False, "sim")
    nodes = {node.executable: node.parameters for node in described.nodes}
    assert (nodes["policy_node"]["policy"], nodes["hardware_node"]["cameras"]) == ("tabletop_vla", ["front", "hand"])
    spec = load_robot("arm")
    seeing, other = (in_process(spec, "press_button:green", 3, 10, policy) for policy in ("tabletop_vla", ""))
    assert largest_difference(seeing, other) > 0.0, "the task's own policy is the expert"


@pytest.mark.parametrize(("mode", "first"), [("sim", []), ("robot", ["sim_robot_node"])])
def test_the_parity_graph_has_no_task_node_and_its_policy_waits(mode, first):
    described = lockstep_graph("arm", "arm_circle", 3, False, mode)
    nodes = {node.executable: node.parameters for node in described.nodes}
    assert list(nodes) == [*first, "hardware_node", "safety_node", "policy_node"]
    assert nodes["policy_node"]["autostart"] is False
    assert nodes["hardware_node"]["autostart"] is nodes["safety_node"]["autostart"] is True
    assert all(nodes[name]["lockstep"] is True for name in nodes)
    assert all(nodes[name]["seed"] == 3 for name in (*first, "hardware_node", "policy_node"))
    assert described.namespace == "/parity_arm"

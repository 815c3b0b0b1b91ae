"""Tests of the node graph when its processes die: the layer below holds the robot, and what comes back goes on."""

import numpy as np
from harness import graph_of, value
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.nodes.sim_robot_node import SimRobotNode


def test_killed_policy_safety_and_task_nodes_leave_the_robot_held_and_come_back(ros, processes):
    running = processes("cartpole", without=(), episodes=1000, pause=0.0)
    status, commands = ros.diagnostics(), ros.hear(JointTrajectory, "joint_command")
    states = []

    def state():
        now = value(status("hardware_node"), "state")
        if now and states[-1:] != [now]:
            states.append(now)
        return now

    ros.until(lambda: state() == "ok" and len(commands) > 50, "for the graph to run")
    description = {node.executable: node for node in graph_of("cartpole", episodes=1000, pause=0.0).nodes}
    for name in ("policy_node", "safety_node"):
        states.clear()
        running.processes[name].kill()
        ros.until(lambda: state() == "stop", f"for the watchdog after {name} was killed")
        assert states in (["ok", "hold", "stop"], ["hold", "stop"])
        assert running.ended() is None, "the graph stays up"
        running.start(description[name])
        ros.until(lambda: state() == "ok", f"for {name} to come back")
    running.processes["task_node"].kill()
    running.processes["task_node"].wait()
    count = len(commands)
    ros.until(lambda: len(commands) > count + 50, "for control to go on without a task node")


def test_a_killed_hardware_node_leaves_the_robot_to_its_own_controller_and_may_be_started_again(ros, processes):
    robot = ros.add(
        SimRobotNode(namespace="test", parameter_overrides=[Parameter("robot", value="arm"), Parameter("task", value="arm_circle")])
    )
    running = processes("arm", mode="robot", tasks="arm_circle")
    commands, states = ros.hear(JointTrajectory, "joint_command"), ros.hear(JointState, "/joint_states")
    ros.until(lambda: len(commands) > 50, "for the graph to run")
    running.processes["hardware_node"].kill()
    running.processes["hardware_node"].wait()
    assert running.ended() == 1, "without the robot's process there is nothing to run"
    target = robot._robot.data.ctrl.copy()

    def at_rest():
        return len(states) > 100 and np.ptp([state.position for state in states[-50:]], axis=0).max() < 1e-4

    ros.until(at_rest, "for the controller to hold the robot")
    np.testing.assert_array_equal(robot._robot.data.ctrl, target)
    running.start(graph_of("arm", mode="robot", tasks="arm_circle").nodes[0])
    ros.until(lambda: not np.array_equal(robot._robot.data.ctrl, target), "for the arm to move on")


def test_a_request_that_cannot_be_met_leaves_the_emergency_stop_in_reach(ros, processes):
    processes("cartpole", tasks="none", policy="cartpole_lqr")
    status = ros.diagnostics()
    ros.until(lambda: value(status("hardware_node"), "state") == "ok", "for the graph to run")
    client = ros.probe.create_client(ChangeState, "/test/hardware_node/change_state")
    ros.until(client.service_is_ready)
    client.call_async(ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CLEANUP)))  # it is active: there is no such way
    assert ros.call(Trigger, "/test/estop").success
    ros.until(lambda: value(status("hardware_node"), "state") == "estop", "for the emergency stop")

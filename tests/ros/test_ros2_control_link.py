"""Tests of ros_rl.nodes.ros2_control_link through the hardware node: which robots it accepts, and how it treats them."""

import threading

import numpy as np
import pytest
from harness import watch
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.messages import to_joint_state, to_trajectory
from ros_rl.nodes.ros2_control_link import RosControllerLink
from ros_rl.nodes.sim_robot_node import SimRobotNode
from ros_rl.robots.spec import load_robot

ARM = load_robot("arm")
CONTROLLER = "joint_trajectory_controller"
STEP = ARM.velocity * ARM.period + 1e-9


def hardware(**parameters):
    given = {"robot": "arm", "backend": "ros2_control", "connect_timeout": 2.0} | parameters
    return HardwareNode(namespace="test", parameter_overrides=[Parameter(name, value=value) for name, value in given.items()])


def sim_robot(**parameters):
    given = {"robot": "arm", "task": "arm_circle"} | parameters
    return SimRobotNode(namespace="test", parameter_overrides=[Parameter(name, value=value) for name, value in given.items()])


@pytest.fixture
def controller(ros):
    """Gives a test a function that starts a controller and a broadcaster, in a thread of their own, as a robot's are."""
    executor, nodes = SingleThreadedExecutor(), []
    thread = threading.Thread(target=executor.spin, daemon=True)

    def start(joints, states):
        node = Node(CONTROLLER)
        nodes.append(node)
        node.declare_parameter("joints", list(joints))
        node.create_subscription(JointTrajectory, "~/joint_trajectory", lambda _: None, 10)
        if states:
            publisher = node.create_publisher(JointState, "/joint_states", 10)
            message = JointState(name=list(states), position=[0.1] * len(states))
            node.create_timer(0.02, lambda: publisher.publish(message))
        executor.add_node(node)
        thread.start()

    yield start
    executor.shutdown()
    thread.join(5.0)
    for node in nodes:
        node.destroy_node()


def test_a_controller_that_drives_other_joints_is_refused_with_both_lists(ros, controller):
    controller(ARM.joint_names[:-1], ARM.joint_names)
    with pytest.raises(UserError) as caught:
        ros.add(hardware())
    assert str(caught.value) == (
        f"controller '/{CONTROLLER}' drives {', '.join(ARM.joint_names[:-1])}; robot 'arm' commands {', '.join(ARM.joint_names)}"
    )


def test_joint_states_that_lack_a_joint_are_refused_with_its_name(ros, controller):
    controller(ARM.joint_names, ARM.joint_names[1:])
    with pytest.raises(RobotFault, match=r"/joint_states: joint state lacks joint1; it has joint2, .*, needed are joint1, joint2"):
        ros.add(hardware())


def test_a_robot_that_sends_no_joint_states_is_refused(ros, controller):
    controller(ARM.joint_names, ())
    with pytest.raises(RobotFault, match=r"nothing comes on /joint_states within 2 s"):
        ros.add(hardware())


def test_without_a_controller_the_hardware_node_says_so_and_connects_once_there_is_one(ros):
    node = ros.add(hardware(connect_timeout=0.5, autostart=False))
    node.trigger_configure()
    assert isinstance(node.failure, RobotFault)
    assert f"no controller '/{CONTROLLER}' answered within 0.5 s; nodes that run: " in str(node.failure)
    ros.add(sim_robot())
    ros.change("hardware_node", "configure", "activate")


def test_joint_states_in_the_namespace_of_the_robot_itself_are_refused(ros):
    node = HardwareNode(namespace="/", parameter_overrides=[Parameter("backend", value="ros2_control")])
    with pytest.raises(UserError, match="joint_states_topic /joint_states is where this node publishes; give it a namespace"):
        ros.add(node)


def test_an_arm_moved_by_hand_while_paused_does_not_jump_back(ros):
    robot = ros.add(sim_robot())
    node = ros.add(hardware())
    ticks = watch(node)
    ros.until(lambda: len(ticks) > 20)
    ros.change("hardware_node", "deactivate")
    before = ticks[-1].measured
    # Nobody can push a joint by hand here; a command of someone else's moves it as well.
    hand = ros.probe.create_publisher(JointTrajectory, f"/{CONTROLLER}/joint_trajectory", 1)
    ros.until(hand.get_subscription_count)
    pushed = JointCommand(ARM.joint_names, before + np.array([0.5, *[0.0] * 7]), 0.0)
    hand.publish(to_trajectory(pushed, "position"))
    ros.until(lambda: node.robot.robot.read().joint_position[0] > before[0] + 0.4)
    done = len(ticks)
    ros.change("hardware_node", "activate")
    ros.until(lambda: len(ticks) > done + 20)
    assert (np.abs(ticks[done].sent - ticks[done].measured) <= STEP).all()
    assert robot._robot.read().joint_position[0] > before[0] + 0.4


def test_a_robot_that_falls_silent_is_held_by_the_stale_observation_watchdog(ros):
    robot = ros.add(sim_robot())
    ticks = watch(ros.add(hardware()))
    status = ros.diagnostics()
    ros.until(lambda: len(ticks) > 20)
    robot._stop.set()
    ros.until(lambda: "the observation is" in status("hardware_node").message)
    assert ticks[-1].state in ("hold", "stop")


def test_a_robot_whose_imu_falls_silent_is_held_until_it_speaks_again(ros, capfd):
    robot = ros.add(sim_robot(robot="quadruped", task="quadruped_trot"))
    node = ros.add(hardware(robot="quadruped"))
    ticks, status = watch(node), ros.diagnostics()
    observed, states = ros.hear(JointState, "joint_states"), ros.hear(JointState, "/joint_states")
    ros.until(lambda: len(ticks) > 20 and observed)
    imu, robot._imu = robot._imu, None
    ros.until(lambda: "the observation is" in status("hardware_node").message, "for the stale observation to be noticed")
    assert "nothing came on /imu_sensor_broadcaster/imu for" in capfd.readouterr().err
    count, done, newest = len(states), len(ticks), observed[-1].header.stamp
    ros.until(lambda: len(states) > count + 50 and len(ticks) > done + 20)
    assert observed[-1].header.stamp == newest, "without its IMU the robot is not observed"
    assert {tick.state for tick in ticks[done:]} <= {"hold", "stop"}
    assert len({tick.stamp for tick in ticks[done:]}) == 1
    robot._imu = imu
    ros.until(lambda: observed[-1].header.stamp != newest, "for observations to go on")
    ros.until(lambda: "the observation is" not in status("hardware_node").message)


def test_a_joint_state_that_lacked_a_joint_is_no_problem_once_a_whole_one_has_come(ros):
    spec = load_robot("quadruped")
    link = RosControllerLink(spec, "/controller", "joint_trajectory", ("/joint_states", "/imu", "/odom"), False, 0.1)
    try:
        names, zeros = spec.measured_names, np.zeros(len(spec.measured_names))
        link._on_joints(to_joint_state(0.0, names[1:], zeros[1:], zeros[1:], zeros[1:]))
        with pytest.raises(RobotFault, match=f"joint state lacks {names[0]}"):
            link.wait_newer(None, 0.0)
        link._on_joints(to_joint_state(0.1, names, zeros, zeros, zeros))
        with pytest.raises(RobotFault, match="nothing comes on /imu"):
            link.wait_newer(None, 0.0)
    finally:
        link.close()


def test_a_set_point_that_makes_no_sense_leaves_the_simulated_robot_alive(ros):
    robot = ros.add(sim_robot())
    states = ros.hear(JointState, "/joint_states")
    ros.until(lambda: len(states) > 5)
    target = robot._robot.data.ctrl.copy()
    rogue = ros.probe.create_publisher(JointTrajectory, f"/{CONTROLLER}/joint_trajectory", 1)
    ros.until(rogue.get_subscription_count)
    rogue.publish(to_trajectory(JointCommand(ARM.joint_names, np.full(8, np.nan), 0.0), "position"))
    rogue.publish(to_trajectory(JointCommand(ARM.joint_names, np.zeros(3), 0.0), "position"))
    count = len(states)
    ros.until(lambda: len(states) > count + 50)
    np.testing.assert_array_equal(robot._robot.data.ctrl, target)

"""A simulated robot that shows itself as a real one does: behind the topics of ros2_control and nothing else.

It stands in for the robot's own computer, in a process of its own: `mode:=robot` connects to it as to a real arm.
Joint states are in alphabetical order and hold mimicking joints too, as those of a joint_state_broadcaster do.
"""

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.hardware.pacing import Pacer
from ros_rl.hardware.ros2_control import command_interface
from ros_rl.hardware.units import UnitScale
from ros_rl.nodes.base import REPEAT_AFTER, StackNode, run
from ros_rl.nodes.messages import from_time, to_imu, to_joint_state, to_odometry
from ros_rl.nodes.parameters import SIM_ROBOT_NODE
from ros_rl.nodes.ros2_control_link import STATE_QOS, controller_name
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import load_task


class SimRobotNode(StackNode):
    """Simulates a robot and its controller; the controller is a node of its own, as in a controller manager.

    The trajectory controller reaches a point's positions within the control period in which the point arrives, as
    a joint_trajectory_controller does with a `time_from_start` of one period, and keeps the last one.
    """

    def __init__(self, **options: Any):
        """Starts the simulation."""
        super().__init__("sim_robot_node", SIM_ROBOT_NODE, **options)
        self._spec = load_robot(self.value("robot"), self.value("control_rate"))
        task = load_task(self.value("task"), self._spec.name) if self.value("task") else None
        self._robot = MujocoRobot(self._spec, task or self.value("scene"), self.value("seed"))
        self._robot.connect()
        if UnitScale.of(self._spec) is not None:
            raise UserError(f"robot '{self._spec.name}' has devices that do not speak SI units; this simulation of one does")
        self._lockstep = self.value("lockstep")
        self._lock = threading.Lock()
        self._answered = False
        followers = [(j.name, *j.mimic) for j in self._spec.read_urdf().joints.values() if j.mimic]
        self._followers = [(name, self._spec.measured_names.index(leader), factor, offset) for name, leader, factor, offset in followers]
        names = [*self._spec.measured_names, *(name for name, *_ in self._followers)]
        self._order = np.argsort(names)
        self._names = [names[index] for index in self._order]
        self._state = self.create_publisher(JointState, self.value("joint_states_topic"), STATE_QOS)
        self._imu = self.create_publisher(Imu, self.value("imu_topic"), STATE_QOS) if self._spec.imu_frame else None
        self._odometry = self.create_publisher(Odometry, self.value("odometry_topic"), STATE_QOS) if self._spec.odometry else None
        self._add_controller()
        if self._lockstep:
            self.every(REPEAT_AFTER, self._repeat)
        self._stop = threading.Event()
        self._loop = threading.Thread(target=self._run, daemon=True)

    def autostart(self) -> None:
        """A robot has no lifecycle: it is there when it is switched on."""
        self._publish(self._robot.read())
        if not self._lockstep:
            self._loop.start()

    def end(self) -> None:
        """Switches the robot off."""
        self._stop.set()
        if self._loop.is_alive():
            self._loop.join(2.0)
        self._controller_executor.shutdown(timeout_sec=1.0)
        self._controller.destroy_node()
        self._robot.close()

    def _add_controller(self) -> None:
        interface = command_interface(self._spec, self.value("command_interface"))
        space, _, name = controller_name(interface, self.value("controller")).rpartition("/")
        controller = Node(name, namespace=space or "/", use_global_arguments=False)
        # Controllers need not list joints in the robot's order; reversed, a mapping by position shows at once.
        self._controller_joints = self._spec.joint_names[::-1]
        controller.declare_parameter("joints", list(self._controller_joints))
        if interface == "joint_trajectory":
            controller.create_subscription(JointTrajectory, "~/joint_trajectory", self._on_trajectory, 10)
        else:
            controller.create_subscription(Float64MultiArray, "~/commands", self._on_array, 10)
        self._controller = controller
        self._controller_executor = SingleThreadedExecutor()
        self._controller_executor.add_node(controller)
        threading.Thread(target=self._controller_executor.spin, daemon=True).start()

    def _on_trajectory(self, message: JointTrajectory) -> None:
        if sorted(message.joint_names) != sorted(self._controller_joints) or not message.points:
            self.get_logger().error(
                f"trajectory for {', '.join(message.joint_names)} rejected, the joints are {', '.join(self._controller_joints)}"
            )
            return
        stamp = from_time(message.header.stamp)
        self._take(JointCommand(tuple(message.joint_names), np.array(message.points[-1].positions), stamp), stamp)

    def _on_array(self, message: Float64MultiArray) -> None:
        if len(message.data) != len(self._controller_joints):
            self.get_logger().error(f"{len(message.data)} set-points rejected, there are {len(self._controller_joints)} joints")
            return
        self._take(JointCommand(self._controller_joints, np.array(message.data), 0.0), None)

    def _take(self, command: JointCommand, answers: float | None) -> None:
        """Makes a command the target; in lock-step, lets one control period pass if it answers the last state."""
        with self._lock:
            if self._lockstep and answers is not None and answers != self._robot.read().stamp:
                return
            try:
                self._robot.write(command)
            except UserError as error:
                self.get_logger().error(f"set-point rejected: {error}")
                return
            if self._lockstep:
                self._answered = True
                self._step()

    def _run(self) -> None:
        pacer = Pacer(self._spec.period)
        while not self._stop.is_set():
            with self._lock:
                self._step()
            pacer.wait()

    def _step(self) -> None:
        try:
            self._robot.step()
            self._publish(self._robot.read())
        except RobotFault as error:
            self.failure = error
            self._stop.set()
            self.get_logger().fatal(f"the robot falls silent: {error}")

    def _repeat(self) -> None:
        """Publishes the first state again until somebody connects."""
        with self._lock:
            if not self._answered:
                self._publish(self._robot.read())

    def _publish(self, observation: Observation) -> None:
        # In real time a robot stamps with its own clock; in lock-step with the time that it simulates.
        observation = observation if self._lockstep else replace(observation, stamp=time.time())
        if self._imu is not None and observation.base_quat is not None:
            self._imu.publish(to_imu(observation, self._spec.imu_frame))
        if self._odometry is not None and observation.base_position is not None:
            self._odometry.publish(to_odometry(observation))
        fields = []
        for values, is_position in (
            (observation.joint_position, True),
            (observation.joint_velocity, False),
            (observation.joint_effort, False),
        ):
            follow = [values[leader] * factor + (offset if is_position else 0.0) for _, leader, factor, offset in self._followers]
            fields.append(np.concatenate([values, follow])[self._order])
        self._state.publish(to_joint_state(observation.stamp, self._names, *fields))


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [SimRobotNode()])

"""Carries messages between the hardware node and the controllers of ros2_control, in a thread of its own."""

import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import GetParameters
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.hardware.ros2_control import CommandInterface
from ros_rl.nodes.messages import JointReader, from_imu, from_odometry, from_time, to_array, to_time, to_trajectory
from ros_rl.robots.spec import RobotSpec

STATE_QOS = QoSProfile(depth=10)
DEFAULT_CONTROLLERS: dict[CommandInterface, str] = {
    "joint_trajectory": "/joint_trajectory_controller",
    "forward_command": "/forward_command_controller",
}


def controller_name(interface: CommandInterface, asked: str) -> str:
    """Returns the controller's full name: what was asked for, or the usual name for its interface."""
    name = asked or DEFAULT_CONTROLLERS[interface]
    return name if name.startswith("/") else f"/{name}"


class RosControllerLink:
    """A `ControllerLink` over topics.

    It has its own node and thread, so that measurements arrive while the hardware node waits for them.
    """

    def __init__(
        self,
        spec: RobotSpec,
        controller: str,
        interface: CommandInterface,
        topics: tuple[str, str, str],
        lockstep: bool,
        max_age: float,
        namespace: str = "",
    ):
        """Opens the topics.

        Args:
            spec: the robot.
            controller: full name of the controller.
            interface: how it takes commands.
            topics: of joint states, IMU and odometry.
            lockstep: whether a trajectory's stamp says which state it answers; otherwise it starts at once.
            max_age: seconds of silence after which IMU or odometry count as lost.
            namespace: of the node.
        """
        self.controller = controller
        self._spec = spec
        self._interface = interface
        self._lockstep = lockstep
        self._max_age = max_age
        self._reader = JointReader(spec.measured_names)
        self._changed = threading.Condition()
        self._parts: dict[str, tuple[float, dict[str, Any]]] = {}
        self._heard: dict[str, float] = {}
        self._observation: Observation | None = None
        self._problem: str | None = None
        self._node = Node("ros2_control_link", namespace=namespace, start_parameter_services=False)
        self._topics = self._subscribe(topics)
        kind, topic = (JointTrajectory, "joint_trajectory") if interface == "joint_trajectory" else (Float64MultiArray, "commands")
        self._publisher = self._node.create_publisher(kind, f"{controller}/{topic}", 1)
        self._client = self._node.create_client(GetParameters, f"{controller}/get_parameters")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, name="ros2_control_link", daemon=True)
        self._thread.start()

    def _subscribe(self, topics: tuple[str, str, str]) -> dict[str, str]:
        """Subscribes to what the robot measures; returns the topic of each source."""
        sources = {"joints": (JointState, topics[0], self._on_joints)}
        if self._spec.imu_frame:
            sources["imu"] = (Imu, topics[1], self._on_imu)
        if self._spec.odometry:
            sources["odometry"] = (Odometry, topics[2], self._on_odometry)
        for kind, topic, receive in sources.values():
            self._node.create_subscription(kind, topic, receive, STATE_QOS)
        return {source: topic for source, (_, topic, _) in sources.items()}

    def controller_joints(self, timeout: float) -> tuple[str, ...]:
        """Asks the controller for its `joints` parameter.

        Raises:
            RobotFault: no such controller answers, or it does not listen for commands.
        """
        deadline = time.monotonic() + timeout
        if not self._client.wait_for_service(timeout_sec=timeout):
            running = sorted(f"{space.rstrip('/')}/{name}" for name, space in self._node.get_node_names_and_namespaces())
            raise RobotFault(f"no controller '{self.controller}' answered within {timeout:g} s; nodes that run: {', '.join(running)}")
        done = threading.Event()
        future = self._client.call_async(GetParameters.Request(names=["joints"]))
        future.add_done_callback(lambda _: done.set())
        if not done.wait(max(deadline - time.monotonic(), 0.1)):
            raise RobotFault(f"controller '{self.controller}' does not tell its joints within {timeout:g} s")
        values = future.result().values
        if not values or values[0].type != ParameterType.PARAMETER_STRING_ARRAY:
            raise RobotFault(f"controller '{self.controller}' has no parameter 'joints'")
        while not self._publisher.get_subscription_count():
            if time.monotonic() > deadline:
                raise RobotFault(f"controller '{self.controller}' does not listen on {self._publisher.topic_name}; is it active?")
            time.sleep(0.01)
        return tuple(values[0].string_array_value)

    def wait_newer(self, stamp: float | None, timeout: float) -> Observation | None:
        """Returns the first observation with another stamp than `stamp`, or None when none comes in time.

        Raises:
            RobotFault: joint states come, but without the robot's joints.
        """

        def newer() -> bool:
            return self._observation is not None and self._observation.stamp != stamp

        with self._changed:
            if self._changed.wait_for(newer, timeout):
                return self._observation
            if self._problem:
                raise RobotFault(self._problem)
            missing = [topic for source, topic in self._topics.items() if source not in self._parts]
            if missing:
                raise RobotFault(f"nothing comes on {', '.join(missing)} within {timeout:g} s")
            return None

    def latest(self) -> Observation | None:
        """Returns the newest observation."""
        with self._changed:
            return self._observation

    def send(self, names: tuple[str, ...], values: np.ndarray, stamp: float) -> None:
        """Sends one set-point, to be reached within one control period."""
        if self._interface == "forward_command":
            self._publisher.publish(Float64MultiArray(data=to_array(values)))
            return
        # A real controller drops points that lie in the past, so outside lock-step the stamp is zero: "now".
        message = to_trajectory(JointCommand(names, values, stamp if self._lockstep else 0.0), self._spec.command_mode)
        message.header.frame_id = ""
        duration = to_time(self._spec.period)
        message.points[0].time_from_start.sec, message.points[0].time_from_start.nanosec = duration.sec, duration.nanosec
        self._publisher.publish(message)

    def close(self) -> None:
        """Ends thread and node."""
        self._executor.shutdown(timeout_sec=1.0)
        self._thread.join(1.0)
        self._node.destroy_node()

    def _spin(self) -> None:
        with suppress(ExternalShutdownException):
            self._executor.spin()

    def _on_joints(self, message: JointState) -> None:
        if not set(self._spec.measured_names) & set(message.name):
            return  # another publisher on the same topic, such as the gripper's
        try:
            fields = self._reader.fields(message)
        except UserError as error:
            self._problem = f"{self._topics['joints']}: {error}"
            self._node.get_logger().warning(self._problem, throttle_duration_sec=1.0)
            return
        self._problem = None
        self._arrived("joints", message, fields)

    def _on_imu(self, message: Imu) -> None:
        self._arrived("imu", message, from_imu(message))

    def _on_odometry(self, message: Odometry) -> None:
        self._arrived("odometry", message, from_odometry(message))

    def _arrived(self, source: str, message: JointState | Imu | Odometry, fields: dict[str, Any]) -> None:
        with self._changed:
            self._parts[source] = (from_time(message.header.stamp), fields)
            self._heard[source] = time.monotonic()
            if not self._complete(source):
                return
            merged: dict[str, Any] = {}
            for name in self._topics:
                merged |= self._parts[name][1]
            self._observation = Observation(stamp=self._parts["joints"][0], **merged)
            self._changed.notify_all()

    def _complete(self, arrived: str) -> bool:
        """Whether an observation is whole: on a real robot with every joint state, in lock-step when all stamps agree."""
        if any(source not in self._parts for source in self._topics):
            return False
        if self._lockstep:
            return len({self._parts[source][0] for source in self._topics}) == 1
        return arrived == "joints" and all(self._fresh(source) for source in self._topics)

    def _fresh(self, source: str) -> bool:
        """Whether a source still speaks. While one does not, no observation is made, and the guard holds the robot."""
        silence = time.monotonic() - self._heard[source]
        if silence > self._max_age:
            self._node.get_logger().warning(f"nothing came on {self._topics[source]} for {silence:.2f} s", throttle_duration_sec=1.0)
        return silence <= self._max_age

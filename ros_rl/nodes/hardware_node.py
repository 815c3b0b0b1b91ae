"""The node that owns the robot: reads it, publishes what was read, and sends what the guard lets through."""

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from nav_msgs.msg import Odometry
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.timer import Timer
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, Imu, JointState
from std_srvs.srv import SetBool, Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import JointCommand, Observation, Robot
from ros_rl.hardware.pacing import Pacer
from ros_rl.hardware.ros2_control import Ros2ControlRobot, command_interface
from ros_rl.nodes.base import ERROR, WARN, StackNode, describe, run
from ros_rl.nodes.messages import (
    COMMAND_QOS,
    IMAGE_QOS,
    STREAM_QOS,
    from_trajectory,
    to_camera_info,
    to_image,
    to_imu,
    to_joint_state,
    to_odometry,
    to_privileged,
    to_time,
)
from ros_rl.nodes.parameters import HARDWARE_NODE
from ros_rl.robots.spec import Camera, RobotSpec, load_robot

_CLOCK_PERIOD = 0.01  # s of simulated time between two /clock messages: every subscriber pays for each
_REPEAT_AFTER = 0.1  # s after which lock-step publishes an unanswered observation again
_DISCOVERY = 0.5  # s in which another hardware node is looked for


def robot_at_rate(name: str, control_rate: float) -> RobotSpec:
    """Returns a robot by name, at its own control rate or another one (Hz, 0: its own)."""
    spec = load_robot(name)
    return replace(spec, control_rate=control_rate) if control_rate else spec


class HardwareNode(StackNode):
    """Drives one robot through its guard, in real time or in lock-step with the commands it gets."""

    def __init__(self, **options: Any):
        """Declares parameters and services."""
        super().__init__("hardware_node", HARDWARE_NODE, **options)
        self.robot: GuardedRobot | None = None
        self._lock = threading.RLock()
        self._loop: threading.Thread | None = None
        self._repeater: Timer | None = None
        self._running = threading.Event()
        self._owner: IO[str] | None = None
        self._command: JointCommand | None = None
        self._observation: Observation | None = None
        self._image_frames: dict[str, int] = {}
        self._cameras: dict[str, Camera] = {}
        self._sent_at = 0.0
        self._clock_stamp = -1.0
        self._paused = False
        self._received_at = 0.0
        self._late = 0
        self._worst_lateness = 0.0
        self.pacer = Pacer(1.0)

    # --- lifecycle ---

    def configure(self) -> None:
        """Takes the robot, opens topics and services."""
        self._spec = robot_at_rate(self.value("robot"), self.value("control_rate"))
        self._lockstep = self.value("lockstep")
        self._simulated = self.value("backend") == "mujoco"
        self._take_ownership()
        self._hook_up()
        backend = self._simulation() if self._simulated else self._controller()
        guard = Guard(self._spec, self.value("max_age"), self.value("stop_after"))
        clock = None if self._simulated or self._lockstep else self._robot_time
        self.robot = GuardedRobot(backend, guard, clock)
        self.robot.connect()

    def activate(self) -> None:
        """Makes the measured position the target and starts to publish."""
        assert self.robot is not None
        with self._lock:
            self._command = None
            self._start_from(self.robot.activate())
            self._publish()
        if self._lockstep:
            self._repeater = self.every(_REPEAT_AFTER, self._repeat)
        else:
            self._running.set()
            self._loop = threading.Thread(target=self._run, name="control loop", daemon=True)
            self._loop.start()

    def deactivate(self) -> None:
        """Ends the control loop and brings the robot to rest."""
        self._running.clear()
        if self._loop is not None:
            self._loop.join(2.0)
            self._loop = None
        if self._repeater is not None:
            self.destroy_timer(self._repeater)
            self._repeater = None
        with self._lock:
            if self.robot is not None:
                self.robot.stop()

    def release(self) -> None:
        """Gives the robot back."""
        with self._lock:
            if self.robot is not None:
                self.robot.close()
                self.robot = None
        if self._owner is not None:
            self._owner.close()
            self._owner = None
        self._unhook()

    def status(self) -> tuple[bytes, str, Mapping[str, object]]:
        """Reports the guard's state, its counts, and how the loop keeps time."""
        level, message, _ = super().status()
        if self.robot is None or self.failure is not None:
            return level, message, {}
        report, guard = self.robot.report, self.robot.guard
        values = {
            "state": report.state,
            "stamp": f"{self._observation.stamp:.3f}" if self._observation else "",
            "rate": f"{self._spec.control_rate:g}",
            "ticks": self.pacer.ticks,
            "overruns": self.pacer.overruns,
            "worst_lateness": f"{self._worst_lateness:.6f}",
            "late_commands": self._late,
            **{name: guard.counts[name] for name in ("limited", "rejected", "held", "stops", "estops")},
        }
        if report.state in ("stop", "estop") and self.active:
            return ERROR, report.rejected or report.state, values
        return (WARN if report.rejected else level), report.rejected or message, values

    # --- robot ---

    def _simulation(self) -> Robot:
        from ros_rl.hardware.mujoco import MujocoRobot
        from ros_rl.sim.task import load_task

        task = load_task(self.value("task")) if self.value("task") else None
        if task is not None and task.robot != self._spec.name:
            raise UserError(f"task '{task.name}' is for the robot '{task.robot}', this is '{self._spec.name}'")
        robot = MujocoRobot(self._spec, task or self.value("scene"), self.value("seed"), self.value("cameras"))
        self._cameras = {name: robot.model.cameras[name] for name in robot.cameras}
        for name in self._cameras:
            topic = f"camera/{name}"
            qos = COMMAND_QOS if self._lockstep else IMAGE_QOS
            self._image_publishers[name] = (
                self.create_publisher(Image, f"{topic}/image_raw", qos),
                self.create_publisher(CameraInfo, f"{topic}/camera_info", qos),
            )
        return robot

    def _controller(self) -> Robot:
        from ros_rl.nodes.ros2_control_link import RosControllerLink, controller_name

        topics = (self.value("joint_states_topic"), self.value("imu_topic"), self.value("odometry_topic"))
        if self.resolve_topic_name("joint_states") == topics[0]:
            mend = f"give it a namespace, such as --ros-args -r __ns:=/{self._spec.name}"
            raise UserError(f"joint_states_topic {topics[0]} is where this node publishes; {mend}")
        interface = command_interface(self._spec, self.value("command_interface"))
        controller = controller_name(interface, self.value("controller"))
        link = RosControllerLink(self._spec, controller, interface, topics, self._lockstep, self.value("max_age"), self.get_namespace())
        return Ros2ControlRobot(self._spec, link, self.value("connect_timeout"))

    def _robot_time(self) -> float:
        """The robot's clock, carried on from its last stamp: clocks of two machines need not agree."""
        assert self._observation is not None
        return self._observation.stamp + time.monotonic() - self._received_at

    def _take_ownership(self) -> None:
        """Refuses to be the second hardware node in a namespace: two would fight over one robot.

        Raises:
            UserError: another one is there; says where.
        """
        name = self.get_fully_qualified_name()
        folder = Path(tempfile.gettempdir()) / f"ros_rl-{os.getuid()}"
        folder.mkdir(exist_ok=True)
        domain = os.environ.get("ROS_DOMAIN_ID") or "0"
        owner = (folder / f"{domain}{name.replace('/', '.')}.lock").open("a+")
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner.seek(0)
            process = owner.read().strip()
            owner.close()
            raise UserError(
                f"another {name} runs in this ROS domain (process {process}); end it or give this one another namespace"
            ) from None
        owner.truncate(0)
        owner.write(str(os.getpid()))
        owner.flush()
        self._owner = owner
        deadline = time.monotonic() + (0.0 if self.value("backend") == "mujoco" else _DISCOVERY)
        while True:
            found = self.get_node_names_and_namespaces().count((self.get_name(), self.get_namespace()))
            if found > 1:
                raise UserError(f"another {name} runs in this ROS domain, on another machine; end it or give this one another namespace")
            if time.monotonic() >= deadline:
                return
            time.sleep(0.05)

    # --- topics ---

    def _hook_up(self) -> None:
        self._image_publishers: dict[str, tuple[Any, Any]] = {}
        self._joint_publisher = self.create_publisher(JointState, "joint_states", STREAM_QOS)
        self._imu_publisher = self.create_publisher(Imu, "imu/data", COMMAND_QOS) if self._spec.imu_frame else None
        self._odometry_publisher = self.create_publisher(Odometry, "odom", COMMAND_QOS) if self._spec.odometry else None
        self._privileged_publisher = self.create_publisher(JointState, "sim/privileged", COMMAND_QOS) if self._simulated else None
        publishes_clock = self._simulated and self.value("publish_clock")
        self._clock_publisher = self.create_publisher(Clock, "/clock", COMMAND_QOS) if publishes_clock else None
        services = MutuallyExclusiveCallbackGroup()  # an emergency stop does not wait for a command to be dealt with
        self._entities: list[Any] = [
            self.create_subscription(JointTrajectory, "joint_command", self._on_command, COMMAND_QOS),
            self.create_service(Trigger, "estop", self._on_estop, callback_group=services),
            self.create_service(Trigger, "estop/reset", self._on_release, callback_group=services),
        ]
        if self._simulated:
            self._entities.append(self.create_service(Trigger, "sim/reset", self._on_reset, callback_group=services))
            self._entities.append(self.create_service(SetBool, "sim/pause", self._on_pause, callback_group=services))

    def _unhook(self) -> None:
        for entity in getattr(self, "_entities", []):
            (self.destroy_service if hasattr(entity, "srv_type") else self.destroy_subscription)(entity)
        self._entities = []
        publishers = [getattr(self, f"_{name}_publisher", None) for name in ("joint", "imu", "odometry", "privileged", "clock")]
        publishers += [publisher for pair in getattr(self, "_image_publishers", {}).values() for publisher in pair]
        for publisher in publishers:
            if publisher is not None:
                self.destroy_publisher(publisher)
        self._image_publishers = {}

    def _publish(self) -> None:
        """Publishes the newest observation; all its messages carry its stamp, images their own."""
        observation = self._observation
        assert observation is not None and self.robot is not None
        stamp = observation.stamp
        if self._clock_publisher is not None and not 0.0 <= stamp - self._clock_stamp < _CLOCK_PERIOD:
            self._clock_publisher.publish(Clock(clock=to_time(stamp)))
            self._clock_stamp = stamp
        for name, image in observation.images.items():
            self._publish_image(name, image, observation.image_stamps[name])
        if self._privileged_publisher is not None:
            self._privileged_publisher.publish(to_privileged(stamp, observation.privileged))
        if self._imu_publisher is not None and observation.base_quat is not None:
            assert observation.base_gyro is not None and observation.base_acc is not None and self._spec.imu_frame
            imu = to_imu(stamp, self._spec.imu_frame, observation.base_quat, observation.base_gyro, observation.base_acc)
            self._imu_publisher.publish(imu)
        if self._odometry_publisher is not None and observation.base_position is not None and observation.base_velocity is not None:
            self._odometry_publisher.publish(to_odometry(stamp, observation.base_position, observation.base_velocity))
        arrays = (observation.joint_position, observation.joint_velocity, observation.joint_effort)
        message = to_joint_state(stamp, self._spec.measured_names, *arrays)
        self._sent_at = time.monotonic()
        self._joint_publisher.publish(message)
        if self.trace is not None:
            self.trace("observation", stamp)

    def _publish_image(self, name: str, image: Any, taken: float) -> None:
        camera = self._cameras[name]
        if self._image_frames.get(name) == camera.frame_index(taken):
            return
        self._image_frames[name] = camera.frame_index(taken)
        images, infos = self._image_publishers[name]
        images.publish(to_image(taken, camera.frame, image))
        infos.publish(to_camera_info(taken, camera))

    def _on_command(self, message: JointTrajectory) -> None:
        command = from_trajectory(message, self._spec.command_mode)
        if self.trace is not None:
            self.trace("command", command.stamp)
        if not self.active:
            return
        with self._lock:
            if not self._lockstep:
                self._command = command
            elif self._observation is None or command.stamp != self._observation.stamp:
                self._late += 1
            elif not self._halted:
                self._tick(command)

    # --- control loop ---

    @property
    def _halted(self) -> bool:
        return self._paused or self.failure is not None

    def _tick(self, command: JointCommand | None) -> None:
        """One control period: the command goes out, time moves on, the new observation is published."""
        assert self.robot is not None
        state = self.robot.report.state
        try:
            self.robot.write(command)
            if self._simulated or self._lockstep:
                self.robot.step()
            observation = self.robot.read()
        except Exception as error:
            self._fault(error)
            return
        if self._observation is None or observation.stamp != self._observation.stamp:
            self._received_at = time.monotonic()
            self._observation = observation
            self._publish()
        if command is not None:  # before the first one there is nothing to complain of
            self.say("guard", self.robot.report.rejected)
        if self.robot.report.state != state:
            self.publish_diagnostics()

    def _run(self) -> None:
        """The control loop in real time."""
        factor = self.value("rate_factor") if self._simulated else 1.0
        self.pacer = Pacer(self._spec.period / factor)
        while self._running.is_set():
            with self._lock:
                if not self._halted:
                    self._tick(self._command)
            lateness = self.pacer.wait()
            self._worst_lateness = max(self._worst_lateness, lateness)

    def _repeat(self) -> None:
        """Publishes an observation again that nobody answered: in lock-step a node may have come up after it."""
        with self._lock:
            if self.active and not self._halted and time.monotonic() - self._sent_at > _REPEAT_AFTER:
                self._image_frames.clear()
                self._publish()

    def _start_from(self, observation: Observation) -> None:
        self._observation = observation
        self._received_at = time.monotonic()
        self._image_frames.clear()
        self._clock_stamp = -1.0

    def _fault(self, error: Exception) -> None:
        """Stops the robot, which is not where anyone thinks it is. `sim/reset` or a new activation starts again."""
        self.failure = error
        with suppress(Exception):  # a robot that has failed may not take this either
            assert self.robot is not None
            self.robot.stop()
        self.get_logger().fatal(describe(error))
        self.publish_diagnostics()

    # --- services ---

    def _on_estop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        with self._lock:
            if self.robot is not None:
                self.robot.estop("estop service")
        response.success, response.message = True, "emergency stop latched; estop/reset releases it"
        self.get_logger().warning(response.message)
        return response

    def _on_release(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        with self._lock:
            if self.robot is not None:
                self._command = None
                self.robot.release()
        response.success, response.message = True, "released; the target is the measured position"
        self.get_logger().info(response.message)
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Starts an episode from the parameters `seed` and `task`; the task must be in the same scene."""
        from ros_rl.hardware.mujoco import MujocoRobot
        from ros_rl.sim.task import load_task

        self.publish_diagnostics()  # the counts at the end of the old episode
        with self._lock:
            assert self.robot is not None and isinstance(self.robot.robot, MujocoRobot)
            simulation, name = self.robot.robot, self.value("task")
            try:
                task = load_task(name) if name else None
                if task is not None and simulation.task is not None and task.scene != simulation.task.scene:
                    raise UserError(f"task '{task.name}' is in scene '{task.scene}', this simulation is in '{simulation.task.scene}'")
            except UserError as error:
                response.success, response.message = False, str(error)
                return response
            simulation.task = task
            self._command = None
            self._start_from(self.robot.reset(self.value("seed")))
            self.failure = None
            self._publish()
        response.success, response.message = True, f"seed {self.value('seed')}"
        return response

    def _on_pause(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        with self._lock:
            self._paused = bool(request.data)
            self._command = None
            if not self._paused and self.robot is not None:
                self._start_from(self.robot.activate())
                self._publish()
        response.success, response.message = True, "paused" if request.data else "running"
        return response


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [HardwareNode()])

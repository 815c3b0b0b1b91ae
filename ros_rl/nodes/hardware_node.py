"""The node that owns the robot: reads it, publishes what was read, and sends what the guard lets through."""

import threading
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from geometry_msgs.msg import Vector3
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.timer import Timer
from std_srvs.srv import SetBool, Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import JointCommand, Observation, Robot
from ros_rl.hardware.pacing import Pacer
from ros_rl.hardware.ros2_control import Ros2ControlRobot, command_interface
from ros_rl.hardware.servo_bus import ServoBusRobot, check_timeout
from ros_rl.nodes.base import ERROR, REPEAT_AFTER, WARN, StackNode, describe, run
from ros_rl.nodes.messages import COMMAND_QOS, from_trajectory
from ros_rl.nodes.ownership import claim
from ros_rl.nodes.parameters import HARDWARE_NODE
from ros_rl.nodes.publisher import ObservationPublisher
from ros_rl.nodes.ros2_control_link import RosControllerLink, controller_name
from ros_rl.robots.spec import Camera, load_robot
from ros_rl.sim.task import Task, load_task

if TYPE_CHECKING:
    from ros_rl.hardware.mujoco import MujocoRobot
    from ros_rl.sim.viewer import Viewer

_LONGEST_PATIENCE = 1.0  # s between repetitions of an observation that nobody answers
_DISCOVERY = 0.5  # s in which another hardware node is looked for; none can drive this one's own simulation


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
        self._simulation: MujocoRobot | None = None
        self._servos: ServoBusRobot | None = None
        self._viewer: Viewer | None = None
        self._scene = ""
        self._sent_at = 0.0
        self._patience = REPEAT_AFTER
        self._paused = False
        self._received_at = 0.0
        self._late = 0
        self._worst_lateness = 0.0
        self.pacer = Pacer(1.0)

    # --- lifecycle ---

    def configure(self) -> None:
        """Takes the robot, opens topics and services."""
        self._spec = load_robot(self.value("robot"), self.value("control_rate"))
        for repair in self._spec.read_urdf().repairs:
            self.get_logger().warning(f"{self._spec.urdf.name}: {repair}")
        self._lockstep = self.value("lockstep")
        simulated = self.value("backend") == "mujoco"
        self._owner = claim(self, 0.0 if simulated else _DISCOVERY)
        make = {"mujoco": self._simulate, "ros2_control": self._controller, "servo_bus": self._servo_bus}
        backend = make[self.value("backend")]()
        guard = Guard(self._spec, self.value("max_age"), self.value("stop_after"))
        self.robot = GuardedRobot(backend, guard, None if simulated or self._lockstep else self._robot_time)
        self._open_topics()
        self.robot.connect()
        if self._simulation is not None and self.value("viewer"):
            self._viewer = self._open_viewer(self._simulation)

    def activate(self) -> None:
        """Makes the measured position the target and starts to publish."""
        assert self.robot is not None
        if self._servos is not None:
            with self._lock:
                self._servos.take_hold()
        if self._simulation is None and not self._lockstep:
            self.robot.step()  # a measurement from now on, not one from before the arm was moved
        with self._lock:
            self._command = None
            self._start_from(self.robot.activate())
            self._publish()
        if self._lockstep:
            self._repeater = self.every(REPEAT_AFTER, self._repeat)
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
        if self._viewer is not None:  # before the lock is taken, for which it may be waiting
            self._viewer.close()
            self._viewer = None
        with self._lock:
            robot, owner = self.robot, self._owner
            self.robot = self._simulation = self._servos = self._owner = None
            try:
                if robot is not None:
                    robot.close()
            finally:
                if owner is not None:
                    owner.close()

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
            **{name: guard.counts[name] for name in ("limited", "rejected", "held", "starved", "stops", "estops")},
        }
        alarms = ""
        if self._servos is not None:
            alarms = ", ".join(f"{name} 0x{alarm:02x}" for name, alarm in self._servos.alarms.items())
            values |= {**self._servos.counts, "alarms": alarms}
        if report.state in ("stop", "estop") and self.active:
            return ERROR, report.rejected or report.state, values
        warning = report.rejected or (f"alarm: {alarms}" if alarms else "")
        return (WARN if warning else level), warning or message, values

    # --- robot ---

    def _simulate(self) -> Robot:
        from ros_rl.hardware.mujoco import MujocoRobot  # the computer of a real robot need not be able to simulate

        task = self._task()
        self._scene = task.scene if task else self.value("scene")
        self._simulation = MujocoRobot(self._spec, task or self._scene, self.value("seed"), self.value("cameras"))
        return self._simulation

    def _open_viewer(self, simulation: "MujocoRobot") -> "Viewer":
        from ros_rl.sim.viewer import Viewer, check_display

        check_display()

        def state() -> np.ndarray:
            with self._lock:
                return simulation.snapshot().physics

        return Viewer(simulation.model.mj, state)

    def _task(self) -> Task | None:
        """Returns the task that the parameters name.

        Raises:
            UserError: there is no such task, or it is for another robot.
        """
        if not self.value("task"):
            return None
        return load_task(self.value("task"), self._spec.name)

    def _controller(self) -> Robot:
        topics = (self.value("joint_states_topic"), self.value("imu_topic"), self.value("odometry_topic"))
        if self.resolve_topic_name("joint_states") == topics[0]:
            mend = f"give it a namespace, such as --ros-args -r __ns:=/{self._spec.name}"
            raise UserError(f"joint_states_topic {topics[0]} is where this node publishes; {mend}")
        interface = command_interface(self._spec, self.value("command_interface"))
        controller = controller_name(interface, self.value("controller"))
        link = RosControllerLink(self._spec, controller, interface, topics, self._lockstep, self.value("max_age"), self.get_namespace())
        return Ros2ControlRobot(self._spec, link, self.value("connect_timeout"))

    def _servo_bus(self) -> Robot:
        if not self.value("servo_port"):
            raise UserError("backend servo_bus needs the servo_port, such as /dev/ttyACM0")
        if self._lockstep:
            raise UserError("lockstep is for simulations; an arm on a servo bus does not wait for answers")
        port, baudrate, timeout = (self.value(f"servo_{name}") for name in ("port", "baudrate", "timeout"))
        check_timeout(timeout, self.value("max_age"))
        self._servos = ServoBusRobot(self._spec, port, baudrate, timeout, release_torque=self.value("release_torque"))
        return self._servos

    def _robot_time(self) -> float:
        """The robot's clock, carried on from its last stamp: clocks of two machines need not agree. A servo bus has this one's."""
        if self._servos is not None:
            return time.monotonic()
        assert self._observation is not None
        return self._observation.stamp + time.monotonic() - self._received_at

    # --- topics ---

    def _open_topics(self) -> None:
        cameras: Mapping[str, Camera] = {}
        if self._simulation is not None:
            cameras = {name: self._simulation.model.cameras[name] for name in self._simulation.cameras}
        simulated = self._simulation is not None
        clock = simulated and self.value("publish_clock")
        self._publisher = ObservationPublisher(self, self._spec, cameras, simulated, clock, self._lockstep)
        self.create_subscription(JointTrajectory, "joint_command", self._on_command, COMMAND_QOS)
        services = MutuallyExclusiveCallbackGroup()  # an emergency stop does not wait for a command to be dealt with
        self.create_service(Trigger, "estop", self._on_estop, callback_group=services)
        self.create_service(Trigger, "estop/reset", self._on_release, callback_group=services)
        if simulated:
            self.create_service(Trigger, "sim/reset", self._on_reset, callback_group=services)
            self.create_service(SetBool, "sim/pause", self._on_pause, callback_group=services)
            if self._spec.floating_base:
                self.create_subscription(Vector3, "sim/push", self._on_push, 10)

    def _publish(self) -> None:
        """Publishes the newest observation."""
        assert self._observation is not None
        self._sent_at = time.monotonic()
        self._publisher.publish(self._observation)
        if self.trace is not None:
            self.trace("observation", self._observation.stamp)

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
                self._patience = REPEAT_AFTER
                self._tick(command)

    def _on_push(self, message: Vector3) -> None:
        """Changes the velocity of the simulated base; the next observation tells."""
        with self._lock:
            assert self._simulation is not None
            self._simulation.push(np.array([message.x, message.y, message.z]))

    # --- control loop ---

    @property
    def _halted(self) -> bool:
        return self._paused or self.failure is not None

    def _tick(self, command: JointCommand | None) -> None:
        """One control period: the command goes out, time moves on, the new observation is published.

        Whatever goes wrong here stops the robot: a loop that ended silently would leave it moving.
        """
        try:
            self._control(command)
        except Exception as error:
            self._fault(error)

    def _control(self, command: JointCommand | None) -> None:
        assert self.robot is not None
        state = self.robot.report.state
        self.robot.write(command)
        if self._simulation is not None or self._lockstep:
            self.robot.step()
        observation = self.robot.read()
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
        factor = self.value("rate_factor") if self._simulation is not None else 1.0
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
            if self.active and not self._halted and time.monotonic() - self._sent_at > self._patience:
                # Ever less often: those who answer late, on a busy machine, must not be kept busy with what they know.
                self._patience = min(2.0 * self._patience, _LONGEST_PATIENCE)
                self._publisher.start_over()
                self._publish()

    def _start_from(self, observation: Observation) -> None:
        self._observation = observation
        self._received_at = time.monotonic()
        self._publisher.start_over()

    def _fault(self, error: Exception) -> None:
        """Stops the robot, which is not where anyone thinks it is. `sim/reset` or a new activation starts again."""
        self.failure = error
        try:
            assert self.robot is not None
            self.robot.stop()
        except Exception as problem:  # a robot that has failed may not take this either
            self.get_logger().fatal(describe(problem))
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
        self.publish_diagnostics()  # the counts at the end of the old episode
        with self._lock:
            assert self.robot is not None and self._simulation is not None
            task = self._task()
            if task is not None and task.scene != self._scene:
                raise UserError(f"task '{task.name}' is in scene '{task.scene}', this simulation is in '{self._scene}'")
            before, state = self._simulation.task, self._simulation.snapshot()
            self._simulation.task = task
            try:
                observation = self.robot.reset(self.value("seed"))
            except Exception:  # then nothing has changed
                self._simulation.task = before
                self._simulation.restore(state)
                raise
            self._command = None
            self._start_from(observation)
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

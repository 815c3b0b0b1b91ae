"""The node by which a person takes the robot over: a device in, claims and commands out."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.client import Client
from rclpy.qos import QoSProfile
from rclpy.task import Future
from sensor_msgs.msg import JointState
from sensor_msgs.msg import Joy as JoyMessage
from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.nodes.assembler import ObservationAssembler
from ros_rl.nodes.base import StackNode, run
from ros_rl.nodes.messages import CLAIM_QOS, COMMAND_QOS, LATCHED_QOS, STREAM_QOS, from_trajectory, to_trajectory
from ros_rl.nodes.parameters import TELEOP_NODE
from ros_rl.policies.actors import load_policy
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.teleop.browser import Browser
from ros_rl.teleop.device import Button, Device
from ros_rl.teleop.joy import Joy, read_mapping
from ros_rl.teleop.keyboard import Keyboard
from ros_rl.teleop.leader import LeaderArm, read_calibration
from ros_rl.teleop.mapping import CartesianMapping, JointMapping, VelocityMapping
from ros_rl.teleop.scripted import Demonstrator
from ros_rl.teleop.session import Session, Step
from ros_rl.teleop.twist import TwistInput, check_release

_HEARTBEAT = 0.1  # s
_TASK_BUTTONS: tuple[Button, ...] = ("start", "success", "failure", "discard")


class TeleopNode(StackNode):
    """Answers every observation with what a device says."""

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("teleop_node", TELEOP_NODE, **options)
        self.device: Device | None = None
        self._told: str | None = None
        self._last = Step("released")
        self._stepped = 0.0  # when the last observation was answered, s
        self._sent: JointCommand | None = None  # what the robot got last, whoever gave it; None where that does not matter
        self._trouble: str | None = None  # what is wrong with the last message of the driver

    def configure(self) -> None:
        """Opens the device and the topics."""
        spec = load_robot(self.value("robot"), self.value("control_rate"))
        self._spec = spec
        self._needs: list[str] = []
        self._told = self.value("instruction") or None
        device = self._make_device(self.value("device"), spec)
        self._walks = spec.floating_base and self.value("device") in ("keyboard", "joy", "twist", "browser")
        mapping = self._make_mapping(spec)
        self._session = Session(device, mapping, self.value("device_timeout"), self.value("on_release"), self.value("device_name"))
        self._actions = self.create_publisher(JointTrajectory, "teleop/action", STREAM_QOS)
        self._claims = self.create_publisher(String, "teleop/engaged", CLAIM_QOS)
        self._velocities = self.create_publisher(Twist, "cmd_vel", COMMAND_QOS) if self._walks else None
        # Where no task node judges, as on a robot, a button is for the recorder.
        self._button_services = {
            button: [self.create_client(Trigger, f"{to}/{button}") for to in ("task", "recorder")] for button in _TASK_BUTTONS
        }
        if isinstance(mapping, CartesianMapping):
            self.create_subscription(JointTrajectory, "joint_command", self._on_command, COMMAND_QOS)
        cameras = [spec.camera(name.split(".", 1)[1]) for name in self._needs if name.startswith("images.")]
        ObservationAssembler(self, spec, self._needs, cameras, self._on_observation, self.value("lockstep"))
        self.device = device  # whatever interrupts its opening, it is given back
        device.open()
        self.every(_HEARTBEAT, self._beat)

    def activate(self) -> None:
        """Looks at the device from now on; what was pressed before does not count."""
        self._session.restart()
        self._last, self._stepped = Step("released"), time.monotonic()

    def deactivate(self) -> None:
        """Lets go of the robot, which is then held."""
        if self._last.claim == "engaged":
            self._last = Step("holding")
            self._claim(always=True)
            if self._walks:
                self._drive(np.zeros(3))

    def release(self) -> None:
        """Gives the device back."""
        device, self.device = self.device, None
        if device is not None:
            device.close()

    def _make_device(self, name: str, spec: RobotSpec) -> Device:
        speeds = self.value("linear_speed"), self.value("angular_speed")
        if name == "keyboard":
            return Keyboard(*speeds)
        if name == "joy":
            joy = Joy(read_mapping(self.value("joy_mapping"), spec.read_urdf().links), *speeds)
            self._listen(JoyMessage, self.value("joy_topic"), lambda message, now: joy.receive(message.axes, message.buttons, now))
            return joy
        if name == "twist":
            check_release(self.value("on_release"))
            frames = spec.read_urdf().links
            twist = TwistInput(frames, self.value("twist_units"), *speeds, self.value("device_timeout"))
            topic = self.value("twist_topic")
            self._listen(TwistStamped, topic, lambda message, now: twist.receive(message.header.frame_id, _six(message.twist), now))
            return twist
        if name == "browser":
            browser = Browser(*speeds, self.value("device_timeout"))
            self._listen(String, "teleop/page", lambda message, now: browser.receive(message.data, now), CLAIM_QOS)
            return browser
        if name == "leader":
            if not self.value("calibration"):
                raise UserError("teleop_node: the parameter 'calibration' is empty; name the calibration file of the leader arm")
            leader = LeaderArm(read_calibration(self.value("calibration"), spec), spec, self.value("leader_switch"))
            topic = self.value("leader_topic")
            self._listen(JointState, topic, lambda message, now: leader.receive(message.name, message.position, now))
            self.create_subscription(Bool, "leader/engaged", lambda message: leader.switch(message.data, time.monotonic()), COMMAND_QOS)
            return leader
        if not self.value("demonstrator"):
            raise UserError("teleop_node: the parameter 'demonstrator' is empty; name a policy bundle")
        policy = load_policy(self.value("demonstrator"), spec)
        self._needs = [key.name for key in policy.spec.observation]
        self.create_subscription(String, "task/instruction", self._on_instruction, LATCHED_QOS)
        return Demonstrator(policy, self.value("seed"))

    def _make_mapping(self, spec: RobotSpec) -> CartesianMapping | JointMapping | VelocityMapping:
        if self._walks:
            return VelocityMapping(spec, self.value("linear_speed"), self.value("angular_speed"))
        if self.value("device") in ("leader", "scripted"):
            return JointMapping(spec)
        return CartesianMapping(spec, self.value("linear_speed"), self.value("angular_speed"), self.value("workspace"))

    def _listen(self, kind: type, topic: str, receive: Callable[[Any, float], None], qos: QoSProfile = COMMAND_QOS) -> None:
        """Hands every message to the device, with the time of its arrival: the clock that sent it need not be ours."""

        def hand_on(message: Any) -> None:
            try:
                receive(message, time.monotonic())
                self._trouble = None
            except UserError as problem:
                self._trouble = str(problem)

        self.create_subscription(kind, topic, hand_on, qos)

    def _on_command(self, message: JointTrajectory) -> None:
        self._sent = from_trajectory(message, self._spec.command_mode)

    def _on_instruction(self, message: String) -> None:
        self._told = message.data

    def _on_observation(self, observation: Observation) -> None:
        if not self.active:
            return
        if "instruction" in self._needs and self._told is None:
            self.say("device", "waits for task/instruction")
            return
        step = self._session.step(observation.told(np.zeros(3), self._told or ""), time.monotonic(), self._sent)
        if step.problem is not None and self._trouble is not None:
            step = replace(step, problem=self._trouble)
        self._stepped = time.monotonic()
        self.say("device", step.problem)
        before = self._last.claim
        changed, self._last = (step.claim, step.problem) != (self._last.claim, self._last.problem), step
        if changed or "hand_back" in step.pressed:
            self._claim(always=before != "released" or "hand_back" in step.pressed)
        if step.command is not None:
            self._actions.publish(to_trajectory(step.command, self._spec.command_mode))
        if step.velocity is not None:
            self._drive(step.velocity)
        elif self._walks and before == "engaged":
            self._drive(np.zeros(3))
        for button in step.pressed:
            if button in self._button_services:
                self._press(button, self._button_services[button])

    def _beat(self) -> None:
        """Repeats the claim. The device is looked at only when an observation comes, so that none holds the robot."""
        timeout = self.value("device_timeout")
        if self._last.claim == "engaged" and not self.value("lockstep") and time.monotonic() - self._stepped > timeout:
            self._last = self._session.hold(f"no observation has been answered for more than {timeout:g} s")
            self.say("device", self._last.problem)
            if self._walks:
                self._drive(np.zeros(3))
        self._claim()

    def _claim(self, always: bool = False) -> None:
        """Says whether the device has the robot.

        One that has it says so again and again. One that has it not is silent but for the moment in which it gives it back:
        a node that starts anew must not hand back a robot that is held because it died.
        """
        if self._walks or not (always or (self.active and self._last.claim != "released")):
            return
        said = {"device": self._session.name, "state": self._last.claim, "reason": self._last.problem or ""}
        self._claims.publish(String(data=json.dumps(said)))

    def _drive(self, velocity: np.ndarray) -> None:
        assert self._velocities is not None
        message = Twist()
        message.linear.x, message.linear.y, message.angular.z = velocity.tolist()
        self._velocities.publish(message)

    def _press(self, button: str, clients: list[Client]) -> None:
        """Calls the first of the services that are there; if it refuses, the next one."""
        ready = [client for client in clients if client.service_is_ready()]
        if not ready:
            self.get_logger().warning(f"{button}: nobody offers task/{button} or recorder/{button}")
            return

        def answered(future: Future) -> None:
            if not future.result().success and ready[1:]:
                self._press(button, ready[1:])
            else:
                self.get_logger().info(f"{button}: {future.result().message or 'done'}")

        ready[0].call_async(Trigger.Request()).add_done_callback(answered)


def _six(twist: Twist) -> tuple[float, ...]:
    linear, angular = twist.linear, twist.angular
    return linear.x, linear.y, linear.z, angular.x, angular.y, angular.z


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [TeleopNode()])

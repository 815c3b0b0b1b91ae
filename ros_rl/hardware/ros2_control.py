"""A robot that ros2_control drives: joint states in, trajectories or arrays of set-points out.

Nothing here knows of ROS: messages come and go through a `ControllerLink`, which `ros_rl.nodes` implements.
"""

import math
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.hardware.units import UnitScale
from ros_rl.robots.spec import RobotSpec

CommandInterface = Literal["joint_trajectory", "forward_command"]


def command_interface(spec: RobotSpec, asked: str) -> CommandInterface:
    """Returns how a controller takes commands; ``auto`` is a trajectory in position mode, else an array.

    Raises:
        UserError: a trajectory is asked for in a mode that trajectory controllers do not take.
    """
    if asked == "auto":
        return "joint_trajectory" if spec.command_mode == "position" else "forward_command"
    if asked == "joint_trajectory" and spec.command_mode != "position":
        raise UserError(
            f"robot '{spec.name}' takes {spec.command_mode} commands; a joint_trajectory controller takes positions, use forward_command"
        )
    return "joint_trajectory" if asked == "joint_trajectory" else "forward_command"


class ControllerLink(Protocol):
    """What carries messages between the stack and a controller of ros2_control; joints are in the units of the device."""

    controller: str

    def controller_joints(self, timeout: float) -> tuple[str, ...]:
        """Returns the joints that the controller drives, in its order.

        Raises:
            RobotFault: no such controller answers.
        """

    def wait_newer(self, stamp: float | None, timeout: float) -> Observation | None:
        """Returns the first observation with another stamp than `stamp`, or None when none comes in time."""

    def latest(self) -> Observation | None:
        """Returns the newest observation."""

    def send(self, names: tuple[str, ...], values: np.ndarray, stamp: float) -> None:
        """Sends one set-point to the controller."""

    def close(self) -> None:
        """Ends the connection."""


class Ros2ControlRobot:
    """A `Robot` behind a controller of ros2_control; joints that count in units of their own are converted here."""

    def __init__(self, spec: RobotSpec, link: ControllerLink, timeout: float = 10.0):
        """Prepares the connection.

        Args:
            spec: the robot.
            link: carries the messages.
            timeout: how long to wait for the robot to answer, s.
        """
        self.spec = spec
        self._link = link
        self._timeout = timeout
        self._order = np.arange(len(spec.joints))
        self._names = spec.joint_names
        self._scale = UnitScale.of(spec)
        self._closed = False
        self._answered = -math.inf

    def connect(self) -> None:
        """Waits for controller and joint states, and compares their joints with the robot's.

        Raises:
            UserError: the controller drives other joints; both lists are named.
            RobotFault: the controller or the joint states do not answer.
        """
        names = self._link.controller_joints(self._timeout)
        if sorted(names) != sorted(self.spec.joint_names):
            raise UserError(
                f"controller '{self._link.controller}' drives {', '.join(names) or 'no joints'}; "
                f"robot '{self.spec.name}' commands {', '.join(self.spec.joint_names)}"
            )
        self._names = names
        self._order = np.array([self.spec.joint_names.index(name) for name in names])
        if self._link.wait_newer(None, self._timeout) is None:
            raise RobotFault(
                f"robot '{self.spec.name}': no joint state with {', '.join(self.spec.measured_names)} came within {self._timeout:g} s"
            )

    def read(self) -> Observation:
        """Returns the newest measurement.

        Raises:
            RobotFault: none has come.
        """
        observation = self._link.latest()
        if observation is None:
            raise RobotFault(f"robot '{self.spec.name}' has sent no joint state")
        return observation if self._scale is None else self._scale.to_si(observation)

    def write(self, command: JointCommand) -> JointCommand:
        """Sends a command in the controller's joint order.

        Raises:
            UserError: the joints are not those of the robot, or a value is not finite.
        """
        values = command.in_order_of(self.spec)
        self._answered = self.read().stamp  # before sending: the next measurement may come at once
        self._send(values, command.stamp)
        return replace(command, joint_names=self.spec.joint_names, values=values)

    def step(self) -> None:
        """Waits for the next measurement: in lock-step it is the answer to the last command.

        Raises:
            RobotFault: none comes.
        """
        if self._link.wait_newer(self._answered, self._timeout) is None:
            raise RobotFault(f"robot '{self.spec.name}' sent no joint state for {self._timeout:g} s after {self._answered:.3f} s")

    def stop(self) -> None:
        """Holds the measured position; in other modes than position, sends the `hold` commands.

        Where a measured position is not finite, the controller keeps its last target.
        """
        if self._link.latest() is None:
            return
        observation = self.read()
        target = self.spec.rest(observation.joint_position)
        if np.isfinite(target).all():
            self._send(target, observation.stamp)

    def close(self) -> None:
        """Stops the robot and ends the connection."""
        if not self._closed:
            self._closed = True
            self.stop()
            self._link.close()

    def _send(self, values: np.ndarray, stamp: float) -> None:
        if self._scale is not None:
            values = self._scale.to_device(values)
        self._link.send(self._names, values[self._order], stamp)

"""Where a safety filter sits on the data path: a command in, a safe command out, mapped by joint name."""

from dataclasses import replace

import numpy as np

from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.spec import RobotSpec
from ros_rl.safety.interface import SafetyFilter, SafetyReport


class SafetyStage:
    """Runs a filter on every command; the same in a ROS node and in a training loop."""

    def __init__(self, spec: RobotSpec, safety_filter: SafetyFilter):
        """Takes the robot, whose joint order the filter works in, and the filter."""
        self._names = spec.joint_names
        self._filter = safety_filter
        self._last_stamp = -np.inf

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of an observation that the filter looks at."""
        return self._filter.reads

    def apply(self, observation: Observation | None, command: JointCommand) -> tuple[JointCommand, SafetyReport]:
        """Returns the safe command, in the robot's joint order, and what the filter did.

        A command that is not one finite value for each joint goes on unchanged: the guard rejects it whole and says why.
        """
        if command.stamp < self._last_stamp:  # time jumped back: a new episode
            self._filter.reset()
        self._last_stamp = command.stamp
        if sorted(command.joint_names) != sorted(self._names) or command.values.shape != (len(self._names),):
            return command, SafetyReport()
        if not np.isfinite(command.values).all():
            return command, SafetyReport()
        if command.joint_names != self._names:
            order = [command.joint_names.index(name) for name in self._names]
            command = replace(command, joint_names=self._names, values=command.values[order])
        action, report = self._filter.filter(observation, command.values)
        return replace(command, values=action), report

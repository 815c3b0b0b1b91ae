"""The node between policy and robot: runs a safety filter on every command."""

from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from trajectory_msgs.msg import JointTrajectory

from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.nodes.assembler import ObservationAssembler
from ros_rl.nodes.base import StackNode, run
from ros_rl.nodes.messages import COMMAND_QOS, STREAM_QOS, from_trajectory, to_trajectory
from ros_rl.nodes.parameters import SAFETY_NODE
from ros_rl.robots.spec import load_robot
from ros_rl.safety.filters import FILTERS
from ros_rl.safety.interface import SafetyReport
from ros_rl.safety.stage import SafetyStage

_STATUS_PERIOD = 0.1  # s
_LONGEST_ANSWER = 1.0  # s; an observation this much newer than the action is one from before time jumped back


class SafetyNode(StackNode):
    """Filters `policy/action` into `joint_command`."""

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("safety_node", SAFETY_NODE, **options)
        self._observation: Observation | None = None
        self._pending: JointCommand | None = None
        self._report = SafetyReport()
        self._interventions = 0
        self.every(_STATUS_PERIOD, self._publish_status)
        self._status_publisher = self.create_publisher(DiagnosticStatus, "safety/status", COMMAND_QOS)

    def configure(self) -> None:
        """Makes the filter and opens the topics."""
        self._spec = load_robot(self.value("robot"), self.value("control_rate"))
        self._stage = SafetyStage(self._spec, FILTERS[self.value("filter")]())
        self._publisher = self.create_publisher(JointTrajectory, "joint_command", STREAM_QOS)
        self.create_subscription(JointTrajectory, "policy/action", self._on_action, COMMAND_QOS)
        if self._stage.reads:  # a topic that nobody reads costs every tick a callback
            ObservationAssembler(self, self._spec, self._stage.reads, (), self._on_observation, self.value("lockstep"))

    def activate(self) -> None:
        """Forgets what came while it was inactive."""
        self._observation = self._pending = None

    def _on_observation(self, observation: Observation) -> None:
        self._observation = observation
        if self._pending is not None and self._pending.stamp == observation.stamp:
            self._send(observation, self._pending)

    def _on_action(self, message: JointTrajectory) -> None:
        action = from_trajectory(message, self._spec.command_mode)
        if self.trace is not None:
            self.trace("safety", action.stamp)
        if not self.active:
            return
        if not self._stage.reads:
            self._send(None, action)
        elif self._observation is not None and 0.0 <= self._observation.stamp - action.stamp <= _LONGEST_ANSWER:
            self._send(self._observation, action)
        else:
            self._pending = action  # overtook its observation, which is on its way

    def _send(self, observation: Observation | None, action: JointCommand) -> None:
        self._pending = None
        command, self._report = self._stage.apply(observation, action)
        self._interventions += self._report.intervened
        self._publisher.publish(to_trajectory(command, self._spec.command_mode))

    def _publish_status(self) -> None:
        status = DiagnosticStatus(name=self.value("filter"), level=DiagnosticStatus.OK, message="active" if self.active else "inactive")
        values = {"interventions": self._interventions, **self._report.values}
        status.values = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        self._status_publisher.publish(status)


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [SafetyNode()])

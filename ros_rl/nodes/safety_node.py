"""The node between policy and robot: runs a safety filter on every command."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.nodes.assembler import ObservationAssembler
from ros_rl.nodes.base import ERROR, OK, WARN, StackNode, run
from ros_rl.nodes.messages import CLAIM_QOS, COMMAND_QOS, STREAM_QOS, from_trajectory, to_trajectory
from ros_rl.nodes.parameters import SAFETY_NODE
from ros_rl.robots.spec import load_robot
from ros_rl.safety.filters import make_filter
from ros_rl.safety.interface import NoSafeAction, SafetyFilter, SafetyReport
from ros_rl.safety.recovery import PARAMETER, RecoveryFilter, RecoverySettings, check_patience, load_recovery
from ros_rl.safety.stage import SafetyStage
from ros_rl.safety.takeover import Takeover

_STATUS_PERIOD = 0.1  # s
_LONGEST_ANSWER = 1.0  # s; an observation this much newer than the action is one from before time jumped back

_STALE_AFTER = 2  # control periods without an observation or without an action, after which the safe action takes over
_BRIDGED = 5  # control periods for which it acts on the last observation; then the state is not known well enough any longer


class SafetyNode(StackNode):
    """Filters `policy/action` into `joint_command`, or `teleop/action` while a person has the robot."""

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("safety_node", SAFETY_NODE, **options)
        self._observation: Observation | None = None
        self._pending: JointCommand | None = None
        self._report = SafetyReport()
        self._interventions = self._rejected = 0
        self._halted: str | None = None  # why no command is sent
        self._seen = 0.0  # when the last observation came, see `_now`
        self._acted: float | None = None  # when the last action that answers an observation did; None before the first
        self._replaced = -math.inf  # stamp of the newest observation that the safe action answered for want of another
        self._answered = -math.inf  # stamp of the newest observation that was answered without waiting for an action of the policy
        self._recovery: RecoveryFilter | None = None
        self._acting = ""  # who acts, with a recovery policy
        self._compute_time = 0.0
        self._takeover: Takeover | None = None
        self._early: JointCommand | None = None  # in lock-step, of a person; it may overtake its observation
        self.every(_STATUS_PERIOD, self._publish_status)
        self._status_publisher = self.create_publisher(DiagnosticStatus, "safety/status", STREAM_QOS)

    def configure(self) -> None:
        """Makes the filter and opens the topics."""
        self._spec = load_robot(self.value("robot"), self.value("control_rate"))
        self._lockstep = self.value("lockstep")  # there the robot waits for as long as it takes
        self._stale_after, self._bridged = _STALE_AFTER * self._spec.period, _BRIDGED * self._spec.period
        self._stage = SafetyStage(self._spec, self._make_filter(), self._lockstep or self.value("use_sim_time"))
        self._takeover = Takeover(self._spec, self.value("teleop_timeout"), self._lockstep)
        self._mode = self._takeover.mode
        self._observed = False
        self._publisher = self.create_publisher(JointTrajectory, "joint_command", STREAM_QOS)
        self.create_subscription(JointTrajectory, "policy/action", self._on_action, COMMAND_QOS)
        self.create_subscription(JointTrajectory, "teleop/action", self._on_teleop, COMMAND_QOS)
        self.create_subscription(String, "teleop/engaged", self._on_claim, CLAIM_QOS)
        if self._stage.reads:
            self._observe()
            if not self._lockstep:
                self.every(self._spec.period, self._bridge)

    def _make_filter(self) -> SafetyFilter:
        if self.value("filter") != "recovery":
            return make_filter(self.value("filter"), self._spec, self.value("prior") or self.value("robot"), self.value("outside"))
        self._stale_after, self._bridged = self.value("recovery_imu_timeout"), self.value("recovery_stop_after")
        if not self._lockstep:
            check_patience(self._spec, self._stale_after)
        self._recovery = load_recovery(self._spec, self.value("recovery"), RecoverySettings.of(self.value))
        if self._recovery.remark:
            self.get_logger().warning(self._recovery.remark)
        self.add_on_set_parameters_callback(self._check_recovery)
        self.add_post_set_parameters_callback(self._set_recovery)
        return self._recovery

    def release(self) -> None:
        """Forgets the recovery policy."""
        if self._recovery is not None:
            self._recovery = None
            self.remove_on_set_parameters_callback(self._check_recovery)
            self.remove_post_set_parameters_callback(self._set_recovery)

    def _settings_with(self, changes: list[Parameter]) -> RecoverySettings | None:
        """Returns the settings of recovery as they will be; None where nothing of them changes."""
        changed = {change.name: change.value for change in changes if change.name.startswith(PARAMETER)}
        return RecoverySettings.of(lambda name: changed.get(name, self.value(name))) if changed else None

    def _check_recovery(self, changes: list[Parameter]) -> SetParametersResult:
        try:
            if (settings := self._settings_with(changes)) and self._recovery is not None:
                self._recovery.check(settings)
        except UserError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _set_recovery(self, changes: list[Parameter]) -> None:
        if (settings := self._settings_with(changes)) and self._recovery is not None:
            self._recovery.set(settings)
            if self._recovery.remark:
                self.get_logger().warning(self._recovery.remark)

    def activate(self) -> None:
        """Forgets what came while it was inactive, but not who has the robot."""
        self._observation = self._pending = self._halted = self._acted = self._early = None
        self._report, self._replaced, self._answered = SafetyReport(), -math.inf, -math.inf
        self._stage.reset()
        assert self._takeover is not None
        self._takeover.restart()

    def _observe(self) -> None:
        """Reads observations from now on. Not before they are needed: a topic that nobody reads costs every tick a callback."""
        if not self._observed:
            self._observed = True
            patience = {"imu": self._stale_after} if self._recovery is not None else None
            self._assembler = ObservationAssembler(self, self._spec, self._stage.reads, (), self._on_observation, self._lockstep, patience)

    def status(self) -> tuple[bytes, str, Mapping[str, object]]:
        """Returns an error while no safe command is known or the robot is held, a warning while the filter's own action acts."""
        level, message = self._judgement()
        return super().status() if self.failure is not None or not self.active or level == OK else (level, message, {})

    def _judgement(self) -> tuple[bytes, str]:
        """Returns level and message of what the filter does."""
        report = self._report
        if self._halted is not None:
            held = f"; it held the robot: {report.fault}" if report.fault else ""
            return ERROR, f"sends no command: {self._halted}{held}"
        if report.fault:
            return ERROR, f"holds the robot: {report.fault}; activate the safety node anew when it has been seen to"
        if report.instead:
            return WARN, f"the safe action acts: {report.instead}"
        if report.warning:
            return WARN, f"the filter acts: {report.warning}"
        if report.values.get("margin", 1.0) <= 0.0:
            return WARN, "outside the certified set, the safe action acts"
        return OK, "active" if self.active else "inactive"

    def _on_observation(self, observation: Observation) -> None:
        if self._observation is not None and observation.stamp < self._observation.stamp:  # time jumped back
            self._replaced = self._answered = -math.inf
        self._observation, self._seen = observation, self._now()
        self._takeover.observe(observation)
        if self._takeover.claimed:
            self._command_for_person()
        elif self._is_urgent(observation):
            self._answer_at_once(observation)
        elif self._pending is not None and self._pending.stamp == observation.stamp:
            self._send(observation, self._pending)

    def _is_urgent(self, observation: Observation) -> bool:
        """Returns whether an observation is answered without waiting for the policy's action: in real time, once somebody has acted."""
        if not self.active or self._lockstep or self._acted is None:
            return False
        if self._pending is not None and self._pending.stamp == observation.stamp:
            self._acted = self._now()
        return self._stage.urgent(observation, self._is_acting())

    def _answer_at_once(self, observation: Observation) -> None:
        """Answers an observation in real time without waiting for the policy's action; it will be dropped."""
        self._answered, self._pending = observation.stamp, None
        self._filter(observation, None, "")

    def _is_acting(self) -> bool:
        """Returns whether an action has come lately."""
        return self._acted is not None and self._now() - self._acted <= self._stale_after

    def _on_claim(self, message: String) -> None:
        try:
            said = json.loads(message.data)
            device, state, reason = str(said["device"]), str(said["state"]), str(said.get("reason", ""))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UserError(f'expected {{"device": name, "state": claim}}, got {message.data!r}') from None
        waited = self._observation is not None and self._takeover.waits(self._observation.stamp)
        self._takeover.claim(device, state, time.monotonic(), reason)
        if self._takeover.claimed:
            self._observe()
        if waited:
            self._command_for_person()
        self._tell_mode()

    def _on_teleop(self, message: JointTrajectory) -> None:
        if not self.active:
            return
        command = from_trajectory(message, self._spec.command_mode)
        if not self._lockstep:
            self._takeover.propose(command)
        elif command.source == self._takeover.device:
            self._early = command
            if self._observation is not None and command.stamp == self._observation.stamp:
                self._command_for_person()

    def _command_for_person(self) -> None:
        """Answers the newest observation while a person has the robot."""
        observation = self._observation
        if not self.active or observation is None or not self._takeover.claimed:
            return
        if self._early is not None and self._early.stamp == observation.stamp:
            self._takeover.propose(self._early)
            self._early = None
        if self._takeover.waits(observation.stamp):
            return
        self._answered = observation.stamp
        self._filter(observation, self._takeover.command(time.monotonic()))
        self._tell_mode()

    def _tell_mode(self) -> None:
        """Publishes at once that the robot has changed hands."""
        if self._takeover.mode != self._mode:
            self._mode = self._takeover.mode
            self.get_logger().info(
                f"teleoperation by '{self._takeover.device}': {self._mode} {self._takeover.reason(time.monotonic())}".rstrip()
            )
            self._publish_status()

    def _on_action(self, message: JointTrajectory) -> None:
        action = from_trajectory(message, self._spec.command_mode)
        if self.trace is not None:
            self.trace("safety", action.stamp)
        if not self.active or self._takeover.claimed:
            return
        # In lock-step the way back depends on the observation that the action answers, not on which of them comes first.
        if not (self._stage.reads or (self._lockstep and self._takeover.mode == "hand_back")):
            self._send(None, action)
        elif self._observation is None or not 0.0 <= self._observation.stamp - action.stamp <= _LONGEST_ANSWER:
            self._pending = action  # overtook its observation, which is on its way
        elif self._lockstep or self._age() <= self._stale_after:
            if action.stamp < self._replaced or action.stamp <= self._answered:  # the safe action has answered a newer observation
                self._acted = self._now()
            else:
                self._send(self._observation, action)

    def _send(self, observation: Observation | None, action: JointCommand) -> None:
        """Sends an action of the policy."""
        self._pending = None
        if self._takeover.mode == "hand_back":
            ramped = self._takeover.hand_back(action)
            self._tell_mode()
            if ramped is None:
                return
            action = ramped
        self._filter(observation, action)

    def _filter(self, observation: Observation | None, action: JointCommand | None, reason: str = "no action comes") -> None:
        """Sends what the filter makes of an action, or the safe one if there is none for that reason."""
        began = time.perf_counter()
        try:
            if action is not None:
                self._acted = self._now()
                command, report = self._stage.apply(observation, action)
                self._rejected += bool(report.instead)
            else:
                assert observation is not None
                self._replaced = observation.stamp
                command, report = self._stage.safe(observation, observation.stamp, reason)
        except NoSafeAction as problem:
            self._halt(str(problem))
            return
        self._compute_time = time.perf_counter() - began
        self._publish(command, report)

    def _bridge(self) -> None:
        """Sends the safe action in real time: for the last state for a while after observations have ceased, or while no action comes."""
        if not self.active or self._observation is None:
            return
        age, patience = self._age(), self._stale_after
        if age > patience:
            self._extrapolate(self._observation.stamp, age)
        elif self._acted is not None and not self._is_acting() and self._observation.stamp != self._replaced:
            self._pending = None
            self._filter(self._observation, None)

    def _extrapolate(self, stamp: float, age: float) -> None:
        if self._halted is not None:
            return
        command = self._stage.fallback(stamp) if self._acted is not None else None  # the robot rests until somebody has acted
        if command is None or age > self._stale_after + self._bridged:
            self._halt("no observation comes")
            return
        values = dict(self._report.values)
        if self._recovery is None:
            values["weight"] = 1.0
        elif not self._report.fault:
            values["mode"] = "recovery"
        self._publish(command, replace(self._report, intervened=True, values=values, instead="no observation comes"))

    def _age(self) -> float:
        """Returns how old the last observation is, s."""
        return self._now() - self._seen

    def _now(self) -> float:
        """Returns the time in s by which observations age: simulated time, which may be slow or stand still, or one that never jumps."""
        return self.get_clock().now().nanoseconds * 1e-9 if self.value("use_sim_time") else time.monotonic()

    def _publish(self, command: JointCommand, report: SafetyReport) -> None:
        self._halted, self._report = None, report
        self._interventions += report.intervened
        self._takeover.sent(command)
        self._publisher.publish(to_trajectory(command, self._spec.command_mode))
        self._tell_who_acts(report)

    def _tell_who_acts(self, report: SafetyReport) -> None:
        """Publishes at once that another policy acts."""
        acting = str(report.values.get("mode", ""))
        if acting != self._acting:
            self._acting = acting
            self.get_logger().info(f"mode {acting}: {report.fault or report.warning or report.instead or 'inside the region'}")
            self._publish_status()

    def _halt(self, reason: str) -> None:
        """Sends nothing: the guard holds the robot and then brings it to rest."""
        if self._halted is None:
            self.get_logger().error(f"sends no command: {reason}")
        self._halted = reason

    def _publish_status(self) -> None:
        level, message = self._judgement()
        if self._takeover is not None and (reason := self._takeover.reason(time.monotonic())):
            message = f"teleoperation: {reason}" if level == OK else f"{message}; teleoperation: {reason}"
            level = max(level, WARN)
        status = DiagnosticStatus(name=self.value("filter"), level=level, message=message)
        values = {"interventions": self._interventions, "rejected": self._rejected, "compute_ms": f"{1e3 * self._compute_time:.3f}"}
        if (takeover := self._takeover) is not None:
            values["intervention"] = str(takeover.mode != "policy").lower()
            values |= {"control": takeover.mode, "device": takeover.device, "teleop_rejected": takeover.rejected}
        values |= self._report.values
        status.values = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        self._status_publisher.publish(status)


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [SafetyNode()])

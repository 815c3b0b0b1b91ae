"""The node that acts: answers every observation with the command a policy bundle gives for it."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from geometry_msgs.msg import Twist
from std_msgs.msg import String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.nodes.assembler import ObservationAssembler
from ros_rl.nodes.base import StackNode, run
from ros_rl.nodes.messages import COMMAND_QOS, LATCHED_QOS, STREAM_QOS, to_trajectory
from ros_rl.nodes.parameters import POLICY_NODE
from ros_rl.policies.actors import load_policy
from ros_rl.policies.async_runner import AsyncRunner
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.interface import ClosingPolicy, ReportingPolicy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot


class PolicyNode(StackNode):
    """Plays a policy bundle against the observation topics."""

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("policy_node", POLICY_NODE, **options)
        self.runner: PolicyRunner | AsyncRunner | None = None
        self._digest: str | None = None  # of the safe prior that the loaded policy was trained with
        self._assembler: ObservationAssembler | None = None
        self._told: str | None = None
        self._twist: tuple[float, np.ndarray] | None = None

    def configure(self) -> None:
        """Loads the bundle and subscribes to what it reads."""
        self._spec = load_robot(self.value("robot"), self.value("control_rate"))
        self._default_command = np.array(self.value("command"))
        self._told = self.value("instruction") or None
        self._publisher = self.create_publisher(JointTrajectory, "policy/action", STREAM_QOS)
        self.create_subscription(Twist, "cmd_vel", self._on_twist, COMMAND_QOS)
        self.create_subscription(String, "task/instruction", self._on_instruction, LATCHED_QOS)
        self.create_service(Trigger, "policy/reload", self._on_reload)
        self._load()

    def activate(self) -> None:
        """Starts a new episode with the next observation."""
        assert self.runner is not None
        self.runner.restart()

    def release(self) -> None:
        """Drops the bundle."""
        if self.runner is not None:
            self.runner.close()
        self.runner = self._assembler = None

    def status(self) -> tuple[bytes, str, Mapping[str, object]]:
        """Adds what the policy reports of its last action."""
        level, message, values = super().status()
        policy = self.runner.policy if self.runner is not None else None
        reported = policy.report() if isinstance(policy, ReportingPolicy) else {}
        waited = self.runner.report() if isinstance(self.runner, AsyncRunner) else {}
        return level, message, {**values, **reported, **waited}

    def _load(self) -> None:
        """Loads the bundle that the parameters name; the old one stays if that fails."""
        if not self.value("policy"):
            raise UserError("policy_node: the parameter 'policy' is empty; name a policy bundle")
        if self.value("asynchronous") and self.value("lockstep"):
            raise UserError("policy_node: asynchronous and lockstep exclude each other: in lock-step the robot waits for every answer")
        if self.runner is not None and isinstance(self.runner.policy, ClosingPolicy):
            self.runner.close()  # a policy server has one robot at a time; the old policy connects anew if the new one is refused
        bundle = load_bundle(self.value("policy"))
        digest = bundle.parameters.get("prior", {}).get("digest")
        if self.runner is not None and digest not in (None, self._digest):
            raise UserError(
                f"policy/reload: bundle '{bundle.name}' was trained with the safe prior {digest}, the policy that runs with "
                f"{self._digest or 'none'}; start the graph anew, which checks the safety node's filter against it"
            )
        policy = load_policy(bundle, self._spec)
        needs = [key.name for key in policy.spec.observation]
        cameras = [self._spec.camera(name) for name in policy.spec.cameras]
        if self._assembler is not None:
            self._assembler.close()
        if self.runner is not None:
            self.runner.close()
        runner = AsyncRunner if self.value("asynchronous") else PolicyRunner
        self.runner, self._digest = runner(policy, self.value("seed")), digest
        self._assembler = ObservationAssembler(self, self._spec, needs, cameras, self._on_observation, self.value("lockstep"))

    def _on_observation(self, observation: Observation) -> None:
        if self.trace is not None:
            self.trace("policy", observation.stamp)
        if not self.active or self.runner is None:
            return
        if self.runner.policy.spec.reads_instruction and self._told is None:
            self.say("policy", "waits for task/instruction")
            return
        command = self.runner.command(observation.told(self._target_velocity(), self._told or ""))
        if command is None:
            self.say("policy", "has no answer of the policy yet, or none in time")
            return
        self.say("policy", None)
        self._publisher.publish(to_trajectory(command, self._spec.command_mode))

    def _target_velocity(self) -> np.ndarray:
        """Returns the newest cmd_vel; zero once it is too old, the parameter's value before the first."""
        if self._twist is None:
            return self._default_command
        received, command = self._twist
        return command if time.monotonic() - received <= self.value("command_timeout") else np.zeros(3)

    def _on_twist(self, message: Twist) -> None:
        command = np.array([message.linear.x, message.linear.y, message.angular.z])
        if not np.isfinite(command).all():
            self.say("cmd_vel", f"rejected, it is not finite: {command.tolist()}")
            return
        self.say("cmd_vel", None)
        self._twist = (time.monotonic(), command)

    def _on_instruction(self, message: String) -> None:
        self._told = message.data

    def _on_reload(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._load()
        response.success, response.message = True, f"loaded {self.value('policy')}"
        return response


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [PolicyNode()])

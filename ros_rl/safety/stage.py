"""Where a safety filter sits on the data path: a command in, a safe command out, mapped by joint name."""

from dataclasses import replace

import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.spec import RobotSpec
from ros_rl.safety.interface import SAFE, SafetyFilter, SafetyReport, UrgentFilter


class SafetyStage:
    """Runs a filter on every command; the same in a ROS node and in a training loop."""

    def __init__(self, spec: RobotSpec, safety_filter: SafetyFilter, episodes: bool = True):
        """
        Args:
            spec: the robot, whose joint order the filter works in.
            safety_filter: the filter.
            episodes: whether observations whose time jumps back begin an episode, as in a simulation that was reset. A robot goes
                on where it is when its clock is set back.
        """
        self._spec = spec
        self._filter = safety_filter
        self._episodes = episodes
        self._seen = -np.inf  # stamp of the last observation; an action may answer an older one

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of an observation that the filter looks at."""
        return self._filter.reads

    def reset(self) -> None:
        """Forgets the episode so far."""
        self._filter.reset()
        self._seen = -np.inf

    def urgent(self, observation: Observation, acting: bool = True) -> bool:
        """Returns whether the filter's answer to an observation is known already, whatever the policy proposes.

        Called with every observation from some moment on, or with none.

        Args:
            observation: the state.
            acting: whether the policy still acts, so that an action would come.
        """
        if not isinstance(self._filter, UrgentFilter):
            return False
        self._follow(observation)
        return self._filter.urgent(observation, acting)

    def apply(self, observation: Observation | None, command: JointCommand) -> tuple[JointCommand, SafetyReport]:
        """Returns the safe command, in the robot's joint order, and what the filter did.

        A command that is not one finite value for each joint is rejected whole. A filter that reads the state gives the safe one
        instead; without such a filter it goes on unchanged, for the guard to reject it and say why.

        Raises:
            NoSafeAction: there is no safe command; none must be sent.
        """
        try:
            proposed = command.in_order_of(self._spec)
        except UserError as problem:
            if observation is not None and self.reads:
                return self.safe(observation, command.stamp, str(problem))
            return command, SafetyReport()
        self._follow(observation)
        action, report = self._filter.filter(observation, proposed)
        return JointCommand(self._spec.joint_names, action, command.stamp, report.source or command.source), report

    def safe(self, observation: Observation, stamp: float, reason: str) -> tuple[JointCommand, SafetyReport]:
        """Returns the safe command for a state, instead of one that a policy proposes, for a filter that reads states.

        Args:
            observation: the state.
            stamp: of the command, s.
            reason: why no proposed one is taken, for the report.

        Raises:
            NoSafeAction: there is no safe command; none must be sent.
        """
        self._follow(observation)
        action, report = self._filter.filter(observation, None)
        return JointCommand(self._spec.joint_names, action, stamp, report.source or SAFE), replace(report, instead=reason)

    def _follow(self, observation: Observation | None) -> None:
        if observation is None:
            return
        if self._episodes and observation.stamp < self._seen:
            self._filter.reset()
        self._seen = observation.stamp

    def fallback(self, stamp: float) -> JointCommand | None:
        """Returns the safe command for the state last seen, or None; `stamp` (s) is that of the state."""
        action = self._filter.fallback()
        return None if action is None else JointCommand(self._spec.joint_names, action, stamp, SAFE)

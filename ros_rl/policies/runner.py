"""Plays the chunks of a policy against a stream of observations; the same in a ROS node and in a training loop."""

from collections import deque
from statistics import median

import numpy as np

from ros_rl.hardware.interface import ActionChunk, JointCommand, Observation
from ros_rl.policies.interface import ClosingPolicy, Policy

_PERIODS = 5  # between observations, the median of which is the control period: stamps jitter, and an observation may be lost


class PolicyRunner:
    """Answers every observation with the command that is due at its stamp.

    The policy is asked when its chunk is used up; in between, rows are held for the chunk's `dt`. A row begins with the observation
    that is nearest to its time, so that a policy is asked as often as its rate says where stamps jitter. Time that jumps back or
    an instruction that changes starts a new episode: the old chunk and the policy's memory are dropped.
    """

    def __init__(self, policy: Policy, seed: int = 0):
        """Takes a policy that is ready to act.

        Args:
            policy: what to ask.
            seed: of the first episode; episode k gets seed + k.
        """
        self.policy = policy
        self.episode = -1
        self._seed = seed
        self._instruction: str | None = None
        self._chunk: ActionChunk | None = None
        self._answer: JointCommand | None = None
        self._position = np.empty(0)
        self._periods: deque[float] = deque(maxlen=_PERIODS)

    def restart(self) -> None:
        """Makes the next observation the first of a new episode."""
        self._instruction = None
        self._answer = None

    def close(self) -> None:
        """Has the policy give back what it holds outside of this process, until it is asked again."""
        if isinstance(self.policy, ClosingPolicy):
            self.policy.close()

    def command(self, observation: Observation) -> JointCommand:
        """Returns the command for `observation`; the same observation again gets the same answer, unasked.

        Raises:
            UserError: the observation lacks what the policy reads.
        """
        if self._is_again(observation):
            assert self._answer is not None
            return self._answer
        if self._answer is None or observation.stamp <= self._answer.stamp or observation.instruction != self._instruction:
            self.episode += 1
            self._instruction = observation.instruction
            self._chunk = None
            self.policy.reset(self._seed + self.episode, observation.instruction)
        self._position = observation.joint_position
        row = self._row(observation)
        if row is None:
            self._chunk = self.policy.act(observation)
            row = self._chunk.values[0]
        assert self._chunk is not None
        self._answer = JointCommand(self._chunk.joint_names, row, observation.stamp, self._chunk.source)
        return self._answer

    def _is_again(self, observation: Observation) -> bool:
        """Whether this is the observation answered last; a reset at time 0 gives another one with the same stamp."""
        if self._answer is None or observation.stamp != self._answer.stamp or observation.instruction != self._instruction:
            return False
        return np.array_equal(observation.joint_position, self._position)

    def _row(self, observation: Observation) -> np.ndarray | None:
        """Returns the row of the current chunk that is due, or None when the chunk is used up."""
        if self._chunk is None or self._answer is None:
            return None
        self._periods.append(observation.stamp - self._answer.stamp)
        early = min(0.5 * median(self._periods) / self._chunk.dt, 0.5)  # half a control period, in rows: the next one is further off
        index = int((observation.stamp - self._chunk.stamp) / self._chunk.dt + early)
        return self._chunk.values[index] if index < len(self._chunk) else None

"""Plays a policy that takes longer to answer than a control period: it is asked ahead, in a thread, and chunks overlap."""

import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ros_rl.hardware.interface import ActionChunk, JointCommand, Observation
from ros_rl.policies.interface import Policy, PolicyUnavailable

_REMEMBERED = 10  # answers whose delays tell when to ask next


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question on its way: of which episode, at which stamp (s), and where the answer will be."""

    episode: int
    stamp: float
    answer: "Future[ActionChunk]"


class AsyncRunner:
    """Answers every observation at once with the row that is due, like `PolicyRunner`, while the policy thinks of the next chunk.

    A chunk's rows belong to times. When it comes, those whose time has passed are left out, and over the next `blend` s the command
    moves from the old chunk to the new one. The policy is asked again when what is left of its chunk lasts no longer than its slowest
    recent answer (the first, which warms up, does not count). When a chunk is used up, its last row is held for `hold` s; after that,
    and before the first answer, there is no command, so that the guard holds the robot.

    Attributes:
        episode: number of the present episode.
        counts: answers, `late` ones of an old episode that were thrown away, `starved` ticks without a row, and failed questions.
    """

    def __init__(self, policy: Policy, seed: int = 0, blend: float = 0.1, hold: float = 0.5, margin: float = 0.02):
        """Takes a policy that is ready to act; from now on only this runner's thread may use it.

        Args:
            policy: what to ask.
            seed: of the first episode; episode k gets seed + k.
            blend: s over which a new chunk takes over.
            hold: s for which the last row is held.
            margin: s that the policy is asked earlier than its delay tells.
        """
        self.policy = policy
        self.episode = -1
        self.counts = {"answers": 0, "late": 0, "starved": 0, "failed": 0}
        self._seed, self._blend, self._hold, self._margin = seed, blend, hold, margin
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self._reset_for = -1  # the episode that the policy was told of
        self._delays: deque[float] = deque(maxlen=_REMEMBERED)
        self.restart()

    def restart(self) -> None:
        """Makes the next observation the first of a new episode."""
        self._instruction: str | None = None
        self._seen: float | None = None
        self._asked: _Asked | None = None
        self._chunk: ActionChunk | None = None
        self._before: ActionChunk | None = None
        self._taken_over = -math.inf

    def close(self) -> None:
        """Ends the thread, when the question on its way is answered."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def report(self) -> dict[str, Any]:
        """Returns the counts and the slowest recent answer, s."""
        return {**{f"async_{name}": value for name, value in self.counts.items()}, "async_delay": self._delay()}

    def command(self, observation: Observation) -> JointCommand | None:
        """Returns the command for `observation`, or None where there is none; never waits for the policy.

        Raises:
            UserError: the policy refused an observation or the instruction.
        """
        if self._seen is None or observation.stamp < self._seen or observation.instruction != self._instruction:
            self.restart()
            self.episode += 1
            self._instruction = observation.instruction
        self._seen = observation.stamp
        self._collect(observation.stamp)
        if self._asked is None and self._left(observation.stamp) <= self._delay() + self._margin:
            self._ask(observation)
        row = self._row(observation.stamp)
        if row is None:
            return None
        assert self._chunk is not None
        return JointCommand(self._chunk.joint_names, row, observation.stamp, self._chunk.source)

    def _ask(self, observation: Observation) -> None:
        episode = self.episode

        def think() -> ActionChunk:
            if self._reset_for != episode:
                self.policy.reset(self._seed + episode, observation.instruction)
                self._reset_for = episode
            return self.policy.act(observation)

        self._asked = _Asked(episode, observation.stamp, self._thread.submit(think))

    def _collect(self, now: float) -> None:
        """Takes an answer that has come."""
        asked = self._asked
        if asked is None or not asked.answer.done():
            return
        self._asked = None
        try:
            chunk = asked.answer.result()
        except PolicyUnavailable:
            self.counts["failed"] += 1
            return
        self.counts["answers"] += 1
        if asked.episode != self.episode:
            self.counts["late"] += 1
            return
        if self.counts["answers"] > 1:
            self._delays.append(now - asked.stamp)
        self._before, self._chunk, self._taken_over = self._chunk, chunk, now

    def _delay(self) -> float:
        return max(self._delays, default=0.0)

    def _left(self, now: float) -> float:
        """Returns for how many s the present chunk lasts."""
        return -math.inf if self._chunk is None else self._chunk.stamp + len(self._chunk) * self._chunk.dt - now

    def _row(self, now: float) -> np.ndarray | None:
        if self._chunk is None:
            self.counts["starved"] += 1
            return None
        left = self._left(now)
        if left <= 1e-9:
            self.counts["starved"] += 1
            if -left > self._hold:
                return None
        row = at(self._chunk, now)
        share = (now - self._taken_over) / self._blend if self._blend > 0 else 1.0
        if self._before is not None and share < 1.0:
            return (1.0 - share) * at(self._before, now) + share * row
        return row


def at(chunk: ActionChunk, now: float) -> np.ndarray:
    """Returns the row of a chunk that is due at a time, s; the first before the chunk, the last after it."""
    index = int((now - chunk.stamp) / chunk.dt + 0.1)
    row: np.ndarray = chunk.values[min(max(index, 0), len(chunk) - 1)]
    return row

"""Plays a policy that takes longer to answer than a control period: it is asked ahead, in a thread, and chunks overlap."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ros_rl.hardware.interface import ActionChunk, JointCommand, Observation
from ros_rl.policies.interface import ClosingPolicy, Policy, PolicyUnavailable

_REMEMBERED = 10  # answers whose delays tell when to ask next


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question on its way: at which stamp (s) it was asked, and where the answer will be."""

    stamp: float
    answer: "Future[ActionChunk]"


@dataclass(frozen=True, eq=False)
class _Taken:
    """A chunk that has taken over at a time, s, from a command that was `offset` (n,) away from its row."""

    chunk: ActionChunk
    since: float
    offset: np.ndarray

    def left(self, now: float) -> float:
        """Returns for how many s the chunk lasts."""
        return self.chunk.stamp + len(self.chunk) * self.chunk.dt - now

    def command(self, now: float, blend: float) -> np.ndarray:
        """Returns the command that is due: the chunk's row, and what is left of the offset, which fades in `blend` s."""
        share = (now - self.since) / blend if blend > 0 else 1.0
        return at(self.chunk, now) + max(0.0, 1.0 - share) * self.offset


class AsyncRunner:
    """Answers every observation at once with the row that is due, like `PolicyRunner`, while the policy thinks of the next chunk.

    A chunk's rows belong to times. When it comes, those whose time has passed are left out, and the command goes over to it in `blend`
    s from what is commanded just then, also in the middle of another blend; where nothing is, it begins at the measured position. The
    policy is asked again when what is left of its chunk lasts no longer than its slowest recent answer (the first, which warms up, does
    not count). When a chunk is used up, its last row is held for `hold` s; after that, and before the first answer, there is no command,
    so that the guard holds the robot.

    Attributes:
        episode: number of the present episode.
        counts: answers, `late` ones that were thrown away because their episode was over, `starved` ticks without a row, and failed
            questions.
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
        self._thread: ThreadPoolExecutor | None = None
        self._reset_for = -1  # the episode that the policy was told of
        self._delays: deque[float] = deque(maxlen=_REMEMBERED)
        self._asked: _Asked | None = None
        self.restart()

    def restart(self) -> None:
        """Makes the next observation the first of a new episode; a question that is on its way is withdrawn, or its answer counted late."""
        if self._asked is not None and not self._asked.answer.cancel():
            self.counts["late"] += 1
        self._asked = None
        self._instruction: str | None = None
        self._seen: float | None = None
        self._taken: _Taken | None = None

    def close(self) -> None:
        """Ends the thread, and has the policy give back what it holds outside of this process.

        A policy that cannot be interrupted is waited for. The next observation is the first of a new episode, and takes all of it anew.
        """
        self.restart()
        if isinstance(self.policy, ClosingPolicy):
            self.policy.close()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        if isinstance(self.policy, ClosingPolicy):
            self.policy.close()  # the thread may have been about to connect

    def report(self) -> dict[str, Any]:
        """Returns the counts and the slowest recent answer, s."""
        return {**{f"async_{name}": value for name, value in self.counts.items()}, "async_delay": self._delay()}

    def command(self, observation: Observation) -> JointCommand | None:
        """Returns the command for `observation`, or None where there is none; never waits for the policy.

        Raises:
            UserError: the policy refused an observation or the instruction.
        """
        now = observation.stamp
        if self._seen is None or now < self._seen or observation.instruction != self._instruction:
            self.restart()
            self.episode += 1
            self._instruction = observation.instruction
        self._seen = now
        self._collect(observation)
        if self._asked is None and (self._taken is None or self._taken.left(now) <= self._delay() + self._margin):
            self._ask(observation)
        if self._taken is None or self._taken.left(now) <= 1e-9:
            self.counts["starved"] += 1
        row = self._row(now)
        if row is None:
            return None
        assert self._taken is not None
        return JointCommand(self._taken.chunk.joint_names, row, now, self._taken.chunk.source)

    def _ask(self, observation: Observation) -> None:
        episode = self.episode

        def think() -> ActionChunk:
            if self._reset_for != episode:
                self.policy.reset(self._seed + episode, observation.instruction)
                self._reset_for = episode
            return self.policy.act(observation)

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self._asked = _Asked(observation.stamp, self._thread.submit(think))

    def _collect(self, observation: Observation) -> None:
        """Takes an answer that has come."""
        asked, now = self._asked, observation.stamp
        if asked is None or not asked.answer.done():
            return
        self._asked = None
        try:
            chunk = asked.answer.result()
        except PolicyUnavailable:
            self.counts["failed"] += 1
            return
        self.counts["answers"] += 1
        if self.counts["answers"] > 1:
            self._delays.append(now - asked.stamp)
        before = self._row(now)
        if before is None and self.policy.spec.command_mode == "position":
            before = observation.joint_position[: chunk.values.shape[1]]
        row = at(chunk, now)
        self._taken = _Taken(chunk, now, np.zeros_like(row) if before is None else before - row)

    def _delay(self) -> float:
        return max(self._delays, default=0.0)

    def _row(self, now: float) -> np.ndarray | None:
        """Returns the command that is due, None where there is none or it has been held for too long."""
        if self._taken is None or -self._taken.left(now) > self._hold:
            return None
        return self._taken.command(now, self._blend)


def at(chunk: ActionChunk, now: float) -> np.ndarray:
    """Returns the row of a chunk that is due at a time, s; the first before the chunk, the last after it."""
    index = int((now - chunk.stamp) / chunk.dt + 0.1)
    row: np.ndarray = chunk.values[min(max(index, 0), len(chunk) - 1)]
    return row

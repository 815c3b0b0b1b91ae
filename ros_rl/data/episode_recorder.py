"""Records episodes one after the other: a log while one runs, an episode of the dataset when it has ended.

Making the episode takes a while and happens in a thread of its own, so that the next one can be recorded meanwhile.
"""

import queue
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ros_rl.data.convert import Cadence, Recording, begin_log, commit_log, end_log
from ros_rl.data.dataset import DatasetWriter
from ros_rl.data.features import DatasetSpec
from ros_rl.data.integrity import open_logs
from ros_rl.data.log import EpisodeLog
from ros_rl.errors import UserError


@dataclass(frozen=True)
class Message:
    """One message: topic, type, the bytes of its encoding, when it came (ns) and when it was measured (ns), on the robot's clock."""

    topic: str
    kind: str
    data: bytes
    time: int
    stamp: int


class Preroll:
    """The messages of the last moments: word that an episode has begun comes after its first observation."""

    def __init__(self, span: int, size: int):
        """Keeps messages for `span` ns of the robot's time, and no more than `size` bytes of them."""
        self._span, self._size = span, size
        self._messages: deque[Message] = deque()
        self._held = 0

    def add(self, message: Message) -> None:
        """Keeps one more."""
        self._messages.append(message)
        self._held += len(message.data)
        while self._messages[0].time < message.time - self._span or self._held > self._size:
            self._held -= len(self._messages.popleft().data)
            if not self._messages:
                return

    def rewind(self, stamp: int) -> None:
        """Forgets the old time line: time has jumped back to `stamp` (ns). Messages of the new one may have overtaken that news."""
        self._messages = deque(replace(message, time=stamp) for message in self._messages if message.stamp <= stamp)
        self._held = sum(len(message.data) for message in self._messages)

    def clear(self) -> None:
        """Forgets all."""
        self._messages.clear()
        self._held = 0

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)


class EpisodeRecorder:
    """Records into one dataset.

    Attributes:
        left: logs of episodes that an earlier recorder did not commit; `ros-rl data repair` makes episodes of them.
        discarded: how many have been discarded.
        problem: what went wrong with recording the last episode; empty: nothing.
    """

    def __init__(self, root: Path, spec: DatasetSpec, setup: Mapping[str, Any] | None = None):
        """Opens the dataset, or makes a new one.

        Args:
            root: its folder.
            spec: what is recorded.
            setup: how, see `Recording.report`.

        Raises:
            UserError, OSError: see `DatasetWriter`.
        """
        self.root, self.spec, self._setup = root, spec, setup or {}
        self.left = open_logs(root)
        self._ended = self.discarded = 0
        self._writer = DatasetWriter(root, spec)
        self._log: EpisodeLog | None = None
        self._messages = 0
        self._newest = 0
        self._dropped: Counter[str] = Counter()
        self.problem = ""
        self._uncommitted: dict[str, str] = {}  # names of logs, and why
        self._committed: list[int] = []
        self._cadences: list[Cadence] = []
        self._remarks: list[str] = []
        self._waiting: queue.Queue[Path | None] = queue.Queue()
        self._worker = threading.Thread(target=self._commit_all, name="commit", daemon=True)
        self._worker.start()

    @property
    def kept(self) -> int:
        """How many episodes are committed, or are about to be."""
        return self._ended - len(self._uncommitted)

    @property
    def recording(self) -> bool:
        """Whether an episode is being recorded."""
        return self._log is not None

    @property
    def empty(self) -> bool:
        """Whether nothing has come since `start`."""
        return not self._messages

    def start(self, instruction: str, setup: Mapping[str, Any] | None = None) -> None:
        """Begins an episode.

        Args:
            instruction: what is to be done.
            setup: what is known of this episode beside what holds for all of them.

        Raises:
            UserError: one is being recorded.
            OSError: the disk is full or the like.
        """
        if self._log is not None:
            raise UserError("an episode is being recorded already; stop it first")
        self.problem, self._messages, self._newest = "", 0, 0
        self._dropped.clear()
        try:
            self._log = begin_log(self.root, self.spec, instruction, {**self._setup, **(setup or {})})
        except OSError as error:
            self.problem = f"recording did not start: {error}"
            raise

    def write(self, topic: str, kind: str, data: bytes, stamp: int) -> None:
        """Records a message, see `EpisodeLog.write`; nothing where no episode is recorded.

        A disk that is full ends the recording and is reported by `status`; what was recorded so far becomes an episode.
        """
        if self._log is None:
            return
        try:
            self._log.write(topic, kind, data, stamp)
            self._messages += 1
            self._newest = stamp
        except OSError as error:
            self.problem = f"recording stopped: {error}"
            self._end("")  # which may fail too, for the same reason

    def drop(self, source: str, count: int) -> None:
        """Takes note of messages of a source that were lost on their way to here."""
        if self._log is not None:
            self._dropped[source] += count

    def stop(self, outcome: str = "") -> None:
        """Ends the episode, which then becomes one of the dataset.

        Args:
            outcome: success, failure or timeout, where the log does not say; empty: it was cut off.

        Raises:
            UserError: none is being recorded.
        """
        if self._log is None:
            raise UserError("no episode is being recorded")
        if not self._messages:
            self.problem = "the episode is empty: nothing came from the robot"
        self._end(outcome)

    def discard(self) -> None:
        """Ends the episode and forgets it.

        Raises:
            UserError: none is being recorded.
        """
        if self._log is None:
            raise UserError("no episode is being recorded")
        self.forget()
        self.discarded += 1

    def forget(self) -> None:
        """Forgets what was recorded since `start`, which was no episode; nothing where none is being recorded."""
        if self._log is not None:
            log, self._log = self._log, None
            with suppress(OSError):
                log.close()
            log.path.unlink()

    def status(self) -> dict[str, Any]:
        """Returns what it does, what it has committed, how regularly the sources of the last episode came, and what went wrong.

        An episode that could not be committed stays in `uncommitted` and `problem`: its log waits for `ros-rl data repair`.
        """
        waiting, uncommitted = self._waiting.unfinished_tasks, dict(self._uncommitted)
        problem = "; ".join([*filter(None, [self.problem]), *(f"{name} is not committed: {why}" for name, why in uncommitted.items())])
        return {
            "state": "recording" if self._log is not None else "failed" if problem else "committing" if waiting else "idle",
            "messages": self._messages,
            "waiting": waiting,
            "episodes": self._writer.next_index,
            "kept": self.kept,
            "discarded": self.discarded,
            "committed": len(self._committed),
            "last": self._committed[-1] if self._committed else None,
            "dropped": dict(self._dropped),
            "cadence": [str(cadence) for cadence in self._cadences],
            "short": [cadence.source for cadence in self._cadences if cadence.short],
            "remarks": list(self._remarks),
            "uncommitted": list(uncommitted),
            "problem": problem,
        }

    def close(self) -> None:
        """Ends a running episode as one that was cut off, and waits until all are committed."""
        if self._log is not None:
            self._end("")
        self._waiting.put(None)
        self._worker.join()
        self._writer.close()

    def _end(self, outcome: str) -> None:
        log, self._log = self._log, None
        assert log is not None
        try:
            with log:
                if self._messages:
                    end_log(log, outcome, self._dropped, self._newest)
        except OSError as error:  # a log can do without its end and its index
            self.problem = self.problem or f"recording stopped: {error}"
        if not self._messages:
            log.path.unlink()
            return
        self._ended += 1
        self._waiting.put(log.path)

    def _commit_all(self) -> None:
        while (path := self._waiting.get()) is not None:
            try:
                recording = Recording.read(path)
                self._committed.append(commit_log(self._writer, recording))
                self._cadences, self._remarks = recording.cadences(), recording.remarks()
                path.unlink()
            except Exception as error:  # the log stays, for a repair
                self._uncommitted[path.name] = str(error)
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

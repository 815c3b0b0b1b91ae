"""Records episodes one after the other: a log while one runs, an episode of the dataset when it has ended.

Making the episode takes a while and happens in a thread of its own, so that the next one can be recorded meanwhile.
"""

import queue
import threading
from pathlib import Path
from typing import Any

from ros_rl.data.convert import Cadence, Recording, begin_log, commit_log
from ros_rl.data.dataset import DatasetWriter
from ros_rl.data.features import DatasetSpec
from ros_rl.data.integrity import open_logs
from ros_rl.data.log import EpisodeLog
from ros_rl.errors import UserError


class EpisodeRecorder:
    """Records into one dataset."""

    def __init__(self, root: Path, spec: DatasetSpec):
        """Opens the dataset, or makes a new one.

        Attributes:
            left: logs of episodes that an earlier recorder did not commit; `ros-rl data repair` makes episodes of them.

        Raises:
            UserError, OSError: see `DatasetWriter`.
        """
        self.root, self.spec = root, spec
        self.left = open_logs(root)
        self._writer = DatasetWriter(root, spec)
        self._log: EpisodeLog | None = None
        self._messages = 0
        self._problem = ""
        self._committed: list[int] = []
        self._cadences: list[Cadence] = []
        self._waiting: queue.Queue[tuple[Path, str] | None] = queue.Queue()
        self._worker = threading.Thread(target=self._commit_all, name="commit", daemon=True)
        self._worker.start()

    @property
    def recording(self) -> bool:
        """Whether an episode is being recorded."""
        return self._log is not None

    def start(self, instruction: str) -> None:
        """Begins an episode.

        Raises:
            UserError: one is being recorded.
            OSError: the disk is full or the like.
        """
        if self._log is not None:
            raise UserError("an episode is being recorded already; stop it first")
        self._problem, self._messages = "", 0
        self._log = begin_log(self.root, self.spec, instruction)

    def write(self, topic: str, kind: str, data: bytes, stamp: int) -> None:
        """Records a message, see `EpisodeLog.write`; nothing where no episode is recorded.

        A disk that is full ends the recording and is reported by `status`; what was recorded so far becomes an episode.
        """
        if self._log is None:
            return
        try:
            self._log.write(topic, kind, data, stamp)
            self._messages += 1
        except OSError as error:
            self._problem = f"recording stopped: {error}"
            self._end("")

    def stop(self, outcome: str = "") -> None:
        """Ends the episode, which then becomes one of the dataset.

        Args:
            outcome: success, failure or timeout, where the log does not say; empty: it was cut off.

        Raises:
            UserError: none is being recorded.
        """
        if self._log is None:
            raise UserError("no episode is being recorded")
        self._end(outcome)

    def discard(self) -> None:
        """Ends the episode and forgets it; nothing where none is being recorded."""
        if self._log is not None:
            log, self._log = self._log, None
            try:
                log.close()
            finally:
                log.path.unlink()

    def status(self) -> dict[str, Any]:
        """Returns what it does, what it has committed, how regularly the sources of the last episode came, and what went wrong."""
        waiting = self._waiting.unfinished_tasks
        return {
            "state": "recording" if self._log is not None else "failed" if self._problem else "committing" if waiting else "idle",
            "messages": self._messages,
            "waiting": waiting,
            "episodes": self._writer.next_index,
            "committed": len(self._committed),
            "last": self._committed[-1] if self._committed else None,
            "cadence": [str(cadence) for cadence in self._cadences],
            "short": [cadence.source for cadence in self._cadences if cadence.short],
            "problem": self._problem,
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
        if not self._messages:
            log.close()
            log.path.unlink()
            return
        try:
            log.close()
        except OSError as error:  # the index is missing then, which a log can do without
            self._problem = self._problem or f"recording stopped: {error}"
        self._waiting.put((log.path, outcome))

    def _commit_all(self) -> None:
        while (job := self._waiting.get()) is not None:
            path, outcome = job
            try:
                recording = Recording.read(path)
                self._committed.append(commit_log(self._writer, recording, outcome))
                self._cadences = recording.cadences()
                path.unlink()
            except Exception as error:  # the log stays, for a repair
                self._problem = f"{path.name} is not committed: {error}"
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

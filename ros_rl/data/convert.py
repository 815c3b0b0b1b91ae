"""Makes an episode of a dataset from its log: rows at the dataset's rate, each with the values nearest in time and their ages."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from ros_rl.data import decode
from ros_rl.data.dataset import DatasetWriter, Frames
from ros_rl.data.features import CAMERA_PREFIX, PROPOSERS, DatasetSpec
from ros_rl.data.layout import LOGS
from ros_rl.data.log import Entry, EpisodeLog, LogReader
from ros_rl.data.messages import encode
from ros_rl.errors import UserError
from ros_rl.hardware.interface import NANOSECONDS
from ros_rl.safety.interface import RECOVERY, SAFE

COMMANDS = {"action": "joint_command", "policy": "policy/action", "teleop": "teleop/action"}
_SHORTFALL = 0.95  # of the rate asked for; below it is reported
_SILENCE = 2 * NANOSECONDS  # of joint states or a camera: an episode does not go on across a longer one
_LATE = NANOSECONDS // 2  # after the last row and the time to the next: what is said later is not of the last row
_TERMINAL = ("success", "failure")
OUTCOMES = (*_TERMINAL, "timeout")
END_TOPIC = "recorder/end"
_BY_TOPIC = {"joint_states": "joint_states", **{topic: name for name, topic in COMMANDS.items()}}


def camera_topics(name: str) -> tuple[str, str]:
    """Returns the topics on which a log may hold a camera's images: as they are, and compressed."""
    return f"camera/{name}/image_raw", f"camera/{name}/image_raw/compressed"


def about(spec: DatasetSpec, instruction: str, setup: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Returns what a log must say for an episode to be made of it, and how it came about."""
    values = {"robot": spec.robot, "fps": spec.fps, "measured": spec.measured, "commanded": spec.commanded, "cameras": dict(spec.cameras)}
    return {"dataset": json.dumps(values), "instruction": instruction, "setup": json.dumps(dict(setup or {}), ensure_ascii=False)}


def spec_of(log: LogReader) -> DatasetSpec:
    """Reads back which dataset a log is for.

    Raises:
        UserError: it does not say.
    """
    try:
        values = json.loads(log.about["dataset"])
        cameras = tuple((name, (int(size[0]), int(size[1]))) for name, size in values["cameras"].items())
        return DatasetSpec(values["robot"], values["fps"], tuple(values["measured"]), tuple(values["commanded"]), cameras)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{log.path}: does not say which robot it is of ({error!r})") from None


def begin_log(root: Path, spec: DatasetSpec, instruction: str, setup: Mapping[str, Any] | None = None) -> EpisodeLog:
    """Begins the log of the next episode of the dataset in `root`; its name is the time of day."""
    name = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%f")
    return EpisodeLog(root / LOGS / f"{name}.mcap", about(spec, instruction, setup))


def end_log(log: EpisodeLog, outcome: str, dropped: Mapping[str, int], stamp: int) -> None:
    """Says at the end of a log how the episode ended, and how many messages of each source were lost on their way."""
    text = json.dumps({"outcome": outcome, "dropped": dict(dropped)})
    log.write(END_TOPIC, "std_msgs/String", encode("std_msgs/String", {"data": text}), stamp)


@dataclass(eq=False)
class Series:
    """What came on one topic: stamps in ns, and values. Of an image the value is which message of the log it is."""

    stamps: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, stamp: int, value: Any) -> None:
        """Appends one."""
        self.stamps.append(stamp)
        self.values.append(value)

    def nearest(self, times: np.ndarray) -> np.ndarray:
        """Returns which element is nearest to each time (ns), the older one of two; the newest of equal stamps."""
        ordered, backwards = np.unique(np.asarray(self.stamps)[::-1], return_index=True)
        after = np.minimum(np.searchsorted(ordered, times), len(ordered) - 1)
        before = np.maximum(after - 1, 0)
        place = np.where(np.abs(times - ordered[before]) <= np.abs(ordered[after] - times), before, after)
        return len(self.stamps) - 1 - backwards[place]

    def latest(self, times: np.ndarray, first: Any) -> list[Any]:
        """Returns the value that held at each time: the newest so far, `first` before any."""
        places = np.searchsorted(np.asarray(self.stamps, dtype=np.int64), times, side="right") - 1
        return [self.values[place] if place >= 0 else first for place in places]


@dataclass(frozen=True)
class Cadence:
    """How regularly a source came.

    Attributes:
        source: its name.
        count: number of its messages, those that say the same again left out.
        rate: how often they were measured, Hz, in the mean.
        largest_gap: longest time between two measurements, s.
        asked: the rate asked for, Hz; 0 if none.
        dropped: messages that were sent and lost on their way into the log.
    """

    source: str
    count: int
    rate: float
    largest_gap: float
    asked: float
    dropped: int = 0

    @property
    def short(self) -> bool:
        """Whether fewer came than were asked for."""
        return self.rate < _SHORTFALL * self.asked

    def __str__(self) -> str:
        asked = f" of {self.asked:g} Hz asked" if self.short else ""
        dropped = f", {self.dropped} dropped" if self.dropped else ""
        return f"{self.source}: {self.count} messages, {self.rate:.1f} Hz{asked}, largest gap {1e3 * self.largest_gap:.1f} ms{dropped}"


@dataclass(eq=False)
class Recording:
    """A log read into memory, but for its images.

    What is no usable message is left out: an odd sample must not cost an episode. `remarks` says so.
    """

    log: LogReader
    spec: DatasetSpec
    joint_states: Series = field(default_factory=Series)
    commands: dict[str, Series] = field(default_factory=lambda: {name: Series() for name in COMMANDS})
    cameras: dict[str, Series] = field(default_factory=dict)
    engaged: Series = field(default_factory=Series)
    weight: Series = field(default_factory=Series)
    reward: Series = field(default_factory=Series)
    instruction: str = ""
    outcome: str = ""
    judged: int | None = None  # when the log said the outcome, ns
    left_out: Counter[str] = field(default_factory=Counter)  # messages, by topic and reason
    setup: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Reads a log, also one that was cut off.

        Raises:
            UserError: it is no log of an episode.
        """
        log = LogReader(path)
        recording = cls(log, spec_of(log), instruction=log.about.get("instruction", ""), setup=json.loads(log.about.get("setup", "{}")))
        recording.cameras = {name: Series() for name, _ in recording.spec.cameras}
        cameras = {topic: series for name, series in recording.cameras.items() for topic in camera_topics(name)}
        for number, entry in enumerate(log.entries()):
            try:
                if entry.topic in cameras:
                    cameras[entry.topic].add(entry.stamp, number)
                elif entry.topic in _BY_TOPIC:
                    recording._add_stamped(_BY_TOPIC[entry.topic], entry)
                else:
                    recording._add_other(entry.topic, entry.time, entry.message)
            except UserError as error:
                recording.left_out[f"{entry.topic}: {error}"] += 1
        return recording

    def _add_stamped(self, name: str, entry: Entry) -> None:
        if name == "joint_states":
            self.joint_states.add(entry.stamp, decode.joint_state(entry.message, self.spec.measured))
        else:
            self.commands[name].add(entry.stamp, decode.command(entry.message, self.spec.commanded))

    def _add_other(self, topic: str, time: int, message: Any) -> None:
        if topic == "teleop/engaged":
            self.engaged.add(time, decode.said(message).get("state") in ("engaged", "holding"))
        elif topic == "safety/status":
            weights = [entry.value for entry in message.values if entry.key == "weight"]
            self.weight.add(time, decode.number(weights[0]) if weights else 0.0)
        elif topic == "task/reward":
            self.reward.add(time, decode.number(message.data))
        elif topic == "task/instruction" and message.data:
            self.instruction = message.data
        elif topic == "task/state":
            self._judge(decode.said(message).get("state"), time)
        elif topic == END_TOPIC:
            said = decode.said(message)
            self._judge(said.get("outcome"), time)
            self.dropped = said.get("dropped", {})

    def _judge(self, outcome: Any, time: int) -> None:
        """Takes note of how the episode ended: the last word counts, but a time limit does not undo a success or failure."""
        if outcome in OUTCOMES and outcome != self.outcome and not (outcome == "timeout" and self.outcome in _TERMINAL):
            self.outcome, self.judged = outcome, time

    def sources(self) -> dict[str, Series]:
        """Returns what carries stamps, by the names of `DatasetSpec.sources`."""
        return {"joint_states": self.joint_states, **self.commands, **self.cameras}

    def cadences(self) -> list[Cadence]:
        """Returns how regularly each source came; cameras were asked for a frame a row."""
        found = []
        for name, series in self.sources().items():
            if len(series.stamps) < 2 and name in PROPOSERS:
                continue
            # In lock-step what nobody answered is said again; it is one measurement.
            stamps = np.unique(np.asarray(series.stamps, dtype=np.int64)) / NANOSECONDS
            span = float(np.ptp(stamps)) if len(stamps) else 0.0
            rate = (len(stamps) - 1) / span if span else 0.0
            gap = float(np.diff(stamps).max()) if len(stamps) > 1 else 0.0
            asked = self.spec.fps if name not in PROPOSERS else 0.0
            found.append(Cadence(name, len(stamps), rate, gap, asked, self.dropped.get(name, 0)))
        return found

    def report(self) -> dict[str, Any]:
        """Returns how the episode came about, as its row of `meta/episodes` keeps it.

        What was known of `task`, `seed`, `control_rate` (Hz), `command_mode`, `lockstep` and `simulated`; and of each of the
        `sources`: `count`, `rate` (Hz), `largest_gap` (s), `asked` (Hz) and `dropped`; and the `remarks`.
        """
        sources = {cadence.source: _figures(cadence) for cadence in self.cadences()}
        return {**self.setup, "sources": sources, "remarks": self.remarks()}

    def times(self) -> np.ndarray:
        """Returns when the rows are, ns: from when all sources that every row needs have come, until one of them has ended.

        Raises:
            UserError: they never came together; the message names those that are missing.
        """
        needed = {name: series.stamps for name, series in self.sources().items() if name not in PROPOSERS}
        if missing := [name for name, stamps in needed.items() if not stamps]:
            reasons = "".join(f"; {remark}" for remark in self._remarks_of_left_out())
            raise UserError(f"{self.log.path}: makes no episode, nothing came from {', '.join(missing)}{reasons}")
        start, end = self._longest_stretch(max(map(min, needed.values())), min(map(max, needed.values())))
        count = (end - start) * self.spec.fps // NANOSECONDS + 1
        if count < 1:
            raise UserError(f"{self.log.path}: makes no episode, its sources ended before all of them had begun")
        return start + np.round(np.arange(count) * (NANOSECONDS / self.spec.fps)).astype(np.int64)

    def _longest_stretch(self, start: int, end: int) -> tuple[int, int]:
        """Returns the longest time in which joint states and cameras were never silent for long."""
        stretches = []
        for _, begin, again in sorted(self._silences(), key=lambda silence: silence[1]):
            stretches.append((start, min(begin, end)))
            start = max(start, again)
        return max([*stretches, (start, end)], key=lambda stretch: stretch[1] - stretch[0])

    def _silences(self) -> list[tuple[str, int, int]]:
        """Returns where joint states or a camera did not come for long: the source, its last stamp before and the first after, ns."""
        found = []
        for name in ("joint_states", *self.cameras):
            stamps = np.unique(np.asarray(self.sources()[name].stamps, dtype=np.int64))
            found += [(name, int(stamps[i]), int(stamps[i + 1])) for i in np.flatnonzero(np.diff(stamps) > _SILENCE)]
        return found

    def ended(self, times: np.ndarray) -> str:
        """Returns how the episode ended; empty where nobody said it, or it was said of a time of which there are no rows."""
        latest = times[-1] + _LATE + NANOSECONDS // self.spec.fps
        return self.outcome if self.judged is None or times[0] <= self.judged <= latest else ""

    def remarks(self) -> list[str]:
        """Says what of the log is not in the episode, or is not as it was said."""
        remarks = self._remarks_of_left_out()
        remarks += [
            f"{name} was silent for {(again - begin) / NANOSECONDS:.1f} s; the longest stretch without is kept"
            for name, begin, again in self._silences()
        ]
        try:
            times = self.times()
        except UserError as error:
            return [str(error)]
        if self.judged is not None and not self.ended(times):
            late = (self.judged - times[-1]) / NANOSECONDS
            remarks.append(f"ends {late:.1f} s before the word '{self.outcome}', so it is stored as truncated")
        return remarks

    def _remarks_of_left_out(self) -> list[str]:
        return [f"{count} messages left out of {reason}" for reason, count in self.left_out.items()]

    def places(self, name: str, times: np.ndarray) -> np.ndarray:
        """Returns which message of a source is nearest to each time (ns). Of a camera whose stamps went back, none before the last."""
        nearest = self.sources()[name].nearest(times)
        return np.maximum.accumulate(nearest) if name in self.cameras else nearest

    def columns(self, times: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns of the episode with rows at `times` (ns)."""
        nearest = {name: self.places(name, times) for name, series in self.sources().items() if series.stamps}
        sent = [self.commands["action"].values[i] for i in nearest["action"]]
        action = np.array([values for values, _ in sent])
        position, velocity, effort = (np.array([self.joint_states.values[i][part] for i in nearest["joint_states"]]) for part in range(3))
        stamps = {name: np.asarray(self.sources()[name].stamps)[places] for name, places in nearest.items()}
        proposals, proposed = {}, {}
        for name in PROPOSERS:
            proposals[name], proposed[name] = self._proposals(name, times, nearest, stamps, action)
            stamps.setdefault(name, stamps["action"])
        stamp = np.stack([stamps[name] for name in self.spec.sources], axis=1)
        by_teleop = np.array([source.startswith("teleop") for _, source in sent])
        by_filter = np.array([source == SAFE or source.startswith(RECOVERY) for _, source in sent])
        return {
            "observation.state": position,
            "action": action,
            "joint_velocity": velocity,
            "joint_effort": effort,
            **{f"{name}_action": values for name, values in proposals.items()},
            "proposed": np.stack(list(proposed.values()), axis=1),
            "intervention": by_teleop | np.array(self.engaged.latest(times, False), dtype=bool),
            "safety_lambda": np.where(by_filter, 1.0, np.array(self.weight.latest(times, 0.0), dtype=float)),
            "stamp": stamp / NANOSECONDS,
            "age": (times[:, None] - stamp) / NANOSECONDS,
            **self._ends(times),
        }

    def _proposals(
        self, name: str, times: np.ndarray, nearest: Mapping[str, np.ndarray], stamps: Mapping[str, np.ndarray], action: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what a source proposed at each row, and where it did: elsewhere it stands the command that was sent."""
        if name not in nearest:
            return action, np.zeros(len(times), dtype=bool)
        there = np.abs(times - stamps[name]) * self.spec.fps <= NANOSECONDS
        values = np.array([self.commands[name].values[i][0] for i in nearest[name]])
        return np.where(there[:, None], values, action), there

    def _ends(self, times: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rewards from each row to the next, and how the episode ended; without a word it was cut off."""
        last = np.arange(len(times)) == len(times) - 1
        outcome = self.ended(times)
        came = np.asarray(self.reward.stamps, dtype=np.int64)
        there = (came >= times[0] - _LATE) & (came <= times[-1] + _LATE)
        reward = np.zeros(len(times))
        places = np.searchsorted(times, came[there], side="left") - 1
        np.add.at(reward, np.maximum(places, 0), np.asarray(self.reward.values)[there])
        terminated = last & (outcome in _TERMINAL)
        return {
            "next.reward": reward,
            "next.success": last & (outcome == "success"),
            "next.terminated": terminated,
            "next.truncated": last & ~terminated,
            "next.done": last,
        }

    def frames(self, name: str, places: Sequence[int]) -> Iterator[np.ndarray]:
        """Yields the images of a camera at those places in its series, as (height, width, 3) uint8 RGB.

        Args:
            name: of the camera.
            places: they may repeat but not go back.

        Raises:
            UserError: an image cannot be decoded or has another size than it should.
        """
        size = dict(self.spec.cameras)[name]
        wanted = (self.cameras[name].values[place] for place in places)
        place = next(wanted, None)
        for number, entry in enumerate(self.log.entries()):
            if place is None:
                return
            if number != place:
                continue
            where = f"{self.log.path}: the image of camera '{name}' at {entry.stamp / NANOSECONDS:.3f} s"
            try:
                image = decode.picture(entry)
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
            if image.shape != (*size, 3):
                raise UserError(f"{where} is {image.shape[1]}×{image.shape[0]}, {size[1]}×{size[0]} is right")
            while place == number:
                yield image
                place = next(wanted, None)


def commit_log(writer: DatasetWriter, recording: Recording) -> int:
    """Makes an episode of a log, adds it to a dataset and returns its number.

    Raises:
        UserError: the log is of another robot, or makes no episode.
        OSError: the disk is full or the like; the dataset is as before.
    """
    writer.spec.require_same(recording.spec, recording.log.path)
    times = recording.times()
    videos: dict[str, Frames] = {
        CAMERA_PREFIX + name: recording.frames(name, recording.places(name, times).tolist()) for name in recording.cameras
    }
    task = recording.instruction or "no instruction"
    name, report = recording.log.path.name, recording.report()
    return writer.commit(recording.columns(times), videos, task, recording.ended(times), name, recording=report)


def _figures(cadence: Cadence) -> dict[str, float]:
    figures: dict[str, Any] = asdict(cadence)
    del figures["source"]
    return figures

"""Finds and names every gap of a dataset."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ros_rl.data import layout
from ros_rl.data.dataset import Dataset, uncommitted
from ros_rl.data.features import DatasetSpec
from ros_rl.data.info import read_info, table_fault
from ros_rl.data.layout import EpisodeMeta, Slice
from ros_rl.data.log import LogReader
from ros_rl.data.stats import aggregate, whole
from ros_rl.data.video import frame_size, frame_times, read_video
from ros_rl.errors import UserError

_TOLERANCE = 1e-4  # s: LeRobot's, between a row and its frame


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: a word for machines: repair, info, metadata, missing, unreadable, rows, frames, index, values, stamps, totals,
            statistics, tasks, end, leftover, log.
        where: the file, relative to the dataset, or the episode.
        text: what is wrong.
        mendable: whether a repair ends it. What was recorded wrongly stays as it is.
    """

    kind: str
    where: str
    text: str
    mendable: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" + ("" if self.mendable else " (cannot be mended)")


@dataclass(frozen=True, eq=False)
class Part:
    """What can be read of an episode.

    Attributes:
        meta: its row of `meta/episodes`; None where that is lost.
        table: its rows in the data file.
        file: number of the data file.
        videos: where its frames are.
        rows: how many rows have a frame of every camera.
    """

    meta: EpisodeMeta | None
    table: pa.Table
    file: int
    videos: dict[str, Slice]
    rows: int


@dataclass(frozen=True, eq=False)
class Examination:
    """A dataset looked through: what is wrong, and what can be read."""

    dataset: Dataset
    findings: list[Finding]
    parts: list[Part]
    leftovers: list[Path]


def check(root: Path, decode: bool = False) -> list[Finding]:
    """Looks through a dataset and lists what is wrong, nothing if all is well.

    Args:
        root: its folder.
        decode: decode every frame of every video, which takes long; otherwise frames are counted.

    Raises:
        UserError: it is no dataset of this version.
    """
    if (root / layout.COMPLETE).exists():
        return [Finding("repair", layout.STAGED, "a repair was interrupted; the next one finishes it")]
    return examine(root, decode).findings


def examine(root: Path, decode: bool = False) -> Examination:
    """Looks through a dataset; see `check`."""
    info = read_info(root)
    spec = DatasetSpec.from_info(info)
    findings: list[Finding] = []
    rows = _read_rows(root, spec, info, findings)
    tasks = _read_tasks(root, bool(rows), findings)
    dataset = Dataset(root, info, spec, tasks, rows)
    tables = _Tables()
    parts = []
    for meta in rows:
        part, wrong = _examine_episode(dataset, meta, tables, decode)
        findings += [Finding(kind, f"episode {meta.index}", text, mendable) for kind, text, mendable in wrong]
        if part is not None:
            parts.append(part)
    if doubts := _examine_info(dataset, parts, findings):
        return Examination(dataset, doubts, parts, [])
    leftovers = uncommitted(dataset)
    for path in leftovers:
        found = _adoptable(dataset, path, tables)
        if found is not None:
            parts.append(found)
        state = f"{found.rows} whole rows that no metadata name" if found else "belongs to no episode"
        findings.append(Finding("leftover", path.relative_to(root).as_posix(), state))
    findings += [*_examine_totals(dataset), *_examine_logs(dataset)]
    return Examination(dataset, findings, parts, leftovers)


class _Tables:
    """Reads data files, and keeps the last: several episodes may lie in one."""

    def __init__(self) -> None:
        self._last: tuple[Path, pa.Table] | None = None

    def read(self, path: Path) -> pa.Table:
        if self._last is None or self._last[0] != path:
            self._last = (path, layout.read_table(path))
        return self._last[1]


def _read_rows(root: Path, spec: DatasetSpec, info: dict[str, Any], findings: list[Finding]) -> list[EpisodeMeta]:
    """Reads the rows of `meta/episodes` that can be read, in order; of two with the same number only the first."""
    rows: dict[int, EpisodeMeta] = {}
    for path in sorted((root / "meta/episodes").glob("chunk-*/file-*.parquet")):
        name = path.relative_to(root).as_posix()
        try:
            for row in layout.read_episodes(path, spec.camera_keys, info["chunks_size"]):
                if row.index in rows:
                    findings.append(Finding("metadata", name, f"names episode {row.index} a second time"))
                rows.setdefault(row.index, row)
        except layout.UNREADABLE as error:
            findings.append(Finding("metadata", name, f"cannot be read ({error})"))
    named = info["total_episodes"]
    edges = [-1, *sorted(rows), max(named, max(rows, default=-1) + 1)]
    if missing := layout.spans((low + 1, high - 1) for low, high in pairwise(edges) if high - low > 1):
        findings.append(
            Finding("metadata", "meta/episodes", f"lacks episode {missing}: info.json says {named} episodes, {len(rows)} are here")
        )
    ordered = [rows[index] for index in sorted(rows)]
    end = 0
    for row in ordered:
        if row.start != end and not missing:
            findings.append(Finding("metadata", f"episode {row.index}", f"starts at row {row.start}, the one before ends at {end}"))
        end = row.end
    return ordered


def _read_tasks(root: Path, needed: bool, findings: list[Finding]) -> list[str]:
    try:
        return layout.read_tasks(root / layout.TASKS)
    except layout.UNREADABLE as error:
        if needed:
            findings.append(Finding("tasks", layout.TASKS, f"cannot be read ({error})"))
        return []


_Wrong = tuple[str, str, bool]
_UNFIT = "its rows do not fit "  # and the file, and why


def _examine_episode(dataset: Dataset, meta: EpisodeMeta, tables: _Tables, decode: bool) -> tuple[Part | None, list[_Wrong]]:
    """Returns what can be read of an episode, None if nothing, and what is wrong: kind, text, mendable."""
    path = dataset.data_path(meta)
    name = path.relative_to(dataset.root)
    if not path.is_file():
        return None, [("missing", f"its rows are missing: there is no {name}", True)]
    try:
        table = tables.read(path)
    except layout.UNREADABLE as error:
        return None, [("unreadable", f"its rows are unreadable: {name} ({error})", True)]
    if fault := table_fault(table, dataset.info["features"]):
        return None, [("unreadable", f"{_UNFIT}{name}: {fault}", True)]
    table = table.filter(pc.equal(table["episode_index"], meta.index))
    wrong: list[_Wrong] = []
    if len(table) != meta.length:
        wrong.append(("rows", f"the metadata say {meta.length} rows, {name} holds {len(table)}", True))
    if not len(table):
        return None, wrong
    if lacking := lacking_stats(dataset, meta):
        wrong.append(("statistics", f"its statistics of {', '.join(lacking)} are not complete", True))
    frames, problems = _examine_videos(dataset, meta, decode)
    if wrong or problems:  # what a repair will decode is decoded here, so that it meets no surprise
        frames, problems = _examine_videos(dataset, meta, decode=True)
    wrong += [*problems, *_examine_index(dataset, meta, table), *_examine_values(table), *_examine_end(table)]
    rows = min([len(table), *frames])
    return (Part(meta, table, meta.file, dict(meta.videos), rows) if rows else None), wrong


def _examine_videos(dataset: Dataset, meta: EpisodeMeta, decode: bool) -> tuple[list[int], list[_Wrong]]:
    """Returns how many frames of each camera are there, and what is wrong."""
    counted = [_count_frames(dataset, meta, key, part, decode) for key, part in meta.videos.items()]
    return [count for count, _ in counted], [problem for _, problem in counted if problem]


def lacking_stats(dataset: Dataset, meta: EpisodeMeta) -> list[str]:
    """Returns the columns of which the episode's statistics are not complete."""
    lacking = []
    for key, feature in dataset.info["features"].items():
        shape = (feature["shape"][2], 1, 1) if feature["dtype"] == "video" else tuple(feature["shape"])
        numbers = feature["dtype"] == "video" or (feature["dtype"].startswith(("float", "int", "bool")) and len(shape) == 1)
        if numbers and not whole(meta.stats.get(key, {}), shape):
            lacking.append(key)
    return lacking


def _count_frames(dataset: Dataset, meta: EpisodeMeta, key: str, part: Slice, decode: bool) -> tuple[int, _Wrong | None]:
    """Returns how many frames of an episode are there, from its first on without a gap, and what is wrong with them."""
    path = dataset.video_path(meta, key)
    name = path.relative_to(dataset.root)
    if not path.is_file():
        return 0, ("missing", f"there is no {name}", True)
    times: list[float] = []
    damage = ""
    try:
        size = frame_size(path)
        if size != (right := dict(zip(dataset.spec.camera_keys, (size for _, size in dataset.spec.cameras), strict=True))[key]):
            return meta.length, ("frames", f"{name} is {size[1]}×{size[0]}, {right[1]}×{right[0]} is right", False)
        source: Iterator[float] = (time for time, _ in read_video(path, part.start)) if decode else iter(frame_times(path))
        times.extend(time - part.start for time in source)  # those before the damage are kept
    except OSError as error:
        damage = f" ({error})"
    grid = np.arange(meta.length) / dataset.spec.fps
    found = np.array([time for time in times if time > -_TOLERANCE])[: meta.length]
    timely = np.abs(found - grid[: len(found)]) < _TOLERANCE
    count = len(found) if timely.all() else int(np.argmin(timely))
    if count == meta.length:
        return count, None
    where = "" if timely.all() else f"; frame {count} is at {found[count]:.4f} s, {grid[count]:.4f} s is right"
    return count, ("frames" if count else "unreadable", f"{name} has {count} frames for {meta.length} rows{where}{damage}", True)


def _examine_index(dataset: Dataset, meta: EpisodeMeta, table: pa.Table) -> list[_Wrong]:
    count = np.arange(len(table))
    right = {"frame_index": count, "index": meta.start + count, "timestamp": count / dataset.spec.fps}
    wrong: list[_Wrong] = []
    for key, values in right.items():
        found = table[key].to_numpy()
        if not np.allclose(found, values, atol=_TOLERANCE, rtol=1e-7):
            row = int(np.argmax(~np.isclose(found, values, atol=_TOLERANCE, rtol=1e-7)))
            wrong.append(("index", f"{key} is {found[row]:g} in row {row}, {values[row]:g} is right", True))
    known, used = len(dataset.tasks), pc.unique(table["task_index"]).to_pylist()
    if known and not 0 <= min(used) <= max(used) < known:
        wrong.append(("tasks", f"its rows name a task beyond the {known} of {layout.TASKS}", False))
    elif known and {dataset.tasks[i] for i in used} != set(meta.tasks):
        rows = ", ".join(dataset.tasks[i] for i in used)
        wrong.append(("tasks", f"the metadata say the instruction is '{', '.join(meta.tasks)}', its rows '{rows}'", True))
    return wrong


def _examine_values(table: pa.Table) -> list[_Wrong]:
    """Names columns that are not finite, and times that do not go on."""
    wrong: list[_Wrong] = []
    columns = {key: values for key, values in layout.columns_of(table).items() if values.dtype.kind == "f"}
    for key, values in columns.items():
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            wrong.append(("values", f"{key} is not finite in {bad.sum()} rows, the first is {int(np.argmax(bad))}", False))
    stamps, ages = columns.get("stamp"), columns.get("age")
    if stamps is None or ages is None or len(stamps) < 2:
        return wrong
    time = (stamps + ages).reshape(len(stamps), -1)[:, 0]
    if not (np.diff(time) > 0).all():
        row = int(np.argmin(np.diff(time) > 0)) + 1
        wrong.append(("stamps", f"time does not go on: row {row} is at {time[row]:.6f} s, the one before at {time[row - 1]:.6f} s", False))
    back = np.diff(stamps.reshape(len(stamps), -1), axis=0) < 0
    if back.any():
        wrong.append(("stamps", f"a measured stamp goes back in row {int(np.argmax(back.any(axis=1))) + 1}", False))
    return wrong


def _examine_end(table: pa.Table) -> list[_Wrong]:
    """Names an episode of which no row, or a wrong one, is the end: a learner would go on into the next one."""
    if "next.done" not in table.column_names or not len(table):
        return []
    done = table["next.done"].to_numpy()
    wrong: list[_Wrong] = []
    if not done[-1]:
        wrong.append(("end", "its last row is not next.done", True))
    if done[:-1].any():
        wrong.append(("end", f"row {int(np.argmax(done))} is next.done, the last is {len(done) - 1}", False))
    return wrong


def _adoptable(dataset: Dataset, path: Path, tables: _Tables) -> Part | None:
    """Returns the episode in a data file that no metadata name, where that and its videos are whole."""
    if path.suffix != ".parquet" or path.name.startswith(".") or path.relative_to(dataset.root).parts[0] != "data":
        return None
    try:
        number = layout.file_number(path)
        table = tables.read(path)
        if table_fault(table, dataset.info["features"]):
            return None
        columns = {key for key, feature in dataset.info["features"].items() if feature["dtype"] != "video"}
        if set(table.column_names) != columns or not len(table) or len(pc.unique(table["episode_index"])) != 1:
            return None
        videos = {key: Slice(number, 0.0, len(table) / dataset.spec.fps) for key in dataset.spec.camera_keys}
    except layout.UNREADABLE:
        return None
    lost = EpisodeMeta(table["episode_index"][0].as_py(), (), len(table), 0, number, number, videos, "", "", {})
    rows = min([len(table), *_examine_videos(dataset, lost, decode=True)[0]])
    return Part(None, table, number, videos, rows) if rows else None


def _examine_info(dataset: Dataset, parts: list[Part], findings: list[Finding]) -> list[Finding]:
    """Names what `meta/info.json` says against all episodes together: to cut or drop every one of them would be no repair."""
    doubts = []
    faults = {finding.text.split(": ", 2)[-1] for finding in findings if finding.text.startswith(_UNFIT)}
    unfit = sum(finding.text.startswith(_UNFIT) for finding in findings)
    if unfit and unfit == len(dataset.episodes) and len(faults) == 1:
        doubts.append(f"its features fit no data file: {faults.pop()}")
    videos = [dataset.video_path(episode, key) for episode in dataset.episodes for key in episode.videos]
    if videos and not any(path.is_file() for path in videos) and next((dataset.root / "videos").rglob("*.mp4"), None):
        doubts.append(f"its video_path leads to none of the videos, such as {videos[0].relative_to(dataset.root)}")
    rates = {_rate(part.table["timestamp"].to_numpy()) for part in parts if len(part.table) > 1}
    if len(rates) == 1 and (rate := rates.pop()) != dataset.spec.fps:
        for part in parts:
            for path in (dataset.video_path(part.meta, key) for key in part.videos if part.meta is not None and len(part.table) > 1):
                rates.add(_rate(np.array(frame_times(path))))
        if not rates - {rate}:
            doubts.append(f"its fps is {dataset.spec.fps}, all episodes have {rate} rows and frames a second")
    return [Finding("info", layout.INFO, doubt, False) for doubt in doubts]


def _rate(times: np.ndarray) -> int:
    """Returns how many there are in a second, 0 where they do not go on."""
    step = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return round(1 / step) if step > 1e-4 else 0


def _examine_totals(dataset: Dataset) -> list[Finding]:
    findings = []
    totals = layout.totals(dataset.episodes, dataset.tasks)
    for key, value in totals.items():
        if dataset.info.get(key) != value and key != "splits":
            findings.append(Finding("totals", layout.INFO, f"{key} is {dataset.info.get(key)}, {value} is right"))
    if not dataset.episodes:
        return findings
    try:
        stored = layout.read_stats(dataset.root / layout.STATS)
        again = aggregate(episode.stats for episode in dataset.episodes)
        off = [key for key in again if not _same(stored.get(key, {}), again[key])]
        if off:
            findings.append(Finding("statistics", layout.STATS, f"does not follow from the episodes for {', '.join(off)}"))
    except layout.UNREADABLE as error:
        findings.append(Finding("statistics", layout.STATS, f"cannot be read ({error})"))
    return findings


def open_logs(root: Path) -> list[Path]:
    """Lists the logs of episodes that are running or were cut off, the oldest first."""
    return sorted(path for path in (root / layout.LOGS).glob("*.mcap") if path.is_file())


def _examine_logs(dataset: Dataset) -> list[Finding]:
    findings = []
    known = {episode.log for episode in dataset.episodes}
    for path in open_logs(dataset.root):
        name = path.relative_to(dataset.root).as_posix()
        try:
            times = [entry.time for entry in LogReader(path).entries()] if path.name not in known else []
            span = f"{(max(times) - min(times)) / 1e9:.1f} s" if times else "nothing"
            text = "is an episode already" if path.name in known else f"an episode that was not committed; {span} of it can be read"
        except UserError as error:
            text = str(error).removeprefix(f"{path}: ")
        findings.append(Finding("log", name, text))
    return findings


def _same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return set(first) == set(second) and all(np.allclose(first[name], second[name], rtol=1e-6, atol=1e-9) for name in second)

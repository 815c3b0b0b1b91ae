"""Reading and writing LeRobot datasets v3.0, an episode at a time.

An episode becomes part of a dataset in this order, each file written beside its place, synced and renamed there: videos, data,
tasks, then its row of `meta/episodes`. That last one is the commit. Statistics and totals follow from the rows; after a crash
between the two they are behind, and whoever writes next brings them up to date.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ros_rl.data import layout
from ros_rl.data.features import INDEX_FEATURES, DatasetSpec
from ros_rl.data.files import PARTIAL, commit_file, lock_folder, move_aside
from ros_rl.data.info import read_info, table_fault
from ros_rl.data.layout import EpisodeMeta, Slice
from ros_rl.data.stats import Stats, aggregate, image_stats, sampled_frames, thinned, vector_stats
from ros_rl.data.video import read_video, write_video
from ros_rl.errors import UserError

Frames = Path | Iterable[np.ndarray]
_OTHERS = ", ".join(DatasetSpec("", 1, (), ()).sources)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset on disk, as it was when opened.

    Attributes:
        root: its folder.
        info: `meta/info.json`.
        spec: robot, rate, joints and cameras.
        tasks: instructions, in the order of `task_index`.
        episodes: in order.
    """

    root: Path
    info: dict[str, Any]
    spec: DatasetSpec
    tasks: list[str]
    episodes: list[EpisodeMeta]

    @classmethod
    def open(cls, root: Path, stats: bool = False) -> "Dataset":
        """Reads the metadata and makes sure that all they promise is there.

        Args:
            root: its folder.
            stats: read the statistics of each episode too, which takes as long again.

        Raises:
            UserError: it is no dataset of this version, or has gaps; the first is named, and what mends it.
        """
        dataset = cls.read_metadata(root, stats)
        if gap := dataset._first_gap():
            raise UserError(f"{root}: {gap}; 'ros-rl data check {root}' lists all gaps, 'ros-rl data repair {root}' mends them")
        return dataset

    @classmethod
    def read_metadata(cls, root: Path, stats: bool = False) -> "Dataset":
        """Reads the metadata only; see `open`.

        Raises:
            UserError: see `open`.
        """
        info = read_info(root)
        spec = DatasetSpec.from_info(info)
        try:
            files = sorted((root / "meta/episodes").glob("chunk-*/file-*.parquet"))
            rows = [row for file in files for row in layout.read_episodes(file, spec.camera_keys, info["chunks_size"], stats)]
            tasks = layout.read_tasks(root / layout.TASKS) if rows else []
        except layout.UNREADABLE as error:
            raise UserError(f"{root}: its metadata are damaged ({error}); 'ros-rl data check {root}' lists all gaps") from None
        return cls(root, info, spec, tasks, sorted(rows, key=lambda row: row.index))

    @property
    def stats(self) -> Stats:
        """Statistics of all episodes, read when asked for."""
        return aggregate(episode.stats for episode in Dataset.read_metadata(self.root, stats=True).episodes)

    def data_path(self, episode: EpisodeMeta) -> Path:
        """Returns the file with an episode's rows."""
        return self.root / layout.numbered(self.info["data_path"], episode.file, chunk_size=self.info["chunks_size"])

    def video_path(self, episode: EpisodeMeta, key: str) -> Path:
        """Returns the file with an episode's frames of the video column `key`."""
        return self.root / layout.numbered(self.info["video_path"], episode.videos[key].file, key, self.info["chunks_size"])

    def columns(self, index: int) -> dict[str, np.ndarray]:
        """Reads an episode's rows: (rows,) for columns of one value, (rows, n) for vectors.

        Raises:
            OSError: the file is missing or damaged.
            UserError: a column is not as `meta/info.json` says.
        """
        path = self.data_path(self.episodes[index])
        table = layout.read_table(path)
        if fault := table_fault(table, self.info["features"]):
            raise UserError(f"{path}: {fault}")
        return layout.columns_of(table.filter(pc.equal(table["episode_index"], index)))

    def frames(self, index: int, key: str) -> Iterator[np.ndarray]:
        """Yields an episode's images, (height, width, 3) uint8.

        Raises:
            OSError: the file is missing or damaged.
        """
        episode = self.episodes[index]
        start = episode.videos[key].start
        for number, (_, image) in enumerate(read_video(self.video_path(episode, key), start)):
            if number == episode.length:
                return
            yield image

    def _first_gap(self) -> str | None:
        """Says what is missing, from the files' sizes alone: no column and no frame is read."""
        named, found = self.info["total_episodes"], len(self.episodes)
        if [episode.index for episode in self.episodes] != list(range(found)) or named > found:
            held = layout.ranges(episode.index for episode in self.episodes) or "none"
            return f"meta/info.json says {named} episodes, meta/episodes holds {found} (numbers {held})"
        rows: dict[Path, int] = {}
        for episode in self.episodes:
            rows[self.data_path(episode)] = rows.get(self.data_path(episode), 0) + episode.length
        missing = {path for path, count in rows.items() if _row_count(path) != count}
        lost = [episode.index for episode in self.episodes if self.data_path(episode) in missing]
        if lost:
            numbers = layout.ranges(lost)
            return f"the metadata say {found} episodes, the data hold {found - len(lost)} whole ones (numbers {numbers} are not)"
        for episode in self.episodes:
            for key in self.spec.camera_keys:
                path = self.video_path(episode, key)
                if not path.is_file() or not path.stat().st_size:
                    return f"episode {episode.index} lacks its video {path.relative_to(self.root)}"
        return None


def _row_count(path: Path) -> int | None:
    try:
        return int(pq.ParquetFile(path).metadata.num_rows)
    except layout.UNREADABLE:
        return None


class DatasetWriter:
    """Adds episodes to a dataset, each whole or not at all. One process at a time."""

    def __init__(self, root: Path, spec: DatasetSpec):
        """Opens a dataset, or makes a new one where `root` does not exist or is empty.

        What a crash left behind is moved to the folder `aside`; totals that are behind the episodes are brought up to date.

        Raises:
            UserError: there is a dataset of another robot, rate, joints or cameras (both sides are named), one with gaps,
                something else than a dataset, or another process that writes into it; or images cannot be encoded.
            OSError: the folder cannot be written.
        """
        _check_spec(spec)
        self.root, self.spec = root, spec
        existing = (root / layout.INFO).exists() or (root / layout.COMPLETE).exists()
        if not existing and root.exists() and any(path.name not in (".lock", layout.LOGS) for path in root.iterdir()):
            raise UserError(f"{root}: is neither empty nor a LeRobot dataset (no {layout.INFO}); choose a new folder")
        if existing:
            DatasetSpec.from_info(read_info(root)).require_same(spec, root)
        root.mkdir(parents=True, exist_ok=True)
        self._lock: int | None = lock_folder(root)
        try:
            if existing:
                self._adopt()
            else:
                self._tasks: list[str] = []
                self._episodes: list[EpisodeMeta] = []
                self._stats: Stats = {}
                layout.write_json(root / layout.INFO, layout.new_info(spec, [], []))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets other processes write. May be called twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def logs(self) -> set[str]:
        """Names of the logs of which there are episodes."""
        return {episode.log for episode in self._episodes}

    @property
    def episodes(self) -> Sequence[EpisodeMeta]:
        """All episodes, in order."""
        return self._episodes

    @property
    def next_index(self) -> int:
        """Number of the episode that comes next."""
        return len(self._episodes)

    def commit(
        self,
        columns: Mapping[str, np.ndarray],
        videos: Mapping[str, Frames],
        task: str,
        outcome: str = "",
        log: str = "",
        stats: Stats | None = None,
        recording: Mapping[str, Any] | None = None,
    ) -> int:
        """Adds an episode and returns its number; afterwards it survives any crash.

        Args:
            columns: of every feature but videos and index columns: shape (rows, n), or (rows,) where n is 1.
            videos: of each video column, either (height, width, 3) uint8 RGB images, one a row, or an MP4 file to copy.
            task: the instruction.
            outcome: how it ended: success, failure or timeout.
            log: name of the log that it is made of.
            stats: of the same rows and videos, where they are known already.
            recording: how it was made, see `EpisodeMeta`.

        Raises:
            UserError: a column or a camera is missing, or has another shape or number of rows, or holds NaN or infinity.
            OSError: the disk is full or the like; the dataset is as before.
        """
        rows = _check_columns(self.spec, columns)
        if sorted(videos) != sorted(self.spec.camera_keys):
            raise UserError(
                f"videos are {', '.join(sorted(videos)) or 'none'}, the dataset has {', '.join(sorted(self.spec.camera_keys)) or 'none'}"
            )
        index, number = self.next_index, self._next_file()
        sampled: Stats = {}
        slices = {}
        for key, frames in videos.items():
            path = self.root / layout.numbered(layout.VIDEO_PATH, number, key)
            commit_file(path, partial(put_video, frames, self.spec.fps))
            if stats is None:
                sampled[key] = video_stats(path, rows, self.spec.fps)
            slices[key] = Slice(number, 0.0, rows / self.spec.fps)
        tasks = self._tasks if task in self._tasks else [*self._tasks, task]
        table = layout.data_table(self.spec, columns, index, self._rows, tasks.index(task))
        commit_file(self.root / layout.numbered(layout.DATA_PATH, number), lambda path: pq.write_table(table, path))
        if tasks is not self._tasks or not (self.root / layout.TASKS).exists():
            layout.write_tasks(self.root / layout.TASKS, tasks)
        of_rows = table_stats(layout.columns_of(table))
        if stats is not None:  # only the index columns have other values here
            stats = stats | {key: of_rows[key] for key in INDEX_FEATURES}
        stats = stats or of_rows | sampled
        episode = EpisodeMeta(index, (task,), rows, self._rows, number, number, slices, outcome, log, stats, recording or {})
        layout.write_episode(self.root / layout.numbered(layout.EPISODES_PATH, number), episode)
        self._tasks, self._episodes = tasks, [*self._episodes, episode]
        self._stats = aggregate([self._stats, episode.stats] if self._stats else [episode.stats])
        self._write_totals()
        return index

    @property
    def _rows(self) -> int:
        return self._episodes[-1].end if self._episodes else 0

    def _next_file(self) -> int:
        used = [number for episode in self._episodes for number in (episode.file, episode.meta_file, *_files(episode))]
        return max(used, default=-1) + 1

    def _adopt(self) -> None:
        """Goes on with what is there."""
        dataset = Dataset.open(self.root)
        if dataset.info["chunks_size"] != layout.CHUNK_SIZE or list(dataset.info["features"]) != list(self.spec.features()):
            raise UserError(f"{self.root}: was written by another program, with other columns; choose a new folder, or merge the two")
        self._tasks, self._episodes = dataset.tasks, dataset.episodes
        self._stats = _stored_stats(dataset) or dataset.stats
        for path in uncommitted(dataset):
            move_aside(path, self.root, self.root / layout.ASIDE)
        self._write_totals()

    def _write_totals(self) -> None:
        if self._episodes:
            layout.write_json(self.root / layout.STATS, layout.plain(self._stats))
        layout.write_json(self.root / layout.INFO, layout.new_info(self.spec, self._episodes, self._tasks))


def _stored_stats(dataset: Dataset) -> Stats:
    """Returns what `meta/stats.json` says; nothing where it is behind the episodes or cannot be read."""
    totals = layout.totals(dataset.episodes, dataset.tasks)
    try:
        stats = layout.read_stats(dataset.root / layout.STATS)
        counted = stats["index"]["count"].tolist()
    except (*layout.UNREADABLE, AttributeError):
        return {}
    current = counted == [totals["total_frames"]] and all(dataset.info.get(key) == value for key, value in totals.items())
    return stats if current else {}


def _files(episode: EpisodeMeta) -> list[int]:
    return [part.file for part in episode.videos.values()]


def uncommitted(dataset: Dataset) -> list[Path]:
    """Lists the data and video files, half-written ones included, that no episode refers to: what a crash left behind."""
    known = {dataset.data_path(episode) for episode in dataset.episodes}
    known |= {dataset.video_path(episode, key) for episode in dataset.episodes for key in episode.videos}
    files = {path for folder in ("data", "videos") for path in (dataset.root / folder).rglob("*") if path.is_file()}
    return sorted((files - known) | set((dataset.root / "meta").rglob(f".*{PARTIAL}")))


def table_stats(columns: Mapping[str, np.ndarray]) -> Stats:
    """Returns the statistics of the columns of an episode's table."""
    numbers = {key: values for key, values in columns.items() if values.dtype.kind in "biuf"}
    return {key: vector_stats(values.reshape(len(values), -1)) for key, values in numbers.items()}


def video_stats(path: Path, rows: int, fps: int, start: float = 0.0) -> dict[str, np.ndarray]:
    """Returns the statistics of an episode's video, from its frames as they are read back.

    Raises:
        UserError: it has fewer frames than rows, or they are not at i / fps.
    """
    wanted = set(sampled_frames(rows).tolist())
    images, number = {}, -1
    for number, (time, image) in enumerate(read_video(path, start)):
        if number == rows:
            break
        if abs(time - start - number / fps) > 1e-4:
            raise UserError(f"{path}: frame {number} is at {time - start:.4f} s, {number / fps:.4f} s is right for {fps} frames a second")
        if number in wanted:
            images[number] = thinned(image)
    if number + 1 < rows:
        raise UserError(f"{path}: has {number + 1} frames for {rows} rows")
    return image_stats([images[i] for i in sampled_frames(rows)])


def put_video(frames: Frames, fps: int, path: Path) -> None:
    """Writes a video, or copies it."""
    if isinstance(frames, Path):
        shutil.copyfile(frames, path)
    else:
        write_video(path, frames, fps)


def _check_spec(spec: DatasetSpec) -> None:
    if not (isinstance(spec.fps, int) and 1 <= spec.fps <= 1000):
        raise UserError(f"a dataset has a whole number of rows a second, from 1 to 1000, got {spec.fps}")
    if len(set(spec.sources)) < len(spec.sources):
        raise UserError(f"cameras are {', '.join(name for name, _ in spec.cameras)}; each needs a name of its own, also beside {_OTHERS}")
    for name, (height, width) in spec.cameras:
        if height % 2 or width % 2:
            raise UserError(f"camera '{name}' is {width}×{height}; H.264 needs an even width and height")


def _check_columns(spec: DatasetSpec, columns: Mapping[str, np.ndarray]) -> int:
    """Returns the number of rows."""
    features = {key: entry for key, entry in spec.features().items() if entry["dtype"] != "video" and key not in INDEX_FEATURES}
    if set(columns) != set(features):
        missing, extra = sorted(set(features) - set(columns)), sorted(set(columns) - set(features))
        raise UserError(
            f"columns missing: {', '.join(missing) or 'none'}; columns that the dataset does not have: {', '.join(extra) or 'none'}"
        )
    rows = len(columns["action"])
    if rows == 0:
        raise UserError("the episode has no rows")
    for key, entry in features.items():
        values = np.asarray(columns[key])
        size = entry["shape"][0]
        if values.reshape(len(values), -1).shape != (rows, size):
            raise UserError(f"column '{key}' has shape {values.shape}, ({rows}, {size}) is right")
        if not np.isfinite(values.astype(float)).all():
            row = int(np.argmin(np.isfinite(values.astype(float)).reshape(rows, -1).all(axis=1)))
            raise UserError(f"column '{key}' is not finite in row {row}")
    return rows

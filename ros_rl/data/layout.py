"""Where a LeRobot dataset v3.0 keeps what, and the files of its `meta/` folder."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ros_rl.data.features import INDEX_FEATURES, DatasetSpec
from ros_rl.data.files import commit_file
from ros_rl.data.stats import Stats
from ros_rl.data.video import video_info

VERSION = "v3.0"
CHUNK_SIZE = 1000  # files in a folder
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
LOGS = "logs"  # MCAP files of episodes that are running or were cut off
ASIDE = "aside"  # what was replaced or cannot be read
STAGED, COMPLETE = ".repair", ".repair/complete"  # where a repair prepares the new files, and the mark that they are all there
UNREADABLE = (OSError, pa.ArrowException, ValueError, KeyError, TypeError)  # what reading a damaged file raises


@dataclass(frozen=True)
class Slice:
    """Where an episode's frames are in a video file: from `start` to `end`, s."""

    file: int
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class EpisodeMeta:
    """One row of `meta/episodes`.

    Attributes:
        index: number of the episode, from 0.
        tasks: the instructions that its rows carry.
        length: rows.
        start: number of its first row in the dataset.
        file: number of its data file; files are counted through all chunks.
        meta_file: number of the file that holds this row.
        videos: of each video column.
        outcome: how it ended: success, failure, timeout; empty where nobody said.
        log: name of the log that it was made of; empty where it was made of none.
        stats: of its columns; empty where they were not read.
        recording: how it was made and how regularly its sources came, see `convert.Recording.report`; empty where nobody said.
    """

    index: int
    tasks: tuple[str, ...]
    length: int
    start: int
    file: int
    meta_file: int
    videos: Mapping[str, Slice]
    outcome: str
    log: str
    stats: Stats
    recording: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Number of the row after its last one."""
        return self.start + self.length


def numbered(pattern: str, file: int, video_key: str = "", chunk_size: int = CHUNK_SIZE) -> str:
    """Returns the path, in the dataset, of the file with a number counted through all chunks."""
    return pattern.format(chunk_index=file // chunk_size, file_index=file % chunk_size, video_key=video_key)


def ranges(numbers: Iterable[int]) -> str:
    """Writes sorted numbers down in short: ``0, 3 to 7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return spans(found)


def spans(pairs: Iterable[Sequence[int]]) -> str:
    """Writes ranges of numbers down, first and last of each: ``0, 3 to 7``."""
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in pairs)


def file_number(path: Path, chunk_size: int = CHUNK_SIZE) -> int:
    """Returns the number of a file called ``chunk-CCC/file-FFF.*``; the inverse of `numbered`.

    Raises:
        ValueError: it is not called so.
    """
    return int(path.parent.name.removeprefix("chunk-")) * chunk_size + int(path.stem.removeprefix("file-"))


def new_info(spec: DatasetSpec, episodes: Sequence[EpisodeMeta], tasks: Sequence[str]) -> dict[str, Any]:
    """Returns the contents of `meta/info.json`."""
    features = spec.features()
    for key, (_, (height, width)) in zip(spec.camera_keys, spec.cameras, strict=True):
        features[key]["info"] = video_info(spec.fps, height, width)
    return {
        "codebase_version": VERSION,
        "robot_type": spec.robot,
        "chunks_size": CHUNK_SIZE,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": spec.fps,
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH if spec.cameras else None,
        "features": features,
        **totals(episodes, tasks),
    }


def totals(episodes: Sequence[EpisodeMeta], tasks: Sequence[str]) -> dict[str, Any]:
    """Returns the part of `meta/info.json` that follows from the episodes."""
    return {
        "total_episodes": len(episodes),
        "total_frames": sum(episode.length for episode in episodes),
        "total_tasks": len(tasks),
        "splits": {"train": f"0:{len(episodes)}"},
    }


def write_json(path: Path, values: Any) -> None:
    """Writes a JSON file whole."""
    text = json.dumps(values, indent=4, ensure_ascii=False, allow_nan=False)
    commit_file(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def plain(stats: Stats) -> dict[str, dict[str, Any]]:
    """Returns statistics as lists, for JSON and Parquet."""
    return {key: {name: np.asarray(value).tolist() for name, value in entry.items()} for key, entry in stats.items()}


def read_stats(path: Path) -> Stats:
    """Reads `meta/stats.json`.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict) or not all(isinstance(entry, dict) for entry in values.values()):
        raise ValueError("it is no object with an object for each column")
    return {key: {name: np.array(value) for name, value in entry.items()} for key, entry in values.items()}


def write_tasks(path: Path, tasks: Sequence[str]) -> None:
    """Writes `meta/tasks.parquet`: a table as pandas writes it, with the instruction as its index, in the order of `task_index`."""
    index = "__index_level_0__"
    columns = [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": None},
        {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ]
    about = {"index_columns": [index], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), index: pa.array(tasks, pa.string())})
    table = table.replace_schema_metadata({"pandas": json.dumps(about)})
    commit_file(path, lambda partial: pq.write_table(table, partial))


def read_tasks(path: Path) -> list[str]:
    """Reads the instructions in the order of their `task_index`.

    Raises:
        OSError, ValueError: it cannot be read, or the numbers are not those from 0 on.
    """
    table = read_table(path)
    names = [name for name in table.column_names if name != "task_index"]
    if "task_index" not in table.column_names or not names:
        raise ValueError(f"it has the columns {', '.join(table.column_names)}, task_index and the instruction are right")
    tasks = dict(zip(table["task_index"].to_pylist(), table[names[0]].to_pylist(), strict=True))
    if set(tasks) != set(range(len(table))) or not all(isinstance(task, str) for task in tasks.values()):
        raise ValueError("it does not give every number from 0 on an instruction")
    return [tasks[number] for number in range(len(tasks))]


def read_table(path: Path, leave_out: str = "") -> pa.Table:
    """Reads a Parquet file, all columns or those whose names do not begin with `leave_out`.

    Raises:
        OSError: it is none, or damaged.
    """
    try:
        file = pq.ParquetFile(path)  # of this file alone: read_table would guess columns from the folders' names
        names = [name for name in file.schema_arrow.names if not (leave_out and name.startswith(leave_out))]
        return file.read(columns=names)
    except pa.ArrowException as error:
        raise OSError(f"{path}: cannot be read ({error})") from None


def write_episode(path: Path, episode: EpisodeMeta) -> None:
    """Writes the row of one episode as a file of its own."""
    chunk, file = divmod(episode.file, CHUNK_SIZE)
    row: dict[str, Any] = {
        "episode_index": episode.index,
        "tasks": list(episode.tasks),
        "length": episode.length,
        "data/chunk_index": chunk,
        "data/file_index": file,
        "dataset_from_index": episode.start,
        "dataset_to_index": episode.end,
    }
    for key, part in episode.videos.items():
        chunk, file = divmod(part.file, CHUNK_SIZE)
        row |= {f"videos/{key}/chunk_index": chunk, f"videos/{key}/file_index": file}
        row |= {f"videos/{key}/from_timestamp": part.start, f"videos/{key}/to_timestamp": part.end}
    for key, entry in plain(episode.stats).items():
        row |= {f"stats/{key}/{name}": value for name, value in entry.items()}
    chunk, file = divmod(episode.meta_file, CHUNK_SIZE)
    row |= {"meta/episodes/chunk_index": chunk, "meta/episodes/file_index": file}
    row |= {"outcome": episode.outcome, "log": episode.log, "recording": json.dumps(episode.recording, ensure_ascii=False)}
    # One row needs no index; of the hundreds of columns it would be most of the file.
    bare = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    commit_file(path, lambda partial: pq.write_table(pa.Table.from_pylist([row]), partial, **bare))


def read_episodes(path: Path, video_keys: Iterable[str], chunk_size: int = CHUNK_SIZE, stats: bool = True) -> list[EpisodeMeta]:
    """Reads the rows of one file of `meta/episodes`; without statistics, which are most of it, in half the time.

    Raises:
        OSError, ValueError: it cannot be read, or a row is none.
    """
    return [_episode(row, video_keys, chunk_size) for row in read_table(path, "" if stats else "stats/").to_pylist()]


def _episode(row: dict[str, Any], video_keys: Iterable[str], chunk_size: int) -> EpisodeMeta:
    def whole(key: str, least: int = 0) -> int:
        value = row.get(key)
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{key} is {value!r}, a whole number is right")
        return value

    def number(prefix: str) -> int:
        return whole(f"{prefix}/chunk_index") * chunk_size + whole(f"{prefix}/file_index")

    def seconds(key: str) -> float:
        value = row.get(key)
        if not isinstance(value, float | int) or not 0 <= value < 1e9:
            raise ValueError(f"{key} is {value!r}, a time in seconds is right")
        return float(value)

    videos = {
        key: Slice(number(f"videos/{key}"), seconds(f"videos/{key}/from_timestamp"), seconds(f"videos/{key}/to_timestamp"))
        for key in video_keys
    }
    stats: Stats = {}
    for name, value in row.items():
        if name.startswith("stats/") and value is not None:
            key, _, entry = name.removeprefix("stats/").rpartition("/")
            stats.setdefault(key, {})[entry] = np.array(value)
    index, length, start, tasks = whole("episode_index"), whole("length", 1), whole("dataset_from_index"), row.get("tasks")
    if (end := whole("dataset_to_index")) - start != length:
        raise ValueError(f"episode {index} has {length} rows, but reaches from row {start} to {end}")
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
        raise ValueError(f"tasks is {tasks!r}, a list of instructions is right")
    return EpisodeMeta(
        index=index,
        tasks=tuple(tasks),
        length=length,
        start=start,
        file=number("data"),
        meta_file=number("meta/episodes"),
        videos=videos,
        outcome=row.get("outcome") or "",
        log=row.get("log") or "",
        stats=stats,
        recording=json.loads(row.get("recording") or "{}"),
    )


def data_table(spec: DatasetSpec, columns: Mapping[str, np.ndarray], episode: int, start: int, task: int) -> pa.Table:
    """Builds the rows of an episode.

    Args:
        spec: the dataset.
        columns: of every feature but videos and index columns: shape (rows, n), or (rows,) where n is 1.
        episode: its number.
        start: number of its first row in the dataset.
        task: number of its instruction.
    """
    rows = len(columns["action"])
    frames = np.arange(rows)
    index = {
        "timestamp": frames / spec.fps,
        "frame_index": frames,
        "episode_index": np.full(rows, episode),
        "index": start + frames,
        "task_index": np.full(rows, task),
    }
    arrays = {}
    for key, feature in spec.features().items():
        if feature["dtype"] == "video":
            continue
        values = np.asarray(index[key] if key in INDEX_FEATURES else columns[key])
        size = feature["shape"][0]
        flat = pa.array(values.astype(feature["dtype"]).reshape(-1))
        arrays[key] = flat if size == 1 else pa.FixedSizeListArray.from_arrays(flat, size)
    return pa.table(arrays)


def columns_of(table: pa.Table) -> dict[str, np.ndarray]:
    """Returns the columns of a table as arrays: (rows,) for single values, (rows, n) for vectors."""
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type) or pa.types.is_large_list(column.type):
            columns[name] = np.array(column.to_pylist()).reshape(len(column), -1) if len(column) else np.zeros((0, 0))
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns

"""Mends a dataset without deleting anything: what it replaces or cannot read is moved to the folder `aside`.

New `data` and `meta` folders are prepared beside the old ones and then take their places. A repair that is interrupted before
that starts over; one that is interrupted in between is finished by the next.
"""

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ros_rl.data import layout
from ros_rl.data.convert import Recording, commit_log
from ros_rl.data.dataset import Dataset, DatasetWriter, table_stats, uncommitted, video_stats
from ros_rl.data.features import INDEX_FEATURES, DatasetSpec
from ros_rl.data.files import commit_file, free_name, lock_folder, move_aside, sync
from ros_rl.data.info import read_info
from ros_rl.data.integrity import Examination, Part, examine, open_logs
from ros_rl.data.layout import ASIDE, COMPLETE, STAGED, EpisodeMeta, Slice
from ros_rl.data.stats import aggregate, whole
from ros_rl.errors import UserError


def repair(root: Path, decode: bool = False) -> list[str]:
    """Mends what can be mended and returns what was done, a line each; nothing where all is well.

    Episodes that cannot be read are left out, those with fewer frames than rows (or the other way round) end where the shorter
    one does, whole ones that no metadata name are taken in, and all are numbered through. Logs of episodes that were cut off become
    episodes.

    Args:
        root: its folder.
        decode: decode every frame of every video, see `check`; otherwise only of episodes with which something is wrong.

    Raises:
        UserError: it is no dataset of this version, its `meta/info.json` contradicts all episodes, or another process writes into
            it.
    """
    return _repair_files(root, decode) + recover_logs(root)


def recover_logs(root: Path) -> list[str]:
    """Makes episodes of the logs that were cut off and returns what was done, a line each.

    Raises:
        UserError: the dataset has gaps, or another process writes into it.
    """
    logs = open_logs(root)
    if not logs:
        return []
    lines = []
    with DatasetWriter(root, DatasetSpec.from_info(read_info(root))) as writer:
        for path in logs:
            if path.name in writer.logs:
                lines.append(f"{path.name}: is an episode already")
            else:
                lines.append(_recover(writer, path))
            move_aside(path, root, root / ASIDE)
    return lines


def _recover(writer: DatasetWriter, path: Path) -> str:
    try:
        recording = Recording.read(path)
        index = commit_log(writer, recording)
    except OSError:  # of the disk, not of the log
        raise
    except Exception as error:  # one log must not keep the others from becoming episodes
        return f"{path.name}: moved to {ASIDE}/ ({str(error).removeprefix(f'{path}: ')})"
    remarks = "".join(f"; {remark}" for remark in recording.remarks())
    return f"{path.name}: is episode {index} now; the log is in {ASIDE}/{remarks}"


def _repair_files(root: Path, decode: bool) -> list[str]:
    if not (root / COMPLETE).exists():
        read_info(root)  # before a lock is left in a folder of something else
    lock = lock_folder(root)
    try:
        staged = root / STAGED
        if (root / COMPLETE).exists():
            _swap(root)
            return ["finished a repair that had been interrupted", *_tidy(root)]
        if staged.exists():
            shutil.rmtree(staged)  # copies of ours that were not complete
        examination = examine(root, decode)
        if doubts := [finding for finding in examination.findings if finding.kind == "info"]:
            raise UserError(f"{root}: {doubts[0].where}: {doubts[0].text}; it must be mended by hand")
        if not any(finding.mendable and finding.kind != "log" for finding in examination.findings):
            return []
        if examination.dataset.info["chunks_size"] != layout.CHUNK_SIZE:
            raise UserError(
                f"{root}: has chunks of {examination.dataset.info['chunks_size']} files, only {layout.CHUNK_SIZE} can be repaired"
            )
        return _rebuild(examination)
    finally:
        os.close(lock)


def _rebuild(examination: Examination) -> list[str]:
    dataset, root = examination.dataset, examination.dataset.root
    parts = sorted(examination.parts, key=lambda part: (part.file, part.table["index"][0].as_py()))
    tasks = dataset.tasks or _tasks_from(parts)
    staged = root / STAGED
    for folder in ("data", "meta"):
        (staged / folder).mkdir(parents=True)
    episodes = []
    start = 0
    for index, part in enumerate(parts):
        table = _ended(_renumbered(part.table.slice(0, part.rows), index, start, dataset.spec.fps))
        episode = _meta(dataset, part, table, tasks, index, start)
        commit_file(staged / layout.numbered(layout.DATA_PATH, index), partial(pq.write_table, table))
        layout.write_episode(staged / layout.numbered(layout.EPISODES_PATH, index), episode)
        episodes.append(episode)
        start = episode.end
    if episodes:
        layout.write_tasks(staged / layout.TASKS, tasks)
        layout.write_json(staged / layout.STATS, layout.plain(aggregate(episode.stats for episode in episodes)))
    layout.write_json(staged / layout.INFO, dataset.info | layout.totals(episodes, tasks) | {"data_path": layout.DATA_PATH})
    (root / COMPLETE).touch()
    sync(staged)
    _swap(root)
    return [*_report(dataset, parts), *_tidy(root)]


def _tidy(root: Path) -> list[str]:
    """Moves aside what no episode refers to, and says so."""
    moved = [(path, move_aside(path, root, root / ASIDE)) for path in uncommitted(Dataset.read_metadata(root))]
    return [f"moved {path.relative_to(root)} to {target.relative_to(root)}" for path, target in moved]


def _swap(root: Path) -> None:
    """Puts the new folders in the places of the old ones, which go aside; may be interrupted and called again."""
    staged = root / STAGED
    (root / ASIDE).mkdir(exist_ok=True)
    for name in ("data", "meta"):
        if (staged / name).exists():
            if (root / name).exists():
                (root / name).rename(free_name(root / ASIDE / name))
            (staged / name).rename(root / name)
    sync(root)
    (root / COMPLETE).unlink()
    staged.rmdir()


def _ended(table: pa.Table) -> pa.Table:
    """Marks the last row as the end: where it is not, the episode was cut there, so it is truncated."""
    columns = layout.columns_of(table)
    if "next.done" not in columns or columns["next.done"][-1]:
        return table
    last = np.arange(len(table)) == len(table) - 1
    ends = {"next.done": columns["next.done"] | last}
    if "next.truncated" in columns:
        ends["next.truncated"] = columns["next.truncated"] | (last & ~columns.get("next.terminated", np.zeros_like(last)))
    for key, values in ends.items():
        table = table.set_column(table.column_names.index(key), key, pa.array(values))
    return table


def _outcome(table: pa.Table) -> str:
    """Says how an episode ended, as far as its last row tells."""
    ended = {key: "next." + key in table.column_names and table["next." + key][-1].as_py() for key in ("success", "terminated")}
    return "success" if ended["success"] else "failure" if ended["terminated"] else ""


def _renumbered(table: pa.Table, index: int, start: int, fps: int) -> pa.Table:
    frames = np.arange(len(table))
    right = {"frame_index": frames, "index": start + frames, "episode_index": np.full(len(table), index), "timestamp": frames / fps}
    for key, values in right.items():
        place = table.column_names.index(key)
        table = table.set_column(place, key, pa.array(values.astype(INDEX_FEATURES[key]["dtype"])))
    return table


def _meta(dataset: Dataset, part: Part, table: pa.Table, tasks: Sequence[str], index: int, start: int) -> EpisodeMeta:
    """Returns the row of an episode; statistics are computed anew where they may have changed."""
    rows = len(table)
    videos = {key: Slice(cut.file, cut.start, cut.start + rows / dataset.spec.fps) for key, cut in part.videos.items()}
    stats = table_stats(layout.columns_of(table))
    for key, cut in videos.items():
        if part.meta is not None and part.meta.length == rows and whole(part.meta.stats.get(key, {}), (3, 1, 1)):
            stats[key] = part.meta.stats[key]
        else:
            path = dataset.root / layout.numbered(dataset.info["video_path"], cut.file, key)
            stats[key] = video_stats(path, rows, dataset.spec.fps, cut.start)
    named = tuple(tasks[i] for i in dict.fromkeys(table["task_index"].to_pylist()) if 0 <= i < len(tasks))
    outcome = part.meta.outcome if part.meta is not None and part.meta.length == rows else _outcome(table)
    log = part.meta.log if part.meta is not None else ""
    recording = part.meta.recording if part.meta is not None else {}
    return EpisodeMeta(index, named, rows, start, index, index, videos, outcome, log, stats, recording)


def _tasks_from(parts: Sequence[Part]) -> list[str]:
    """Reads the instructions off the episodes' rows, where their own table is lost."""
    named: dict[int, str] = {}
    highest = -1
    for part in parts:
        numbers = list(dict.fromkeys(part.table["task_index"].to_pylist()))
        highest = max(highest, *numbers)
        if part.meta is not None and len(numbers) == len(part.meta.tasks):
            named |= dict(zip(numbers, part.meta.tasks, strict=True))
    return [named.get(number, f"unknown instruction {number}") for number in range(highest + 1)]


def _report(dataset: Dataset, parts: Sequence[Part]) -> list[str]:
    lines = []
    kept: dict[int, tuple[int, Any]] = {part.meta.index: (new, part) for new, part in enumerate(parts) if part.meta is not None}
    for meta in dataset.episodes:
        if meta.index not in kept:
            lines.append(f"episode {meta.index}: left out, its rows or videos cannot be read")
            continue
        new, part = kept[meta.index]
        if part.rows != meta.length:
            lines.append(f"episode {meta.index}: has {part.rows} rows now, of {meta.length}")
        if new != meta.index:
            lines.append(f"episode {meta.index}: is number {new} now")
    lines += [
        f"episode {new}: taken in from {part.rows} rows that no metadata named" for new, part in enumerate(parts) if part.meta is None
    ]
    return [*lines, f"wrote the metadata of {len(parts)} episodes anew; the old files are in {ASIDE}/"]

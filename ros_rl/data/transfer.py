"""Episodes from one dataset to another, and out into files that need no reader of datasets."""

import csv
import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from ros_rl.data.dataset import Dataset, DatasetWriter, Frames, put_video
from ros_rl.data.features import CAMERA_PREFIX, INDEX_FEATURES, DatasetSpec, element_names
from ros_rl.data.files import commit_file
from ros_rl.data.integrity import check, lacking_stats
from ros_rl.data.layout import EpisodeMeta, write_json
from ros_rl.data.video import frame_times
from ros_rl.errors import UserError

Format = Literal["csv", "npz"]
_MERGE = ".merge"  # in a dataset into which others are being merged: which, so that an interrupted merge can go on
_HARMLESS = ("log", "leftover", "totals", "statistics", "end", "stamps")  # findings in a source that an episode can take along


def merge(sources: Sequence[Path], target: Path, progress: Callable[[], object] = lambda: None) -> int:
    """Adds all episodes of several datasets to `target`, which may exist, and returns how many it has then.

    Videos of one episode are copied as they are; those that hold several are encoded anew. A merge that was interrupted goes on
    when it is called again with the same sources.

    Raises:
        UserError: one is no dataset, has gaps or faults, or is of another robot, rate, joints or cameras, or another merge into the
            target was interrupted; nothing is written then.
    """
    datasets = [Dataset.open(source, stats=True) for source in sources]
    for dataset in datasets:
        if dataset.root.resolve() == target.resolve():
            raise UserError(f"{target}: is merged into itself; choose another folder")
        datasets[0].spec.require_same(dataset.spec, f"{datasets[0].root} beside {dataset.root}")
        _require_sound(dataset, datasets[0].spec)
    with DatasetWriter(target, datasets[0].spec) as writer:
        name = _begin(target, datasets)
        there = {episode.recording.get("merged") for episode in writer.episodes}
        for number, dataset in enumerate(datasets):
            for episode in dataset.episodes:
                mark = f"{name}/{number}/{episode.index}"
                if mark not in there:
                    _copy(writer, dataset, episode, mark)
                progress()
        (target / _MERGE).unlink()
        return writer.next_index


def _require_sound(dataset: Dataset, spec: DatasetSpec) -> None:
    if missing := [key for key in spec.features() if key not in dataset.info["features"]]:
        raise UserError(f"{dataset.root}: was written by another program; it lacks {', '.join(missing)}")
    if faults := [finding for finding in check(dataset.root) if finding.kind not in _HARMLESS]:
        raise UserError(f"{dataset.root}: {faults[0]}; 'ros-rl data check {dataset.root}' lists all faults")
    for episode in dataset.episodes:
        if len(episode.tasks) > 1:
            raise UserError(f"{dataset.root}: episode {episode.index} has several instructions, which are not merged")


def _begin(target: Path, datasets: Sequence[Dataset]) -> str:
    """Takes note in the target of what is being merged; returns the name of the merge, that of the interrupted one if it is the same."""
    path = target / _MERGE
    sources = [[str(dataset.root.resolve()), len(dataset.episodes)] for dataset in datasets]
    if path.exists():
        begun = json.loads(path.read_text(encoding="utf-8"))
        if begun["sources"] != sources:
            folders = " ".join(folder for folder, _ in begun["sources"])
            raise UserError(f"{target}: a merge of {folders} was interrupted; merge these again, or remove {path} to leave it at that")
        return str(begun["name"])
    name = uuid.uuid4().hex
    write_json(path, {"name": name, "sources": sources})
    return name


def _copy(writer: DatasetWriter, dataset: Dataset, episode: EpisodeMeta, mark: str) -> None:
    columns = dataset.columns(episode.index)
    task = dataset.tasks[int(columns["task_index"][0])]
    videos = {key: _video(dataset, episode.index, key) for key in dataset.spec.camera_keys}
    wanted = {key: values for key, values in columns.items() if key in writer.spec.features() and key not in INDEX_FEATURES}
    stats = None if lacking_stats(dataset, episode) else episode.stats
    writer.commit(wanted, videos, task, episode.outcome, episode.log, stats, {**episode.recording, "merged": mark})


def _video(dataset: Dataset, index: int, key: str) -> Frames:
    episode = dataset.episodes[index]
    path = dataset.video_path(episode, key)
    whole = episode.videos[key].start == 0 and len(frame_times(path)) == episode.length
    return path if whole else dataset.frames(index, key)


def export(dataset: Dataset, folder: Path, kind: Format, episodes: Sequence[int], progress: Callable[[], object] = lambda: None) -> None:
    """Writes episodes as a file of numbers each, CSV or NumPy, beside an MP4 file for each camera.

    CSV has one column for each element, called ``action.shoulder``; NumPy has the arrays under the names of the features, and
    `task`.

    Raises:
        UserError: there is no such episode.
    """
    for index in episodes:
        if not 0 <= index < len(dataset.episodes):
            raise UserError(f"{dataset.root}: has no episode {index}, it has 0 to {len(dataset.episodes) - 1}")
    folder.mkdir(parents=True, exist_ok=True)
    for index in episodes:
        columns = dataset.columns(index)
        stem = folder / f"episode_{index:06d}"
        task = dataset.tasks[int(columns["task_index"][0])]
        if kind == "csv":
            commit_file(stem.with_suffix(".csv"), partial(_write_csv, dataset, columns))
        else:
            commit_file(stem.with_suffix(".npz"), partial(_write_npz, columns, task))
        for key in dataset.spec.camera_keys:
            video = folder / f"{stem.name}_{key.removeprefix(CAMERA_PREFIX)}.mp4"
            commit_file(video, partial(put_video, _video(dataset, index, key), dataset.spec.fps))
        progress()


def _write_csv(dataset: Dataset, columns: dict[str, np.ndarray], path: Path) -> None:
    names, values = [], []
    for key, column in columns.items():
        elements = element_names(dataset.info["features"].get(key, {}))
        for i, one in enumerate(column.reshape(len(column), -1).T):
            names.append(f"{key}.{elements[i] if i < len(elements) else i}" if column.ndim > 1 else key)
            values.append(one.astype(int) if one.dtype == bool else one)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(zip(*(column.tolist() for column in values), strict=True))


def _write_npz(columns: dict[str, np.ndarray], task: str, path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **columns, task=np.array(task))

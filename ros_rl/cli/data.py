"""`ros-rl data`: what a dataset holds, whether it is whole, and what else can be done with it."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from ros_rl.data.convert import Recording
from ros_rl.data.dataset import Dataset
from ros_rl.data.files import commit_file
from ros_rl.data.integrity import check
from ros_rl.data.repair import repair
from ros_rl.data.transfer import Format, export, merge
from ros_rl.errors import UserError


@dataclass
class DataInfo:
    """Says what a dataset, or the log of an episode, holds."""

    path: tyro.conf.Positional[Path]
    """folder of a dataset, or a log (.mcap)"""
    json: bool = False
    """print one JSON object"""

    def run(self) -> int:
        """Returns 0."""
        info = _log_info(self.path) if self.path.suffix == ".mcap" else _dataset_info(self.path)
        if self.json:
            print(json.dumps(info, ensure_ascii=False))
            return 0
        for key, value in info.items():
            lines = value if isinstance(value, list) else [value]
            print(f"{key}:", *lines, sep="\n  " if isinstance(value, list) else " ")
        return 0


def _dataset_info(root: Path) -> dict[str, Any]:
    dataset = Dataset.open(root)
    spec = dataset.spec
    outcomes: dict[str, int] = {}
    for episode in dataset.episodes:
        outcomes[episode.outcome or "not said"] = outcomes.get(episode.outcome or "not said", 0) + 1
    lengths = [episode.length for episode in dataset.episodes]
    return {
        "robot": spec.robot,
        "rate": f"{spec.fps} Hz",
        "episodes": len(lengths),
        "rows": sum(lengths),
        "seconds": round(sum(lengths) / spec.fps, 3),
        "shortest and longest, s": f"{min(lengths, default=0) / spec.fps:.2f}, {max(lengths, default=0) / spec.fps:.2f}",
        "outcomes": [f"{word}: {count}" for word, count in outcomes.items()],
        "instructions": dataset.tasks,
        "joints": ", ".join(spec.measured),
        "commands": ", ".join(spec.commanded),
        "cameras": [f"{name} {width}×{height}" for name, (height, width) in spec.cameras],
        "interventions": _share(dataset, "intervention"),
        "largest gap between stamps": _gaps(dataset),
    }


def _share(dataset: Dataset, key: str) -> str:
    stats = dataset.stats.get(key)
    return f"{stats['mean'][0]:.1%} of the rows" if stats else "not recorded"


def _gaps(dataset: Dataset) -> list[str]:
    """Returns the longest time between two measurements of each source that stand in neighbouring rows."""
    if "stamp" not in dataset.info["features"] or not dataset.episodes:
        return []
    gaps = np.array([np.diff(dataset.columns(i)["stamp"], axis=0).max(axis=0, initial=0.0) for i in range(len(dataset.episodes))])
    return [f"{name}: {1e3 * gap:.1f} ms" for name, gap in zip(dataset.spec.sources, gaps.max(axis=0), strict=True)]


def _log_info(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path}: there is no such log")
    recording = Recording.read(path)
    return {
        "robot": recording.spec.robot,
        "rate": f"{recording.spec.fps} Hz",
        "instruction": recording.instruction,
        "outcome": recording.outcome or "not said",
        "whole": "yes" if recording.log.whole else "no, it was cut off",
        "cadence": [str(cadence) for cadence in recording.cadences()],
        "remarks": recording.remarks() or "none",
    }


@dataclass
class DataCheck:
    """Looks for gaps in a dataset: missing and half files, metadata that do not fit, values that are not finite, times that go back."""

    dataset: tyro.conf.Positional[Path]
    """folder of the dataset"""
    decode: bool = False
    """decode every frame of every video, which takes long; otherwise frames are counted"""
    json: bool = False
    """print one JSON object"""

    def run(self) -> int:
        """Prints what is wrong; returns 1 where something is."""
        findings = check(self.dataset, self.decode)
        if self.json:
            print(json.dumps({"ok": not findings, "findings": [asdict(finding) for finding in findings]}, ensure_ascii=False))
        else:
            print(*findings, sep="\n") if findings else print("ok")
            if any(finding.mendable for finding in findings):
                print(f"'ros-rl data repair {self.dataset}{' --decode' if self.decode else ''}' mends what can be mended")
        return 1 if findings else 0


@dataclass
class DataRepair:
    """Mends a dataset. Nothing is deleted: what is replaced or cannot be read is moved to the folder `aside` in it."""

    dataset: tyro.conf.Positional[Path]
    """folder of the dataset"""
    decode: bool = False
    """decode every frame of every video, which takes long; otherwise only those of episodes with which something else is wrong"""

    def run(self) -> int:
        """Prints what was done and what is still wrong; returns 1 where something is."""
        print(*(repair(self.dataset, self.decode) or ["nothing to mend"]), sep="\n")
        left = check(self.dataset, self.decode)
        for finding in left:
            print(f"still wrong: {finding}", file=sys.stderr)
        return 1 if left else 0


@dataclass
class DataExport:
    """Writes each episode as a file of numbers and one MP4 file for each camera."""

    dataset: tyro.conf.Positional[Path]
    """folder of the dataset"""
    folder: tyro.conf.Positional[Path]
    """where the files go"""
    format: Format = "csv"
    """csv, or npz for NumPy"""
    episodes: tuple[int, ...] = ()
    """numbers of the episodes; none named: all"""

    def run(self) -> int:
        """Returns 0."""
        dataset = Dataset.open(self.dataset)
        episodes = self.episodes or range(len(dataset.episodes))
        with tqdm(total=len(episodes), unit="episode", disable=None) as bar:
            export(dataset, self.folder, self.format, episodes, bar.update)
        print(f"wrote {len(episodes)} episodes to {self.folder}")
        return 0


@dataclass
class DataMerge:
    """Puts the episodes of several datasets of one robot into one."""

    datasets: tyro.conf.Positional[tuple[Path, ...]]
    """folders of the datasets"""
    out: Path
    """folder of the dataset to add them to; it may exist"""

    def run(self) -> int:
        """Returns 0."""
        if not self.datasets:
            raise UserError("data merge: names no dataset to merge")
        with tqdm(unit="episode", disable=None) as bar:
            count = merge(self.datasets, self.out, bar.update)
        print(f"{self.out} has {count} episodes")
        return 0


@dataclass
class DataView:
    """Draws an episode: a contact sheet of its cameras and plots over time."""

    dataset: tyro.conf.Positional[Path]
    """folder of the dataset"""
    episode: int = 0
    """its number"""
    out: Path = Path("episode.png")
    """PNG file to write"""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.data.view import draw

        dataset = Dataset.open(self.dataset)
        if not 0 <= self.episode < len(dataset.episodes):
            raise UserError(f"{self.dataset}: has no episode {self.episode}, it has 0 to {len(dataset.episodes) - 1}")
        if self.out.suffix.lower() != ".png":
            raise UserError(f"{self.out}: the picture is a PNG; its name must end in .png")
        figure = draw(dataset, self.episode)
        commit_file(self.out, lambda path: figure.savefig(path, format="png", dpi=110))
        print(f"wrote {self.out}")
        return 0

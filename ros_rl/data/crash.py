"""Crash drill: a recorder is killed at random times, again and again into the same dataset, and what is lost is counted.

The recorder is this module run as a program. It says on its output what it is about to write and what it has committed.
"""

import argparse
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ros_rl.data.convert import Recording, begin_log, commit_log
from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.data.features import DatasetSpec
from ros_rl.data.integrity import open_logs
from ros_rl.data.log import LogReader
from ros_rl.data.messages import encode, header
from ros_rl.data.repair import recover_logs
from ros_rl.errors import UserError
from ros_rl.hardware.interface import NANOSECONDS

SPEC = DatasetSpec("drill", 30, ("shoulder", "elbow"), ("shoulder", "elbow"), (("front", (96, 128)), ("wrist", (96, 128))))
_RATE = 200  # Hz, of the joints
_MOST = 3 * _RATE  # joint states until the recorder is killed
_PAUSE = 0.3  # s, at most, after the last of them: it is killed between two and while it commits, too


def drill(kills: int, seed: int, folder: Path, progress: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Kills a recorder `kills` times with SIGKILL.

    Args:
        kills: how often.
        seed: of the moments at which it is killed.
        folder: where the dataset goes; a new folder.
        progress: called after each kill.

    Returns:
        kills; episodes committed; committed episodes lost; datasets that were unreadable after a kill; how many episodes were
        open, and the seconds lost at their end (p50, max); and how many episodes were made of logs, those included of which the
        commit was cut off.
    """
    rng = np.random.default_rng(seed)
    root = folder / "set"
    committed: dict[int, str] = {}
    tails: list[float] = []
    unreadable = recovered = 0
    for number in range(kills):
        said = _record_and_kill(root, int(rng.integers(_MOST)), float(rng.uniform(0.0, _PAUSE)), number)
        committed |= {int(words[1]): words[2] for words in said if words[0] == "committed"}
        try:
            Dataset.open(root)
        except UserError:
            unreadable += 1
        tails += _tail(root, said)
        for line in recover_logs(root):
            recovered += ": is episode" in line
        progress()
    return {
        "kills": kills,
        "episodes_committed": len(committed),
        "committed_episodes_lost": count_lost(root, committed),
        "unreadable_datasets": unreadable,
        "open_episodes": len(tails),
        "cut_off_episodes_recovered": recovered,
        "tail_lost_s": {"p50": float(np.median(tails)) if tails else 0.0, "max": max(tails, default=0.0)},
    }


def _record_and_kill(root: Path, ticks: int, pause: float, seed: int) -> list[list[str]]:
    """Lets a recorder write so many joint states, kills it and returns the words that it said, line by line."""
    command = [sys.executable, "-m", "ros_rl.data.crash", str(root), "--seed", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        had = 0
        while (not lines or had < ticks) and (line := process.stdout.readline()):
            lines.append(line)
            had += line.startswith("have")
        time.sleep(pause)
        process.kill()
        lines += process.stdout
    if not lines:
        raise RuntimeError("the recorder of the crash drill did not start")
    return [line.split() for line in lines if line.endswith("\n")]


def _tail(root: Path, said: list[list[str]]) -> list[float]:
    """Returns the seconds that the log of an open episode lacks of what the recorder had, nothing where none was open."""
    state = said[-1]
    if state[0] != "have":
        return []
    times = [entry.time for path in open_logs(root) if path.name == state[1] for entry in LogReader(path).entries()]
    began = next(int(words[2]) for words in said if words[:2] == ["have", state[1]])
    return [max(0, int(state[2]) - max(times, default=began)) / NANOSECONDS]


def count_lost(root: Path, committed: dict[int, str]) -> int:
    """Counts the episodes whose rows or frames are not those that were committed."""
    dataset = Dataset.open(root)
    lost = 0
    for index, digest in committed.items():
        try:
            lost += _digest(dataset, index) != digest
        except (OSError, IndexError):
            lost += 1
    return lost


def _digest(dataset: Dataset, index: int) -> str:
    """Sums up what an episode's rows and frames are."""
    columns = dataset.columns(index)
    found = hashlib.sha256(b"".join(columns[key].tobytes() for key in sorted(columns)))
    for key in dataset.spec.camera_keys:
        for image in dataset.frames(index, key):
            found.update(image.tobytes())
    return found.hexdigest()


def _record(root: Path, seed: int) -> None:
    """Records episodes of random lengths, in real time, until it is killed."""
    rng = np.random.default_rng(seed)
    with DatasetWriter(root, SPEC) as writer:
        print("ready", flush=True)
        while True:
            with begin_log(root, SPEC, "survive") as log:
                for tick in range(int(rng.integers(_RATE // 5, _RATE))):
                    stamp = time.time_ns()
                    print("have", log.path.name, stamp, flush=True)
                    for topic, kind, data in _messages(tick, stamp, rng):
                        log.write(topic, kind, data, stamp)
                    time.sleep(1 / _RATE)
            print("closed", flush=True)
            index = commit_log(writer, Recording.read(log.path))
            print("committed", index, _digest(Dataset.open(root), index), flush=True)
            log.path.unlink()


def _messages(tick: int, stamp: int, rng: np.random.Generator) -> list[tuple[str, str, bytes]]:
    values = rng.normal(size=2)
    state = {"header": header(stamp), "name": list(SPEC.measured), "position": values, "velocity": [], "effort": []}
    point = {"positions": values, "velocities": [], "accelerations": [], "effort": [], "time_from_start": {"sec": 0, "nanosec": 0}}
    command = {"header": header(stamp), "joint_names": list(SPEC.commanded), "points": [point]}
    messages = [
        ("joint_states", "sensor_msgs/JointState", encode("sensor_msgs/JointState", state)),
        ("joint_command", "trajectory_msgs/JointTrajectory", encode("trajectory_msgs/JointTrajectory", command)),
    ]
    if tick % (_RATE // SPEC.fps) == 0:
        for name, (height, width) in SPEC.cameras:
            image = {"header": header(stamp), "height": height, "width": width, "encoding": "rgb8", "is_bigendian": 0, "step": 3 * width}
            image["data"] = rng.integers(0, 256, 3, dtype=np.uint8).tobytes() * (height * width)
            messages.append((f"camera/{name}/image_raw", "sensor_msgs/Image", encode("sensor_msgs/Image", image)))
    return messages


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    _record(arguments.root, arguments.seed)

"""Demonstrations to imitate: from scripted experts in simulation, or from datasets; kept as one file for each episode.

At every waypoint's time there is a sample: images, measured joints, instruction, and the targets of the waypoints that follow.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ros_rl.data.dataset import Dataset
from ros_rl.data.features import CAMERA_PREFIX
from ros_rl.errors import UserError, unknown
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.paths import write_atomically
from ros_rl.policies.actors import load_policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.sim.camera import CameraRenderer
from ros_rl.sim.task import Task, TaskMonitor

_VERSION = "1"


@dataclass(frozen=True)
class Sampling:
    """How episodes are cut into samples.

    Attributes:
        cameras: whose images are kept, in this order.
        image: height and width to which they are scaled.
        ticks: waypoints that follow a sample.
        period: s from one waypoint, and one sample, to the next.
    """

    cameras: tuple[str, ...]
    image: tuple[int, int]
    ticks: int
    period: float


@dataclass(frozen=True, eq=False)
class Episode:
    """An episode's samples.

    Attributes:
        instruction: what was said.
        images: (K, cameras, height, width, 3) uint8.
        position: of the measured joints, (K, s).
        waypoints: targets of the commanded joints, (K, ticks, n).
    """

    instruction: str
    images: np.ndarray
    position: np.ndarray
    waypoints: np.ndarray

    def save(self, path: Path) -> None:
        """Writes a file."""
        tensors = {"images": self.images, "position": self.position.astype(np.float32), "waypoints": self.waypoints.astype(np.float32)}
        write_atomically(path, save(tensors, {"instruction": self.instruction, "version": _VERSION}))

    @classmethod
    def load(cls, path: Path) -> "Episode":
        """Reads a file.

        Raises:
            UserError: it is none of these, or damaged.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                said = file.metadata() or {}
                return cls(said["instruction"], *(file.get_tensor(name) for name in ("images", "position", "waypoints")))
        except (SafetensorError, KeyError, OSError) as error:
            raise UserError(f"{path}: is no demonstration, or damaged ({error})") from None


def waypoints_after(commands: np.ndarray, rows: int, ticks: int) -> np.ndarray:
    """Returns for rows 0, `rows`, 2·`rows`, … of commands (N, n) the `ticks` waypoints that follow, (K, ticks, n).

    Waypoint j of row r is the last command of its line, r + (j+1)·rows - 1; beyond the end the last command goes on.
    """
    first = np.arange(0, len(commands), rows)[:, None]
    chosen = np.minimum(first + rows * np.arange(1, ticks + 1) - 1, len(commands) - 1)
    return commands[chosen]


def demonstrate(robot: GuardedRobot, simulation: MujocoRobot, runner: PolicyRunner, task: Task, seed: int, sampling: Sampling) -> Any:
    """Runs a policy for one episode.

    Args:
        robot: the simulation behind its guard.
        simulation: which is looked at by the cameras.
        runner: plays the expert.
        task: that is done.
        seed: of the initial state.
        sampling: what is kept.

    Returns:
        the episode, or None if the task was not done.
    """
    spec = simulation.spec
    rows = round(sampling.period * spec.control_rate)
    monitor = TaskMonitor(task, spec)
    renderer = CameraRenderer(simulation.model)
    runner.restart()
    robot.reset(seed)
    images, positions, commands = [], [], []
    try:
        for tick in range(round(task.time_limit * spec.control_rate) + 1):
            observation = robot.read()
            state = monitor.update(observation)
            if state.done:
                break
            if tick % rows == 0:
                seen = [renderer.render(simulation.data, name) for name in sampling.cameras]
                images.append(np.stack([scaled(image, sampling.image) for image in seen]))
                positions.append(observation.joint_position)
            commands.append(robot.write(runner.command(observation)).in_order_of(spec))
            robot.step()
    finally:
        renderer.close()
    if not state.success:
        return None
    return Episode(task.instruction, np.stack(images), np.stack(positions), waypoints_after(np.stack(commands), rows, sampling.ticks))


def collect(task: Task, seeds: Iterable[int], sampling: Sampling, folder: Path, update: Callable[[], Any] = lambda: None) -> int:
    """Writes a demonstration by the task's own policy for each seed into a folder; goes on where it was stopped.

    Instructions are those of the task and its paraphrases in turn. What the expert fails at is left out.

    Returns:
        how many there are now.

    Raises:
        UserError: there is no such camera.
    """
    robot = load_robot(task.robot)
    simulation = MujocoRobot(robot, task)
    for name in sampling.cameras:
        if name not in simulation.model.cameras:
            raise unknown("camera", name, simulation.model.cameras)
    guarded = GuardedRobot(simulation, Guard(robot))
    runner = PolicyRunner(load_policy(task.policy, robot))
    folder.mkdir(parents=True, exist_ok=True)
    _check_sampling(folder, sampling)
    said = (task.instruction, *task.paraphrases)
    made = 0
    for seed in seeds:
        path, failed = folder / f"{task.name}-{seed:06d}.safetensors", folder / f"{task.name}-{seed:06d}.failed"
        if not path.exists() and not failed.exists():
            episode = demonstrate(guarded, simulation, runner, task, seed, sampling)
            if episode is None:
                failed.touch()
            else:
                Episode(said[seed % len(said)], episode.images, episode.position, episode.waypoints).save(path)
        made += path.exists()
        update()
    guarded.close()
    return made


def from_dataset(dataset: Dataset, sampling: Sampling, robot: RobotSpec) -> list[Episode]:
    """Cuts the successful episodes of a LeRobot dataset into samples; episodes that say nothing of success count as successful.

    Raises:
        UserError: it is another robot's, lacks a camera, or its rate does not fit the sampling.
        OSError: a file cannot be read.
    """
    spec = dataset.spec
    if spec.measured != robot.measured_names or spec.commanded != robot.joint_names:
        raise UserError(
            f"{dataset.root}: commands {', '.join(spec.commanded)} and measures {', '.join(spec.measured)}; robot '{robot.name}' "
            f"commands {', '.join(robot.joint_names)} and measures {', '.join(robot.measured_names)}"
        )
    rows = sampling.period * spec.fps
    if rows < 1 - 1e-6 or abs(rows - round(rows)) > 1e-6:
        raise UserError(f"{dataset.root}: has {spec.fps} rows a second, of which a period of {sampling.period:g} s takes no whole number")
    for name in sampling.cameras:
        if CAMERA_PREFIX + name not in spec.camera_keys:
            raise unknown(f"camera in {dataset.root}", name, [name for name, _ in spec.cameras])
    return [episode for index in range(len(dataset.episodes)) if (episode := _cut(dataset, index, sampling, round(rows)))]


def _cut(dataset: Dataset, index: int, sampling: Sampling, rows: int) -> Episode | None:
    columns = dataset.columns(index)
    if "next.success" in columns and not columns["next.success"].any():
        return None
    videos = []
    for name in sampling.cameras:
        frames = dataset.frames(index, CAMERA_PREFIX + name)
        videos.append([scaled(frame, sampling.image) for row, frame in enumerate(frames) if row % rows == 0])
    positions = columns["observation.state"][::rows]
    waypoints = waypoints_after(columns["action"], rows, sampling.ticks)
    images = np.stack([np.stack(frames) for frames in videos], axis=1)
    return Episode(dataset.episodes[index].tasks[0], images, positions, waypoints)


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """The samples of many episodes, one after the other; fields as of `Episode`, with an instruction for each sample."""

    instructions: list[str]
    images: np.ndarray
    position: np.ndarray
    waypoints: np.ndarray

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "Demonstrations":
        """Puts episodes together.

        Raises:
            UserError: there are none, or they do not fit together.
        """
        if not episodes:
            raise UserError("there are no demonstrations")
        first = episodes[0]
        for episode in episodes:
            if episode.images.shape[1:] != first.images.shape[1:] or episode.waypoints.shape[1:] != first.waypoints.shape[1:]:
                raise UserError(
                    f"demonstrations have images of {episode.images.shape[1:]} and waypoints of {episode.waypoints.shape[1:]}, "
                    f"others of {first.images.shape[1:]} and {first.waypoints.shape[1:]}"
                )
        instructions = [episode.instruction for episode in episodes for _ in episode.position]
        return cls(instructions, *(np.concatenate([getattr(e, name) for e in episodes]) for name in ("images", "position", "waypoints")))

    @classmethod
    def load(cls, folder: Path) -> "Demonstrations":
        """Reads all that `collect` wrote into a folder.

        Raises:
            UserError: there are none, or one is damaged.
        """
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise UserError(f"{folder}: holds no demonstrations; python -m ros_rl.learning.bc collect makes them")
        return cls.of([Episode.load(file) for file in files])

    def __len__(self) -> int:
        return len(self.instructions)

    def digest(self) -> str:
        """Returns a short name for the samples, the same for equal ones in the same order."""
        found = hashlib.blake2b(json.dumps(self.instructions).encode(), digest_size=8)
        for values in (self.images, self.position, self.waypoints):
            found.update(f"{values.dtype}{values.shape}".encode())
            found.update(np.ascontiguousarray(values).data)
        return found.hexdigest()


def scaled(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns an image (height, width, 3) at another size, by the mean over areas."""
    return image if image.shape[:2] == size else np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA))


def _check_sampling(folder: Path, sampling: Sampling) -> None:
    """Writes how a folder's demonstrations are sampled, or refuses to mix them with others."""
    path = folder / "sampling.json"
    wanted: Mapping[str, Any] = json.loads(json.dumps(sampling.__dict__))
    if not path.exists():
        write_atomically(path, (json.dumps(wanted) + "\n").encode())
    elif (found := json.loads(path.read_text())) != wanted:
        raise UserError(f"{folder}: holds demonstrations that are sampled by {found}, not by {wanted}")

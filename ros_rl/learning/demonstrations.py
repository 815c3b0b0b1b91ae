"""Demonstrations to imitate: from scripted experts in simulation, or from datasets; kept as one file for each episode.

At every waypoint's time there is a sample: images, measured joints, instruction, and the targets of the waypoints that follow.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ros_rl.data.dataset import Dataset
from ros_rl.data.features import CAMERA_PREFIX
from ros_rl.errors import RobotFault, UserError, unknown
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.hardware.mujoco import MujocoRobot, Snapshot
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.learning.scatter import Scatter
from ros_rl.learning.token_rollout import TokenWorld, left_behind
from ros_rl.paths import write_atomically
from ros_rl.policies.actors import load_policy
from ros_rl.policies.interface import Policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.policies.vla import VlaModel, digest, scaled, spec_for
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.camera import CameraRenderer
from ros_rl.sim.task import Task, TaskMonitor

_SOURCE = "source.json"
_FAILED = ".failed"  # instead of .safetensors: this seed gives no demonstration
_COPIES = 16  # of a policy's episodes at once


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

    def __post_init__(self) -> None:
        """Refuses numbers that no policy could be trained with.

        Raises:
            UserError: names what and what would be right.
        """
        if not self.cameras:
            raise UserError("no camera is named; a policy reads at least one")
        if self.ticks < 1:
            raise UserError(f"ticks must be 1 or more, got {self.ticks}")
        if any(size < 16 or size % 16 for size in self.image):
            raise UserError(f"image must be a multiple of 16, got {self.image[0]}")


@dataclass(frozen=True)
class Source:
    """What the demonstrations of a folder are of.

    Attributes:
        robot: name of the robot.
        sizes: camera to height and width of its images, before they are scaled.
        sampling: how episodes are cut.
        noise: rad (m), how far the expert was pushed about, see `Noise`.
    """

    robot: str
    sizes: dict[str, tuple[int, int]]
    sampling: Sampling
    noise: float = 0.0

    def mark(self, folder: Path) -> None:
        """Writes this into a folder.

        Raises:
            UserError: demonstrations of another kind are there.
        """
        path = folder / _SOURCE
        if not path.exists() and not any(folder.glob("*.safetensors")):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, (json.dumps(asdict(self)) + "\n").encode())
        found = Source.of(folder)
        mine, theirs = ({**asdict(source), **asdict(source.sampling)} for source in (self, found))
        if differing := [name for name in mine if name != "sampling" and mine[name] != theirs[name]]:
            name = differing[0]
            raise UserError(f"{folder}: holds demonstrations with {name} {theirs[name]}, not {mine[name]}; name another folder")

    @classmethod
    def of(cls, folder: Path) -> "Source":
        """Reads what `mark` wrote.

        Raises:
            UserError: it is missing or damaged.
        """
        try:
            said = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
            sampling = said["sampling"]
            cut = Sampling(tuple(sampling["cameras"]), tuple(sampling["image"]), int(sampling["ticks"]), float(sampling["period"]))
            sizes = {name: (int(size[0]), int(size[1])) for name, size in said["sizes"].items()}
            return cls(str(said["robot"]), sizes, cut, float(said.get("noise", 0.0)))  # folders of before there was noise do not say
        except OSError:
            raise UserError(
                f"{folder}: lacks {_SOURCE}, which says what its demonstrations are of; collect them anew in another folder"
            ) from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UserError(f"{folder / _SOURCE}: is damaged ({error}); collect the demonstrations anew") from None


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
        write_atomically(path, save(tensors, {"instruction": self.instruction}))

    @classmethod
    def load(cls, path: Path) -> "Episode":
        """Reads a file.

        Raises:
            UserError: it is none of these, or damaged.
        """
        with _opened(path) as file:
            said = file.metadata() or {}
            return cls(said["instruction"], *(file.get_tensor(name) for name in ("images", "position", "waypoints")))

    @classmethod
    def samples(cls, path: Path) -> int:
        """Returns how many samples the episode of a file has, without reading them.

        Raises:
            UserError: it is none of these, or damaged.
        """
        with _opened(path) as file:
            return int(file.get_slice("position").get_shape()[0])


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, KeyError, OSError) as error:
        raise UserError(f"{path}: is no demonstration, or damaged ({error})") from None


def waypoints_after(commands: np.ndarray, rows: int, ticks: int) -> np.ndarray:
    """Returns for rows 0, `rows`, 2·`rows`, … of commands (N, n) the `ticks` waypoints that follow, (K, ticks, n).

    Waypoint j of row r is the last command of its line, r + (j+1)·rows - 1; beyond the end the last command goes on.
    """
    first = np.arange(0, len(commands), rows)[:, None]
    chosen = np.minimum(first + rows * np.arange(1, ticks + 1) - 1, len(commands) - 1)
    return commands[chosen]


class Noise:
    """Smooth noise on an expert's commands, that leads it off its path and shows how it comes back.

    Source: Laskey et al., "DART: Noise Injection for Robust Imitation Learning", 2017: what is carried out is the expert's command
    and noise, what is learned is the command alone. Here two low-passes in a row make it smooth, so that a guard need not cut it; its
    standard deviation is drawn for each episode, so that some are nearly clean. A gripper has none. The expert does not feel the
    noise: one that trims its commands until the arm is where it should be would command against it.
    """

    _TIME = 0.3  # s, of each low-pass

    def __init__(self, spec: RobotSpec, size: float, seed: int):
        """Draws how much this episode has.

        Args:
            spec: the robot.
            size: rad (m for a prismatic joint), the largest standard deviation.
            seed: of all that is drawn.
        """
        self._draw = np.random.default_rng([seed, 7])
        gripper = spec.gripper.joint if spec.gripper else None
        self._decay = float(np.exp(-spec.period / self._TIME))
        # Of unit white noise, two low-passes leave this variance: the sum of squares of their impulse response (k + 1)(1 - a)²aᵏ.
        gain = (1 - self._decay) ** 4 * (1 + self._decay**2) / (1 - self._decay**2) ** 3
        scale = size * self._draw.uniform() / np.sqrt(gain)
        self._scale = np.array([0.0 if name == gripper else scale for name in spec.joint_names])
        self._once, self.value = np.zeros((2, len(self._scale)))

    def next(self) -> np.ndarray:
        """Returns what is added in the next control period, (n,)."""
        self._once = self._decay * self._once + (1 - self._decay) * self._scale * self._draw.normal(size=len(self._scale))
        self.value = self._decay * self.value + (1 - self._decay) * self._once
        return self.value


class _Watched(PolicyRunner):
    """Plays a policy, pushed about by noise, and looks through cameras at the samples' times.

    Attributes:
        noise: of this episode.
        images: of each sample so far, (cameras, height, width, 3).
        positions: of the measured joints, (s,).
    """

    def __init__(self, policy: Policy, simulation: MujocoRobot, sampling: Sampling):
        super().__init__(policy)
        self._simulation, self._sampling = simulation, sampling
        self._renderer = CameraRenderer(simulation.model)
        self._rows = round(sampling.period * simulation.spec.control_rate)
        self.noise = Noise(simulation.spec, 0.0, 0)

    def restart(self) -> None:
        """Makes the next observation the first of a new episode."""
        super().restart()
        self._tick = 0
        self.images: list[np.ndarray] = []
        self.positions: list[np.ndarray] = []

    def command(self, observation: Observation) -> JointCommand:
        """Returns the command for `observation`."""
        if self._tick % self._rows == 0:
            seen = [self._renderer.render(self._simulation.data, name) for name in self._sampling.cameras]
            self.images.append(np.stack([scaled(image, self._sampling.image) for image in seen]))
            self.positions.append(observation.joint_position)
        self._tick += 1
        off = np.pad(self.noise.value, (0, len(observation.joint_position) - len(self.noise.value)))
        wanted = super().command(replace(observation, joint_position=observation.joint_position - off))
        return replace(wanted, values=wanted.values + self.noise.next())

    def close(self) -> None:
        """Frees the renderer and closes the policy."""
        self._renderer.close()
        super().close()


class _Simulation(MujocoRobot):
    """Begins an episode in a given state, or with the arm above the objects.

    Attributes:
        state: MuJoCo's integration state; None: what the seed says.
        scatter: moves the arm; None: it is where the task has it.
    """

    state: np.ndarray | None = None
    scatter: Scatter | None = None

    def reset(self, seed: int) -> None:
        super().reset(seed)
        if self.state is not None:
            self.restore(Snapshot(self.state, {}))
        elif self.scatter is not None:
            self.scatter.apply(self.data, seed)


class Demonstrator:
    """Does a task by its own policy."""

    def __init__(self, task: Task, sampling: Sampling, noise: float = 0.0, scatter: bool = False):
        """Prepares the simulation.

        Args:
            task: that is done.
            sampling: how episodes are cut.
            noise: rad (m), see `Noise`.
            scatter: whether episodes begin as `Scatter` has it.

        Raises:
            UserError: there is no such camera, or the sampling does not fit the robot.
        """
        self.task, self.sampling, self.spec = task, sampling, load_robot(task.robot)
        self._simulation = simulation = _Simulation(self.spec, task)
        simulation.scatter = Scatter(simulation.model) if scatter else None
        known = simulation.model.cameras
        for name in sampling.cameras:
            if name not in known:
                raise unknown("camera", name, known)
        self.source = Source(task.robot, {name: (known[name].height, known[name].width) for name in sampling.cameras}, sampling, noise)
        spec_for(self.spec, self.source.sizes, sampling.ticks, sampling.period)  # a policy of this must be possible
        self._robot = GuardedRobot(simulation, Guard(self.spec))
        self._runner = _Watched(load_policy(task.policy, self.spec), simulation, sampling)

    def demonstrate(self, seed: int, instruction: str, state: np.ndarray | None = None) -> Episode | None:
        """Returns the episode from the initial state of a seed, None if the task was not done or the simulation diverged.

        Args:
            seed: of the initial state and of the noise.
            instruction: what is said.
            state: to begin in instead, MuJoCo's integration state; None is returned if the gripper holds something in it.
        """
        self._simulation.state = state
        if state is not None and self._holds(self._robot.reset(seed)):
            return None
        commands: list[np.ndarray] = []
        steps = round(self.task.time_limit * self.spec.control_rate) + 1
        stage, monitor = SafetyStage(self.spec, PassThrough()), TaskMonitor(self.task, self.spec)
        runner, sampling = self._runner, self.sampling
        runner.noise = Noise(self.spec, self.source.noise, seed)

        def note(step: Step) -> None:
            commands.append(step.sent.in_order_of(self.spec) - runner.noise.value)

        try:
            end = run_episode(self._robot, runner, stage, seed, steps, monitor, note)
        except RobotFault:
            return None
        if end is None or not end.success:
            return None
        waypoints = waypoints_after(np.stack(commands), round(sampling.period * self.spec.control_rate), sampling.ticks)
        return Episode(instruction, np.stack(runner.images), np.stack(runner.positions), waypoints)

    def _holds(self, observation: Observation) -> bool:
        """Whether the fingers are neither closed nor open: something is between them."""
        gripper = self.spec.gripper
        if gripper is None:
            return False
        position = observation.joint_position[self.spec.joint_names.index(gripper.joint)]
        return bool(0.1 < (position - gripper.closed) / (gripper.open - gripper.closed) < 0.8)

    def close(self) -> None:
        """Frees the simulation."""
        self._runner.close()
        self._robot.close()


def collect(
    task: Task,
    seeds: Iterable[int],
    sampling: Sampling,
    folder: Path,
    noise: float = 0.0,
    update: Callable[[], Any] = lambda: None,
    after: VlaModel | None = None,
    scatter: bool = False,
) -> int:
    """Writes a demonstration by the task's own policy for each seed into a folder; goes on where it was stopped.

    Instructions are those of the task and its paraphrases in turn. What the expert fails at is left out.

    Args:
        task: that is done.
        seeds: of the initial states.
        sampling: how episodes are cut.
        folder: where they go.
        noise: rad (m), see `Noise`.
        update: called after each seed.
        after: a policy of the task's robot and the sampling's cameras that acts first, without drawing tokens; the expert begins where it
            was left when its time was up. Episodes that ended otherwise are left out, and those in which the gripper holds something then:
            the expert would begin by letting go. So the data have the states that this policy comes into and does not know (Ross et al., "A
            Reduction of Imitation Learning and Structured Prediction to No-Regret Online Learning", 2011; that the expert takes over, and
            only its part is learned: Kelly et al., "HG-DAgger", 2019).
        scatter: whether episodes begin with the tool above an object, see `Scatter`; not with `after`.

    Returns:
        how many there are now.

    Raises:
        UserError: there is no such camera, the sampling does not fit the robot, or the folder holds demonstrations of another kind.
    """
    kind = f"-after-{_name(after)}" if after else "-scattered" if scatter else ""
    said, paths = {}, {}
    for seed in seeds:
        said[seed] = (task.instruction, *task.paraphrases)[seed % (1 + len(task.paraphrases))]
        paths[seed] = folder / f"{task.name}-{seed:06d}{kind}.safetensors"
    missing = {seed: said[seed] for seed, path in paths.items() if not path.exists() and not path.with_suffix(_FAILED).exists()}
    for _ in range(len(paths) - len(missing)):
        update()
    with closing(Demonstrator(task, sampling, noise, scatter)) as demonstrator:
        demonstrator.source.mark(folder)
        for seed, state in dict.fromkeys(missing).items() if after is None else _left_behind(task, after, missing):
            episode = demonstrator.demonstrate(seed, said[seed], state) if after is None or state is not None else None
            if episode is None:
                paths[seed].with_suffix(_FAILED).touch()
            else:
                episode.save(paths[seed])
            update()
    return sum(path.exists() for path in paths.values())


def _left_behind(task: Task, policy: VlaModel, said: dict[int, str]) -> Iterator[tuple[int, np.ndarray | None]]:
    """Yields each seed with the state that the policy was left in, None where it did the task or failed; `said` is by seed."""
    if said:
        with closing(TokenWorld(task, load_robot(task.robot), min(_COPIES, len(said)))) as world:
            yield from left_behind(policy, world, said)


def _name(policy: VlaModel) -> str:
    """Returns a short name for how a policy that draws no tokens acts."""
    how = [digest(policy.network), policy.meaning(), policy.settings.choice]
    return hashlib.blake2b(json.dumps(how).encode(), digest_size=4).hexdigest()


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
    """The samples of many episodes, one after the other; fields as of `Episode`, with an instruction for each sample.

    Attributes:
        last: number of the last sample of each sample's episode, (N,).
    """

    instructions: list[str]
    images: np.ndarray
    position: np.ndarray
    waypoints: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "Demonstrations":
        """Puts episodes together.

        Raises:
            UserError: there are none, or they do not fit together.
        """
        if not episodes:
            raise UserError("there are no demonstrations")
        return cls._filled(episodes, [len(episode.position) for episode in episodes])

    @classmethod
    def _filled(cls, episodes: Iterable[Episode], lengths: Sequence[int]) -> "Demonstrations":
        """Puts episodes of known lengths together, one after the other, so that they need not all be there beside the whole."""
        ends = np.cumsum(lengths)
        instructions: list[str] = []
        whole: dict[str, np.ndarray] = {}
        for episode, end in zip(episodes, ends, strict=True):
            start = len(instructions)
            instructions += [episode.instruction] * (end - start)
            for name in ("images", "position", "waypoints"):
                values = getattr(episode, name)
                if name not in whole:
                    whole[name] = np.empty((ends[-1], *values.shape[1:]), values.dtype)
                if values.shape != (end - start, *whole[name].shape[1:]):
                    raise UserError(f"a demonstration has {name} of {values.shape}, others of {whole[name].shape[1:]} for each sample")
                whole[name][start:end] = values
        return cls(instructions, **whole, last=np.repeat(ends - 1, lengths))

    def later(self, periods: int) -> np.ndarray:
        """Returns the target of the commanded joints that many periods after each sample, at most at its episode's end, (N, n)."""
        return np.asarray(self.waypoints[np.minimum(np.arange(len(self)) + periods - 1, self.last), 0])

    @classmethod
    def load(cls, folder: Path) -> "Demonstrations":
        """Reads all that `collect` wrote into a folder.

        Raises:
            UserError: there are none, or one is damaged.
        """
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise UserError(f"{folder}: holds no demonstrations; python -m ros_rl.learning.bc collect makes them")
        return cls._filled((Episode.load(file) for file in files), [Episode.samples(file) for file in files])

    def __len__(self) -> int:
        return len(self.instructions)

    def digest(self) -> str:
        """Returns a short name for the samples, the same for equal ones in the same order."""
        found = hashlib.blake2b(json.dumps(self.instructions).encode(), digest_size=8)
        for values in (self.images, self.position, self.waypoints):
            found.update(f"{values.dtype}{values.shape}".encode())
            found.update(np.ascontiguousarray(values).data)
        return found.hexdigest()

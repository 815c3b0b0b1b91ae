"""Measures a policy on the tabletop suite, split by split; by default its scripted experts."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from ros_rl.errors import unknown
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning import workers
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.learning.token_rollout import Request, TokenWorld, run_requests
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, check_fits, load_bundle
from ros_rl.policies.runner import PolicyRunner
from ros_rl.policies.vla import ACTOR, VlaModel
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.tabletop import SPLITS, Item, load_split
from ros_rl.sim.task import Task, TaskMonitor, suite_names


@dataclass(frozen=True)
class Played:
    """How an episode ended, how many control steps it had, and at how many of them the guard cut a command."""

    success: bool
    reason: str
    steps: int
    limited: int


class Player(Protocol):
    """Plays episodes of the suite.

    Attributes:
        spec: the robot.
        digest: of the policy's weights, where its bundle says so.
        tokens: how a VLA chooses its tokens, "median", "mode" or "temperature T"; empty for other policies.
    """

    spec: RobotSpec
    digest: str
    tokens: str

    def play_all(self, episodes: Sequence[tuple[Task, int]], progress: Callable[[int], object]) -> list[Played]:
        """Plays tasks from the initial states of seeds; `progress` is told how many more are done."""
        ...

    def close(self) -> None:
        """Frees the simulations and the policy."""
        ...


def player_for(robot: str = "arm", policy: str = "", copies: int = 32) -> Player:
    """Returns who plays a policy, by name, path or a server's address; empty: the one that each task names.

    A VLA is played `copies` episodes at once, as in training: on images of the moment in which it decides.

    Raises:
        UserError: there is no such bundle, or it is another robot's.
    """
    bundle = load_bundle(policy) if policy else None
    spec = load_robot(robot)
    if bundle is not None and bundle.actor == ACTOR:
        check_fits(bundle, spec)
        return BatchPlayer(spec, bundle, copies)
    return SerialPlayer(spec, bundle)


class BatchPlayer:
    """Plays a VLA in many simulations at once; see `Player`."""

    def __init__(self, spec: RobotSpec, bundle: Bundle, copies: int):
        """Reads the network."""
        self.spec, self.digest = spec, str(bundle.metrics.get("digest", ""))
        self._model, self._copies = VlaModel.from_bundle(bundle), copies
        self._model.network.to(workers.device())
        settings = self._model.settings
        self.tokens = settings.choice if settings.temperature == 0 else f"temperature {settings.temperature:g}"

    def play_all(self, episodes: Sequence[tuple[Task, int]], progress: Callable[[int], object]) -> list[Played]:
        """Plays tasks; those that differ in their wording only together."""
        played: dict[int, Played] = {}
        for task, numbers in _alike([task for task, _ in episodes]):
            with closing(TokenWorld(task, self.spec, min(self._copies, len(numbers)))) as world:
                seeds = [episodes[number][1] for number in numbers]
                said = [episodes[number][0].instruction for number in numbers]
                requests = [Request(start, text, (seed,)) for start, text, seed in zip(world.starts(seeds), said, seeds, strict=True)]
                traces = run_requests(self._model, world, requests, self._model.settings.temperature)
            for number, trace in zip(numbers, traces, strict=True):
                played[number] = Played(trace.success, trace.reason, round(trace.seconds / self.spec.period), trace.limited)
            progress(len(numbers))
        return [played[number] for number in range(len(episodes))]

    def close(self) -> None:
        """Nothing is open."""


def _alike(tasks: Sequence[Task]) -> list[tuple[Task, list[int]]]:
    """Returns the different tasks, without what is said, and the numbers of those that are each of them."""
    found: list[tuple[Task, list[int]]] = []
    for number, task in enumerate(tasks):
        silent = replace(task, instruction="", paraphrases=())
        numbers = next((numbers for known, numbers in found if known == silent), None)
        if numbers is None:
            found.append((silent, numbers := []))
        numbers.append(number)
    return found


class SerialPlayer:
    """One simulation for each scene and one player for each policy, for the tasks of the suite in any order; see `Player`."""

    def __init__(self, spec: RobotSpec, bundle: Bundle | None = None):
        """
        Args:
            spec: the robot.
            bundle: what plays; None: the policy that a task names. The cameras that it reads take images.

        Raises:
            UserError: it is another robot's.
        """
        self.spec = spec
        self._policy = None if bundle is None else PolicyRunner(load_policy(bundle, self.spec))
        self._cameras = () if bundle is None else bundle.spec.cameras
        self.digest = "" if bundle is None else str(bundle.metrics.get("digest", ""))
        self.tokens = ""
        self._robots: dict[str, GuardedRobot] = {}
        self._runners: dict[str, PolicyRunner] = {}

    def play(self, task: Task, seed: int, record: Callable[[Step], None] = lambda step: None) -> Played:
        """Plays an episode; `record` is called with every control step."""
        robot = self._robot(task)
        runner = self._policy or self._runner(task.policy)
        steps = round(task.time_limit * self.spec.control_rate) + 1
        limited = robot.guard.counts["limited"]
        taken = 0

        def count(step: Step) -> None:
            nonlocal taken
            taken += 1
            record(step)

        stage, monitor = SafetyStage(self.spec, PassThrough()), TaskMonitor(task, self.spec)
        state = run_episode(robot, runner, stage, seed, steps, monitor, count)
        assert state is not None  # there is a monitor
        return Played(state.success, state.reason, taken, robot.guard.counts["limited"] - limited)

    def play_all(self, episodes: Sequence[tuple[Task, int]], progress: Callable[[int], object]) -> list[Played]:
        """Plays tasks one after the other."""
        played = []
        for task, seed in episodes:
            played.append(self.play(task, seed))
            progress(1)
        return played

    def _runner(self, name: str) -> PolicyRunner:
        if name not in self._runners:
            self._runners[name] = PolicyRunner(load_policy(name, self.spec))
        return self._runners[name]

    def _robot(self, task: Task) -> GuardedRobot:
        if task.scene not in self._robots:
            self._robots[task.scene] = GuardedRobot(MujocoRobot(self.spec, task, cameras=self._cameras), Guard(self.spec))
        robot = self._robots[task.scene]
        assert isinstance(robot.robot, MujocoRobot)
        robot.robot.task = task
        return robot

    def close(self) -> None:
        """Frees the simulations and the policy."""
        for robot in self._robots.values():
            robot.close()
        if self._policy is not None:
            self._policy.close()


def episodes_of(items: Sequence[Item], count: int) -> list[tuple[Task, int]]:
    """Spreads a number of episodes over the items of one task: variants and wordings in turn, each episode with its own seed.

    The variants of consecutive episodes differ, so that a small number of them has all.
    """
    by_variant = [list(group) for _, group in groupby(items, lambda item: item.task.name)]
    picked = []
    for number in range(count):
        wordings = by_variant[number % len(by_variant)]
        item = wordings[(number // len(by_variant)) % len(wordings)]
        picked.append((item.task, item.seeds[number]))
    return picked


@dataclass(frozen=True)
class Row:
    """A task of a split, and what is to be played of it."""

    split: str
    task: str
    items: list[Item]


def rows_of(splits: Sequence[str], families: Sequence[str] = (), robot: str = "arm") -> list[Row]:
    """Returns every task of some splits; `families` names those that are wanted, without variants; empty: all.

    Raises:
        UserError: there is no such split or task.
    """
    for family in families:
        if family not in suite_names():
            raise unknown("task of the suite", family, suite_names())
    found = []
    for split in splits:
        for family, items in groupby(load_split(split, robot), lambda item: item.family):
            if not families or family in families:
                found.append(Row(split, family, list(items)))
    return found


def measure(player: Player, row: Row, episodes: int, progress: Callable[[int], object] = lambda count: None) -> dict[str, Any]:
    """Plays a task of a split.

    Args:
        player: who plays.
        row: what is played.
        episodes: how many, spread over its variants and wordings.
        progress: told now and then how many more episodes are done.

    Returns:
        how many variants and instructions the task has in this split, the success rate, the mean duration of an episode (s), control
        steps and how many of them the guard limited, and the episodes that failed.
    """
    chosen = episodes_of(row.items, episodes)
    played = player.play_all(chosen, progress)
    failed = [
        {"task": task.name, "instruction": task.instruction, "seed": seed, "reason": one.reason}
        for (task, seed), one in zip(chosen, played, strict=True)
        if not one.success
    ]
    steps = sum(one.steps for one in played)
    return {
        "split": row.split,
        "task": row.task,
        "variants": len({item.task.name for item in row.items}),
        "instructions": len({item.task.instruction for item in row.items}),
        "episodes": episodes,
        "success_rate": (episodes - len(failed)) / episodes,
        "mean_duration": round(steps * player.spec.period / episodes, 3),
        "steps": steps,
        "limited_steps": sum(one.limited for one in played),
        "failed": failed,
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Returns figures from `measure` as a table: a line for each task, a column for each split, and the mean duration over all."""
    splits = [split for split in SPLITS if any(row["split"] == split for row in rows)]
    lines = ["| task | " + " | ".join(split.replace("_", " ") for split in splits) + " | mean duration |", "|---" * (len(splits) + 2) + "|"]
    for task in dict.fromkeys(row["task"] for row in rows):
        of_task = {row["split"]: row for row in rows if row["task"] == task}
        cells = [f"{of_task[split]['success_rate']:.0%} of {of_task[split]['episodes']}" if split in of_task else "–" for split in splits]
        duration = sum(row["mean_duration"] for row in of_task.values()) / len(of_task)
        lines.append(f"| `{task}` | " + " | ".join(cells) + f" | {duration:.1f} s |")
    return "\n".join(lines)

"""Measures a policy on the tabletop suite, split by split; by default its scripted experts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ros_rl.errors import unknown
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.tabletop import SPLITS, Item, load_split
from ros_rl.sim.task import Task, TaskMonitor, TaskState, suite_names


@dataclass(frozen=True)
class Played:
    """How an episode ended, how many control steps it had, and at how many of them the guard cut a command."""

    state: TaskState
    steps: int
    limited: int


class Players:
    """One simulation for each scene and one player for each policy, for the tasks of the suite in any order.

    Attributes:
        spec: the robot.
        digest: of the policy's weights, where its bundle says so.
    """

    def __init__(self, robot: str = "arm", policy: str = ""):
        """
        Args:
            robot: name of the robot.
            policy: bundle, by name, path or a server's address; empty: the one that a task names. The cameras that it reads take images.

        Raises:
            UserError: there is no such bundle, or it is another robot's.
        """
        self.spec = load_robot(robot)
        bundle = load_bundle(policy) if policy else None
        self._policy = None if bundle is None else PolicyRunner(load_policy(bundle, self.spec))
        self._cameras = () if bundle is None else bundle.spec.cameras
        self.digest = "" if bundle is None else str(bundle.metrics.get("digest", ""))
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
        return Played(state, taken, robot.guard.counts["limited"] - limited)

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


def measure(players: Players, row: Row, episodes: int, progress: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Plays a task of a split.

    Args:
        players: who plays.
        row: what is played.
        episodes: how many, spread over its variants and wordings.
        progress: called after each episode.

    Returns:
        how many variants and instructions the task has in this split, the success rate, the mean duration of an episode (s), control
        steps and how many of them the guard limited, and the episodes that failed.
    """
    failed, steps, limited = [], 0, 0
    for task, seed in episodes_of(row.items, episodes):
        played = players.play(task, seed)
        steps += played.steps
        limited += played.limited
        if not played.state.success:
            failed.append({"task": task.name, "instruction": task.instruction, "seed": seed, "reason": played.state.reason})
        progress()
    return {
        "split": row.split,
        "task": row.task,
        "variants": len({item.task.name for item in row.items}),
        "instructions": len({item.task.instruction for item in row.items}),
        "episodes": episodes,
        "success_rate": (episodes - len(failed)) / episodes,
        "mean_duration": round(steps * players.spec.period / episodes, 3),
        "steps": steps,
        "limited_steps": limited,
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

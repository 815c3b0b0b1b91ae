"""Measures a policy on the tabletop suite, split by split; by default its scripted experts."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.policies.actors import load_policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.tabletop import Item, load_split
from ros_rl.sim.task import Task, TaskMonitor, TaskState


class Players:
    """One simulation and one policy for each scene, for the tasks of the suite in any order."""

    def __init__(self, robot: str = "arm", policy: str = "", cameras: Sequence[str] = ()):
        """
        Args:
            robot: name of the robot.
            policy: bundle, by name or path; empty: the one that a task names.
            cameras: cameras to take images with.
        """
        self._spec = load_robot(robot)
        self._policy = policy
        self._cameras = cameras
        self._robots: dict[str, GuardedRobot] = {}
        self._runners: dict[str, PolicyRunner] = {}

    def play(self, task: Task, seed: int, record: Callable[[Step], None] | None = None) -> tuple[TaskState, int]:
        """Plays an episode; returns how it ended and at how many control steps the guard cut a command."""
        robot = self._robot(task)
        name = self._policy or task.policy
        if name not in self._runners:
            self._runners[name] = PolicyRunner(load_policy(name, self._spec))
        steps = round(task.time_limit * self._spec.control_rate) + 1
        limited = robot.guard.counts["limited"]
        stage, monitor = SafetyStage(self._spec, PassThrough()), TaskMonitor(task, self._spec)
        state = run_episode(robot, self._runners[name], stage, seed, steps, monitor, record)
        assert state is not None  # there is a monitor
        return state, robot.guard.counts["limited"] - limited

    def _robot(self, task: Task) -> GuardedRobot:
        if task.scene not in self._robots:
            self._robots[task.scene] = GuardedRobot(MujocoRobot(self._spec, task, cameras=self._cameras), Guard(self._spec))
        robot = self._robots[task.scene]
        assert isinstance(robot.robot, MujocoRobot)
        robot.robot.task = task
        return robot

    def close(self) -> None:
        """Frees the simulations."""
        for robot in self._robots.values():
            robot.close()


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


def measure(
    splits: Sequence[str],
    episodes: int,
    families: Sequence[str] = (),
    robot: str = "arm",
    policy: str = "",
    progress: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Plays every task of some splits.

    Args:
        splits: names of splits.
        episodes: how many of each task in each split.
        families: tasks to play, without their variants; empty: all.
        robot: who plays.
        policy: bundle, by name or path; empty: the experts.
        progress: called after each episode.

    Returns:
        for each split and task: how many variants and instructions it has there, the success rate, the mean duration of an
        episode (s), control steps and how many of them the guard limited, and the seeds that failed.
    """
    players, rows = Players(robot, policy), []
    period = load_robot(robot).period
    for split, family, items in tasks_of(splits, families, robot):
        failed: list[dict[str, Any]] = []
        steps, limited = [], 0
        for task, seed in episodes_of(items, episodes):
            ticks: list[None] = []
            state, cut = players.play(task, seed, lambda _, ticks=ticks: ticks.append(None))  # type: ignore[misc]
            steps.append(len(ticks))
            limited += cut
            if not state.success:
                failed.append({"task": task.name, "seed": seed, "reason": state.reason})
            progress()
        rows.append(
            {
                "split": split,
                "task": family,
                "variants": len({item.task.name for item in items}),
                "instructions": len({item.task.instruction for item in items}),
                "episodes": episodes,
                "success_rate": (episodes - len(failed)) / episodes,
                "mean_duration": round(float(np.mean(steps)) * period, 3),
                "steps": int(np.sum(steps)),
                "limited_steps": limited,
                "failed": failed,
            }
        )
    players.close()
    return rows


def tasks_of(splits: Sequence[str], families: Sequence[str], robot: str) -> list[tuple[str, str, list[Item]]]:
    """Returns split, task and items for every task that the splits have."""
    found = []
    for split in splits:
        for family, items in groupby(load_split(split, robot), lambda item: item.family):
            if not families or family in families:
                found.append((split, family, list(items)))
    return found

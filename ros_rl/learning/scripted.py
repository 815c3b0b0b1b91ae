"""Makes the scripted bundles that ship: designs each, measures it in simulation, writes it. The same bytes every time.

python -m ros_rl.learning.scripted            # all of them
python -m ros_rl.learning.scripted cartpole_lqr
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ros_rl import paths
from ros_rl.errors import unknown
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.command import run_command
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, save_bundle
from ros_rl.policies.runner import PolicyRunner
from ros_rl.policies.scripted.design import DESIGNS
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import Task, TaskMonitor, load_task, task_names

EPISODES = 100


def measure(bundle: Bundle, task: Task, episodes: int) -> dict[str, Any]:
    """Runs a bundle on its task with the seeds 0 to `episodes` - 1.

    Returns:
        success rate, the mean duration of an episode (s), and how many ticks there were and were cut by the guard;
        for a robot with a floating base also the mean velocity (m/s, in the world) from start to end.
    """
    spec = load_robot(bundle.spec.robot)
    robot = GuardedRobot(MujocoRobot(spec, task), Guard(spec))
    runner, stage, monitor = PolicyRunner(load_policy(bundle, spec)), SafetyStage(spec, PassThrough()), TaskMonitor(task, spec)
    steps = round(task.time_limit * spec.control_rate) + 1
    succeeded, ticks, velocities = 0, 0, []
    for seed in tqdm(range(episodes), desc=f"{bundle.name} on {task.name}", disable=None):
        episode: list[Step] = []
        state = run_episode(robot, runner, stage, seed, steps, monitor, episode.append)
        succeeded += state is not None and state.success
        ticks += len(episode)
        if spec.floating_base:
            first, last = episode[0].observation, episode[-1].observation
            moved = last.privileged["base_pose"][:3] - first.privileged["base_pose"][:3]
            velocities.append(moved / (last.stamp - first.stamp))
    metrics = {
        "success_rate": succeeded / episodes,
        "episodes": episodes,
        "seeds": [0, episodes - 1],
        "mean_duration": round(ticks * spec.period / episodes, 3),
        "steps": ticks,
        "limited_steps": robot.guard.counts["limited"],
    }
    if velocities:
        metrics["command"] = list(task.command)
        metrics["mean_velocity"] = np.mean(velocities, axis=0).round(3).tolist()
    robot.close()
    return metrics


def _tasks(robot: str) -> Iterator[Task]:
    """Yields the tasks that ship for a robot."""
    for name in task_names():
        if robot in load_task(name).robots:
            yield load_task(name, robot)


def make(name: str, folder: Path, episodes: int = EPISODES) -> Bundle:
    """Designs a bundle, measures it on every task that names it, and writes it to `folder`.

    Raises:
        UserError: there is no design of that name.
    """
    if name not in DESIGNS:
        raise unknown("scripted bundle", name, DESIGNS)
    return ship(DESIGNS[name](), folder, episodes)


def ship(bundle: Bundle, folder: Path, episodes: int = EPISODES) -> Bundle:
    """Measures a bundle on every task that names it for its robot, prints and adds that, and writes it to `folder`."""
    tasks = [task for task in _tasks(bundle.spec.robot) if task.policy == bundle.name]
    metrics = {task.name: measure(bundle, task, episodes) for task in tasks}
    bundle = replace(bundle, metrics={"tasks": metrics})
    save_bundle(folder, bundle)
    for task, found in metrics.items():
        print(f"{bundle.name} on {task}: {found['success_rate']:.0%} of {found['episodes']} episodes, {found['mean_duration']} s each")
    return bundle


def main(names: list[str]) -> int:
    """Makes the named bundles, or all; returns the exit code."""

    def work() -> None:
        for name in names or DESIGNS:
            make(name, paths.share_dir() / "policies" / name)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

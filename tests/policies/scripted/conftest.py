"""Plays a shipped bundle against a simulation, through the guard, and keeps what was seen and sent."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import Observation
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.policies.actors import load_policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import TaskMonitor, TaskState, load_task, task_names


@dataclass(frozen=True, eq=False)
class Play:
    """Observations and the commands sent for them, shape (T, n); the task's verdict, None in a bare scene."""

    seen: list[Observation]
    sent: np.ndarray
    counts: Counter[str]
    state: TaskState | None


def play(
    bundle: str,
    robot: str,
    world: str,
    seconds: float,
    seed: int = 0,
    command: tuple[float, float, float] | None = None,
    disturb: Callable[[MujocoRobot, float], None] = lambda robot, stamp: None,
) -> Play:
    """Runs until the task is done or `seconds` are over; `disturb` may change the simulation at every tick."""
    spec = load_robot(robot)
    task = load_task(world) if world in task_names() else None
    backend = MujocoRobot(spec, task or world, seed)
    guarded = GuardedRobot(backend, Guard(spec))
    disturb(backend, -1.0)
    guarded.activate()
    runner = PolicyRunner(load_policy(bundle, spec), seed)
    monitor = TaskMonitor(task, spec) if task else None
    seen, sent, state = [], [], None
    for _ in range(round(seconds * spec.control_rate)):
        disturb(backend, backend.data.time)
        observation = guarded.read()
        if command is not None:
            observation = replace(observation, command=np.array(command))
        if monitor is not None:
            state = monitor.update(observation)
            if state.done:
                break
        seen.append(observation)
        sent.append(guarded.write(runner.command(observation)).values)
        guarded.step()
    return Play(seen, np.array(sent), guarded.guard.counts, state)


@pytest.fixture(name="play", scope="session")
def _play() -> Callable[..., Play]:
    return play

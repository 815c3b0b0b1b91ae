"""Plays a shipped bundle against a simulation, through the whole data path, and keeps what was seen and sent."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import Observation
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.policies.actors import load_policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
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
    """Runs until the task is done or `seconds` are over; `disturb` may change the simulation before the first tick (-1) and after each."""

    class Simulation(MujocoRobot):
        def reset(self, seed: int) -> None:
            super().reset(seed)
            disturb(self, -1.0)

        def step(self) -> None:
            super().step()
            disturb(self, self.data.time)

        def read(self) -> Observation:
            seen = super().read()
            return seen if command is None else seen.told(np.array(command), seen.instruction)

    spec = load_robot(robot)
    task = load_task(world, robot) if world in task_names() else None
    guarded = GuardedRobot(Simulation(spec, task or world), Guard(spec))
    runner, stage = PolicyRunner(load_policy(bundle, spec), seed), SafetyStage(spec, PassThrough())
    monitor = TaskMonitor(task, spec) if task else None
    ticks: list[Step] = []
    state = run_episode(guarded, runner, stage, seed, round(seconds * spec.control_rate), monitor, ticks.append)
    return Play([tick.observation for tick in ticks], np.array([tick.sent.values for tick in ticks]), guarded.guard.counts, state)


@pytest.fixture(name="play", scope="session")
def _play() -> Callable[..., Play]:
    return play

"""Robots that walk, each behind a safety filter of its own, which is the one that runs in the node graph: for measuring what filters do."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ros_rl.hardware.interface import Observation
from ros_rl.robots.walking import Walk
from ros_rl.safety.interface import SafetyReport
from ros_rl.sim.walk_env import Conditions, WalkVectorEnv


class Filter(Protocol):
    """What `ros_rl.safety.interface.SafetyFilter` does, as far as it is needed here."""

    def reset(self) -> None:
        """Begins an episode."""

    def filter(self, observation: Observation, action: np.ndarray) -> tuple[np.ndarray, SafetyReport]:
        """Returns what is sent for the joint targets, (joints,), that are proposed, and a report."""


class FilteredWalk(WalkVectorEnv):
    """n robots that walk. In every control period a filter sees what its robot measures, and says which joint targets it gets.

    Attributes:
        filters: one for each robot.
        reports: their last ones.
    """

    def __init__(self, walk: Walk, num_envs: int, conditions: Conditions, max_episode_steps: int, make: Callable[[], Filter]):
        """Builds the copies and, with `make`, their filters."""
        self.filters = [make() for _ in range(num_envs)]
        self.reports: list[SafetyReport] = [SafetyReport()] * num_envs
        super().__init__(walk, num_envs, conditions, max_episode_steps)

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes, of the filters too."""
        for copy in copies:
            self.filters[copy].reset()
        super().begin(copies, seeds)

    def _follow(self, rows: np.ndarray, copies: np.ndarray | None) -> None:
        where = np.arange(self.num_envs) if copies is None else copies
        for period in range(rows.shape[1]):
            seen, sent = self.copies.observe(forces=False), rows[:, period].copy()
            for row, copy in enumerate(where):
                sent[row], self.reports[copy] = self.filters[copy].filter(_of(seen, copy), sent[row])
            super()._follow(sent[:, None], copies)


def _of(seen: Observation, copy: int) -> Observation:
    """Returns what one of many copies measures."""
    assert seen.base_quat is not None and seen.base_gyro is not None
    return Observation(
        float(np.asarray(seen.stamp)[copy]),
        seen.joint_position[copy],
        seen.joint_velocity[copy],
        seen.joint_effort[copy],
        base_quat=seen.base_quat[copy],
        base_gyro=seen.base_gyro[copy],
    )

"""What the goal environments of simulated robots have in common: copies of one model, step counts, and when an episode is over."""

from collections.abc import Mapping, Sequence

import numpy as np

from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import SimModel
from ros_rl.sim.goals.interface import Outcome, SafeSet, draw_starts, outside


class SimulatedGoal:
    """n copies of a robot in a world; a subclass says what the state s is, and what a step is worth."""

    episode_steps = 250

    def __init__(self, model: SimModel, goals: np.ndarray, safe: SafeSet):
        """
        Args:
            model: robot and world.
            goals: one for each copy, shape (n,).
            safe: where it is safe, for the state s.
        """
        self.goals = np.array(goals, dtype=float)
        self._safe = safe
        self._sim = BatchSim(model, len(self.goals), threads=1)
        self._steps = np.zeros(len(self.goals), int)

    def __len__(self) -> int:
        return len(self.goals)

    @property
    def safety_state(self) -> np.ndarray:
        """The state s, shape (n, k)."""
        raise NotImplementedError

    def _coordinates(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns MuJoCo's positions (c, nq) and velocities (c, nv) of the states s, shape (c, k)."""
        raise NotImplementedError

    def _reward(self, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Returns what a step was worth, shape (n,), given the state s after it and the actions (n, m)."""
        raise NotImplementedError

    def _violation(self, state: np.ndarray) -> np.ndarray:
        """Returns where the safe box has been left, shape (n,), given the state s."""
        return outside(self._safe, state)

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[Sequence[int]]) -> None:
        """Starts new episodes."""
        self._sim.place(copies, *self._coordinates(draw_starts(self._safe, seeds)))
        self._steps[np.asarray(copies)] = 0

    def step(self, actions: np.ndarray) -> Outcome:
        """Advances every copy by one control period; actions have the shape (n, m)."""
        actions = np.clip(actions, -1.0, 1.0)
        self._sim.step(self._safe.action_equilibrium + self._safe.action_range * actions)
        self._steps += 1
        state = self.safety_state
        violation = self._violation(state)
        return Outcome(self._reward(state, actions), violation, (self._steps >= self.episode_steps) & ~violation, violation)

    def state(self) -> dict[str, np.ndarray]:
        """Returns physics and step counts."""
        return {"physics": self._sim.snapshot(), "steps": self._steps.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self._sim.restore(state["physics"])
        self._steps[:] = state["steps"]

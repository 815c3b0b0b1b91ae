"""Blood glucose that shall be brought below its basal level with insulin, and not too far.

The plant is the minimal model of Bergman et al., "Quantitative estimation of insulin sensitivity", 1979, with a compartment for
plasma insulin; in minutes, mg/dL and mU/L.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ros_rl.sim.goals.interface import Outcome, SafeSet, draw_starts, observe, outside

STATE = ("glucose", "action", "insulin")
PERIOD = 300.0  # s
BASAL_GLUCOSE, BASAL_INSULIN = 110.0, 15.0  # mg/dL, mU/L
GLUCOSE_RATE, ACTION_RATE, SENSITIVITY, INSULIN_RATE = 0.028735, 0.028344, 5.035e-5, 5.0 / 54.0  # 1/min, 1/min, L/(mU min²), 1/min
VOLUME = 12.0  # L
BASAL_RATE = INSULIN_RATE * VOLUME * BASAL_INSULIN  # mU/min that keep insulin at its basal level
RATE = 16.0  # mU/min that the action 1 adds: less than the basal rate, so that the pump never has to draw insulin back
BOUNDS = (70.0, 150.0)  # mg/dL
GOALS = {"low": 100.0, "mid": 92.0, "high": 84.0}  # mg/dL
SCALE = np.array([40.0, 0.05, 50.0])
_STEP = 1.0  # min
REACH = 20.0  # mg/dL


def advance(states: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Returns the deviations from the basal state one period later, shape (n, 3), by Runge-Kutta steps of a minute.

    Args:
        states: deviation of glucose (mg/dL), insulin's action (1/min) and insulin (mU/L), shape (n, 3).
        inputs: insulin infusion above the basal rate, mU/min, shape (n, 1).
    """
    for _ in range(round(PERIOD / 60.0 / _STEP)):
        first = _slope(states, inputs)
        second = _slope(states + 0.5 * _STEP * first, inputs)
        third = _slope(states + 0.5 * _STEP * second, inputs)
        fourth = _slope(states + _STEP * third, inputs)
        states = states + _STEP / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)
    return states


def _slope(states: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    glucose, action, insulin = states.T
    return np.stack(
        [
            -GLUCOSE_RATE * glucose - action * (glucose + BASAL_GLUCOSE),
            -ACTION_RATE * action + SENSITIVITY * insulin,
            -INSULIN_RATE * insulin + inputs[:, 0] / VOLUME,
        ],
        axis=1,
    )


class GlucoseGoal:
    """The environment: a day in periods of five minutes; its state s is what `advance` takes."""

    action_size = 1
    episode_steps = 288

    def __init__(self, goals: np.ndarray, safe: SafeSet):
        """
        Args:
            goals: glucose wanted in each copy, mg/dL, shape (n,).
            safe: where it is safe, for the state s.
        """
        self.goals = np.array(goals, dtype=float)
        self._safe = safe
        self._state = np.zeros((len(self.goals), 3))
        self._steps = np.zeros(len(self.goals), int)

    def __len__(self) -> int:
        return len(self.goals)

    @property
    def safety_state(self) -> np.ndarray:
        """Deviations of glucose, insulin's action and insulin from the basal state, shape (n, 3)."""
        return self._state.copy()

    @property
    def observation(self) -> np.ndarray:
        """The state, scaled, and the distance from the goal, shape (n, 4)."""
        return observe(self._state, SCALE, self.goals[:, None] - BASAL_GLUCOSE, REACH)

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[Sequence[int]]) -> None:
        """Starts new episodes."""
        self._state[np.asarray(copies)] = draw_starts(self._safe, seeds)
        self._steps[np.asarray(copies)] = 0

    def step(self, actions: np.ndarray) -> Outcome:
        """Infuses for one period. The reward is exp(-(distance / 15)²)."""
        self._state = advance(self._state, self._safe.action_range * np.clip(actions, -1.0, 1.0))
        self._steps += 1
        glucose = self._state[:, 0] + BASAL_GLUCOSE
        violation = outside(self._safe, self._state)
        reward = np.exp(-(((glucose - self.goals) / 15.0) ** 2))
        return Outcome(reward, violation, (self._steps >= self.episode_steps) & ~violation, violation)

    def state(self) -> dict[str, np.ndarray]:
        """Returns plant and step counts."""
        return {"plant": self._state.copy(), "steps": self._steps.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self._state, self._steps = state["plant"].copy(), state["steps"].copy()

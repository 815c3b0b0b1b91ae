"""Filters between an agent and an environment, batched over the copies: what the methods do that AutoSafe is compared with."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ros_rl.safety.cbf import barrier, nearest_allowed
from ros_rl.safety.prior import LmiPrior
from ros_rl.safety.simplex import takes_over


class Shield(Protocol):
    """Turns proposed actions into executed ones."""

    def __call__(self, proposed: np.ndarray, state: np.ndarray, safe_action: np.ndarray) -> np.ndarray:
        """Returns the actions to execute, within [-1, 1], shape (n, m).

        Args:
            proposed: by the agent, (n, m).
            state: safety states, (n, k).
            safe_action: of the prior, (n, m).
        """

    def reset(self, copies: np.ndarray) -> None:
        """Forgets the episode of some copies."""

    def state(self) -> dict[str, np.ndarray]:
        """Returns what is remembered between steps."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""


class _Memoryless:
    def reset(self, copies: np.ndarray) -> None:
        """Nothing to forget."""

    def state(self) -> dict[str, np.ndarray]:
        """Returns nothing."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Nothing to restore."""


class ResidualShield(_Memoryless):
    """Residual learning: the agent corrects the safe action by up to `reach` of the range.

    Source: Johannink et al., "Residual Reinforcement Learning for Robot Control", ICRA 2019. The safe controller belongs to the
    environment there: the agent's own action is what the critic sees.
    """

    def __init__(self, reach: float = 0.5):
        """Takes the share of its own action that the agent adds."""
        self.reach = reach

    def __call__(self, proposed: np.ndarray, state: np.ndarray, safe_action: np.ndarray) -> np.ndarray:
        """Returns safe action + reach·proposed, clipped."""
        return np.clip(safe_action + self.reach * proposed, -1.0, 1.0)


class SimplexShield:
    """The filter of `ros_rl.safety.simplex`: the safe action alone, from near the boundary until the state is well inside again."""

    def __init__(self, prior: LmiPrior, copies: int):
        """Starts with the agent in charge of all copies."""
        self.prior = prior
        self._safe = np.zeros(copies, bool)

    def __call__(self, proposed: np.ndarray, state: np.ndarray, safe_action: np.ndarray) -> np.ndarray:
        """Returns the proposed or the safe action of each copy."""
        self._safe = takes_over(self.prior.value(state), self._safe)
        return np.where(self._safe[:, None], safe_action, proposed)

    def reset(self, copies: np.ndarray) -> None:
        """Puts the agent in charge."""
        self._safe[copies] = False

    def state(self) -> dict[str, np.ndarray]:
        """Returns which copies the safe controller has."""
        return {"safe": self._safe.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self._safe = state["safe"].copy()


class BarrierShield(_Memoryless):
    """The filter of `ros_rl.safety.cbf`: the action nearest to the proposed one that lets 1 - V fall slowly enough."""

    def __init__(self, prior: LmiPrior):
        """Takes the prior whose V bounds the safe set."""
        self.prior = prior

    def __call__(self, proposed: np.ndarray, state: np.ndarray, safe_action: np.ndarray) -> np.ndarray:
        """Returns the projections; the safe action where there is none."""
        action, feasible = nearest_allowed(proposed, *barrier(self.prior, state))
        return np.where(feasible[:, None], action, safe_action)

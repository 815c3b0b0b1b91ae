"""Simplex: an unproven controller acts until the state comes near the boundary; then a proven one does, until it is well inside again.

Source: Sha, "Using simplicity to control complexity", IEEE Software 18 (2001).
"""

import numpy as np

from ros_rl.errors import UserError
from ros_rl.safety.prior import SafePrior

ENTER, LEAVE = 0.7, 0.4  # V


def takes_over(value: np.ndarray, before: np.ndarray, enter: float = ENTER, leave: float = LEAVE) -> np.ndarray:
    """Returns whether the safe controller acts, shape (...).

    Args:
        value: V of the states, 1 on the boundary of the safe set, shape (...).
        before: whether it acted in the last control period, shape (...).
        enter: V above which it begins to.
        leave: V below which it ends.
    """
    return (value > enter) | (before & (value >= leave))


class Simplex:
    """Chooses between a proposed and the safe action for one robot; remembers which of the two acts."""

    def __init__(self, prior: SafePrior, enter: float = ENTER, leave: float = LEAVE):
        """
        Raises:
            UserError: the thresholds are not 0 < leave <= enter < 1.
        """
        if not 0.0 < leave <= enter < 1.0:
            raise UserError(f"simplex: thresholds must be 0 < leave <= enter < 1, got leave {leave:g} and enter {enter:g}")
        self._prior = prior
        self._thresholds = enter, leave
        self.reset()

    def reset(self) -> None:
        """Gives the action back to the policy."""
        self._engaged = np.array(False)

    def act(self, state: np.ndarray, proposed: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """Returns the proposed or the safe action, shape (m,), for a state (n,)."""
        value = (1.0 - self._prior.margin(state)) ** 2  # any prior has a margin
        self._engaged = takes_over(value, self._engaged, *self._thresholds)
        return (self._prior.safe_action(state) if self._engaged else proposed), {"weight": float(self._engaged)}

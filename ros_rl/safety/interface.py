"""What every safety filter offers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ros_rl.errors import RobotFault
from ros_rl.hardware.interface import Observation

FILTERS = ("none", "autosafe", "simplex", "cbf", "recovery")  # see `ros_rl.safety.filters` and `ros_rl.safety.recovery`

# The source of a command that is wholly a filter's; one that names who made it begins with RECOVERY.
SAFE, RECOVERY = "safety", "recovery:"


@dataclass(frozen=True)
class SafetyReport:
    """What a filter did to one action.

    Attributes:
        intervened: whether it changed the action.
        values: what it watches (margin, mixing weight, …), by name.
        instead: why the safe action acts instead of any proposed one; empty where a proposed one was judged.
        source: who made the action, where that is not who proposed it.
        warning: why the filter acts, where somebody should know.
        fault: why the robot is held and somebody has to come.
    """

    intervened: bool = False
    values: Mapping[str, float | str] = field(default_factory=dict)
    instead: str = ""
    source: str = ""
    warning: str = ""
    fault: str = ""


class NoSafeAction(RobotFault):
    """A filter knows no safe action: the state is no number, or it is outside the safe set and shall not be acted upon."""


@runtime_checkable
class SafetyFilter(Protocol):
    """Turns a proposed action into a safe one.

    `reads` names the fields of `Observation` that `filter` looks at. A filter that reads none may be given None as observation;
    one that reads some may be given None as action, and then returns the safe one.
    """

    reads: tuple[str, ...]

    def reset(self) -> None:
        """Forgets everything about the episode so far."""

    def filter(
        self, observation: Observation | None, action: np.ndarray | None, distribution: Any = None
    ) -> tuple[np.ndarray, SafetyReport]:
        """Returns the action to execute, shape (n,) in the robot's command mode and joint order.

        Args:
            observation: what the action answers.
            action: proposed by the policy, shape (n,); None where there is none, or none that can be judged.
            distribution: the policy's action distribution, for filters that need more than its sample.

        Raises:
            NoSafeAction: there is none to execute; the robot must be brought to rest.
        """

    def fallback(self) -> np.ndarray | None:
        """Returns the safe action for the state last seen, shape (n,), for a moment without news; None where none is known."""


@runtime_checkable
class UrgentFilter(SafetyFilter, Protocol):
    """A filter that knows some answers without an action."""

    def urgent(self, observation: Observation, acting: bool = True) -> bool:
        """Returns whether no action matters for the answer to an observation, so that none need be waited for.

        Args:
            observation: the state.
            acting: whether the policy still acts, so that an action would come.
        """


class PassThrough:
    """The filter that changes nothing; the guard in the hardware process still holds every limit."""

    reads: tuple[str, ...] = ()

    def reset(self) -> None:
        """Nothing to forget."""

    def filter(
        self, observation: Observation | None, action: np.ndarray | None, distribution: Any = None
    ) -> tuple[np.ndarray, SafetyReport]:
        """Returns `action` unchanged."""
        assert action is not None
        return action, SafetyReport()

    def fallback(self) -> None:
        """Knows none."""

"""The safety filters that a prior carries, and the one that a name stands for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.spec import RobotSpec
from ros_rl.safety.autosafe import mix, mixing_weight
from ros_rl.safety.interface import NoSafeAction, PassThrough, SafetyFilter, SafetyReport
from ros_rl.safety.prior import LmiPrior, SafePrior, load_prior
from ros_rl.safety.simplex import Simplex
from ros_rl.sim.coordinates import Coordinates

Outside = Literal["fallback", "hold"]


class Rule(Protocol):
    """What a method does with one action inside the safe set; in actions within [-1, 1] and deviations from the equilibrium."""

    def reset(self) -> None:
        """Forgets the episode so far."""

    def act(self, state: np.ndarray, proposed: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """Returns the action to execute, shape (m,), and what it watches, for a state (n,) and a proposed action (m,)."""


class Mixing:
    """AutoSafe without its network: mixes the safe action into the proposed one, with one sharpness everywhere."""

    def __init__(self, prior: SafePrior, sharpness: float):
        """Takes any prior, and how sharply it may be mixed in."""
        self._prior, self._sharpness = prior, sharpness

    def reset(self) -> None:
        """Nothing to forget."""

    def act(self, state: np.ndarray, proposed: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """Returns the mixed action; it is the safe one at the boundary."""
        weight = float(mixing_weight(float(self._prior.margin(state)), self._sharpness))
        return mix(proposed, self._prior.safe_action(state), weight), {"weight": weight, "sharpness": self._sharpness}


class PriorFilter:
    """Applies a rule inside the safe set of a prior. Outside, the safe action alone acts, or nothing does."""

    def __init__(self, spec: RobotSpec, prior: LmiPrior, rule: Rule, outside: Outside = "fallback"):
        """
        Args:
            spec: the robot.
            prior: made for that robot at its control rate.
            rule: what is done with an action inside the safe set.
            outside: what is done outside, where the prior promises nothing: "fallback" to the safe action, or "hold", which
                leaves it to the guard to bring the robot to rest.

        Raises:
            UserError: the prior was made for other joints, another rate or states that the robot does not measure.
        """
        if prior.action_names != spec.joint_names:
            raise UserError(
                f"the safe prior commands {', '.join(prior.action_names)}; robot '{spec.name}' has {', '.join(spec.joint_names)}"
            )
        if abs(prior.period * spec.control_rate - 1.0) > 1e-9:
            raise UserError(
                f"the safe prior is for {1 / prior.period:g} Hz, robot '{spec.name}' runs at {spec.control_rate:g} Hz; "
                f"'ros-rl safety certify' makes one for a --rate"
            )
        self._coordinates = Coordinates(spec, prior.state_names, prior.state_equilibrium)
        self._prior, self._rule, self._outside = prior, rule, outside
        self.reads = self._coordinates.reads
        self._exits = self._violations = 0
        self.reset()

    def reset(self) -> None:
        """Forgets the episode; exits and violations are still counted from the beginning."""
        self._rule.reset()
        self._safe: np.ndarray | None = None
        self._was_inside = self._was_in_box = True

    def filter(
        self, observation: Observation | None, action: np.ndarray | None, distribution: Any = None
    ) -> tuple[np.ndarray, SafetyReport]:
        """Returns what the rule makes of the action, in the robot's units, shape (m,); the safe action if there is none."""
        assert observation is not None
        state = self._coordinates.of(observation)
        self._safe = None
        if not np.isfinite(state).all():
            bad = [name for name, value in zip(self._coordinates.names, state, strict=True) if not np.isfinite(value)]
            raise NoSafeAction(f"{', '.join(bad)} is not finite")
        radius = float(self._prior.radius(state))
        self._count(radius < 1.0, bool(self._prior.inside_box(state)))
        if radius >= 1.0 and self._outside == "hold":
            raise NoSafeAction(f"the state is outside the certified set, at {radius:.3f} of its radius")
        safe = self._prior.safe_action(state)
        self._safe = self._physical(safe)
        values = {"margin": max(0.0, 1.0 - radius), "lyapunov": radius**2, "exits": self._exits, "violations": self._violations}
        if radius >= 1.0 or action is None:
            return self._safe, SafetyReport(True, {"weight": 1.0, **values})
        proposed = np.clip((action - self._prior.action_equilibrium) / self._prior.action_range, -1.0, 1.0)
        executed, watched = self._rule.act(state, proposed)
        command = self._physical(executed)
        return command, SafetyReport(bool(np.abs(command - action).max() > 1e-9), {**watched, **values})

    def fallback(self) -> np.ndarray | None:
        """Returns the safe action for the state last seen; None after a state for which there is none."""
        return self._safe

    def _physical(self, action: np.ndarray) -> np.ndarray:
        return self._prior.action_equilibrium + self._prior.action_range * action

    def _count(self, inside: bool, in_box: bool) -> None:
        self._exits += self._was_inside and not inside
        self._violations += self._was_in_box and not in_box
        self._was_inside, self._was_in_box = inside, in_box


def _mixing(prior: LmiPrior) -> Rule:
    return Mixing(prior, prior.sharpness_bound)


def _barrier(prior: LmiPrior) -> Rule:
    from ros_rl.safety.cbf import Barrier  # brings in a solver, which takes a while

    return Barrier(prior)


RULES: Mapping[str, Callable[[LmiPrior], Rule]] = {"autosafe": _mixing, "simplex": Simplex, "cbf": _barrier}


def make_filter(name: str, spec: RobotSpec, prior: str | Path, outside: Outside) -> SafetyFilter:
    """Returns a filter for a robot.

    Args:
        name: one of `ros_rl.safety.interface.FILTERS`.
        spec: the robot.
        prior: see `load_prior`; not read by "none".
        outside: see `PriorFilter`.

    Raises:
        UserError: there is no such prior, or it does not fit the robot.
    """
    if name == "none":
        return PassThrough()
    loaded = load_prior(prior)
    return PriorFilter(spec, loaded, RULES[name](loaded), outside)

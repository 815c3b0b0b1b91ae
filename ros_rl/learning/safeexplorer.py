"""SafeExplorer: PPO with a recovery policy that takes over near the limit, and a policy gradient that stays exactly unbiased.

Implemented from its description. The executed policy is a mixture: π inside the safe region R_d = {s : ρ(s) < d}, any rule μ that
does not depend on π's parameters outside. Its gradient has no term of μ, so that recovery steps are left out of the policy's loss
(by indexing: their stored log-probability is NaN on purpose) while advantages run through them. A recovery segment's value is what
it earned plus the value where it ended; segments that led back into the region are imitated a little; the region grows.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ros_rl.errors import RobotFault, UserError
from ros_rl.learning.ppo import Batch, Environments, Ppo, PpoArgs, Rollout, advantages, through_gaussian

_log = logging.getLogger(__name__)

Recovery = Callable[[np.ndarray], np.ndarray]
"""A recovery policy: observations as the environment gives them, (k, o), to actions in [-1, 1], (k, m)."""

CHOSEN, REENTERED, FELL, UNRESOLVED, STUCK = range(5)  # what became of a step: the policy's own, or how its recovery segment ended
STARVED = 20  # iterations in a row without a step of the policy, after which nothing will come of the training
_RESETS = 20  # resets before which nothing is said about where they are
_WITHIN = 1e-6  # by which a recovery action may leave [-1, 1]


@dataclass(frozen=True)
class ExplorerArgs:
    """Settings of SafeExplorer; switched off one by one they are its ablations."""

    start_region: float = 0.35
    """d of the first iteration: the policy acts where ρ is below."""
    max_region: float = 0.8
    """d at the end of the ramp."""
    ramp: float = 0.6
    """Share of the iterations over which d grows."""
    imitation: float = 0.05
    """λ of the imitation of recoveries that worked."""
    stuck_after: int = 150
    """Recovery steps in a row after which an episode is cut off: the robot lies still and needs help."""
    mask: bool = True
    """Leave recovery steps out of the policy's loss. False is the biased gradient, as a baseline."""
    analytic: bool = True
    """Take the value of recovery states from what the segment earned instead of from the critic."""

    def __post_init__(self) -> None:
        """Refuses numbers that make no sense."""
        if not 0.0 < self.start_region <= self.max_region < 1.0:
            wanted = "start_region and max_region must be within 0 and 1, the first not above the second"
            raise UserError(f"{wanted}, got {self.start_region} and {self.max_region}")
        if not 0.0 < self.ramp <= 1.0:
            raise UserError(f"ramp must be above 0 and at most 1, got {self.ramp}")
        if not self.imitation >= 0.0 or self.stuck_after < 1:
            raise UserError(f"imitation must not be negative and stuck_after be at least 1, got {self.imitation} and {self.stuck_after}")


def region_at(iteration: int, iterations: int, args: ExplorerArgs) -> float:
    """Returns d_k = d_0 + (d_max - d_0)·min(1, k / (f·K))."""
    return args.start_region + (args.max_region - args.start_region) * min(1.0, iteration / (args.ramp * iterations))


def outcomes(chosen: np.ndarray, back: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, stuck: np.ndarray) -> np.ndarray:
    """Returns what became of every step, (T, n): CHOSEN, or how the recovery segment that it is part of ended.

    Args:
        chosen: the policy acted, (T, n).
        back: the state after the step is in the region.
        terminated: a fall.
        truncated: any other end of an episode.
        stuck: those of them after too many recovery steps.
    """
    found = np.full(chosen.shape, CHOSEN)
    later = np.full(chosen.shape[1:], UNRESOLVED)  # of a segment that the end of the rollout cuts
    for step in reversed(range(len(chosen))):
        later = np.where(truncated[step], UNRESOLVED, later)
        later = np.where(stuck[step], STUCK, later)
        later = np.where(back[step], REENTERED, later)
        later = np.where(terminated[step], FELL, later)
        found[step] = np.where(chosen[step], CHOSEN, later)
    return found


def recovery_values(
    reward: np.ndarray, chosen: np.ndarray, next_value: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, discount: float
) -> np.ndarray:
    """Returns the value of recovery states by V(s) = r + γ·V(s'), (T, n); NaN where the policy acted.

    At the end of a segment V(s') is the critic's, or 0 after a fall. Exact where dynamics and recovery are deterministic, else one
    unbiased sample.
    """
    found = np.full(reward.shape, np.nan)
    for step in reversed(range(len(reward))):
        ahead = next_value[step]
        if step + 1 < len(reward):
            ahead = np.where(truncated[step] | chosen[step + 1], ahead, found[step + 1])
        value = reward[step] + discount * np.where(terminated[step], 0.0, ahead)
        found[step] = np.where(chosen[step], np.nan, value)
    return found


def through_recovery(
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    chosen: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    discount: float,
    trace: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns advantages on the whole trajectory and the critic's targets, (T, n) each; see `ros_rl.learning.ppo.advantages`.

    Recovery states have the value of `recovery_values`, so that their own error is zero and the step before them is credited with
    what the recovery came to.
    """
    recovered = recovery_values(reward, chosen, next_value, terminated, truncated, discount)
    current = np.where(chosen, value, recovered)
    following = next_value.copy()
    goes_on = ~(terminated | truncated)[:-1]
    following[:-1][goes_on] = current[1:][goes_on]
    advantage = advantages(reward, current, following, terminated, truncated, discount, trace)
    return advantage, np.where(chosen, advantage + current, recovered)


def imitation(action: np.ndarray, mean: np.ndarray, log_std: np.ndarray, gate: np.ndarray, weight: float) -> np.ndarray:
    """Returns the gradient of -λ/k·Σ w·log π(a) over k recovery steps with respect to the means, (k, m).

    It has no part for the spread: imitation would inflate or collapse exploration.

    Args:
        action: of the recovery policy, (k, m).
        mean: of the policy there, (k, m).
        log_std: of the policy, (m,).
        gate: w, 1 in segments that led back into the region, else 0, (k,).
        weight: λ.
    """
    share = (-weight / len(gate) * gate).astype(mean.dtype)
    return through_gaussian(share, action, mean, log_std)[0]


def exit_rate(outside: np.ndarray, discount: float) -> float:
    """Returns β = (1 - γ)·Σ γ^t·Pr(s_t outside the region), of the policy alone.

    Args:
        outside: Pr(s_t outside) for t = 0 to T - 1; what follows is taken as the last of them.
        discount: γ, below 1.
    """
    steps = len(outside)
    return float((1.0 - discount) * (discount ** np.arange(steps)) @ outside + discount**steps * outside[-1])


def gap_bound(largest_reward: float, exits: float, discount: float) -> float:
    """Returns 2·r_max·β / (1 - γ)², above |J - J_mix|: what removing the recovery policy may cost or bring."""
    return 2.0 * largest_reward / (1.0 - discount) ** 2 * exits


def checked_instability(info: Mapping[str, Any], copies: int) -> np.ndarray:
    """Returns ρ from an environment's infos, (n,).

    Raises:
        UserError: it is missing, negative, or no number.
    """
    if "rho" not in info:
        raise UserError(f"the environment's infos have no 'rho' (they have: {', '.join(sorted(info)) or 'nothing'})")
    rho = np.asarray(info["rho"], float)
    if rho.shape != (copies,):
        raise UserError(f"info 'rho' must have the shape ({copies},), got {rho.shape}")
    if not (rho >= 0.0).all():
        copy = int(np.argmin(rho >= 0.0))
        raise UserError(f"info 'rho' must be at least 0, got {rho[copy]:g} in copy {copy}")
    return rho


def checked_recovery(recovery: Recovery, observation: np.ndarray, actions: int) -> np.ndarray:
    """Returns a recovery policy's actions, (k, m).

    Raises:
        UserError: they have another shape or are not within [-1, 1].
    """
    found = np.asarray(recovery(observation), float)
    if found.shape != (len(observation), actions):
        raise UserError(f"recovery actions must have the shape {(len(observation), actions)}, got {found.shape}")
    if not (fits := np.abs(found) <= 1.0 + _WITHIN).all():
        raise UserError(f"recovery actions must be within -1 and 1, got {found[~fits][0]:g}")
    return found


def refuse_shared(recovery: Recovery, actor: np.ndarray) -> None:
    """Refuses a recovery policy that would change while the policy learns.

    Raises:
        UserError: its parameters, or those of the object whose method it is, are the actor's or can be trained.
    """
    owner = getattr(recovery, "__self__", recovery)
    parameters: Any = getattr(owner, "parameters", None)
    if hasattr(parameters, "values") and np.shares_memory(parameters.values, actor):
        raise UserError("the recovery policy's parameters are the actor's: give it a copy")
    for parameter in parameters() if callable(parameters) else []:
        if parameter.requires_grad:
            raise UserError("the recovery policy has parameters with requires_grad: freeze them, it must not depend on the policy")
        if np.shares_memory(parameter.numpy(), actor):
            raise UserError("the recovery policy's parameters are the actor's: give it a copy")


class SafeExplorer(Ppo):
    """PPO inside the safe region, a recovery policy outside.

    Attributes:
        region: d, constant within an iteration.
        counts: triggers (segments begun), stuck (episodes cut off for it), recovery (steps), reentered, fell, unresolved (segments).
    """

    def __init__(self, args: PpoArgs, environments: Environments, iterations: int, seed: int, recovery: Recovery, explorer: ExplorerArgs):
        """Starts the first episodes.

        Args:
            args: of PPO.
            environments: whose infos hold ``rho``, (n,), after reset and step.
            iterations: over which the region grows.
            seed: see `Ppo`.
            recovery: acts outside the region.
            explorer: settings.
        """
        self.recovery, self.explorer = recovery, explorer
        self.region = region_at(0, iterations, explorer)
        self.counts = dict.fromkeys(("triggers", "stuck", "recovery", "reentered", "fell", "unresolved"), 0)
        self._starved = self._resets = self._resets_outside = 0
        self._rho_at_resets, self._step = 0.0, 0
        self._recovering = np.zeros(args.copies, int)  # recovery steps in a row
        self._chosen, self._back, self._stuck = (np.zeros((args.rollout, args.copies), bool) for _ in range(3))
        super().__init__(args, environments, iterations, seed)
        refuse_shared(recovery, self.parameters.values)
        if environments.metadata.get("stochastic") and explorer.analytic:
            _log.warning("the environment is stochastic: the value of a recovery segment is one sample of it, not exact")

    def iterate(self) -> dict[str, float]:
        """Does as `Ppo.iterate`; the figures have region, recovery (share of steps), triggers, stuck and reentered (segments) too."""
        self.region = region_at(self.iteration, self.iterations, self.explorer)
        before = dict(self.counts)
        figures = super().iterate()
        found = {name: float(self.counts[name] - before[name]) for name in ("recovery", "triggers", "stuck", "reentered")}
        found["recovery"] /= self.args.rollout * self.args.copies
        figures |= {"region": self.region, **found}
        for name in ("region", *found):
            self.history.setdefault(name, []).append(figures[name])
        return figures

    def _see(self, observation: np.ndarray, info: Mapping[str, Any], began: np.ndarray) -> None:
        super()._see(observation, info, began)
        self._rho = checked_instability(info, self.args.copies)
        if began.any():
            self._refuse_resets_outside(self._rho[began])

    def _refuse_resets_outside(self, rho: np.ndarray) -> None:
        self._resets += len(rho)
        self._resets_outside += int((rho >= self.region).sum())
        self._rho_at_resets += float(rho.sum())
        if self._resets >= _RESETS and self._resets_outside > self._resets / 2:
            share = f"{self._resets_outside} of {self._resets} episodes begin outside the region (ρ < {self.region:g})"
            raise RobotFault(f"{share}, at a mean ρ of {self._rho_at_resets / self._resets:.3g}; the region is unusable")

    def _collect(self) -> Rollout:
        self._step = 0
        rollout = super()._collect()
        self._outcomes = outcomes(self._chosen, self._back, rollout.terminated, rollout.truncated, self._stuck)
        last = ~self._chosen & (self._back | rollout.terminated | rollout.truncated)  # of their segments
        for name, outcome in (("reentered", REENTERED), ("fell", FELL), ("unresolved", UNRESOLVED), ("unresolved", STUCK)):
            self.counts[name] += int((last & (self._outcomes == outcome)).sum())
        self._starved = 0 if self._chosen.any() else self._starved + 1
        if self._starved:
            _log.warning("iteration %d has no step of the policy, the %d. in a row", self.iteration, self._starved)
        if self._starved >= STARVED:
            raise RobotFault(f"{STARVED} iterations in a row without a step of the policy: it was never inside the region")
        return rollout

    def _inside(self, proposed: np.ndarray) -> np.ndarray:
        """Returns where the policy may act, (n,)."""
        inside: np.ndarray = self._rho < self.region
        return inside

    def _returned(self, rho: np.ndarray) -> np.ndarray:
        """Returns where a state ends a recovery segment, (n,)."""
        back: np.ndarray = rho < self.region
        return back

    def _choose(self, proposed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        inside = self._chosen[self._step] = self._inside(proposed)
        executed = proposed
        if not inside.all():
            executed = proposed.copy()
            executed[~inside] = checked_recovery(self.recovery, self._observation[~inside], proposed.shape[1])
        self.counts["triggers"] += int((~inside & (self._recovering == 0)).sum())
        self.counts["recovery"] += int((~inside).sum())
        self._recovering = np.where(inside, 0, self._recovering + 1)
        return executed, inside if self.explorer.mask else np.ones_like(inside), executed

    def _end(
        self, terminated: np.ndarray, truncated: np.ndarray, reward: np.ndarray, observation: np.ndarray, info: Mapping[str, Any]
    ) -> np.ndarray:
        rho = checked_instability(info, self.args.copies)
        terminated |= rho >= 1.0
        back = self._back[self._step] = self._returned(rho)
        stuck = self._stuck[self._step] = (self._recovering >= self.explorer.stuck_after) & ~back & ~terminated
        self.counts["stuck"] += int(stuck.sum())
        truncated |= stuck
        over = super()._end(terminated, truncated, reward, observation, info)
        self._recovering[over | back] = 0
        self._step += 1
        return over

    def _estimate(self, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
        if not self.explorer.analytic:
            return super()._estimate(rollout)
        value, following = self._values(rollout, self.critic)
        ends = rollout.terminated, rollout.truncated
        return through_recovery(rollout.reward, value, following, self._chosen, *ends, self.args.discount, self.args.trace)

    def _own(self, rows: np.ndarray) -> np.ndarray:
        """Leaves out recovery actions, which are far in the tail of the policy when they are learned from without the mask."""
        own: np.ndarray = self._chosen.ravel()[rows]
        return own

    def _policy_gradient(self, batch: Batch, rows: np.ndarray) -> np.ndarray | None:
        """Adds the imitation of as many recovery steps, drawn from all of them."""
        recovered = np.flatnonzero(~self._chosen.ravel())
        if not recovered.size or not self.explorer.imitation:
            return super()._policy_gradient(batch, rows)
        drawn = self.streams.generators[1].choice(recovered, rows.size)
        values = self.actor.forward(batch.observation[np.concatenate([rows, drawn])])
        mean = values[-1].numpy()
        gradient = np.empty_like(mean)
        gradient[: rows.size], divergences = self._surrogate_gradient(batch, rows, mean[: rows.size])
        gate = self._outcomes.ravel()[drawn] == REENTERED
        gradient[rows.size :] = imitation(batch.action[drawn], mean[rows.size :], self.log_std, gate, self.explorer.imitation)
        self.actor.backward(values, gradient)
        return divergences

    def _asked(self) -> dict[str, Any]:
        return {**super()._asked(), "explorer": asdict(self.explorer)}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns what `Ppo.state` returns, and what is remembered of recovery."""
        names = ("_starved", "_resets", "_resets_outside", "_rho_at_resets", "_recovering", "_rho")
        own = {name: np.asarray(getattr(self, name)) for name in names}
        return {**super().state(), "explorer": own, "counts": {name: np.array(count) for name, count in self.counts.items()}}

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what `state` returned."""
        super().restore(state)
        self.region = region_at(max(self.iteration - 1, 0), self.iterations, self.explorer)
        own = state["explorer"]
        self._starved, self._resets, self._resets_outside = (int(own[name]) for name in ("_starved", "_resets", "_resets_outside"))
        self._rho_at_resets = float(own["_rho_at_resets"])
        self._recovering, self._rho = own["_recovering"].copy(), own["_rho"].copy()
        self.counts = {name: int(count) for name, count in state["counts"].items()}

"""The loop of off-policy learning beside a safe prior, for many runs at once: act, step, store, learn; stop and resume anywhere."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ros_rl import paths
from ros_rl.errors import UserError
from ros_rl.learning import checkpoint
from ros_rl.learning.replay import Replay, Streams
from ros_rl.learning.sac import Acted, Sac
from ros_rl.learning.shields import Shield
from ros_rl.safety.prior import LmiPrior
from ros_rl.sim.goals.interface import GoalEnvironment

LOG_EVERY = 500  # steps over which figures are averaged
_WITHIN = 1e-6  # by which a safe action may leave [-1, 1]

_ACTING, _STARTS, EVALUATION = range(3)  # what a seed is for; each use has random numbers of its own


def streams_of(seeds: Sequence[int]) -> Streams:
    """Returns the random numbers that runs learn and act with."""
    return Streams([[seed, _ACTING] for seed in seeds])


@dataclass(frozen=True)
class Sight:
    """What is known before acting: observation (n, o), safety state (n, k), radius and margin (n,), safe action (n, m)."""

    observation: np.ndarray
    state: np.ndarray
    radius: np.ndarray
    margin: np.ndarray
    safe_action: np.ndarray


def look(environment: GoalEnvironment, prior: LmiPrior) -> Sight:
    """Reads an environment.

    Raises:
        UserError: an observation is not finite, or a safe action is outside [-1, 1].
    """
    observation, state = environment.observation, environment.safety_state
    if not np.isfinite(observation).all():
        raise UserError(f"observation of copy {int(np.argmin(np.isfinite(observation).all(axis=1)))} is not finite")
    safe_action = prior.safe_action(state)
    if not (np.abs(safe_action) <= 1.0 + _WITHIN).all():
        raise UserError(f"safe action must be within -1 and 1, got {safe_action.flat[np.argmax(np.abs(safe_action))]:g}")
    return Sight(observation, state, prior.radius(state), prior.margin(state), safe_action)


def inputs_of(seen: Sight, runs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns observation, margin and safe action of runs·k copies as float32 of shape (runs, k, ...); a run's copies are side by side."""
    parts = (torch.from_numpy(values.astype(np.float32)) for values in (seen.observation, seen.margin, seen.safe_action))
    observation, margin, safe_action = (part.reshape(runs, -1, *part.shape[1:]) for part in parts)
    return observation, margin, safe_action


class Trainer:
    """Trains R runs, run r in copy r of the environment.

    Attributes:
        steps: control steps done by each run.
        history: what was measured, see `record`.
        episodes: one row for each finished episode: run, step at its end, return, length, whether it ended by a violation.
    """

    def __init__(
        self,
        environment: GoalEnvironment,
        agent: Sac,
        prior: LmiPrior,
        seeds: Sequence[int],
        streams: Streams,
        capacity: int,
        shield: Shield | None = None,
        store: Literal["executed", "proposed"] = "executed",
    ):
        """Starts the first episode of each run.

        Args:
            environment: of R copies.
            agent: of R runs.
            prior: gives margin and safe action.
            seeds: of the initial states, one for each run.
            streams: random numbers of the runs, which the agent's networks were drawn from.
            capacity: transitions kept of each run.
            shield: changes the actions that the agent proposes; None executes them as they are.
            store: which of the two the critic learns from.
        """
        self.environment, self.agent, self.prior, self.shield = environment, agent, prior, shield
        self._seeds, self._streams, self._store = list(seeds), streams, store
        self._runs = len(seeds)
        observations, actions = environment.observation.shape[1], environment.action_size
        before = {"observation": observations, "margin": 0, "safe_action": actions}
        widths = {**before, "action": actions, "reward": 0, "terminated": 0, "cost": 0}
        self._replay = Replay(self._runs, capacity, widths | {f"next_{name}": width for name, width in before.items()})
        self.steps = 0
        self.history: dict[str, list[np.ndarray]] = {}
        self.episodes: list[list[float]] = []
        self._sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(self._runs))
        self._learnt = 0
        self._started = np.zeros(self._runs, int)
        self._return, self._length = np.zeros(self._runs), np.zeros(self._runs, int)
        self._last_action = np.full((self._runs, actions), np.nan)
        self._start(np.arange(self._runs))

    def step(self) -> None:
        """Acts once in every run and, after the warm-up, learns once.

        Raises:
            UserError: an observation or an action is not finite.
        """
        seen, acted = self._seen, self._act()
        proposed = acted.action[:, 0].numpy().astype(float)
        self._refuse_divergence(proposed)
        executed = proposed if self.shield is None else self.shield(proposed, seen.state, seen.safe_action)
        outcome = self.environment.step(executed)
        after = look(self.environment, self.prior)
        self._replay.add(
            observation=seen.observation,
            margin=seen.margin,
            safe_action=seen.safe_action,
            action=executed if self._store == "executed" else proposed,
            reward=outcome.reward,
            terminated=outcome.terminated,
            cost=outcome.violation | (after.radius > 1.0),
            next_observation=after.observation,
            next_margin=after.margin,
            next_safe_action=after.safe_action,
        )
        self.steps += 1
        self._measure(acted, proposed, executed, after, outcome.violation)
        self._return += outcome.reward
        self._length += 1
        self._last_action = executed
        over = np.flatnonzero(outcome.terminated | outcome.truncated)
        for run in over:
            ended = run, self.steps, self._return[run], self._length[run], outcome.violation[run]
            self.episodes.append([float(value) for value in ended])
        self._start(over, after)
        if self.steps > self.agent.args.warmup:
            self._learn()
        if self.steps % LOG_EVERY == 0:
            self._log()

    def _refuse_divergence(self, proposed: np.ndarray) -> None:
        finite = np.isfinite(proposed).all(axis=1)
        if not finite.all():
            run = int(np.argmin(finite))
            raise UserError(f"run {run} (seed {self._seeds[run]}) diverged: its action is not finite after {self.steps} steps")

    def _start(self, runs: np.ndarray, seen: Sight | None = None) -> None:
        """Begins new episodes of some runs; `seen` is what all show already, if none begins."""
        if runs.size:
            self.environment.reset(runs, [[self._seeds[run], _STARTS, int(self._started[run])] for run in runs])
            self._started[runs] += 1
            self._return[runs], self._length[runs], self._last_action[runs] = 0.0, 0, np.nan
            if self.shield is not None:
                self.shield.reset(runs)
            seen = look(self.environment, self.prior)
            if (outside := seen.radius[runs] >= 1.0).any():
                raise UserError(f"run {runs[np.argmax(outside)]} starts outside the ellipsoid, at radius {seen.radius[runs].max():.3g}")
        assert seen is not None
        self._seen = seen

    def _act(self) -> Acted:
        inputs = inputs_of(self._seen, self._runs)
        with torch.no_grad():
            if self.steps < self.agent.args.warmup:
                return self.agent.warm_up(*inputs, self._streams.uniform(1, self.environment.action_size))
            return self.agent.act(*inputs, self._streams.normal(1, self.environment.action_size))

    def _learn(self) -> None:
        size = self.agent.args.batch
        batch = self._replay.sample(self._streams, size)
        noise = self._streams.normal(2, size, self.environment.action_size).transpose(0, 1)
        for name, values in self.agent.update(batch, noise).items():
            self._sums[name] += values.numpy()
        self._learnt += 1

    def _measure(self, acted: Acted, proposed: np.ndarray, executed: np.ndarray, after: Sight, violation: np.ndarray) -> None:
        sums = self._sums
        sums["violations"] += violation
        sums["exits"] += after.radius >= 1.0
        sums["interventions"] += (proposed != executed).any(axis=1)
        jump = np.abs(executed - self._last_action).mean(axis=1)
        sums["jump"] += np.nan_to_num(jump)
        sums["jumps"] += np.isfinite(jump)
        if acted.weight is not None:
            sums["weight"] += acted.weight[:, 0].numpy()
            sums["sharpness"] += np.broadcast_to(np.asarray(acted.sharpness).reshape(-1), self._runs)

    def _log(self) -> None:
        """Ends an interval. Counts are totals of it, everything else is a mean."""
        sums = self._sums
        row = {name: sums[name].copy() for name in ("violations", "exits", "interventions")}
        row["jump"] = sums["jump"] / np.maximum(sums["jumps"], 1)
        row |= {name: sums[name] / LOG_EVERY for name in ("weight", "sharpness") if name in sums}
        for name in ("critic_loss", "temperature", "entropy", "multiplier"):
            if name in sums:
                row[name] = sums[name] / max(self._learnt, 1)
        for name, values in row.items():
            self.history.setdefault(name, []).append(values)
        self._sums.clear()
        self._learnt = 0

    def record(self) -> dict[str, np.ndarray]:
        """Returns name to array (intervals, R), an interval being `LOG_EVERY` steps. Figures of learning start when it does.

        violations, exits (of the ellipsoid) and interventions (of the shield) are counts; jump (mean change of the executed action
        from step to step), weight, sharpness, critic_loss, temperature, entropy and multiplier are means.
        """
        return {name: np.array(rows) for name, rows in self.history.items()}

    def state(self) -> dict[str, Mapping[str, np.ndarray]]:
        """Returns everything that the future depends on."""
        kept = {name: getattr(self, name) for name in ("_started", "_return", "_length", "_last_action")}
        counts = {"steps": np.array(self.steps), "learnt": np.array(self._learnt), "episodes": np.array(self.episodes).reshape(-1, 5)}
        return {
            "agent": self.agent.state(),
            "replay": self._replay.state(),
            "environment": self.environment.state(),
            "history": self.record(),
            "sums": self._sums,
            "shield": {} if self.shield is None else self.shield.state(),
            "own": kept,
            "trainer": {**counts, "streams": self._streams.state(), "prior": np.frombuffer(self.prior.digest().encode(), np.uint8)},
        }

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what `state` returned; parts without entries may be missing.

        Raises:
            UserError: it belongs to another safe prior or other runs.
        """
        trainer = state["trainer"]
        if (found := trainer["prior"].tobytes().decode()) != self.prior.digest():
            raise UserError(f"trained with the safe prior {found}, this one is {self.prior.digest()}")
        if len(state["own"]["_started"]) != self._runs:
            raise UserError(f"the checkpoint holds {len(state['own']['_started'])} runs, asked for are {self._runs}")
        self.agent.restore(state["agent"])
        self._replay.restore(state["replay"])
        self.environment.restore(state["environment"])
        if self.shield is not None:
            self.shield.restore(state.get("shield", {}))
        self._streams.restore(trainer["streams"])
        self.history = {name: list(rows) for name, rows in state.get("history", {}).items()}
        self._sums.clear()
        self._sums.update(state.get("sums", {}))
        for name, value in state["own"].items():
            setattr(self, name, value)
        self.episodes = trainer["episodes"].tolist()
        self.steps, self._learnt = int(trainer["steps"]), int(trainer["learnt"])
        self._seen = look(self.environment, self.prior)

    def save(self, path: Path) -> None:
        """Writes a checkpoint; the one before is kept."""
        checkpoint.save(path, checkpoint.flattened(self.state()))

    def resume(self, path: Path) -> str:
        """Goes on from the newest whole checkpoint, or from zero, and returns in words which.

        Raises:
            UserError: it is of another training.
        """
        return checkpoint.resume(path, self.restore)


@dataclass(frozen=True)
class Evaluation:
    """How the deterministic policy of each run did; arrays of shape (R, episodes).

    Attributes:
        returns: sum of the rewards.
        violated: the safe box was left.
        exits: steps outside the ellipsoid.
        jump: mean change of the action from step to step.
    """

    returns: np.ndarray
    violated: np.ndarray
    exits: np.ndarray
    jump: np.ndarray


def evaluate(environment: GoalEnvironment, agent: Sac, prior: LmiPrior, seeds: Sequence[int], shield: Shield | None = None) -> Evaluation:
    """Runs one episode in every copy, with the mean of the policy.

    Args:
        environment: of R·k copies; those of a run are side by side.
        agent: of R runs.
        prior: gives margin and safe action.
        seeds: of the runs.
        shield: for R·k copies.
    """
    runs, copies = len(seeds), len(environment)
    starts = [[seeds[copy * runs // copies], EVALUATION, copy % (copies // runs)] for copy in range(copies)]
    environment.reset(np.arange(copies), starts)
    running = np.ones(copies, bool)
    returns, violated, exits, jump, length = (np.zeros(copies) for _ in range(5))
    last = None
    for _ in range(environment.episode_steps):
        seen = look(environment, prior)
        with torch.no_grad():
            acted = agent.act(*inputs_of(seen, runs), None)
        action = acted.action.reshape(copies, -1).numpy().astype(float)
        if shield is not None:
            action = shield(action, seen.state, seen.safe_action)
        if last is not None:
            jump += running * np.abs(action - last).mean(axis=1)
            length += running
        last = action
        outcome = environment.step(action)
        returns += running * outcome.reward
        violated += running & outcome.violation
        exits += running & (prior.radius(environment.safety_state) >= 1.0)
        running &= ~(outcome.terminated | outcome.truncated)
        if (over := np.flatnonzero(outcome.terminated)).size:  # what is over must not go on to diverge
            environment.reset(over, [starts[copy] for copy in over])
    shape = (runs, copies // runs)
    return Evaluation(*(values.reshape(shape) for values in (returns, violated, exits, jump / np.maximum(length, 1))))


def save_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically; arrays become lists."""
    text = json.dumps(value, default=lambda array: np.asarray(array).tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    paths.write_atomically(path, text.encode())

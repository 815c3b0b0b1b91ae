"""Proximal policy optimisation on the batched simulator, built for one CPU core.

Source: Schulman et al., "Proximal Policy Optimization Algorithms", 2017; advantages from Schulman et al., "High-Dimensional
Continuous Control Using Generalized Advantage Estimation", ICLR 2016.

Losses are pure functions that return their gradient too; `Ppo` is the loop. A time limit bootstraps from the last observation of
its episode, an end by a fall does not, and nothing crosses either.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from ros_rl.errors import RobotFault, UserError
from ros_rl.learning import checkpoint
from ros_rl.learning.mlp import Mlp, Parameters, one_thread
from ros_rl.learning.replay import Streams

_NOISE, _ORDER, _WEIGHTS, _STARTS = range(4)  # what a seed is for; each use has random numbers of its own
_CLIPPED = 10.0  # standard deviations that a normalised observation is cut to


@dataclass(frozen=True)
class PpoArgs:
    """Settings of PPO."""

    copies: int = 8
    """Environments that are stepped together."""
    rollout: int = 256
    """Steps of each environment between two rounds of learning."""
    epochs: int = 10
    """How often each round goes through what was collected, unless the policy moves too far before."""
    batch: int = 256
    """Steps in a minibatch."""
    clip: float = 0.2
    """How far the ratio of probabilities may move from 1 before its gradient ends."""
    discount: float = 0.99
    """Factor by which a reward counts less for every step that it is away."""
    trace: float = 0.95
    """λ of generalised advantage estimation."""
    learning_rate: float = 3e-4
    """Step size of Adam at the start; it falls linearly to zero."""
    log_std: float = -0.5
    """Logarithm of the policy's standard deviation at the start."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic."""
    target_kl: float = 0.03
    """A round ends after the epoch in which the policy moved further than this."""
    value_weight: float = 0.5
    """Weight of the critic's loss."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy."""
    max_norm: float = 0.5
    """Length to which a longer gradient is scaled."""

    def __post_init__(self) -> None:
        """Refuses numbers that make no sense."""
        for name in ("discount", "trace"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"{name} must be within 0 and 1, got {getattr(self, name)}")
        for name in ("copies", "rollout", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("clip", "learning_rate", "target_kl", "max_norm"):
            if not getattr(self, name) > 0.0:
                raise UserError(f"{name} must be above 0, got {getattr(self, name)}")
        if not self.hidden or min(self.hidden) < 1:
            raise UserError(f"hidden must be widths of at least 1, got {self.hidden}")


class Environments(Protocol):
    """Gymnasium vector environments with autoreset off, whose state can be kept: the last observation of an episode is seen."""

    num_envs: int
    metadata: dict[str, Any]
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts episodes, in the copies of ``options["reset_mask"]`` if it is given."""

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes an action in every copy."""

    def state(self) -> dict[str, np.ndarray]:
        """Returns everything that the future depends on."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""


class Rollout(NamedTuple):
    """What was collected; T steps of n copies.

    Attributes:
        raw: observation before each step, (T, n, o).
        observation: the same, normalised, float32.
        action: that was proposed or taken, float32 (T, n, m).
        log_prob: of the action when it was taken, (T, n); NaN where the policy did not choose it.
        reward: (T, n).
        terminated: the episode ended in this step for good, (T, n).
        truncated: it was cut off after this step, (T, n).
        acted: the policy chose the action, (T, n).
        after: observation after the last step, (n, o).
        ends: where episodes ended, step and copy, (2, k).
        final: the last observations of these, (k, o).
    """

    raw: np.ndarray
    observation: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    acted: np.ndarray
    after: np.ndarray
    ends: np.ndarray
    final: np.ndarray


class Batch(NamedTuple):
    """What is learned from; B = T·n steps, see `Rollout`. `target` is what the critic should say."""

    observation: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    advantage: np.ndarray
    target: np.ndarray
    acted: np.ndarray


def advantages(
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    discount: float,
    trace: float,
) -> np.ndarray:
    """Returns generalised advantage estimates, (T, n); all arguments are (T, n).

    Args:
        reward: of each step.
        value: of the observation before it.
        next_value: of the observation after it, which is the last one of its episode where the episode ends.
        terminated: ends without a future.
        truncated: ends with one.
        discount: γ.
        trace: λ.
    """
    goes_on = 1.0 - terminated
    error = reward + discount * goes_on * next_value - value
    carried = discount * trace * goes_on * (1.0 - truncated)
    estimate = np.zeros_like(error)
    later = np.zeros(error.shape[1:])
    for step in reversed(range(len(error))):
        later = estimate[step] = error[step] + carried[step] * later
    return estimate


def normalised(advantage: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns (A - mean) / max(std, 1e-8), both over the chosen steps; A itself if these are fewer than two."""
    if chosen.sum() < 2:
        return advantage
    sample = advantage[chosen]
    return (advantage - sample.mean()) / np.maximum(sample.std(), 1e-8)


def log_prob_of(action: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> np.ndarray:
    """Returns the log-probability under a diagonal Gaussian, (k,), of actions (k, m); `log_std` is (m,)."""
    scaled = (action - mean) * np.exp(-log_std)
    found: np.ndarray = -0.5 * (scaled * scaled).sum(-1) - (log_std.sum() + 0.5 * math.log(2 * math.pi) * log_std.size)
    return found


def surrogate(log_prob: np.ndarray, old: np.ndarray, advantage: np.ndarray, clip: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Returns PPO's clipped loss -mean(min(q·A, clip(q)·A)), its gradient with respect to `log_prob`, (k,), and divergences, (k,).

    These are q - 1 - log q; their mean over actions of the old policy estimates the KL divergence from it.
    """
    change = log_prob - old
    ratio = np.exp(change)
    plain, clipped = ratio * advantage, np.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage
    weight = np.where(plain <= clipped, -plain, 0.0) / len(ratio)
    return -float(np.minimum(plain, clipped).mean()), weight, ratio - 1.0 - change


def through_gaussian(weight: np.ndarray, action: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Takes a gradient with respect to log-probabilities, (k,), to one of the means, (k, m), and one of `log_std`, (m,)."""
    inverse = np.exp(-log_std)
    scaled = (action - mean) * inverse
    return weight[:, None] * scaled * inverse, weight @ (scaled * scaled - 1.0)


class Moments:
    """Mean and variance of all observations so far; what they normalise with changes only when `update` is called."""

    def __init__(self, size: int):
        """Starts with mean 0 and variance 1, which count as nothing."""
        self.count, self.mean, self.variance = 0, np.zeros(size), np.ones(size)

    def update(self, values: np.ndarray) -> None:
        """Takes in observations, shape (k, o)."""
        count, mean, variance = len(values), values.mean(axis=0), values.var(axis=0)
        total, apart = self.count + count, mean - self.mean
        spread = self.variance * self.count + variance * count + apart**2 * self.count * count / total
        self.mean, self.variance, self.count = self.mean + apart * count / total, spread / total, total

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Returns normalised observations, float32, cut to ±10."""
        scaled = (values - self.mean) / np.sqrt(self.variance + 1e-8)
        return np.minimum(np.maximum(scaled, -_CLIPPED), _CLIPPED).astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        """Returns count, mean and variance."""
        return {"count": np.array(self.count), "mean": self.mean, "variance": self.variance}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self.count, self.mean, self.variance = int(state["count"]), state["mean"], state["variance"]


class Ppo:
    """The learner and its environments.

    Attributes:
        iteration: rounds done.
        steps: environment steps done, of all copies together.
        falls: episodes that terminated.
        episodes: one row for each finished episode: steps at its end, copy, return, length, whether it terminated.
        history: name to one figure for each iteration, see `iterate`.
    """

    def __init__(self, args: PpoArgs, environments: Environments, iterations: int, seed: int):
        """Draws the networks and starts the first episodes.

        Args:
            args: settings.
            environments: as many as `args.copies`.
            iterations: after how many the learning rate is zero.
            seed: of weights, noise, order and initial states.

        Raises:
            UserError: the environments are of another kind or number.
        """
        _check(environments, args.copies)
        self.args, self.environments, self.iterations, self.seed = args, environments, iterations, seed
        self.streams = Streams([[seed, _NOISE], [seed, _ORDER]])
        space = environments.single_action_space
        seen = environments.single_observation_space
        assert isinstance(space, spaces.Box) and isinstance(seen, spaces.Box)
        (observations,), (actions,) = seen.shape, space.shape
        self.low, self.high = space.low, space.high
        self._build(observations, actions, np.random.default_rng([seed, _WEIGHTS]))
        self.moments = Moments(observations)
        self.iteration = self.steps = self.falls = 0
        self.episodes: list[list[float]] = []
        self.history: dict[str, list[float]] = {}
        self._return, self._length = np.zeros(args.copies), np.zeros(args.copies, int)
        starts = [int(number) for number in np.random.SeedSequence([seed, _STARTS]).generate_state(args.copies)]
        observation, info = environments.reset(seed=starts)
        self._see(observation, info, np.ones(args.copies, bool))

    def _build(self, observations: int, actions: int, draw: np.random.Generator) -> None:
        shapes = [observations, *self.args.hidden, actions], [observations, *self.args.hidden, 1]
        middle, end = Mlp.size_of(shapes[0]), Mlp.size_of(shapes[0]) + Mlp.size_of(shapes[1])
        self.parameters = Parameters(end + actions, self.args.learning_rate)
        self.actor = Mlp(self.parameters, 0, shapes[0], draw, 0.01)
        self.critic = Mlp(self.parameters, middle, shapes[1], draw, 1.0)
        self.log_std, self._log_std_gradient = self.parameters.values[end:], self.parameters.gradient[end:]
        self._actor_gradient = self.parameters.gradient[:middle]
        self._critic_part = slice(middle, end)
        self.log_std[:] = self.args.log_std

    def policy(self, observation: np.ndarray) -> np.ndarray:
        """Returns the mean actions for observations as the environment gives them, (k, o) to (k, m), within the action space.

        Raises:
            RobotFault: the policy diverged.
        """
        return np.clip(self._finite(self.actor(self.moments(observation))), self.low, self.high)

    def _finite(self, actions: np.ndarray) -> np.ndarray:
        if not np.isfinite(actions).all():
            raise RobotFault(f"PPO diverged: its actions are not finite after {self.steps} steps (seed {self.seed})")
        return actions

    def iterate(self) -> dict[str, float]:
        """Collects, learns, and returns figures: return (of the episodes that ended; NaN without any), falls, kl, std, critic_loss.

        Raises:
            RobotFault: the policy diverged.
        """
        falls, ended = self.falls, len(self.episodes)
        rollout = self._collect()
        with one_thread():
            figures = self._learn(self._batch(rollout))
        self.moments.update(rollout.raw.reshape(-1, rollout.raw.shape[-1]))
        self._seen = self.moments(self._observation)
        self.iteration += 1
        returns = [row[2] for row in self.episodes[ended:]]
        figures |= {"return": float(np.mean(returns)) if returns else np.nan, "falls": float(self.falls - falls)}
        figures["std"] = float(np.exp(self.log_std).mean())
        for name, value in figures.items():
            self.history.setdefault(name, []).append(value)
        return figures

    # --- Collecting ---------------------------------------------------------------------------------------------------------

    def _collect(self) -> Rollout:
        args, (low, high) = self.args, (self.low, self.high)
        steps, copies, actions = args.rollout, args.copies, len(low)
        noise = self.streams.generators[0].standard_normal((steps, copies, actions), np.float32) * np.exp(self.log_std)
        observation = np.empty((steps, copies, self._seen.shape[1]), np.float32)
        raw = np.empty(observation.shape)
        action, mean = np.empty_like(noise), np.empty_like(noise)
        reward = np.empty((steps, copies))
        terminated, truncated, acted = (np.empty((steps, copies), bool) for _ in range(3))
        ends, final = [], []
        for step in range(steps):
            observation[step], raw[step] = self._seen, self._observation
            mean[step] = self.actor(self._seen)
            action[step], acted[step], executed = self._choose(self._finite(mean[step] + noise[step]))
            found, reward[step], terminated[step], truncated[step], info = self.environments.step(np.clip(executed, low, high))
            over = self._end(terminated[step], truncated[step], reward[step], found, info)
            if over.any():
                ends += [(step, copy) for copy in np.flatnonzero(over)]
                final.append(self.moments(found[over]))
                found, info = self.environments.reset(options={"reset_mask": over})
            self._see(found, info, over)
        log_prob = log_prob_of(action, mean, self.log_std)
        log_prob[~acted] = np.nan
        last = np.concatenate(final) if final else np.empty((0, observation.shape[2]), np.float32)
        where = np.array(ends, int).reshape(-1, 2).T
        return Rollout(raw, observation, action, log_prob, reward, terminated, truncated, acted, self._seen, where, last)

    def _choose(self, proposed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the action to learn from, (n, m), whether the policy chose it, (n,), and the action to execute, (n, m)."""
        return proposed, np.ones(len(proposed), bool), proposed

    def _see(self, observation: np.ndarray, info: Mapping[str, Any], began: np.ndarray) -> None:
        """Takes in what the environments show now; in some copies an episode has just begun."""
        self._observation, self._seen = observation, self.moments(observation)

    def _end(
        self, terminated: np.ndarray, truncated: np.ndarray, reward: np.ndarray, observation: np.ndarray, info: Mapping[str, Any]
    ) -> np.ndarray:
        """Counts a step, and returns where an episode is over, (n,). What terminates is not truncated as well; both are mended in place."""
        self.steps += len(reward)
        self._return += reward
        self._length += 1
        over: np.ndarray = terminated | truncated
        if over.any():
            truncated &= ~terminated
            for copy in np.flatnonzero(over):
                row = self.steps, copy, self._return[copy], self._length[copy], terminated[copy]
                self.episodes.append([float(value) for value in row])
            self.falls += int(terminated.sum())
            self._return[over], self._length[over] = 0.0, 0
        return over

    # --- Learning -----------------------------------------------------------------------------------------------------------

    def _values(self, rollout: Rollout, critic: Mlp) -> tuple[np.ndarray, np.ndarray]:
        """Returns what a critic says of the observation before and after every step, (T, n) each, in float64."""
        steps, copies, size = rollout.observation.shape
        rows = np.concatenate([rollout.observation.reshape(-1, size), rollout.after, rollout.final])
        values = critic.forward(rows)[-1].numpy()[:, 0].astype(float)
        inner = values[: (steps + 1) * copies].reshape(steps + 1, copies)
        following = inner[1:].copy()
        following[tuple(rollout.ends)] = values[(steps + 1) * copies :]
        return inner[:-1], following

    def _batch(self, rollout: Rollout) -> Batch:
        """Returns what is learned from.

        Raises:
            UserError: a step that the policy chose has no log-probability.
        """
        if np.isnan(rollout.log_prob[rollout.acted]).any():
            step, copy = np.argwhere(np.isnan(rollout.log_prob) & rollout.acted)[0]
            raise UserError(f"log_prob is NaN at step {step} of copy {copy}, which the policy chose: the rollout is corrupted")
        advantage, target = self._estimate(rollout)
        advantage = normalised(advantage, rollout.acted)
        parts = (
            rollout.observation,
            rollout.action,
            rollout.log_prob,
            advantage.astype(np.float32),
            target.astype(np.float32),
            rollout.acted,
        )
        return Batch(*(part.reshape(-1, *part.shape[2:]) for part in parts))

    def _estimate(self, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
        """Returns advantages, not normalised, and the critic's targets, (T, n) each."""
        value, following = self._values(rollout, self.critic)
        ends = rollout.terminated, rollout.truncated
        advantage = advantages(rollout.reward, value, following, *ends, self.args.discount, self.args.trace)
        return advantage, advantage + value

    def _learn(self, batch: Batch) -> dict[str, float]:
        """Descends the losses. The policy's minibatches are drawn from the steps that it chose, the critic's from all."""
        parts = -(-len(batch.acted) // self.args.batch)
        rate = self.args.learning_rate * (1.0 - self.iteration / self.iterations)
        divergence = critic_loss = 0.0
        for _ in range(self.args.epochs):
            order = self.streams.generators[1].permutation(len(batch.acted))
            own = order[batch.acted[order]]
            found = [np.empty(0)]
            for rows, mine in zip(np.array_split(order, parts), np.array_split(own, parts), strict=True):
                critic_loss = self._critic_gradient(batch.observation[rows], batch.target[rows])
                moved = self._policy_gradient(batch, mine) if mine.size else None
                self.parameters.descend(rate, self.args.max_norm, self._critic_part if moved is None else None)
                if moved is not None:
                    found.append(moved[self._own(mine)])
            apart = np.concatenate(found)
            divergence = float(apart.mean()) if apart.size else 0.0
            if divergence > self.args.target_kl:
                break
        return {"kl": divergence, "critic_loss": critic_loss}

    def _critic_gradient(self, observation: np.ndarray, target: np.ndarray) -> float:
        """Writes the critic's gradient and returns its loss, half the mean squared error."""
        values = self.critic.forward(observation)
        error = values[-1].numpy() - target[:, None]
        self.critic.backward(values, error * np.float32(self.args.value_weight / len(error)))
        return 0.5 * float(np.mean(error * error))

    def _own(self, rows: np.ndarray) -> np.ndarray:
        """Returns which of some steps that are learned from have an action of the old policy, whose divergence means something, (k,)."""
        return np.ones(len(rows), bool)

    def _policy_gradient(self, batch: Batch, rows: np.ndarray) -> np.ndarray | None:
        """Writes the gradient of actor and spread and returns the divergences, (k,); None if both are to stay as they are."""
        values = self.actor.forward(batch.observation[rows])
        gradient, divergences = self._surrogate_gradient(batch, rows, values[-1].numpy())
        self.actor.backward(values, gradient)
        return divergences

    def _surrogate_gradient(self, batch: Batch, rows: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Writes the gradient of the spread, and returns that of the means, (k, m), and the divergences, (k,)."""
        action = batch.action[rows]
        log_prob = log_prob_of(action, mean, self.log_std)
        _, weight, divergences = surrogate(log_prob, batch.log_prob[rows], batch.advantage[rows], self.args.clip)
        gradient, self._log_std_gradient[:] = through_gaussian(weight, action, mean, self.log_std)
        self._log_std_gradient -= self.args.entropy_weight  # the entropy of a Gaussian grows with log_std, at the rate 1
        return gradient, divergences

    # --- Stopping and going on ----------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Returns everything that was asked for, as JSON holds it; a training goes on with the same alone."""
        return checkpoint.as_json({"iterations": self.iterations, "seed": self.seed, **self._asked()})

    def _asked(self) -> dict[str, Any]:
        return {"ppo": asdict(self.args)}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns everything that the future depends on, between two iterations."""
        own = {name: np.asarray(getattr(self, name)) for name in ("iteration", "steps", "falls", "_return", "_length", "_observation")}
        return {
            "parameters": self.parameters.state(),
            "moments": self.moments.state(),
            "environments": self.environments.state(),
            "history": {name: np.array(values) for name, values in self.history.items()},
            "own": {**own, "streams": self.streams.state(), "episodes": np.array(self.episodes).reshape(-1, 5)},
            "asked": {"settings": checkpoint.packed(self.settings())},
        }

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what `state` returned.

        Raises:
            UserError: it was asked for with other settings.
            ValueError: it is of networks or environments of another size.
        """
        checkpoint.refuse_other("the checkpoint", checkpoint.unpacked(state["asked"]["settings"]), self.settings())
        own = state["own"]
        if own["_observation"].shape != self._observation.shape:
            raise ValueError(f"the checkpoint holds observations of shape {own['_observation'].shape}, here are {self._observation.shape}")
        self.parameters.restore(state["parameters"])
        self.moments.restore(state["moments"])
        self.environments.restore(state["environments"])
        self.history = {name: values.tolist() for name, values in state.get("history", {}).items()}
        self.streams.restore(own["streams"])
        self.episodes = own["episodes"].tolist()
        self.iteration, self.steps, self.falls = (int(own[name]) for name in ("iteration", "steps", "falls"))
        self._return, self._length = own["_return"].copy(), own["_length"].copy()
        self._observation = own["_observation"].copy()
        self._seen = self.moments(self._observation)

    def save(self, path: Path) -> None:
        """Writes a checkpoint; the one before is kept."""
        checkpoint.save(path, checkpoint.flattened(self.state()))

    def resume(self, path: Path) -> str:
        """Goes on from the newest whole checkpoint, or from zero, and returns in words which.

        Raises:
            UserError: it is of another training.
        """
        return checkpoint.resume(path, self.restore)


def _check(environments: Environments, copies: int) -> None:
    if environments.num_envs != copies:
        raise UserError(f"{environments.num_envs} environments for {copies} copies")
    if environments.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
        raise UserError("autoreset must be off (AutoresetMode.DISABLED): the last observation of an episode would be missing")
    for name, space in (("observations", environments.single_observation_space), ("actions", environments.single_action_space)):
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise UserError(f"{name} must be a Box of one dimension, got {space}")

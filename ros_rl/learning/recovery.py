"""Recovery policies: states near a fall, soft actor-critic that learns to come back from them, and how often it does.

Any function of the observation can be a recovery policy; what is trained here is the mean of a SAC policy, tanh of a small network.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ros_rl import paths
from ros_rl.errors import UserError
from ros_rl.learning.mlp import one_thread
from ros_rl.learning.replay import Replay, Streams
from ros_rl.learning.sac import Sac, SacArgs
from ros_rl.learning.safeexplorer import Recovery, checked_recovery
from ros_rl.sim.fall_env import FallEnv

STRENGTHS = {"strong": 0.02, "weak": 0.5}  # price of actions, c_u
EPISODE = 60  # steps in which a recovery should be done
HELD_OUT = 200  # snapshots that are not trained on
_CALM = 0.8  # share of d below which a state counts as recovered
_WORST = 0.95  # ρ of the snapshots nearest to a fall


@dataclass(frozen=True)
class RecoveryArgs:
    """Settings of the training."""

    region: float = 0.35
    """d from which the recovery policy is needed; snapshots begin at 0.8 of it."""
    snapshots: int = 2000
    """States to start from."""
    steps: int = 100_000
    """Environment steps of each policy."""
    copies: int = 8
    """Environments of each policy that are stepped together."""
    updates: int = 4
    """Updates after each of these steps."""
    fall: float = 10.0
    """What a fall costs."""
    sac: SacArgs = field(default_factory=lambda: SacArgs(learning_rate=1e-3, batch=128, hidden=(64, 64), warmup=1000))
    """Settings of SAC."""


@dataclass(frozen=True, eq=False)
class RecoveryPolicy:
    """tanh of a perceptron's output, with ReLU between its layers.

    Attributes:
        weights: of each layer, (inputs, outputs).
        biases: of each layer, (outputs,).
        mean: of the observations that it was trained on, (o,).
        spread: their standard deviation, (o,).
    """

    weights: Sequence[np.ndarray]
    biases: Sequence[np.ndarray]
    mean: np.ndarray
    spread: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns everything that it is made of, by name."""
        arrays = {"mean": self.mean, "spread": self.spread}
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays |= {f"weight{layer}": np.ascontiguousarray(weight), f"bias{layer}": np.ascontiguousarray(bias)}
        return arrays

    def digest(self) -> str:
        """Returns a hash of its numbers that only a policy equal bit for bit has."""
        digest = hashlib.sha256()
        for name, value in sorted(self.arrays().items()):
            digest.update(f"{name}{value.shape}".encode() + value.astype("<f8").tobytes())
        return digest.hexdigest()[:16]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns actions within [-1, 1], (k, o) to (k, m)."""
        values = (observation - self.mean) / self.spread
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            values = np.maximum(values @ weight + bias, 0.0)
        return np.tanh(values @ self.weights[-1] + self.biases[-1])


class Spent(NamedTuple):
    """What something cost: environment steps and falls."""

    steps: int
    falls: int


class Trained(NamedTuple):
    """Recovery policies and what was spent on them.

    Attributes:
        policies: one for each price of actions.
        held_out: 200 snapshots that they have not seen, (200, nstate), for `rescue_rate`.
        collecting: spent on snapshots, once for all policies.
        training: spent on each policy.
        transitions: what each policy learned from, in the order in which it came: observation (k, o) as the environment gives it, action
            (k, m), reward (k,), terminated (k,) and next_observation (k, o).
    """

    policies: list[RecoveryPolicy]
    held_out: np.ndarray
    collecting: Spent
    training: list[Spent]
    transitions: list[dict[str, np.ndarray]]


def collect_snapshots(environment: FallEnv, count: int, region: float, seed: int) -> tuple[np.ndarray, Spent]:
    """Returns simulation states on the way to a fall, (count, nstate), with ρ from 0.8·region to 0.95, and what they cost.

    The copies take smooth random actions and are pushed now and then; each gives a state when its ρ first reaches a level drawn for
    it, and starts anew.
    """
    draw, copies = np.random.default_rng(seed), environment.num_envs
    actions = np.zeros(environment.action_space.shape or ())
    environment.reset(seed=[int(number) for number in draw.integers(2**31, size=copies)])
    levels = draw.uniform(_CALM * region, _WORST, copies)
    root = 3 if environment.copies.mj.nq == environment.copies.mj.nv else 6  # degrees of freedom that are no joints
    found: list[np.ndarray] = []
    steps = falls = 0
    while len(found) < count:
        actions = 0.9 * actions + 0.44 * draw.standard_normal(actions.shape)
        pushed = np.flatnonzero(draw.random(copies) < 0.05)
        environment.copies.qvel[pushed, :root] += 2.0 * draw.standard_normal((len(pushed), root))
        _, _, terminated, truncated, info = environment.step(np.clip(actions, -1.0, 1.0))
        steps, falls = steps + copies, falls + int(terminated.sum())
        caught = (info["rho"] >= levels) & (info["rho"] <= _WORST)
        found.extend(environment.copies.snapshot(np.flatnonzero(caught)))
        over = caught | terminated | truncated
        if over.any():
            environment.reset(options={"reset_mask": over})
            actions[over] = 0.0
            levels[over] = draw.uniform(_CALM * region, _WORST, int(over.sum()))
    return np.stack(found[:count]), Spent(steps, falls)


def snapshots(make: Callable[[int], FallEnv], args: RecoveryArgs, seed: int) -> tuple[np.ndarray, np.ndarray, Spent]:
    """Returns the states to train from, 200 held out, and what they cost together."""
    environment = make(64)
    states, spent = collect_snapshots(environment, args.snapshots + HELD_OUT, args.region, seed)
    environment.close()
    return states[: args.snapshots], states[args.snapshots :], spent


def start_from(environment: FallEnv, copies: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Starts episodes of some copies in simulation states, (k, nstate); returns the observations of all, (n, o)."""
    environment.reset(options={"reset_mask": np.isin(np.arange(environment.num_envs), copies)})
    environment.resume(copies, states)
    return np.asarray(environment.observe())


def recovery_reward(rho: np.ndarray, action: np.ndarray, price: np.ndarray, region: float, fall: float) -> np.ndarray:
    """Returns -ρ - c_u·|a|², with 1 more where ρ is below 0.8·region, and `fall` less where it is 1 or above.

    Args:
        rho: after the step, (n,).
        action: (n, m).
        price: c_u, (n,) or a number.
        region: d.
        fall: what a fall costs.
    """
    reward: np.ndarray = -rho - price * np.square(action).sum(-1) + (rho < _CALM * region) - fall * (rho >= 1.0)
    return reward


def train_recovery(
    make: Callable[[int], FallEnv],
    prices: Sequence[float],
    args: RecoveryArgs,
    seed: int,
    progress: Callable[[int], object] = lambda steps: None,
) -> Trained:
    """Trains one policy for each price of actions, side by side.

    Args:
        make: builds an environment of some copies, with autoreset off.
        prices: c_u of each policy.
        args: settings.
        seed: of snapshots and training.
        progress: called with the number of steps that each policy has just done.
    """
    states, held_out, collecting = snapshots(make, args, seed)
    runs, copies = len(prices), args.copies
    environment, streams = make(runs * copies), Streams([[seed, run] for run in range(runs)])
    draw, everyone = np.random.default_rng(seed), np.arange(runs * copies)
    price = np.repeat(prices, copies)
    seen = start_from(environment, everyone, states[draw.integers(len(states), size=len(everyone))])
    mean, spread = _scale_of(environment, states)
    actions = environment.action_space.shape[1] if environment.action_space.shape else 0
    sac = Sac(args.sac, seen.shape[1], actions, streams)
    replay = Replay(
        runs, args.steps, {"observation": len(mean), "action": actions, "reward": 0, "terminated": 0, "next_observation": len(mean)}
    )
    age, falls = np.zeros(len(everyone), int), np.zeros(runs, int)
    nothing = torch.zeros(1)
    with one_thread():
        for step in range(args.steps // copies):
            inputs = torch.from_numpy(((seen - mean) / spread).astype(np.float32)).reshape(runs, copies, -1)
            if step * copies < args.sac.warmup:
                action = streams.uniform(copies, actions)
            else:
                with torch.no_grad():
                    action = sac.act(inputs, nothing, nothing, streams.normal(copies, actions)).action
            taken = action.numpy().reshape(-1, actions).astype(float)
            following, _, terminated, truncated, info = environment.step(taken)
            parts = {
                "observation": inputs.numpy().reshape(len(everyone), -1),
                "action": taken,
                "reward": recovery_reward(info["rho"], taken, price, args.region, args.fall),
                "terminated": terminated,
                "next_observation": (following - mean) / spread,
            }
            for copy in range(copies):
                replay.add(**{name: values[copy::copies] for name, values in parts.items()})
            age += 1
            falls += terminated.reshape(runs, copies).sum(axis=1)
            if (over := np.flatnonzero(terminated | truncated | (age >= EPISODE))).size:
                following = start_from(environment, over, states[draw.integers(len(states), size=len(over))])
                age[over] = 0
            seen = following
            if (step + 1) * copies >= args.sac.warmup:
                for _ in range(args.updates):
                    _update(sac, replay, streams)
            progress(copies)
    environment.close()
    policies = [_policy_of(sac, run, mean, spread) for run in range(runs)]
    spent = [Spent(len(replay), int(count)) for count in falls]
    return Trained(policies, held_out, collecting, spent, [_transitions(replay, run, mean, spread) for run in range(runs)])


def _transitions(replay: Replay, run: int, mean: np.ndarray, spread: np.ndarray) -> dict[str, np.ndarray]:
    parts = replay.parts(run)
    for name in ("observation", "next_observation"):
        parts[name] = (parts[name] * spread + mean).astype(np.float32)
    return parts


def _update(sac: Sac, replay: Replay, streams: Streams) -> None:
    size = sac.args.batch
    batch = replay.sample(streams, size)
    nothing = torch.zeros(1)  # there is no safe action to mix with
    batch |= dict.fromkeys(("margin", "safe_action", "next_margin", "next_safe_action"), nothing)
    sac.update(batch, streams.normal(2, size, sac.actor.actions).transpose(0, 1))


def _scale_of(environment: FallEnv, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of what is seen in the snapshots, (o,) each."""
    copies = environment.num_envs
    seen = [
        start_from(environment, np.arange(copies), states[start : start + copies]) for start in range(0, len(states) - copies + 1, copies)
    ]
    rows = np.concatenate(seen)
    return rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-3)


def _policy_of(sac: Sac, run: int, mean: np.ndarray, spread: np.ndarray) -> RecoveryPolicy:
    layers = sac.actor.layers
    weights = [weight.detach().numpy()[run].copy() for weight in layers.weights]
    biases = [bias.detach().numpy()[run, 0].copy() for bias in layers.biases]
    actions = sac.actor.actions
    weights[-1], biases[-1] = weights[-1][:, :actions], biases[-1][:actions]
    return RecoveryPolicy(weights, biases, mean, spread)


def rescued(make: Callable[[int], FallEnv], recovery: Recovery, states: np.ndarray, region: float) -> tuple[np.ndarray, np.ndarray]:
    """Tries to come back from states, (k, nstate): to ρ below 0.8·region within 60 steps, before a fall.

    Returns:
        where it succeeded, (k,), and how near to a fall it was, (k,): the sum of ρ until then, 1 for each step after a fall.

    Raises:
        UserError: the actions are none, see `checked_recovery`.
    """
    environment = make(len(states))
    environment.reset(seed=0)
    seen = start_from(environment, np.arange(len(states)), states)
    actions = environment.action_space.shape[1] if environment.action_space.shape else 0
    back, fallen, distress = np.zeros(len(states), bool), np.zeros(len(states), bool), np.zeros(len(states))
    for _ in range(EPISODE):
        seen, _, terminated, truncated, info = environment.step(checked_recovery(recovery, seen, actions))
        back |= (info["rho"] < _CALM * region) & ~fallen
        fallen |= terminated & ~back
        distress += np.where(fallen, 1.0, np.where(back, 0.0, info["rho"]))
        if (over := terminated | truncated).any():
            seen, _ = environment.reset(options={"reset_mask": over})
    environment.close()
    return back, distress


def rescue_rate(make: Callable[[int], FallEnv], recovery: Recovery, states: np.ndarray, region: float) -> float:
    """Returns the share of states, (k, nstate), from which it comes back, see `rescued`."""
    return float(rescued(make, recovery, states, region)[0].mean())


def save_recovery(path: Path, policy: RecoveryPolicy) -> None:
    """Writes a policy as safetensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths.write_atomically(path, save(policy.arrays()))


def load_recovery(path: Path, observations: int, actions: int) -> RecoveryPolicy:
    """Reads what `save_recovery` wrote.

    Raises:
        UserError: it is no such file, holds numbers that are not finite, or is for another environment.
    """
    try:
        arrays: dict[str, Any] = load(path.read_bytes())
        layers = range((len(arrays) - 2) // 2)
        policy = RecoveryPolicy(
            [arrays[f"weight{k}"] for k in layers], [arrays[f"bias{k}"] for k in layers], arrays["mean"], arrays["spread"]
        )
        shape = policy.weights[0].shape[0], policy.weights[-1].shape[1]
    except (OSError, SafetensorError, KeyError, IndexError) as error:
        raise UserError(f"{path}: no recovery policy can be read from it ({error})") from None
    if shape != (observations, actions):
        raise UserError(f"{path}: takes {shape[0]} observations to {shape[1]} actions, the environment has {observations} and {actions}")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise UserError(f"{path}: holds numbers that are not finite")
    return policy

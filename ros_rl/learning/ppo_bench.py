"""Measures how many environment steps PPO collects and learns from in a second, beside what others make of the same work."""

import importlib.util
import itertools
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics
from torch import nn
from torch.distributions import Normal

from ros_rl.learning.mlp import one_thread
from ros_rl.learning.ppo import Ppo, PpoArgs
from ros_rl.sim.locomotion_env import HalfCheetahVectorEnv

ENVIRONMENT = "HalfCheetah-v5"

Turn = Callable[[], object]  # collects one rollout and learns from it


def measure(args: PpoArgs, turns: int, threads: int, progress: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Times iterations of PPO on HalfCheetah: ours, a plain one by autograd, and that of Stable-Baselines3 where it is installed.

    All step their environments on one thread and learn on one, have the same networks, rollouts and minibatches, go through all epochs,
    normalise observations and keep the returns of episodes. They take turns; ratios are medians over those of each turn. The first turn
    of each is not counted.

    Args:
        args: sizes; no round ends early.
        turns: how often each has its turn.
        threads: that step our environments in one more contestant, which ours of one thread is not to be mistaken for; 1: none.
        progress: called after every iteration.

    Returns:
        JSON-ready figures: steps per second, and how many times that of the others ours is, with quartiles; under "threaded" the same
        ratios of ours with more threads.
    """
    made = {"ours": 1} if threads == 1 else {"ours": 1, "ours_threaded": threads}
    environments = [HalfCheetahVectorEnv(args.copies, autoreset_mode=AutoresetMode.DISABLED, threads=count) for count in made.values()]
    contestants: dict[str, Turn] = {name: Ppo(args, own, turns + 1, 0).iterate for name, own in zip(made, environments, strict=True)}
    contestants["plain"] = _Plain(args).iterate
    peers = [name for name in ("stable_baselines3",) if importlib.util.find_spec(name)]
    if peers:
        contestants["stable_baselines3"] = _stable_baselines3(args)
    seconds: list[dict[str, float]] = []
    with one_thread():
        for _ in range(turns + 1):
            row = {}
            for name, contestant in contestants.items():
                start = time.perf_counter()
                contestant()
                row[name] = time.perf_counter() - start
                progress()
            seconds.append(row)
    for own in environments:
        own.close()
    versions = {name: version(name) for name in ("mujoco", "gymnasium", "numpy", "torch", *peers)}
    sizes = {"copies": args.copies, "rollout": args.rollout, "epochs": args.epochs, "batch": args.batch, "hidden": list(args.hidden)}
    found = {**sizes, "turns": turns, "machine": {"python": platform.python_version(), "cpus": os.cpu_count(), **versions}}
    found |= figures(seconds[1:], args.copies * args.rollout)
    if threads != 1:
        found["threaded"] = {"threads": threads, **_ratios(seconds[1:], "ours_threaded")}
    return found


def figures(seconds: list[dict[str, float]], steps: int) -> dict[str, Any]:
    """Returns steps per second and ratios of speeds, as medians over the turns, with the quartiles of the ratios."""
    rates = {name: round(steps / float(np.median([row[name] for row in seconds]))) for name in seconds[0]}
    return {"steps_per_second": rates, **_ratios(seconds, "ours")}


def _ratios(seconds: list[dict[str, float]], ours: str) -> dict[str, Any]:
    quartiles = {
        name: [round(float(np.percentile([row[name] / row[ours] for row in seconds], percent)), 2) for percent in (25, 50, 75)]
        for name in seconds[0]
        if not name.startswith("ours")
    }
    return {"ratio": {name: found[1] for name, found in quartiles.items()}, "ratio_quartiles": quartiles}


class _Plain:
    """PPO as it is usually written: one tensor for each step, losses by autograd, Gymnasium's environments in a row."""

    def __init__(self, args: PpoArgs):
        self.args = args
        environments = gymnasium.make_vec(ENVIRONMENT, num_envs=args.copies, vectorization_mode="sync")
        self.environments = NormalizeObservation(RecordEpisodeStatistics(environments))
        observations, actions = 17, 6
        self.actor, self.critic = (_network([observations, *args.hidden, outputs]) for outputs in (actions, 1))
        self.log_std = nn.Parameter(torch.full((actions,), args.log_std))
        self.parameters = [*self.actor.parameters(), *self.critic.parameters(), self.log_std]
        self.adam = torch.optim.Adam(self.parameters, lr=args.learning_rate, eps=1e-5)
        self.seen = torch.as_tensor(self.environments.reset(seed=0)[0], dtype=torch.float32)
        self.done = torch.zeros(args.copies)

    def iterate(self) -> None:
        """Collects and learns."""
        steps, copies = self.args.rollout, self.args.copies
        seen, action = torch.zeros(steps, copies, 17), torch.zeros(steps, copies, 6)
        log_prob, reward, done, value = (torch.zeros(steps, copies) for _ in range(4))
        for step in range(steps):
            seen[step], done[step] = self.seen, self.done
            with torch.no_grad():
                policy = Normal(self.actor(self.seen), self.log_std.exp())
                action[step] = policy.sample()
                log_prob[step] = policy.log_prob(action[step]).sum(1)
                value[step] = self.critic(self.seen)[:, 0]
            following, earned, terminated, truncated, _ = self.environments.step(action[step].clamp(-1, 1).numpy())
            reward[step] = torch.as_tensor(earned, dtype=torch.float32)
            self.seen, self.done = torch.as_tensor(following, dtype=torch.float32), torch.as_tensor(terminated | truncated).float()
        advantage = torch.zeros_like(reward)
        with torch.no_grad():
            ahead, later, last = self.critic(self.seen)[:, 0], torch.zeros(copies), self.done
            for step in reversed(range(steps)):
                error = reward[step] + self.args.discount * ahead * (1 - last) - value[step]
                later = advantage[step] = error + self.args.discount * self.args.trace * (1 - last) * later
                ahead, last = value[step], done[step]
        flat = seen.flatten(0, 1), action.flatten(0, 1), log_prob.flatten(), advantage.flatten(), (advantage + value).flatten()
        for _ in range(self.args.epochs):
            for rows in torch.randperm(steps * copies).split(self.args.batch):
                self._descend(*(part[rows] for part in flat))

    def _descend(self, seen: torch.Tensor, action: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, target: torch.Tensor) -> None:
        policy = Normal(self.actor(seen), self.log_std.exp())
        ratio = (policy.log_prob(action).sum(1) - old).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - self.args.clip, 1 + self.args.clip) * advantage).mean()
        loss = -gain + self.args.value_weight * 0.5 * ((self.critic(seen)[:, 0] - target) ** 2).mean()
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.args.max_norm)
        self.adam.step()


def _network(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _stable_baselines3(args: PpoArgs) -> Turn:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    widths = list(args.hidden)
    model = PPO(
        "MlpPolicy",
        VecNormalize(make_vec_env(ENVIRONMENT, n_envs=args.copies, seed=0), norm_reward=False),
        n_steps=args.rollout,
        batch_size=args.batch,
        n_epochs=args.epochs,
        policy_kwargs={"net_arch": {"pi": widths, "vf": widths}},
        seed=0,
        device="cpu",
    )
    return lambda: model.learn(args.rollout * args.copies, reset_num_timesteps=False)

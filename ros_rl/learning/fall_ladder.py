"""Trains one method on one environment in which one can fall, with equal steps for all methods; stops and resumes anywhere.

python -m ros_rl.learning.fall_ladder --env halfcheetah --method full --seed 0
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from safetensors.numpy import save
from tqdm import tqdm

from ros_rl import paths
from ros_rl.errors import RobotFault, UserError, unknown
from ros_rl.learning import checkpoint
from ros_rl.learning.cpo import Cpo
from ros_rl.learning.ppo import Environments, Ppo, PpoArgs
from ros_rl.learning.ppo_lagrangian import LagrangianPpo
from ros_rl.learning.recovery import STRENGTHS, RecoveryArgs, RecoveryPolicy, load_recovery, rescue_rate, save_recovery, train_recovery
from ros_rl.learning.recovery_rl import RecoveryRl
from ros_rl.learning.safeexplorer import ExplorerArgs, Recovery, SafeExplorer, exit_rate, gap_bound
from ros_rl.learning.training import save_json
from ros_rl.sim.fall_env import FallEnv, make_fall_env

PPO = PpoArgs()
RECOVERY = RecoveryArgs()
EPISODE_STEPS = 1000
EVALUATE_EVERY = 10  # iterations
EVALUATION_EPISODES = 5
_EVALUATION = 9  # what a seed is for, beside those of `Ppo`

Make = Callable[[Environments, int, int, Any], Ppo]  # from environments, iterations, seed and recovery policy, None if it needs none


@dataclass(frozen=True)
class Method:
    """A way to learn.

    Attributes:
        label: for tables and figures.
        make: builds the learner.
        guarded: whether a recovery policy acts in training.
    """

    label: str
    make: Make
    guarded: bool = False


def _explorer(label: str, **settings: Any) -> Method:
    args = ExplorerArgs(**settings)
    return Method(label, lambda envs, iterations, seed, recovery: SafeExplorer(PPO, envs, iterations, seed, recovery, args), True)


METHODS = {
    "ppo": Method("PPO", lambda envs, iterations, seed, recovery: Ppo(PPO, envs, iterations, seed)),
    "unmasked": _explorer("unmasked", mask=False, analytic=False, imitation=0.0),
    "masked": _explorer("masked", analytic=False, imitation=0.0),
    "masked_value": _explorer("masked, analytic value", imitation=0.0),
    "full": _explorer("SafeExplorer"),
    "recovery_rl": Method(
        "Recovery RL style",
        lambda envs, iterations, seed, recovery: RecoveryRl(PPO, envs, iterations, seed, recovery, ExplorerArgs()),
        True,
    ),
    "lagrangian": Method("PPO-Lagrangian", lambda envs, iterations, seed, recovery: LagrangianPpo(PPO, envs, iterations, seed)),
    "cpo": Method("CPO", lambda envs, iterations, seed, recovery: Cpo(PPO, envs, iterations, seed)),
}


@dataclass
class FallLadderArgs:
    """What to train."""

    env: str = "halfcheetah"
    """halfcheetah, ant or quadruped."""
    method: str = "full"
    """ppo, unmasked, masked, masked_value, full, recovery_rl, lagrangian or cpo."""
    seed: int = 0
    """Of the run."""
    steps: int = 1_000_000
    """Environment steps, recovery steps included."""
    recovery: Literal["strong", "weak"] = "strong"
    """Which recovery policy."""
    folder: Path = Path("out/safeexplorer")
    """Where checkpoints and results go; a run that was stopped goes on from there."""


@dataclass(frozen=True)
class Evaluation:
    """How the mean of a policy does; means over the episodes.

    Attributes:
        alone: return without recovery.
        mixed: return with recovery outside the region; NaN where the learner has no such region.
        exits: β, the discounted rate of leaving the region alone; NaN likewise.
        gap: |J - J_mix|, discounted.
        bound: what `gap_bound` says of it.
    """

    alone: float
    mixed: float
    exits: float
    gap: float
    bound: float


def evaluate(environment: FallEnv, learner: Ppo, seed: list[int]) -> Evaluation:
    """Runs one episode in every copy; SafeExplorer's recovery policy guards the second half of them."""
    guarded = type(learner) is SafeExplorer
    copies, discount = environment.num_envs, learner.args.discount
    alone = np.arange(copies) < (copies // 2 if guarded else copies)
    starts = [int(number) for number in np.random.SeedSequence(seed).generate_state(int(alone.sum()))]
    seen, info = environment.reset(seed=starts * 2 if guarded else starts)
    running, largest = np.ones(copies, bool), 0.0
    returns, discounted, fallen, outside = np.zeros(copies), np.zeros(copies), np.zeros(copies, bool), []
    for step in range(EPISODE_STEPS):
        actions = learner.policy(seen)
        if type(learner) is SafeExplorer:
            out = info["rho"] >= learner.region
            outside.append(float((np.where(running, out, fallen))[alone].mean()))
            if (helped := out & ~alone & running).any():
                actions[helped] = learner.recovery(seen[helped])
        seen, reward, terminated, truncated, info = environment.step(actions)
        largest = max(largest, float(np.abs(reward[running]).max()))
        returns += running * reward
        discounted += running * discount**step * reward
        fallen |= running & terminated
        over = terminated | truncated
        running &= ~over
        if not running.any():
            break
        if over.any():
            seen, info = environment.reset(options={"reset_mask": over})
    if not guarded:
        return Evaluation(float(returns.mean()), *(math.nan,) * 4)
    exits = exit_rate(np.array([*outside, float(fallen[alone].mean())]), discount)
    gap = abs(float(discounted[alone].mean() - discounted[~alone].mean()))
    return Evaluation(float(returns[alone].mean()), float(returns[~alone].mean()), exits, gap, gap_bound(largest, exits, discount))


def method_named(name: str) -> Method:
    """Returns a method.

    Raises:
        UserError: there is none of that name.
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def recovery_of(env: str, strength: str, folder: Path) -> tuple[RecoveryPolicy, float]:
    """Returns a recovery policy and its rescue rate from the folder, after training all strengths and writing them there if need be."""
    place = folder / env / "recovery.json"
    make = lambda copies: make_fall_env(env, copies)  # noqa: E731
    if not place.is_file():
        with tqdm(total=RECOVERY.steps, desc=f"{env} recovery", unit="step", disable=None) as bar:
            policies, held_out = train_recovery(make, list(STRENGTHS.values()), RECOVERY, 0, bar.update)
        rates = {}
        for name, policy in zip(STRENGTHS, policies, strict=True):
            save_recovery(folder / env / f"recovery_{name}.safetensors", policy)
            rates[name] = rescue_rate(make, policy, held_out, RECOVERY.region)
        save_json(place, {"rescue_rate": rates, "snapshots": len(held_out), "steps": RECOVERY.steps})
    rates = json.loads(place.read_text(encoding="utf-8"))["rescue_rate"]
    environment = make(1)
    sizes = environment.single_observation_space.shape, environment.single_action_space.shape
    environment.close()
    assert sizes[0] is not None and sizes[1] is not None
    return load_recovery(folder / env / f"recovery_{strength}.safetensors", sizes[0][0], sizes[1][0]), float(rates[strength])


class Run:
    """One method with one seed.

    Attributes:
        evaluations: a row for each: steps, falls, stuck episodes, then the values of `Evaluation`.
    """

    def __init__(self, env: str, method: str, seed: int, steps: int, recovery: Recovery | None):
        """Sets it up at step 0.

        Raises:
            UserError: there is no such method or environment, or a number is out of range.
        """
        if seed < 0 or steps < 1:
            raise UserError(f"--seed must not be negative and --steps be at least 1, got {seed} and {steps}")
        self.seed, self.iterations = seed, -(-steps // (PPO.copies * PPO.rollout))
        chosen = method_named(method)
        self.learner = chosen.make(make_fall_env(env, PPO.copies, EPISODE_STEPS), self.iterations, seed, recovery)
        copies = EVALUATION_EPISODES * (2 if type(self.learner) is SafeExplorer else 1)
        self._evaluation = make_fall_env(env, copies, EPISODE_STEPS)
        self.evaluations: list[list[float]] = []

    def step(self) -> None:
        """Does one iteration; evaluates before the first, every tenth and the last."""
        if not self.evaluations:
            self._evaluate()
        self.learner.iterate()
        if self.learner.iteration % EVALUATE_EVERY == 0 or self.learner.iteration == self.iterations:
            self._evaluate()

    def _evaluate(self) -> None:
        learner = self.learner
        found = evaluate(self._evaluation, learner, [self.seed, _EVALUATION, learner.iteration])
        stuck = learner.counts["stuck"] if isinstance(learner, SafeExplorer) else 0
        row = learner.steps, learner.falls, stuck, found.alone, found.mixed, found.exits, found.gap, found.bound
        self.evaluations.append([float(value) for value in row])

    def save(self, path: Path) -> None:
        """Writes a checkpoint; the one before is kept."""
        checkpoint.save(path, checkpoint.flattened({**self.learner.state(), "ladder": {"evaluations": np.array(self.evaluations)}}))

    def resume(self, path: Path) -> str:
        """Goes on from the newest whole checkpoint, or from zero, and returns in words which."""
        words = self.learner.resume(path)
        arrays, _ = checkpoint.load(path)
        if arrays is not None:
            self.evaluations = arrays["ladder/evaluations"].tolist()
        return words


def train(env: str, method: str, seed: int, steps: int, recovery: str, folder: Path, bar: bool = True) -> dict[str, Any]:
    """Trains, or goes on training, or reads what was trained before.

    Leaves <folder>/<env>/<recovery>/<method>_<seed>.json with the result and .safetensors with the policy; checkpoints are there until
    then.

    Raises:
        UserError: the arguments are out of range, or the folder holds something else under these names.
        RobotFault: the training broke down.
    """
    method_named(method)
    make_fall_env(env, 1).close()
    place = folder / env / recovery / f"{method}_{seed}"
    done, kept = place.with_suffix(".json"), place.with_suffix(".npz")
    if done.is_file():
        result: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        if result["asked"] != steps:
            raise UserError(f"{done}: holds a run of {result['asked']} steps, asked for are {steps}; name another --folder")
        return result
    policy, rate = recovery_of(env, recovery, folder) if METHODS[method].guarded else (None, None)
    run = Run(env, method, seed, steps, policy)
    print(f"{env} {method} {seed}: {run.resume(kept)}", file=sys.stderr)
    learner = run.learner
    progress = tqdm(total=run.iterations, initial=learner.iteration, desc=f"{env} {method} {seed}", disable=None if bar else True)
    with progress:
        while learner.iteration < run.iterations:
            run.step()
            progress.update()
            if learner.iteration % EVALUATE_EVERY == 0:
                run.save(kept)
    networks: dict[str, np.ndarray] = {
        "parameters": learner.parameters.values,
        "mean": learner.moments.mean,
        "variance": learner.moments.variance,
    }
    paths.write_atomically(place.with_suffix(".safetensors"), save(networks))
    history = {name: [None if math.isnan(value) else value for value in values] for name, values in learner.history.items()}
    evaluations = [[None if math.isnan(value) else value for value in row] for row in run.evaluations]
    columns = ["steps", "falls", "stuck", "return", "return_mixed", "exit_rate", "gap", "gap_bound"]
    asked = {"env": env, "method": method, "seed": seed, "asked": steps, "recovery": recovery, "rescue_rate": rate}
    save_json(done, {**asked, "steps": learner.steps, "columns": columns, "evaluations": evaluations, "history": history})
    for path in (kept, checkpoint.previous(kept)):
        path.unlink(missing_ok=True)
    return json.loads(done.read_text(encoding="utf-8"))


def main(words: list[str]) -> int:
    """Trains what the words ask for; returns the exit code."""
    args = tyro.cli(FallLadderArgs, args=words, prog="python -m ros_rl.learning.fall_ladder")
    try:
        result = train(args.env, args.method, args.seed, args.steps, args.recovery, args.folder)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except RobotFault as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    last = dict(zip(result["columns"], result["evaluations"][-1], strict=True))
    print(f"return {last['return']:.0f} after {last['steps']:.0f} steps, {last['falls']:.0f} falls, {last['stuck']:.0f} stuck")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

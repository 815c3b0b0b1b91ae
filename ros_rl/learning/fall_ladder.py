"""Trains one method on one environment in which one can fall, with equal steps for all methods; stops and resumes anywhere.

python -m ros_rl.learning.fall_ladder --env halfcheetah --method full --seed 0
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from safetensors.numpy import save
from tqdm import tqdm

from ros_rl import paths
from ros_rl.errors import RobotFault, UserError, named
from ros_rl.learning import checkpoint
from ros_rl.learning.checkpoint import as_json, refuse_other
from ros_rl.learning.command import run_command
from ros_rl.learning.cpo import Cpo
from ros_rl.learning.ppo import Environments, Ppo, PpoArgs
from ros_rl.learning.ppo_lagrangian import LagrangianPpo
from ros_rl.learning.recovery import STRENGTHS, RecoveryArgs, RecoveryPolicy, load_recovery, rescue_rate, save_recovery, train_recovery
from ros_rl.learning.recovery_rl import RecoveryRl
from ros_rl.learning.safeexplorer import ExplorerArgs, SafeExplorer, exit_rate, gap_bound
from ros_rl.learning.training import save_json
from ros_rl.sim.fall_env import FallEnv, make_fall_env

PPO = PpoArgs()
RECOVERY = RecoveryArgs()
EPISODE_STEPS = 1000
EVALUATE_EVERY = 10  # iterations
EVALUATION_EPISODES = 5
_EVALUATION = 9  # what a seed is for, beside those of `Ppo`


@dataclass(frozen=True)
class Guard:
    """A trained recovery policy.

    Attributes:
        policy: the recovery policy.
        transitions: that it learned from, see `ros_rl.learning.recovery.Trained`.
        record: what is told of it: rescue_rate, digest, and what was spent on it before any run (steps, falls).
    """

    policy: RecoveryPolicy
    transitions: dict[str, np.ndarray]
    record: dict[str, Any]


@dataclass(frozen=True)
class Alone:
    """A way to learn without a recovery policy.

    Attributes:
        label: for tables and figures.
        make: builds the learner from settings, environments, iterations and seed.
    """

    label: str
    make: Callable[[PpoArgs, Environments, int, int], Ppo]


@dataclass(frozen=True)
class Guarded:
    """A way to learn beside a recovery policy.

    Attributes:
        label: for tables and figures.
        make: builds the learner from settings, environments, iterations, seed and recovery policy.
    """

    label: str
    make: Callable[[PpoArgs, Environments, int, int, Guard], Ppo]


def _explorer(label: str, **settings: Any) -> Guarded:
    args = ExplorerArgs(**settings)
    return Guarded(
        label, lambda ppo, environments, iterations, seed, guard: SafeExplorer(ppo, environments, iterations, seed, guard.policy, args)
    )


def _recovery_rl(ppo: PpoArgs, environments: Environments, iterations: int, seed: int, guard: Guard) -> RecoveryRl:
    return RecoveryRl(ppo, environments, iterations, seed, guard.policy, guard.transitions)


METHODS: dict[str, Alone | Guarded] = {
    "ppo": Alone("PPO", Ppo),
    "unmasked": _explorer("unmasked", mask=False, analytic=False, imitation=0.0),
    "masked": _explorer("masked", analytic=False, imitation=0.0),
    "masked_value": _explorer("masked, analytic value", imitation=0.0),
    "full": _explorer("SafeExplorer"),
    "recovery_rl": Guarded("Recovery RL style", _recovery_rl),
    "lagrangian": Alone("PPO-Lagrangian", LagrangianPpo),
    "cpo": Alone("CPO", Cpo),
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
    """Runs one episode in every copy; SafeExplorer's recovery policy guards the second half of them.

    Raises:
        RobotFault: the policy diverged.
    """
    guard = learner if type(learner) is SafeExplorer else None
    copies, discount = environment.num_envs, learner.args.discount
    alone = np.arange(copies) < (copies // 2 if guard else copies)
    starts = [int(number) for number in np.random.SeedSequence(seed).generate_state(int(alone.sum()))]
    seen, info = environment.reset(seed=starts * 2 if guard else starts)
    running, largest = np.ones(copies, bool), 0.0
    returns, discounted, fallen, outside = np.zeros(copies), np.zeros(copies), np.zeros(copies, bool), []
    for step in range(EPISODE_STEPS):
        # Each half by itself: rounding depends on the row, and what differs by a bit is another episode 1,000 steps on.
        actions = np.concatenate([learner.policy(part) for part in np.split(seen, 2 if guard else 1)])
        if guard:
            out = info["rho"] >= guard.region
            outside.append(float((np.where(running, out, fallen))[alone].mean()))
            if (helped := out & ~alone & running).any():
                actions[helped] = guard.recovery(seen[helped])
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
    if not guard:
        return Evaluation(float(returns.mean()), *(math.nan,) * 4)
    exits = exit_rate(np.array([*outside, float(fallen[alone].mean())]), discount)
    gap = abs(float(discounted[alone].mean() - discounted[~alone].mean()))
    return Evaluation(float(returns[alone].mean()), float(returns[~alone].mean()), exits, gap, gap_bound(largest, exits, discount))


def read_json(path: Path) -> dict[str, Any]:
    """Returns what a file holds.

    Raises:
        UserError: it is no JSON object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: holds no JSON object")
    return found


def recovery_of(env: str, strength: str, folder: Path) -> Guard:
    """Returns a recovery policy from the folder, after training all strengths and writing them there if need be.

    Raises:
        UserError: the folder holds policies that were trained otherwise, or files that do not belong together.
    """
    place = folder / env / "recovery.json"
    if not place.is_file():
        _train_recovery(env, folder / env)
    record = read_json(place)
    refuse_other(str(place), record.get("settings", {}), as_json(asdict(RECOVERY)), "name another --folder")
    environment = make_fall_env(env, 1)
    sizes = environment.single_observation_space.shape, environment.single_action_space.shape
    environment.close()
    assert sizes[0] is not None and sizes[1] is not None
    path = folder / env / f"recovery_{strength}.safetensors"
    policy = load_recovery(path, sizes[0][0], sizes[1][0])
    told = record.get("policies", {}).get(strength, {})
    if told.get("digest") != policy.digest():
        raise UserError(f"{path}: is not the policy that {place} tells of; name another --folder")
    transitions, words = checkpoint.load(path.with_suffix(".npz"))
    if transitions is None:
        raise UserError(f"{path.with_suffix('.npz')}: the transitions that the recovery policy learned from are missing ({words})")
    return Guard(policy, transitions, told)


def _train_recovery(env: str, place: Path) -> None:
    make = lambda copies: make_fall_env(env, copies)  # noqa: E731
    with tqdm(total=RECOVERY.steps, desc=f"{env} recovery", unit="step", disable=None) as bar:
        trained = train_recovery(make, list(STRENGTHS.values()), RECOVERY, 0, bar.update)
    told = {}
    for name, policy, spent, transitions in zip(STRENGTHS, trained.policies, trained.training, trained.transitions, strict=True):
        save_recovery(place / f"recovery_{name}.safetensors", policy)
        checkpoint.save(place / f"recovery_{name}.npz", transitions)
        told[name] = {
            "rescue_rate": rescue_rate(make, policy, trained.held_out, RECOVERY.region),
            "digest": policy.digest(),
            "steps": trained.collecting.steps + spent.steps,
            "falls": trained.collecting.falls + spent.falls,
        }
    of_snapshots = {"held_out": len(trained.held_out), **trained.collecting._asdict()}
    save_json(place / "recovery.json", {"policies": told, "snapshots": of_snapshots, "settings": asdict(RECOVERY)})


class Run:
    """One method with one seed.

    Attributes:
        asked: everything that the result depends on.
        evaluations: a row for each: steps, falls, stuck episodes, then the values of `Evaluation`.
        failed: after how many steps and of what the training broke down, None if it did not.
    """

    def __init__(self, env: str, method: str, seed: int, steps: int, guard: Guard | None):
        """Sets it up at step 0.

        Args:
            env: environment.
            method: of `METHODS`.
            seed: of the run.
            steps: of all copies together, at least.
            guard: the recovery policy, None for methods without.
        """
        self.seed, self.iterations = seed, _iterations(steps)
        chosen, environments = named("method", method, METHODS), make_fall_env(env, PPO.copies, EPISODE_STEPS)
        if isinstance(chosen, Guarded):
            assert guard is not None
            self.learner = chosen.make(PPO, environments, self.iterations, seed, guard)
        else:
            self.learner = chosen.make(PPO, environments, self.iterations, seed)
        copies = EVALUATION_EPISODES * (2 if type(self.learner) is SafeExplorer else 1)
        self._evaluation = make_fall_env(env, copies, EPISODE_STEPS)
        every = {"episode_steps": EPISODE_STEPS, "every": EVALUATE_EVERY, "episodes": EVALUATION_EPISODES}
        told = {"env": env, "method": method, "seed": seed, "steps": steps, "evaluation": every, "settings": self.learner.settings()}
        self.asked = {**told, "recovery": guard and guard.record["digest"]}
        self.evaluations: list[list[float]] = []
        self.failed: dict[str, Any] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return self.failed is not None or self.learner.iteration >= self.iterations

    def step(self) -> None:
        """Does one iteration; evaluates before the first, every tenth and the last. A fault ends the run and is remembered."""
        try:
            if not self.evaluations:
                self._evaluate()
            self.learner.iterate()
            if self.learner.iteration % EVALUATE_EVERY == 0 or self.learner.iteration == self.iterations:
                self._evaluate()
        except RobotFault as fault:
            self.failed = {"steps": self.learner.steps, "reason": str(fault)}
            self._note((math.nan,) * 5)

    def _evaluate(self) -> None:
        found = evaluate(self._evaluation, self.learner, [self.seed, _EVALUATION, self.learner.iteration])
        self._note((found.alone, found.mixed, found.exits, found.gap, found.bound))

    def _note(self, found: Sequence[float]) -> None:
        learner = self.learner
        stuck = learner.counts["stuck"] if isinstance(learner, SafeExplorer) else 0
        self.evaluations.append([float(value) for value in (learner.steps, learner.falls, stuck, *found)])

    def save(self, path: Path) -> None:
        """Writes a checkpoint; the one before is kept."""
        own = {"evaluations": np.array(self.evaluations), "asked": checkpoint.packed(self.asked)}
        checkpoint.save(path, checkpoint.flattened({**self.learner.state(), "run": own}))

    def restore(self, parts: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Goes back to what was saved.

        Raises:
            UserError: it is of another run.
        """
        refuse_other("the checkpoint", checkpoint.unpacked(parts["run"]["asked"]), self.asked)
        self.learner.restore(parts)
        self.evaluations = parts["run"]["evaluations"].tolist()

    def result(self) -> dict[str, Any]:
        """Returns everything that was measured."""
        counts = self.learner.counts if isinstance(self.learner, SafeExplorer) else None
        columns = ["steps", "falls", "stuck", "return", "return_mixed", "exit_rate", "gap", "gap_bound"]
        return {
            "asked": self.asked,
            "failed": self.failed,
            "steps": self.learner.steps,
            "columns": columns,
            "evaluations": [_without_nan(row) for row in self.evaluations],
            "recovery": counts,
            "history": {name: _without_nan(values) for name, values in self.learner.history.items()},
        }


def _without_nan(values: Sequence[float]) -> list[float | None]:
    """JSON has no NaN."""
    return [None if math.isnan(value) else value for value in values]


def _iterations(steps: int) -> int:
    return -(-steps // (PPO.copies * PPO.rollout))


def place_of(env: str, method: str, seed: int, recovery: str, folder: Path) -> Path:
    """Returns where a run's files are, without their suffix. A method without recovery has one place whatever the strength."""
    return folder / env / (recovery if isinstance(named("method", method, METHODS), Guarded) else "alone") / f"{method}_{seed}"


def train(env: str, method: str, seed: int, steps: int, recovery: str, folder: Path, bar: bool = True) -> dict[str, Any]:
    """Trains, or goes on training, or reads what was trained before.

    Leaves the result in a .json and the networks in a .safetensors at `place_of`; checkpoints are there until then. A training that
    broke down is a result too.

    Raises:
        UserError: the arguments are out of range, or the folder holds something else under these names.
    """
    chosen, place = named("method", method, METHODS), place_of(env, method, seed, recovery, folder)
    if seed < 0 or steps < 1:
        raise UserError(f"--seed must not be negative and --steps be at least 1, got {seed} and {steps}")
    make_fall_env(env, 1).close()
    done, kept = place.with_suffix(".json"), place.with_suffix(".npz")
    guard = recovery_of(env, recovery, folder) if isinstance(chosen, Guarded) else None
    run = Run(env, method, seed, steps, guard)
    if done.is_file():
        result = read_json(done)
        refuse_other(str(done), result.get("asked", {}), run.asked, "name another --folder")
    else:
        print(f"{env} {method} {seed}: {checkpoint.resume(kept, run.restore)}", file=sys.stderr)
        _finish(run, kept, bar)
        paths.write_atomically(place.with_suffix(".safetensors"), save(_networks(run.learner)))
        save_json(done, result := run.result())
        for path in (kept, checkpoint.previous(kept)):
            path.unlink(missing_ok=True)
    return {**result, "guard": guard and guard.record}


def _finish(run: Run, kept: Path, bar: bool) -> None:
    learner, name = run.learner, f"{run.asked['env']} {run.asked['method']} {run.seed}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tqdm(total=run.iterations, initial=learner.iteration, desc=name, disable=None if bar else True) as progress:
        while not run.over:
            run.step()
            progress.update()
            if learner.iteration % EVALUATE_EVERY == 0 and not run.failed:
                run.save(kept)


def _networks(learner: Ppo) -> dict[str, np.ndarray]:
    return {"parameters": learner.parameters.values, "mean": learner.moments.mean, "variance": learner.moments.variance}


def main(words: list[str]) -> int:
    """Trains what the words ask for; returns the exit code."""
    args = tyro.cli(FallLadderArgs, args=words, prog="python -m ros_rl.learning.fall_ladder")
    return run_command(lambda: _run(args))


def _run(args: FallLadderArgs) -> int:
    """Trains, and says how it went; returns the exit code."""
    result = train(args.env, args.method, args.seed, args.steps, args.recovery, args.folder)
    if failed := result["failed"]:
        print(f"failed at step {failed['steps']}: {failed['reason']}", file=sys.stderr)
        return 1
    last = dict(zip(result["columns"], result["evaluations"][-1], strict=True))
    print(f"return {last['return']:.0f} after {last['steps']:.0f} steps, {last['falls']:.0f} falls, {last['stuck']:.0f} stuck")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

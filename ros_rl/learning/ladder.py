"""Trains one method on one task: all seeds and all levels of conflict at once, with equal steps; stops and resumes anywhere.

python -m ros_rl.learning.ladder --task cartpole --method autosafe --folder out/autosafe
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from tqdm import tqdm

from ros_rl import paths
from ros_rl.errors import UserError, named
from ros_rl.learning import checkpoint
from ros_rl.learning.command import run_command
from ros_rl.learning.goal_tasks import GoalTask, task_named
from ros_rl.learning.lagrangian import LagrangianSac
from ros_rl.learning.sac import Sac
from ros_rl.learning.shields import BarrierShield, ResidualShield, Shield, SimplexShield
from ros_rl.learning.training import LOG_EVERY, Trainer, evaluate, save_json, streams_of
from ros_rl.safety.autosafe import Sharpness
from ros_rl.safety.prior import LmiPrior, load_prior, save_prior

SAVE_EVERY = 2500  # steps
EVALUATION_EPISODES = 20


@dataclass(frozen=True)
class Method:
    """A way to be safe, or not.

    Attributes:
        label: for tables and figures.
        sharpness: of AutoSafe's mixture, from the largest certified one; None: no mixture.
        shield: between agent and environment, from the prior and the number of copies.
        store: the action that the critic learns from.
        agent: the learner.
    """

    label: str
    sharpness: Callable[[float], Sharpness] | None = None
    shield: Callable[[LmiPrior, int], Shield] | None = None
    store: Literal["executed", "proposed"] = "executed"
    agent: type[Sac] = Sac


METHODS = {
    "sac": Method("SAC"),
    "lagrangian": Method("Lagrangian SAC", agent=LagrangianSac),
    "simplex": Method("hard switch", shield=SimplexShield),
    "simplex_proposed": Method("hard switch, proposed action stored", shield=SimplexShield, store="proposed"),
    "cbf": Method("CBF-QP", shield=lambda prior, copies: BarrierShield(prior)),
    "cbf_proposed": Method("CBF-QP, proposed action stored", shield=lambda prior, copies: BarrierShield(prior), store="proposed"),
    "residual": Method("residual", shield=lambda prior, copies: ResidualShield(), store="proposed"),
    "linear": Method("AutoSafe, linear weight", sharpness=lambda bound: Sharpness.fixed(0.0)),
    "fixed_half": Method("AutoSafe, p fixed at half", sharpness=lambda bound: Sharpness.fixed(bound / 2)),
    "fixed_full": Method("AutoSafe, p fixed at its bound", sharpness=lambda bound: Sharpness.fixed(bound)),
    "autosafe": Method("AutoSafe", sharpness=lambda bound: Sharpness(0.0, bound)),
}


@dataclass
class LadderArgs:
    """What to train."""

    task: str = "cartpole"
    """cartpole, quadrotor, glucose or quadruped."""
    method: str = "autosafe"
    """sac, lagrangian, simplex, cbf, residual, linear, fixed_half, fixed_full or autosafe; simplex_proposed and cbf_proposed store the
    proposed action."""
    seeds: int = 5
    """Runs at each level of conflict: seeds 0 to seeds - 1."""
    steps: int = 0
    """Control steps of each run; 0: the task's own number."""
    folder: Path = Path("out/autosafe")
    """Where checkpoints and results go; a run that was stopped goes on from there."""


class Experiment:
    """All runs of one method on one task; run i has seed i // levels and level i % levels."""

    def __init__(self, task: GoalTask, method: str, seeds: int, steps: int, prior: LmiPrior):
        """Sets the runs up at step 0.

        Raises:
            UserError: the method does not exist, or a number is out of its range.
        """
        self.task, self.method, self.prior = task, named("method", method, METHODS), prior
        self.steps = steps or task.steps
        if seeds < 1 or self.steps <= task.args.warmup or self.steps % LOG_EVERY:
            needed = f"--seeds must be at least 1 and --steps a multiple of {LOG_EVERY} above the {task.args.warmup} of the warm-up"
            raise UserError(f"{needed}, got {seeds} and {self.steps}")
        self.levels = list(task.goals)
        self.seeds = [seed for seed in range(seeds) for _ in self.levels]
        self.goals = np.array([task.goals[level] for _ in range(seeds) for level in self.levels])
        streams = streams_of(self.seeds)
        environment = task.environments["nominal"](self.goals, prior)
        sharpness = self.method.sharpness and self.method.sharpness(prior.sharpness_bound)
        sizes = environment.observation.shape[1], environment.action_size
        self.agent = (
            Sac(task.args, *sizes, streams, sharpness) if self.method.agent is Sac else self.method.agent(task.args, *sizes, streams)
        )
        self.trainer = Trainer(
            environment, self.agent, prior, self.seeds, streams, self.steps, self._shield(len(self.goals)), self.method.store
        )

    def _shield(self, copies: int) -> Shield | None:
        return self.method.shield and self.method.shield(self.prior, copies)

    def evaluate(self, variant: str, episodes: int) -> dict[str, np.ndarray]:
        """Returns how the trained policies do in a variant of the plant: name to (runs,), means over the episodes."""
        environment = self.task.environments[variant](np.repeat(self.goals, episodes), self.prior)
        found = evaluate(environment, self.agent, self.prior, self.seeds, self._shield(len(environment)))
        names = {"return": found.returns, "violations": found.violated, "exits": found.exits, "jump": found.jump}
        return {name: values.mean(axis=1) for name, values in names.items()}

    def result(self) -> dict[str, Any]:
        """Returns everything that was measured, with a column for each run."""
        return {
            "task": self.task.name,
            "steps": self.trainer.steps,
            "interval": LOG_EVERY,
            "levels": [self.levels[index % len(self.levels)] for index in range(len(self.seeds))],
            "seeds": self.seeds,
            "prior": self.prior.digest(),
            "training": self.trainer.record(),
            "episodes": self.trainer.episodes,
            "evaluation": {variant: self.evaluate(variant, EVALUATION_EPISODES) for variant in self.task.environments},
        }


def prior_of(task: GoalTask, folder: Path) -> LmiPrior:
    """Returns the task's prior from the folder, after certifying it and writing it there if it is not."""
    path = folder / task.name / "prior.safetensors"
    if not path.is_file():
        save_prior(path, task.make_prior())
    return load_prior(path)


def save_networks(path: Path, agent: Sac) -> None:
    """Writes the networks of all runs, without the optimisers."""
    networks = {f"{name}.{key}": value.numpy() for name, module in agent.modules().items() for key, value in module.state_dict().items()}
    paths.write_atomically(path, save(networks))


def read_networks(path: Path) -> dict[str, np.ndarray]:
    """Reads what `save_networks` wrote.

    Raises:
        UserError: the file is damaged.
    """
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: cannot be read ({error}); train the method again in a new --folder") from None


def read_result(path: Path) -> dict[str, Any]:
    """Reads the result of a training.

    Raises:
        UserError: the file is damaged, or is no result.
    """
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if {"steps", "seeds", "prior"} <= result.keys():
            return result
    except (ValueError, AttributeError):
        pass
    raise UserError(f"{path}: is no result of a training; train the method again in a new --folder")


def train(task: GoalTask, method: str, seeds: int, steps: int, folder: Path, bar: bool = True) -> dict[str, Any]:
    """Trains, or goes on training, or reads what was trained before.

    Leaves <folder>/<task>/<method>.json with the result and .safetensors with the networks; a checkpoint is there until then.

    Raises:
        UserError: the arguments are out of range, or the folder holds something else under these names.
    """
    place = folder / task.name / method
    done, kept = place.with_suffix(".json"), place.with_suffix(".npz")
    if done.is_file():
        result = read_result(done)
        if (found := (result["steps"], len(set(result["seeds"])))) != (wanted := (steps or task.steps, seeds)):
            raise UserError(
                f"{done}: holds {found[1]} seeds of {found[0]} steps, asked for are {wanted[1]} of {wanted[0]}; name another --folder"
            )
        if result["prior"] != (digest := prior_of(task, folder).digest()):
            raise UserError(f"{done}: trained with the safe prior {result['prior']}, that of the folder is {digest}; name another --folder")
        return result
    experiment = Experiment(task, method, seeds, steps, prior_of(task, folder))
    trainer = experiment.trainer
    print(f"{task.name} {method}: {trainer.resume(kept)}", file=sys.stderr)
    progress = tqdm(total=experiment.steps, initial=trainer.steps, desc=f"{task.name} {method}", unit="step", disable=None if bar else True)
    with progress:
        while trainer.steps < experiment.steps:
            trainer.step()
            progress.update()
            if trainer.steps % SAVE_EVERY == 0:
                trainer.save(kept)
    save_networks(place.with_suffix(".safetensors"), experiment.agent)
    save_json(done, experiment.result())
    for path in (kept, checkpoint.previous(kept)):
        path.unlink(missing_ok=True)
    return read_result(done)


def main(words: list[str]) -> int:
    """Trains what the words ask for; returns the exit code."""
    args = tyro.cli(LadderArgs, args=words, prog="python -m ros_rl.learning.ladder")
    torch.set_num_threads(1)
    return run_command(lambda: _run(args))


def _run(args: LadderArgs) -> None:
    """Trains, and prints the returns."""
    result = train(task_named(args.task), args.method, args.seeds, args.steps, args.folder)
    for variant, found in result["evaluation"].items():
        for level in dict.fromkeys(result["levels"]):
            mine = np.array([entry == level for entry in result["levels"]])
            violations = np.array(result["training"]["violations"])[:, mine].sum()
            print(f"{level} ({variant}): return {np.array(found['return'])[mine].mean():.1f}, {violations:.0f} violations in training")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

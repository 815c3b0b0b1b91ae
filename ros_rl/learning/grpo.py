"""Group relative policy optimisation of token policies: episodes from the same start are compared with each other, there is no critic.

    python -m ros_rl.learning.grpo --policy out/vla --tasks put_red_block_in_bowl push_button --out out/vla_grpo

Sources: Shao et al., "DeepSeekMath", 2024; the options of Yu et al., "DAPO", 2025. What turns rewards into a loss are the
functions of `ros_rl.learning.objectives`; this file is the loop around them. It can be stopped and goes on where it was, runs its
rollouts here or, with one process, on Ray (--grpo.scale ray), and learns on CPU, GPU, or several with torchrun.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from torch import nn
from tqdm import tqdm

from ros_rl.errors import UserError
from ros_rl.learning import workers
from ros_rl.learning.command import run_command
from ros_rl.learning.objectives.frame import RolloutBatch, padded, spread
from ros_rl.learning.objectives.ratio import clipped_surrogate, denominator, group_advantage
from ros_rl.learning.token_checkpoint import read_training, write_training
from ros_rl.learning.token_rollout import Request, TokenWorld, Trace, run_requests
from ros_rl.policies.bundle import Bundle, load_bundle, save_bundle
from ros_rl.policies.token_network import Inputs
from ros_rl.policies.vla import VlaModel, digest, own_weights
from ros_rl.robots.spec import load_robot
from ros_rl.sim.tabletop import TRAINING_SEEDS, training_tasks
from ros_rl.sim.task import Task

_MAY_CHANGE = ("iterations", "copies", "scale")  # settings that may be others when a training goes on
_MOST_DEAD = 20  # iterations in a row without a group that says anything


@dataclass(frozen=True)
class GrpoArgs:
    """Settings of GRPO."""

    iterations: int = 40
    """Rounds of rollouts and updates."""
    group: int = 8
    """Episodes from the same start."""
    groups: int = 4
    """Starts in an iteration."""
    epochs: int = 2
    """Passes over an iteration's episodes."""
    minibatches: int = 2
    """Updates in a pass; each has whole groups."""
    learning_rate: float = 3e-5
    """Step size of AdamW."""
    warmup: int = 0
    """Iterations with something to learn over which steps grow: AdamW's first ones are of full size whatever the gradient is worth."""
    only: tuple[str, ...] = ()
    """Train only the weights whose names begin with one of these, such as `cameras.`; none: all."""
    clip_low: float = 0.2
    """How far a ratio may fall below 1."""
    clip_high: float = 0.28
    """How far it may rise above 1."""
    temperature: float = 1.0
    """At which tokens are sampled."""
    aggregation: Literal["token_mean", "row_mean"] = "token_mean"
    """Over all tokens, or over episodes of the means of their tokens."""
    divide_by_std: bool = True
    """Whether advantages are divided by the group's deviation."""
    kl: float = 0.0
    """Weight of the divergence from the starting policy."""
    dynamic_sampling: bool = False
    """Draw more starts, at most three times as many again, until half of the groups have successes and failures."""
    chunk: int = 64
    """Decisions that pass the network together when learning; changes memory and speed only."""
    copies: int = 16
    """Episodes that are simulated together."""
    seed: int = 0
    """Of starts and sampling."""
    scale: Literal["local", "ray"] = "local"
    """Where episodes run."""


Advantage = Callable[[torch.Tensor, RolloutBatch], torch.Tensor]
Credit = Callable[[torch.Tensor, RolloutBatch], torch.Tensor]
Surrogate = Callable[..., tuple[torch.Tensor, dict[str, float]]]


@dataclass(frozen=True)
class Objective:
    """The functions that an objective is made of; other methods replace them one by one.

    Attributes:
        reward: from a batch to [N].
        advantage: from rewards and batch to the level of each token, [N,T].
        credit: from level and batch to a weight of each token, [N,T], or None.
        surrogate: as `clipped_surrogate`.
    """

    reward: Callable[[RolloutBatch], torch.Tensor]
    advantage: Advantage
    credit: Credit | None
    surrogate: Surrogate


def plain(args: GrpoArgs) -> Objective:
    """Returns GRPO itself: the outcome, compared within the group, the same for all tokens of a row."""

    def advantage(reward: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
        return spread(group_advantage(reward, batch.group, args.divide_by_std), batch)

    return Objective(lambda batch: batch.outcome, advantage, None, clipped_surrogate)


class Rollouts:
    """Runs requests for one task, here or on Ray."""

    def __init__(self, model: VlaModel, tasks: Sequence[Task], args: GrpoArgs):
        """Builds a world for each task, or a worker with all of them for each free CPU of the Ray cluster."""
        self._model, self._args = model, args
        robot = load_robot(model.spec.robot)
        self.worlds = {task.name: TokenWorld(task, robot, args.copies) for task in tasks}
        self._pool = None
        if args.scale == "ray":
            from ros_rl.learning.ray_rollouts import Pool

            self._pool = Pool(model, tasks, args.copies)

    def run(self, task: str, requests: Sequence[Request]) -> list[Trace]:
        """Runs episodes of a task with the model's present weights."""
        if self._pool is not None:
            return self._pool.run(self._model, task, requests, self._args.temperature)
        return run_requests(self._model, self.worlds[task], requests, self._args.temperature)

    def close(self) -> None:
        """Frees the worlds, and ends the workers."""
        for world in self.worlds.values():
            world.close()
        if self._pool is not None:
            self._pool.close()


class Grpo:
    """The learner."""

    def __init__(self, model: VlaModel, tasks: Sequence[Task], args: GrpoArgs, rank: tuple[int, int] = (0, 1)):
        """Prepares worlds and optimiser.

        Args:
            model: to improve; its weights change in place.
            tasks: from which starts are drawn in turn.
            args: settings.
            rank: number of this process and how many there are; each runs its own groups.

        Raises:
            UserError: a setting makes no sense.
        """
        _check(args)
        if args.scale == "ray" and rank[1] > 1:  # each would wait for the CPUs that the others' workers hold, and the others for it
            raise UserError(f"--grpo.scale ray is for one process, got {rank[1]}; leave torchrun out, or --grpo.scale ray")
        self.model, self.tasks, self.args, self.rank = model, list(tasks), args, rank
        self.parameters = _trained(model.network, args.only)
        self.objective = plain(args)
        self.rollouts = Rollouts(model, self.tasks, args)
        self.optimiser = torch.optim.AdamW(self.parameters, lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
        self.reference = _copy_of(own_weights(model.network)) if args.kl else None
        same = {name: value for name, value in asdict(args).items() if name not in _MAY_CHANGE}
        self._what = {**same, "tasks": [task.name for task in tasks], **model.meaning(), "start": digest(model.network)}
        self.iteration = 0
        self.ticks = 0
        self._learnt = 0  # iterations with something to learn
        self._dead = 0

    def step(self) -> dict[str, Any]:
        """Runs one iteration; returns its figures.

        Raises:
            UserError: no group has said anything for a long time, or the policy diverged.
        """
        traces = self.sample()
        batch, inputs, level, weight, figures = self.prepare(traces)
        rows = workers.mean(len(batch))
        if rows == 0:
            self._dead += 1
            if self._dead >= _MOST_DEAD:
                raise UserError(
                    f"{_MOST_DEAD} iterations in a row had no group with successes and failures: the policy needs another start"
                )
        else:
            self._dead = 0
        if rows:
            figures |= self.learn(batch, inputs, level, weight)
        self.iteration += 1
        return figures

    def sample(self) -> list[Trace]:
        """Runs the iteration's groups: `group` episodes from bit-identical starts each."""
        args, traces = self.args, []
        for extra in range(1 + 3 * args.dynamic_sampling):
            for number in range(args.groups):
                traces += self._group(extra * args.groups + number)
            kept = sum(0 < sum(t.success for t in traces if t.request.group == g) < args.group for g in {t.request.group for t in traces})
            if kept >= args.groups / 2:
                break
        return traces

    def _group(self, number: int) -> list[Trace]:
        """Runs one group; its task, start, words and random numbers follow from seed, process, iteration and number alone."""
        args = self.args
        draw = np.random.default_rng([args.seed, self.rank[0], self.iteration, number])
        task = self.tasks[(self.iteration * args.groups + number) % len(self.tasks)]
        world = self.rollouts.worlds[task.name]
        start = world.starts([int(draw.integers(len(TRAINING_SEEDS)))])[0]
        said = (task.instruction, *task.paraphrases)
        instruction = said[int(draw.integers(len(said)))]
        streams = [(args.seed, self.rank[0], self.iteration, number, row) for row in range(args.group)]
        found = self.rollouts.run(task.name, [Request(start, instruction, stream, number) for stream in streams])
        self.ticks += round(sum(trace.seconds for trace in found) / world.robot.period)
        return found

    def prepare(self, traces: Sequence[Trace]) -> tuple[RolloutBatch, "Decisions", torch.Tensor, torch.Tensor | None, dict[str, Any]]:
        """Returns what is learned from: live rows, their inputs, levels and weights; and figures about all rows."""
        batch = to_batch(traces, self.args.temperature)
        reward = self.objective.reward(batch)
        level = self.objective.advantage(reward, batch)
        weight = None if self.objective.credit is None else self.objective.credit(level, batch)
        diverged = sum(trace.diverged for trace in traces)
        figures = {"iteration": self.iteration, "ticks": self.ticks, "diverged": diverged, **group_figures(batch, reward, level)}
        live = torch.isin(batch.group, batch.group[(level != 0).any(1)])
        decisions = Decisions.of([trace for trace, alive in zip(traces, live.tolist(), strict=True) if alive], self.model)
        batch, level = batch.rows(live), level[live]
        return batch, decisions, level, None if weight is None else weight[live], figures

    def learn(self, batch: RolloutBatch, decisions: "Decisions", level: torch.Tensor, weight: torch.Tensor | None) -> dict[str, Any]:
        """Takes the iteration's updates; returns figures of the last update, and of the first under names of their own."""
        args, device = self.args, self.model.network.device
        if self.reference is not None and len(batch):
            batch = replace(batch, logp_ref=self._reference_log_probs(batch, decisions))
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        pulls: list[torch.Tensor] = []  # gradients of the first pass
        for part in self.optimiser.param_groups:
            part["lr"] = args.learning_rate * min(1.0, (self._learnt + 1) / (args.warmup + 1))
        for epoch in range(args.epochs):
            draw = np.random.default_rng([args.seed, self.rank[0], self.iteration, epoch, 1])
            parts = group_parts(batch.group, args.minibatches, draw)
            for rows in parts:
                if workers.mean(len(rows)) == 0:
                    continue  # no process has any; AdamW would go on by its momentum
                self.optimiser.zero_grad(set_to_none=True)
                stats = self._backward(batch, decisions, level, weight, rows, device)
                workers.average_gradients(self.parameters)
                if epoch == 0:
                    pulls.append(_flat_gradient(self.parameters))
                stats["gradient_norm"] = float(nn.utils.clip_grad_norm_(self.parameters, 1.0))
                if not np.isfinite(stats["gradient_norm"]):
                    raise UserError(f"GRPO diverged in iteration {self.iteration}: its gradient is not finite")
                self.optimiser.step()
                if len(rows):  # a part without rows only keeps step with other processes
                    first = first or {f"first_{name}": stats[name] for name in ("log_ratio_max", "clipped_share")}
                    last = stats
        self._learnt += 1
        return first | last | ({"agreement": agreement(pulls)} if len(pulls) > 1 else {})

    def _backward(
        self,
        batch: RolloutBatch,
        decisions: "Decisions",
        level: torch.Tensor,
        weight: torch.Tensor | None,
        rows: torch.Tensor,
        device: torch.device,
    ) -> dict[str, float]:
        """Adds the gradient of some rows. Steps are independent passes, so the network sees them in chunks.

        The surrogate is a function of log-probs alone: its gradient to them is computed once, without the network, and then carried
        through the network chunk by chunk. So any surrogate works, also one that couples all tokens of a row.
        """
        part = batch.rows(rows)
        total = workers.mean(denominator(part.mask, self.args.aggregation) if len(rows) else 0.0)  # a token counts the same everywhere
        which = decisions.of_rows(rows)
        with torch.no_grad():
            new = torch.cat([self._score(decisions, some) for some in which.split(self.args.chunk)]) if len(which) else torch.zeros(0, 0)
        log_probs = decisions.to_rows(new.cpu(), which, part).requires_grad_(True)
        value, stats = self.objective.surrogate(
            log_probs,
            part,
            level[rows],
            None if weight is None else weight[rows],
            clip=(self.args.clip_low, self.args.clip_high),
            aggregation=self.args.aggregation,
            kl=self.args.kl,
            total=total,
        )
        if not value.requires_grad or not len(which):
            return {**stats, "objective": float(value.detach())}
        (gradient,) = torch.autograd.grad(-value, log_probs)
        of_decision = decisions.from_rows(gradient, which, rows)
        for some, pull in zip(which.split(self.args.chunk), of_decision.split(self.args.chunk), strict=True):
            (self._score(decisions, some) * pull.to(device)).sum().backward(inputs=self.parameters)
        return {**stats, "objective": float(value.detach())}

    def _score(self, decisions: "Decisions", which: torch.Tensor) -> torch.Tensor:
        """Returns the log-probs (k, L) of some decisions."""
        device = self.model.network.device
        inputs, tokens = decisions.inputs.rows(which).to(device), decisions.tokens[which].to(device)
        return self.model.network.score(inputs, tokens, self.args.temperature).log_prob

    @torch.no_grad()
    def _reference_log_probs(self, batch: RolloutBatch, decisions: "Decisions") -> torch.Tensor:
        assert self.reference is not None
        own = own_weights(self.model.network)
        present = _copy_of(own)
        _put(own, self.reference)
        which = torch.arange(len(decisions.tokens))
        found = torch.cat([self._score(decisions, some) for some in which.split(self.args.chunk)])
        _put(own, present)
        return decisions.to_rows(found.cpu(), which, batch)

    def save(self, path: Path) -> None:
        """Writes weights, optimiser and counters."""
        counters = {"iteration": self.iteration, "ticks": self.ticks, "dead": self._dead, "learnt": self._learnt}
        write_training(path, self.model.network, self.optimiser, self._what, counters, self.reference or {})

    def load(self, path: Path) -> None:
        """Goes on from what `save` wrote; into the policy that the training started from.

        Raises:
            UserError: the file is damaged, or of a training with other settings, tasks or another policy to start from.
        """
        counters, reference = read_training(path, self.model.network, self.optimiser, self._what)
        self.iteration, self.ticks, self._dead, self._learnt = (counters[name] for name in ("iteration", "ticks", "dead", "learnt"))
        if self.reference is not None:
            self.reference = reference


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of all rows, one after the other.

    Attributes:
        inputs: of D decisions.
        tokens: (D, L).
        row, step: which row and step each is, (D,).
    """

    inputs: Inputs
    tokens: torch.Tensor
    row: torch.Tensor
    step: torch.Tensor

    @classmethod
    def of(cls, traces: Sequence[Trace], model: VlaModel) -> "Decisions":
        """Puts the decisions of rows together."""
        length = model.network.length
        where = [(row, step) for row, trace in enumerate(traces) for step in range(len(trace.tokens))]
        row, step = (torch.tensor([pair[i] for pair in where], dtype=torch.long) for i in (0, 1))
        tokens = torch.tensor(np.array([t for trace in traces for t in trace.tokens]).reshape(-1, length), dtype=torch.long)
        if not where:
            return cls(Inputs(torch.zeros(0), torch.zeros(0, 0), []), tokens, row, step)
        images = torch.from_numpy(np.stack([image for trace in traces for image in trace.images]))
        position = np.stack([value for trace in traces for value in trace.position])
        state = torch.from_numpy(model.state.normalised(position).astype(np.float32))
        said = [trace.request.instruction for trace in traces for _ in trace.tokens]
        return cls(Inputs(images, state, said), tokens, row, step)

    def of_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the decisions of some rows, (d,)."""
        return torch.isin(self.row, rows).nonzero()[:, 0]

    def to_rows(self, values: torch.Tensor, which: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
        """Puts values (d, L) of some decisions where they are in the batch [N,T] of their rows, in the rows' order."""
        result = torch.zeros(batch.tokens.shape, dtype=values.dtype)
        for place, _, steps in self._places(which):
            count = len(steps) * self.tokens.shape[1]
            result[place, :count] = values[steps].reshape(-1)
        return result

    def from_rows(self, values: torch.Tensor, which: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Undoes `to_rows`: values [N,T] of the rows, as (d, L)."""
        result = torch.zeros(len(which), self.tokens.shape[1], dtype=values.dtype)
        for _, row, steps in self._places(which):
            count = len(steps) * self.tokens.shape[1]
            place = int((rows.sort().values == row).nonzero()[0])
            result[steps] = values[place, :count].reshape(len(steps), -1)
        return result

    def _places(self, which: torch.Tensor) -> list[tuple[int, int, torch.Tensor]]:
        """Returns for each row of some decisions: its place among them, its number, and where its decisions are in `which`."""
        row = self.row[which]
        return [(place, int(number), (row == number).nonzero()[:, 0]) for place, number in enumerate(row.unique())]


def to_batch(traces: Sequence[Trace], temperature: float) -> RolloutBatch:
    """Returns episodes as a batch. The time limit without success is a failure like any other."""
    length = max((len(tokens) for trace in traces for tokens in trace.tokens), default=1)

    def joined(name: str, kind: torch.dtype) -> torch.Tensor:
        return padded([torch.tensor(np.array(getattr(trace, name)).reshape(-1), dtype=kind) for trace in traces])

    step = padded([torch.arange(len(trace.tokens)).repeat_interleave(length) for trace in traces], -1)
    log_prob = joined("log_prob", torch.float32)
    return RolloutBatch(
        tokens=joined("tokens", torch.long),
        step=step,
        mask=step >= 0,
        temperature=torch.full(step.shape, temperature),
        logp_old=log_prob,
        logp_behaviour=log_prob.clone(),
        group=torch.tensor([trace.request.group for trace in traces]),
        n_steps=torch.tensor([len(trace.tokens) for trace in traces]),
        outcome=torch.tensor([float(trace.success) for trace in traces]),
        terminated=torch.tensor([trace.terminated for trace in traces]),
        truncated=torch.tensor([trace.truncated for trace in traces]),
        entropy=joined("entropy", torch.float32),
    )


def group_figures(batch: RolloutBatch, reward: torch.Tensor, level: torch.Tensor) -> dict[str, float]:
    """Returns what is watched of groups: success, kept, all-fail and all-success shares, reward variance within groups, entropy, length."""
    outcomes = [batch.outcome[batch.group == name] for name in batch.group.unique()]
    kept = [bool((level[batch.group == name] != 0).any()) for name in batch.group.unique()]
    variance = [float(reward[batch.group == name].double().var(correction=0)) for name in batch.group.unique()]
    entropy = batch.entropy[batch.mask].mean() if batch.entropy is not None and batch.mask.any() else torch.tensor(0.0)
    return {
        "success": float(batch.outcome.mean()),
        "groups": len(outcomes),
        "kept": float(np.mean(kept)),
        "all_fail": float(np.mean([float(not rows.any()) for rows in outcomes])),
        "all_success": float(np.mean([float(rows.all()) for rows in outcomes])),
        "reward_variance": float(np.mean(variance)),
        "entropy": float(entropy),
        "decisions": float(batch.n_steps.float().mean()),
    }


def agreement(gradients: Sequence[torch.Tensor]) -> float:
    """Returns the mean cosine between gradients of different episodes, two or more of (P,): 0 where they are noise.

    Gradients that are means over b groups agree by 1 / (1 + N / b), where N = tr(Σ) / |G|² is the noise scale of McCandlish et al., "An
    Empirical Model of Large-Batch Training", 2018, for groups: about N groups make a gradient half of which points the right way. In
    training only the first is of the weights that the episodes were played with; the others are of weights a few steps on.
    """
    unit = nn.functional.normalize(torch.stack(list(gradients)), dim=1)
    count = len(unit)
    return float((unit.sum(0).square().sum() - unit.square().sum()) / (count * (count - 1)))


def _flat_gradient(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """Returns the gradients of all parameters in a row, (P,), on the CPU.

    Raises:
        UserError: no parameter has one.
    """
    if all(value.grad is None for value in parameters):
        raise UserError("only: the weights that it names have no part in what is decoded; name others")
    return torch.cat([(torch.zeros_like(value) if value.grad is None else value.grad).flatten() for value in parameters]).cpu()


def group_parts(group: torch.Tensor, count: int, draw: np.random.Generator) -> list[torch.Tensor]:
    """Divides rows into at most `count` parts of whole groups, in random order; each part's rows are in ascending order.

    There are `count` parts even without rows: other processes may have some, and all must take the same number of steps.
    """
    names = draw.permutation(group.unique().numpy())
    return [torch.isin(group, torch.from_numpy(part)).nonzero()[:, 0] for part in np.array_split(names, count)]


def _trained(network: nn.Module, beginnings: Sequence[str]) -> list[nn.Parameter]:
    """Returns the weights to train, those whose names begin with one of `beginnings`; without any, all that are not frozen.

    Raises:
        UserError: no weight has such a name.
    """
    found = {name: value for name, value in network.named_parameters() if value.requires_grad}
    for beginning in beginnings:
        if not any(name.startswith(beginning) for name in found):
            known = ", ".join(dict.fromkeys(name.split(".")[0] for name in found))
            raise UserError(f"only: the name of no weight that is trained begins with {beginning!r}; there are {known}")
    return [value for name, value in found.items() if not beginnings or name.startswith(tuple(beginnings))]


def _copy_of(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}


def _put(weights: dict[str, torch.Tensor], values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, value in weights.items():
            value.copy_(values[name])


def _check(args: GrpoArgs) -> None:
    if args.group < 2:
        raise UserError(f"group must be 2 or more, got {args.group}: episodes are compared with others from the same start")
    if not args.temperature > 0:
        raise UserError(f"temperature must be above 0, got {args.temperature:g}: the same start must lead to different episodes")
    if not (0 < args.clip_low < 1 and args.clip_high > 0):
        raise UserError(f"clip_low must be between 0 and 1 and clip_high above 0, got {args.clip_low:g} and {args.clip_high:g}")
    if args.warmup < 0:
        raise UserError(f"warmup must be 0 or more, got {args.warmup}")
    for name in ("iterations", "groups", "epochs", "minibatches", "chunk", "copies"):
        if getattr(args, name) < 1:
            raise UserError(f"{name} must be 1 or more, got {getattr(args, name)}")


@dataclass
class Run:
    """Improves a policy on tasks."""

    policy: Path
    """The bundle to start from."""
    out: Path
    """Where the better one goes; checkpoint and log lie beside it."""
    tasks: tuple[str, ...] = ("put_red_block_in_bowl", "push_button")
    """Names of tasks, or paths of task files; one of the tabletop suite without a variant is all its variants for training."""
    grpo: GrpoArgs = field(default_factory=GrpoArgs)
    """Settings."""

    def run(self) -> None:
        """Trains."""
        rank = workers.join()
        bundle = load_bundle(self.policy)
        model = VlaModel.from_bundle(bundle)
        model.network.to(workers.device())
        learner = Grpo(model, [task for name in self.tasks for task in training_tasks(name, bundle.spec.robot)], self.grpo, rank)
        checkpoint, log = (self.out.with_name(self.out.name + end) for end in (".checkpoint.safetensors", ".jsonl"))
        self.out.parent.mkdir(parents=True, exist_ok=True)
        if checkpoint.exists():
            learner.load(checkpoint)
        figures: dict[str, Any] = {}
        with tqdm(total=self.grpo.iterations, initial=learner.iteration, disable=None if rank[0] == 0 else True) as bar:
            while learner.iteration < self.grpo.iterations:
                figures = learner.step()
                bar.update()
                if rank[0] == 0:
                    bar.set_postfix(success=f"{figures['success']:.2f}", kept=f"{figures['kept']:.2f}")
                    with log.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(figures) + "\n")
                    learner.save(checkpoint)
        learner.rollouts.close()
        if rank[0] == 0:
            self._write(bundle, learner, figures)

    def _write(self, bundle: Bundle, learner: Grpo, figures: dict[str, Any]) -> None:
        command = " ".join(["python -m ros_rl.learning.grpo", *sys.argv[1:]])
        training = {"command": command, "revision": "", "data": f"{learner.ticks} control periods of {', '.join(self.tasks)}"}
        metrics = {"last_iteration": figures, "digest": digest(learner.model.network), "started_from": bundle.metrics.get("digest", "")}
        save_bundle(self.out, learner.model.to_bundle(self.out.name, "grpo", training, metrics))
        print(f"wrote {self.out}")


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return run_command(lambda: tyro.cli(Run, args=words).run())


if __name__ == "__main__":
    sys.exit(main())

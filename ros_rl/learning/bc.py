"""Behaviour cloning of action tokens: the likelihood of what demonstrations did, maximised.

    python -m ros_rl.learning.bc collect put_red_block_in_bowl push_button --episodes 400 --folder out/demos
    python -m ros_rl.learning.bc train --demos out/demos --out out/vla --bc.steps 6000
    python -m ros_rl.learning.bc train --demos out/more_demos --policy out/vla --out out/vla_more
    python -m ros_rl.learning.bc evaluate out/vla --tasks put_red_block_in_bowl push_button

Collecting and training can be stopped and go on where they were. Training runs on the GPU where there is one, and on several with torchrun.
"""

import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import tyro
from torch import nn
from tqdm import tqdm

from ros_rl.data.dataset import Dataset
from ros_rl.errors import UserError, unknown
from ros_rl.learning import workers
from ros_rl.learning.command import run_command
from ros_rl.learning.demonstrations import Demonstrations, Sampling, Source, collect, from_dataset
from ros_rl.learning.token_checkpoint import read_training, write_training
from ros_rl.learning.token_rollout import Request, TokenWorld, run_requests
from ros_rl.policies.action_tokens import BINS, Ranges, relative_to
from ros_rl.policies.bundle import Bundle, check_fits, load_bundle, save_bundle
from ros_rl.policies.embedded_vla import EmbeddedConfig, EmbeddedVla
from ros_rl.policies.language import vocabulary
from ros_rl.policies.token_network import Decoding, Inputs
from ros_rl.policies.vla import Parameters, VlaModel, digest, relative_joints, shortened, spec_for
from ros_rl.policies.vla_backbone import BackboneConfig
from ros_rl.robots.spec import load_robot
from ros_rl.sim.tabletop import JUDGING_SEEDS, TRAINING_SEEDS, training_tasks
from ros_rl.sim.task import Task, load_task


@dataclass(frozen=True)
class BcArgs:
    """Settings of behaviour cloning."""

    steps: int = 6000
    """Updates."""
    batch: int = 128
    """Samples in an update, on each process."""
    learning_rate: float = 1e-3
    """Highest step size of AdamW; it rises over the first 5 % of the steps and falls along a cosine to a hundredth."""
    weight_decay: float = 0.05
    """Of AdamW, on matrices."""
    smoothing: float = 1.0
    """Standard deviation, in bins, of the target about the demonstrated bin; 0: that bin alone."""
    colour: float = 0.15
    """By how much brightness and contrast of an image are changed at most, as a share."""
    state_noise: float = 0.02
    """Standard deviation of noise on the measured joints, on their scale of -1 to 1, against copying them."""
    ahead: tuple[float, ...] = (1.0, 2.0, 3.0)
    """s: how far ahead of a sample the network also learns where the arm will be; see `Ahead`."""
    ahead_weight: float = 1.0
    """Weight of what is learned of that; 0: none of it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the products in training; weights, loss and optimiser are float32. bfloat16 is faster where the CPU or GPU multiplies it."""
    compile: bool = False
    """Have torch.compile fuse the small network's operations, which takes a C++ compiler and a minute at the start. Measured on a CPU with
    bfloat16: 0.8 of the time."""
    seed: int = 0
    """Of weights, batches and noise."""


class Ahead(nn.Module):
    """Questions asked in training only: where will the arm be in one second, in two, …?

    Once a motion has begun, where the arm is tells where it goes next, and a chunk of half a second is told well without looking at what
    was said. Where the arm will be later depends on that from the first sample on (the copycat problem: Wen et al., "Fighting Copycat
    Agents in Behavioral Cloning", 2020). The questions follow those of the chunk, which do not see them.
    """

    target: torch.Tensor

    def __init__(self, data: Demonstrations, seconds: Sequence[float], period: float, width: int):
        """Takes the targets, as offsets from the measured position over their standard deviation, (N, h, n).

        Args:
            data: of N samples of n joints.
            seconds: h times.
            period: s between samples.
            width: of the network.

        Raises:
            UserError: a time is shorter than the period.
        """
        super().__init__()
        periods = [round(time / period) for time in seconds]
        if any(count < 1 for count in periods):
            raise UserError(f"ahead must be times of at least {period:g} s, got {', '.join(f'{time:g}' for time in seconds)}")
        joints = data.waypoints.shape[-1]
        offset = np.stack([data.later(count) - data.position[:, :joints] for count in periods], axis=1)
        scaled = offset / np.maximum(offset.std(axis=0), 1e-3)
        self.register_buffer("target", torch.from_numpy(scaled.astype(np.float32)), persistent=False)
        self.queries = nn.Parameter(torch.randn(len(periods), width) * 0.02)
        self.out = nn.Linear(width, joints)

    def loss(self, hidden: torch.Tensor, chosen: np.ndarray) -> torch.Tensor:
        """Returns how far off the answers are that some samples' outputs (B, h, width) give: the mean of Huber's loss."""
        return nn.functional.smooth_l1_loss(self.out(hidden.float()), self.target[chosen].to(hidden.device), beta=0.2)


class Cloner:
    """A model with its optimiser; a batch is a function of seed, process and step alone: a resumed training is the same training."""

    def __init__(self, model: VlaModel, data: Demonstrations, args: BcArgs, rank: int = 0, start: str = ""):
        """Prepares the targets.

        Args:
            model: to train.
            data: to imitate.
            args: settings.
            rank: number of this process.
            start: digest of the weights of the policy that it goes on from, empty for a new one; a checkpoint of another is refused.
        """
        for name in ("steps", "batch"):
            if getattr(args, name) < 1:
                raise UserError(f"{name} must be 1 or more, got {getattr(args, name)}")
        self.model, self.data, self.args, self.rank = model, data, args, rank
        if args.precision == "bfloat16" and isinstance(model.network, EmbeddedVla):
            # Measured on a CPU, a step of 64 samples: 123 ms, with the fused attention 189 ms. In float32 they take the same, and
            # decoding is faster with the fused one.
            model.network.trunk.set_attn_implementation("eager")
        if args.compile:
            if not isinstance(model.network, EmbeddedVla):
                raise UserError("compile: is for the small network only; leave it out with a backbone")
            for part in (*model.network.cameras, model.network.trunk):
                part.compile()
        self._what = {**asdict(args), "demonstrations": data.digest(), **model.meaning(), "policy": start}
        self.step = 0
        joints = len(model.spec.joint_names)
        self._tokens = torch.from_numpy(model.code.encode(data.waypoints.astype(float), data.position[:, :joints].astype(float)))
        self.ahead: Ahead | None = None
        if args.ahead and args.ahead_weight:
            self.ahead = Ahead(data, args.ahead, model.settings.period, model.network.start.shape[-1]).to(model.network.device)
            workers.share_weights(self.ahead)
        learned = [*model.network.parameters(), *(() if self.ahead is None else self.ahead.parameters())]
        self.parameters = [value for value in learned if value.requires_grad]
        decayed = [value for value in self.parameters if value.ndim > 1]
        others = [value for value in self.parameters if value.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": args.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=args.learning_rate, betas=(0.9, 0.95))

    def update(self) -> dict[str, float]:
        """Takes one step; returns loss, likelihood (nats a token), mean distance of the likeliest token in bins, and `Ahead`'s loss."""
        draw = np.random.default_rng([self.args.seed, self.rank, self.step])
        chosen = draw.integers(len(self.data), size=self.args.batch)
        inputs = self._augmented(chosen, draw)
        tokens = self._tokens[chosen].to(self.model.network.device)
        self.model.network.train()
        reduced = self.args.precision == "bfloat16"
        with torch.autocast(self.model.network.device.type, torch.bfloat16, enabled=reduced):
            logits, later = self._answers(inputs, tokens)
        self.model.network.eval()
        loss = cloning_loss(logits, tokens, self.args.smoothing)
        off_later = torch.zeros(()) if self.ahead is None else self.ahead.loss(later, chosen)
        loss = loss + self.args.ahead_weight * off_later
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        workers.average_gradients(self.parameters)
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.optimiser.param_groups:
            group["lr"] = self.args.learning_rate * schedule(self.step, self.args.steps)
        self.optimiser.step()
        self.step += 1
        with torch.no_grad():
            logs = torch.log_softmax(logits.float(), -1).gather(-1, tokens[..., None]).mean()
            off = (logits.argmax(-1) - tokens).abs().float().mean()
        value = float(loss.detach())
        if not np.isfinite(value):
            raise UserError(f"behaviour cloning diverged at step {self.step}: its loss is {value:g}")
        return {"loss": value, "log_prob": float(logs), "bins_off": float(off), "ahead": float(off_later.detach())}

    def _answers(self, inputs: Inputs, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the logits (B, L, 256), and the outputs at the questions of `Ahead` (B, h, width), none where there are none."""
        network = self.model.network
        positions = network.positions(len(inputs), tokens)
        asked = positions.shape[1]
        if self.ahead is not None:
            positions = torch.cat([positions, self.ahead.queries.expand(len(inputs), -1, -1)], dim=1)
        hidden = network.hidden(inputs, positions)
        return network.head(hidden[:, :asked]), hidden[:, asked:]

    def _augmented(self, chosen: np.ndarray, draw: np.random.Generator) -> Inputs:
        images = torch.from_numpy(self.data.images[chosen])
        if self.args.colour:
            low, high = 1 - self.args.colour, 1 + self.args.colour
            contrast, brightness = (draw.uniform(low, high, (len(chosen), images.shape[1], 1, 1, 1)).astype(np.float32) for _ in range(2))
            changed = (images.float() - 127.5) * torch.from_numpy(contrast) + 127.5 * torch.from_numpy(brightness)
            images = changed.clamp_(0, 255).to(torch.uint8)
        state = self.model.state.normalised(self.data.position[chosen])
        state = state + self.args.state_noise * draw.normal(size=state.shape)
        said = [self.data.instructions[index] for index in chosen]
        return Inputs(images, torch.from_numpy(state.astype(np.float32)), said).to(self.model.network.device)

    def save(self, path: Path) -> None:
        """Writes weights, optimiser and step."""
        extra = {} if self.ahead is None else dict(self.ahead.state_dict())
        write_training(path, self.model.network, self.optimiser, self._what, {"step": self.step}, extra)

    def load(self, path: Path) -> None:
        """Goes on from what `save` wrote.

        Raises:
            UserError: the file is damaged, or of a training with other settings, demonstrations, ranges or network.
        """
        counters, extra = read_training(path, self.model.network, self.optimiser, self._what)
        if self.ahead is not None:
            self.ahead.load_state_dict(extra)
        self.step = counters["step"]


def cloning_loss(logits: torch.Tensor, tokens: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Returns the mean cross-entropy of logits (..., 256) against tokens (...), or against Gaussians about them, cut at the ends.

    Args:
        logits: of the network.
        tokens: what was demonstrated.
        smoothing: standard deviation of the target, in bins: neighbours are nearly right. 0: the token alone.
    """
    logs = torch.log_softmax(logits.float(), dim=-1)
    if smoothing == 0:
        return -logs.gather(-1, tokens[..., None]).mean()
    bins = torch.arange(BINS, device=tokens.device)
    target = torch.softmax(-0.5 * ((bins - tokens[..., None]) / smoothing) ** 2, dim=-1)
    return -(target * logs).sum(-1).mean()


def schedule(step: int, steps: int) -> float:
    """Returns the share of the highest learning rate at a step: up in the first 5 %, then a cosine down to 0.01."""
    warm = max(1, round(0.05 * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.01 + 0.99 * 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))


def new_model(source: Source, data: Demonstrations, network: EmbeddedConfig | BackboneConfig) -> VlaModel:
    """Makes a model for demonstrations: ranges are those of the data; all joints but the gripper's are coded as offsets.

    Args:
        source: of the demonstrations.
        data: them.
        network: its shape.
    """
    robot, sampling = load_robot(source.robot), source.sampling
    relative = relative_joints(robot)
    kind = "embedded" if isinstance(network, EmbeddedConfig) else "backbone"
    settings = Parameters(sampling.ticks, sampling.period, relative, **{kind: network})  # type: ignore[arg-type]
    offsets = relative_to(data.waypoints, data.position[:, : len(robot.joints)], np.array([name in relative for name in robot.joint_names]))
    spec = spec_for(robot, source.sizes, sampling.ticks, sampling.period)
    return VlaModel.new(spec, settings, Ranges.of(robot.measured_names, data.position), Ranges.of(robot.joint_names, offsets))


def continued_model(bundle: Bundle, source: Source, data: Demonstrations) -> VlaModel:
    """Returns a bundle's model, to be trained on: its network and ranges stay; the cameras' sizes are those of the demonstrations.

    Warns where more than 1 % of a joint's targets lie outside of its range: there they are cut.

    Args:
        bundle: of a VLA.
        source: of the demonstrations.
        data: them.

    Raises:
        UserError: the bundle is no VLA's; its robot, cameras, images or sampling are not those of the demonstrations; or they say words
            that its vocabulary lacks.
    """
    model, sampling = VlaModel.from_bundle(bundle), source.sampling
    robot = load_robot(source.robot)
    check_sampling(bundle.name, model, sampling)
    but_images = tuple(key for key in bundle.spec.observation if not key.name.startswith("images."))
    check_fits(replace(bundle, spec=replace(bundle.spec, observation=but_images)), robot)
    small = model.settings.embedded
    if small is not None and small.language == "words" and (new := sorted(set(vocabulary(data.instructions)) - set(small.words))):
        raise UserError(
            f"policy: the vocabulary of '{bundle.name}' lacks {', '.join(new)}; a new policy, or one of sentences, can learn them"
        )
    coded = relative_to(data.waypoints, data.position[:, : len(robot.joints)], model.code.relative)
    cut = ((coded < model.code.ranges.lower) | (coded > model.code.ranges.upper)).mean(axis=(0, 1))
    if (cut > 0.01).any():
        which = ", ".join(f"{name} {share:.1%}" for name, share in zip(robot.joint_names, cut, strict=True) if share > 0.01)
        warnings.warn(f"targets outside of the policy's ranges are cut: {which}", stacklevel=2)
    return replace(model, spec=spec_for(robot, source.sizes, sampling.ticks, sampling.period))


def check_sampling(name: str, model: VlaModel, sampling: Sampling) -> None:
    """Refuses demonstrations that are cut otherwise than a policy reads and acts.

    Raises:
        UserError: names both sides.
    """
    for what, policys, theirs in (
        ("cameras", model.spec.cameras, sampling.cameras),
        ("image", model.network.image, sampling.image),
        ("ticks", model.settings.ticks, sampling.ticks),
        ("period", model.settings.period, sampling.period),
    ):
        if policys != theirs:
            raise UserError(f"bundle '{name}' has {what} {policys}, the demonstrations have {theirs}")


@dataclass
class Collect:
    """Makes demonstrations of tasks by their experts."""

    tasks: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Names of tasks, or paths of task files; one of the tabletop suite without a variant is all its variants for training."""
    folder: Path
    """Where they go."""
    robot: str | None = None
    """Which robot; by default that of `after`, else the tasks' first."""
    cameras: tuple[str, ...] = ("overhead", "wrist")
    """Cameras, of the robot or the scene."""
    image: int = 64
    """Height and width to which images are scaled, a multiple of 16."""
    ticks: int = 5
    """Waypoints in a chunk."""
    period: float = 0.1
    """s from one waypoint to the next."""
    episodes: int = 400
    """Of each task, and of each of its variants."""
    first_seed: int = 0
    """Seeds from here on; those of training are below 1,000,000."""
    noise: float = 0.0
    """rad: largest standard deviation of smooth noise that leads the expert off its path, so that the way back is learned too."""
    after: Path | None = None
    """Bundle of a VLA that acts first: the expert begins where it was left when its time was up, and what it can do is left out. Cameras,
    image, ticks and period must be its own."""
    scatter: bool = False
    """Begin with the tool somewhere above the objects instead of at home, so that the way from there is learned too."""

    def run(self) -> None:
        """Collects."""
        seeds = range(self.first_seed, self.first_seed + self.episodes)
        if self.episodes < 1 or seeds.start not in TRAINING_SEEDS or seeds[-1] not in TRAINING_SEEDS:
            raise UserError(
                f"episodes must be 1 or more, with seeds from 0 to {TRAINING_SEEDS[-1]}, got {self.episodes} from {seeds.start} on"
            )
        if not 0 <= self.noise <= 0.5:
            raise UserError(f"noise must be from 0 to 0.5 rad, got {self.noise:g}")
        sampling = Sampling(self.cameras, (self.image, self.image), self.ticks, self.period)
        if self.scatter and self.after is not None:
            raise UserError("scatter: leave it out with --after, which says where episodes begin")
        robot, after = self.robot, None
        if self.after is not None:
            bundle = load_bundle(self.after)
            after, robot = VlaModel.from_bundle(bundle), robot or bundle.spec.robot
            check_sampling(bundle.name, after, sampling)
            check_fits(bundle, load_robot(robot))
            after.network.to(workers.device())
        for task in [task for name in self.tasks for task in training_tasks(name, robot)]:
            with tqdm(total=self.episodes, desc=task.name, disable=None) as bar:
                made = collect(task, seeds, sampling, self.folder, self.noise, bar.update, after, self.scatter)
            print(f"{task.name}: {made} demonstrations of {self.episodes}")


@dataclass
class Train:
    """Trains a policy on demonstrations and writes its bundle."""

    demos: Path
    """Folder of demonstrations, or a LeRobot dataset."""
    out: Path
    """Where the bundle goes; its checkpoint lies beside it."""
    bc: BcArgs = field(default_factory=BcArgs)
    """Settings."""
    policy: Path | None = None
    """Bundle of a VLA to go on from, such as one that ships: its network and ranges are kept. None: a new network."""
    decoding: Decoding = "parallel"
    """parallel or autoregressive."""
    language: Literal["words", "sentence"] = "words"
    """words (a vocabulary) or sentence (a frozen sentence encoder)."""
    backbone: str = ""
    """Folder of a large model; empty: the small one is trained from scratch."""
    lora: int = 16
    """Rank of the adapters on a large model; 0: train all of it."""
    cameras: tuple[str, ...] = ()
    """For a dataset: its cameras; none named: all."""
    image: int = 64
    """For a dataset: to which size images are scaled."""
    ticks: int = 5
    """For a dataset: waypoints in a chunk."""
    period: float = 0.1
    """For a dataset: s from one waypoint to the next."""

    def run(self) -> None:
        """Trains."""
        rank, _ = workers.join()
        if self.lora < 0:
            raise UserError(f"lora must be 0 or more, got {self.lora}")
        if self.policy is not None and self.policy.resolve() == self.out.resolve():
            raise UserError(f"out: {self.out} is the policy to go on from; name another place")
        source, data = self._data()
        torch.manual_seed(self.bc.seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = self._model(source, data)
        for warning in caught:
            if issubclass(warning.category, UserWarning) and rank == 0:
                print(f"warning: {warning.message}", file=sys.stderr)
        model.network.to(workers.device())
        workers.share_weights(model.network)
        start = digest(model.network) if self.policy else ""
        cloner = Cloner(model, data, self.bc, rank, start)
        train(cloner, self.out.with_name(self.out.name + ".checkpoint.safetensors"), show=rank == 0)
        if rank == 0:
            command = " ".join(["python -m ros_rl.learning.bc", *sys.argv[1:]])
            training = {"command": command, "revision": "", "data": f"{len(data)} samples of {self.demos}"}
            metrics = {"digest": digest(model.network), **({"started_from": start} if start else {})}
            save_bundle(self.out, model.to_bundle(self.out.name, "bc", training, metrics))
            print(f"wrote {self.out}")

    def _model(self, source: Source, data: Demonstrations) -> VlaModel:
        if self.policy is None:
            return new_model(source, data, self._network(source.sampling, data))
        for name in ("decoding", "language", "backbone", "lora"):
            if getattr(self, name) != getattr(Train, name):
                raise UserError(f"{name}: leave it out, the policy {self.policy} brings its own network")
        return continued_model(load_bundle(self.policy), source, data)

    def _network(self, sampling: Sampling, data: Demonstrations) -> EmbeddedConfig | BackboneConfig:
        if self.backbone:
            return BackboneConfig(self.backbone, list(sampling.image), self.lora, self.decoding)
        words = vocabulary(set(data.instructions)) if self.language == "words" else []
        return EmbeddedConfig(list(sampling.image), self.language, words, self.decoding)

    def _data(self) -> tuple[Source, Demonstrations]:
        if (self.demos / "meta/info.json").is_file():
            dataset = Dataset.open(self.demos)
            known = dict(dataset.spec.cameras)
            for name in self.cameras:
                if name not in known:
                    raise unknown(f"camera in {self.demos}", name, known)
            sizes = {name: known[name] for name in self.cameras or known}
            sampling = Sampling(tuple(sizes), (self.image, self.image), self.ticks, self.period)
            episodes = from_dataset(dataset, sampling, load_robot(dataset.spec.robot))
            return Source(dataset.spec.robot, sizes, sampling), Demonstrations.of(episodes)
        data = Demonstrations.load(self.demos)
        return Source.of(self.demos), data


@dataclass
class Shorten:
    """Makes a policy that plays only the first waypoints of each chunk and then looks again."""

    policy: Annotated[Path, tyro.conf.Positional]
    """The bundle."""
    ticks: int
    """Waypoints that remain."""
    out: Path
    """Where the shorter one goes."""

    def run(self) -> None:
        """Writes it."""
        bundle = load_bundle(self.policy)
        short = shortened(bundle, self.ticks)
        start, short_digest = (digest(VlaModel.from_bundle(of).network) for of in (bundle, short))
        command = f"{bundle.training.get('command', '')}; shortened to {self.ticks} waypoints".removeprefix("; ")
        training = {**bundle.training, "command": command}
        save_bundle(
            self.out, replace(short, name=self.out.name, training=training, metrics={"digest": short_digest, "started_from": start})
        )
        print(f"wrote {self.out}")


@dataclass
class Evaluate:
    """Measures how often a policy does tasks, from initial states that no training has, and prints it as JSON.

    In the splits of the tabletop suite `ros-rl bench tabletop --policy` measures it.
    """

    policy: Annotated[Path, tyro.conf.Positional]
    """The bundle."""
    tasks: tuple[str, ...]
    """Names of tasks, or paths of task files."""
    episodes: int = 50
    """Of each task."""
    copies: int = 16
    """Episodes that are simulated together."""
    temperature: float = 0.0
    """At which tokens are drawn; 0 draws none and takes what the bundle's `choice` says: each token's median, or its likeliest bin."""

    def run(self) -> None:
        """Evaluates."""
        if not (1 <= self.episodes <= len(JUDGING_SEEDS) and self.copies >= 1 and self.temperature >= 0):
            raise UserError(
                f"episodes must be from 1 to {len(JUDGING_SEEDS)}, copies 1 or more and temperature not negative, "
                f"got {self.episodes}, {self.copies} and {self.temperature:g}"
            )
        model = VlaModel.from_bundle(load_bundle(self.policy))
        model.network.to(workers.device())
        found = {}
        for name in self.tasks:
            task = load_task(name, model.spec.robot)
            found[task.name] = success_rate(model, task, JUDGING_SEEDS[: self.episodes], self.copies, self.temperature)
        print(json.dumps(found))


def success_rate(model: VlaModel, task: Task, seeds: range, copies: int, temperature: float = 0.0) -> float:
    """Returns the share of episodes from the task's own starts in which it was done."""
    world = TokenWorld(task, load_robot(task.robot), min(copies, len(seeds)))
    starts = zip(seeds, world.starts(seeds), strict=True)
    traces = run_requests(model, world, [Request(start, task.instruction, (seed,)) for seed, start in starts], temperature)
    world.close()
    return float(np.mean([trace.success for trace in traces]))


def train(cloner: Cloner, checkpoint: Path, show: bool = True, every: int = 500) -> dict[str, float]:
    """Trains to the end, from a checkpoint where there is one, and writes one now and then; returns the last figures."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        cloner.load(checkpoint)
    figures: dict[str, float] = {}
    with tqdm(total=cloner.args.steps, initial=cloner.step, disable=None if show else True) as bar:
        while cloner.step < cloner.args.steps:
            figures = cloner.update()
            bar.update()
            if cloner.step % 20 == 0:
                bar.set_postfix({name: f"{value:.3f}" for name, value in figures.items()})
            if show and (cloner.step % every == 0 or cloner.step == cloner.args.steps):
                cloner.save(checkpoint)
                print(json.dumps({"step": cloner.step, **{k: round(v, 4) for k, v in figures.items()}}), flush=True)
    return figures


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return run_command(
        lambda: tyro.extras.subcommand_cli_from_dict(
            {"collect": Collect, "train": Train, "shorten": Shorten, "evaluate": Evaluate}, args=words
        ).run()
    )


if __name__ == "__main__":
    sys.exit(main())

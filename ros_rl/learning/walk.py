"""Trains the correction of a trot that follows a velocity, makes the bundle `quadruped_walk` of it, and measures it beside the trot.

python -m ros_rl.learning.walk train       # stops and resumes anywhere
python -m ros_rl.learning.walk bundle      # makes the bundle, and measures it on its task
python -m ros_rl.learning.walk evaluate    # the bundle and the trot alone, on a grid of commands and under pushes
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ros_rl import __version__, paths
from ros_rl.errors import UserError
from ros_rl.learning.command import run_command
from ros_rl.learning.ppo import Ppo, PpoArgs
from ros_rl.learning.scripted import EPISODES, ship
from ros_rl.learning.training import save_json
from ros_rl.policies.bundle import Bundle, load_bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.quadruped_walk import MEASURED, contents_of, correction_in, walk_in
from ros_rl.robots.spec import load_robot
from ros_rl.robots.walking import Walk
from ros_rl.safety.region import Region
from ros_rl.sim.walk_env import NOMINAL, RATE, ROBOT, Conditions, WalkVectorEnv, walk

NAME = "quadruped_walk"
BUNDLES = {ROBOT: NAME, "go1": "go1_walk"}  # one network, trained on the first robot, for both
EPISODE_STEPS = 500
PPO = PpoArgs(copies=64, rollout=64, epochs=5, batch=512, learning_rate=5e-4, log_std=-2.0, hidden=(128, 64), target_kl=0.02)
LAST_LOG_STD = -3.5  # of the policy's spread, which is at most this at the end: what is shipped has none at all
SAVE_EVERY = 10  # iterations

Policy = Callable[[np.ndarray], np.ndarray]
"""From observations (n, 47) to actions (n, 12)."""

Make = Callable[[Walk, int, Conditions, int], WalkVectorEnv]
"""Builds robots that walk: a number of them, under some conditions, in episodes of some actions at most."""

# What is asked of the bundle, set before it was trained.
LARGEST_ERROR = 0.2  # of the mean velocity, as a share of the commanded one, mean over the commands
LEAST_SURVIVAL = 0.95  # share of pushes that it stays up after, on either ground
COMMANDS = (
    (0.3, 0.0, 0.0),
    (0.5, 0.0, 0.0),
    (0.8, 0.0, 0.0),
    (-0.3, 0.0, 0.0),
    (0.0, 0.2, 0.0),
    (0.0, -0.2, 0.0),
    (0.0, 0.0, 0.4),
    (0.0, 0.0, 0.8),
    (0.0, 0.0, -0.8),
    (0.5, 0.0, 0.5),
    (0.8, 0.0, -0.8),
)
PUSHED_AT = (0.5, 0.8)  # m/s forward
PUSHES, DIRECTIONS = (0.5, 1.0), 8  # m/s; `LEAST_SURVIVAL` is asked of the first
_WARM, _MEASURED, _AFTER = 100, 200, 120  # actions: until the velocity is reached, that are measured, and after a push


def still(observation: np.ndarray) -> np.ndarray:
    """Returns no correction: the trot alone."""
    return np.zeros((len(observation), 12))


# --- Training ---------------------------------------------------------------------------------------------------------------


@dataclass
class TrainArgs:
    """What to train."""

    steps: int = 900_000
    """Environment steps, of all copies together."""
    seed: int = 0
    """Of the run."""
    threads: int = 1
    """That step the simulation."""
    folder: Path = Path("out/walk")
    """Where checkpoints and the policy go; a run that was stopped goes on from there."""


def tensors_of(learner: Ppo) -> dict[str, np.ndarray]:
    """Returns the network and the moments of what it sees, as the bundle holds them."""
    found: dict[str, np.ndarray] = {"mean": learner.moments.mean.copy(), "variance": learner.moments.variance.copy()}
    for layer, (weight, bias) in enumerate(learner.actor.layers):
        found |= {f"weight{layer}": weight.copy(), f"bias{layer}": bias.copy()}
    return found


def train(args: TrainArgs, ppo: PpoArgs = PPO) -> Ppo:
    """Trains, or goes on; leaves a checkpoint, policy.safetensors and training.json in the folder.

    Raises:
        UserError: the folder holds another training.
        RobotFault: the training broke down.
    """
    if args.steps < 1 or args.seed < 0:
        raise UserError(f"--steps must be at least 1 and --seed not be negative, got {args.steps} and {args.seed}")
    iterations = -(-args.steps // (ppo.copies * ppo.rollout))
    environment = WalkVectorEnv(walk(), ppo.copies, Conditions(), EPISODE_STEPS, threads=args.threads)
    learner = Ppo(ppo, environment, iterations, args.seed)
    learn(learner, args.folder / "walk.npz", args.steps, LAST_LOG_STD)
    return learner


def learn(learner: Ppo, kept: Path, steps: int, last_log_std: float) -> None:
    """Trains to the end, from the newest checkpoint if there is one; leaves checkpoints and, beside them, what `write` writes.

    Args:
        learner: whose spread is annealed.
        kept: where the newest checkpoint goes.
        steps: that were asked for.
        last_log_std: logarithm of the policy's spread at the end.
    """
    print(f"{kept}: {learner.resume(kept)}", file=sys.stderr)
    first, iterations = learner.args.log_std, learner.iterations
    while learner.iteration < iterations:
        np.minimum(learner.log_std, first + (last_log_std - first) * learner.iteration / iterations, out=learner.log_std)
        figures = learner.iterate()
        if learner.iteration % SAVE_EVERY == 0 or learner.iteration == iterations:
            learner.save(kept)
            write(kept.parent, learner, steps)
            lengths = np.mean([row[3] for row in learner.episodes[-100:]] or [np.nan])
            shown = " ".join(f"{name} {figures[name]:.4g}" for name in ("return", "falls", "kl", "std"))
            print(f"{learner.steps} steps: {shown} length {lengths:.0f}", file=sys.stderr, flush=True)


def write(folder: Path, learner: Ppo, steps: int) -> None:
    """Writes the policy as it is, and how it came to be; `steps` were asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    paths.write_atomically(folder / "policy.safetensors", save(tensors_of(learner)))
    history = {name: [round(value, 5) if np.isfinite(value) else None for value in values] for name, values in learner.history.items()}
    save_json(folder / "training.json", {"steps": learner.steps, "asked": steps, "seed": learner.seed, "history": history})


def read(folder: Path, command: str) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Returns what `write` wrote: tensors, and how they came to be.

    Raises:
        UserError: there is nothing, or it is damaged; the message tells the command that makes it.
    """
    try:
        tensors = load((folder / "policy.safetensors").read_bytes())
        record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        return tensors, {name: int(record[name]) for name in ("asked", "seed", "steps")}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: no trained policy can be read from it ({error}); {command} makes one") from None


# --- The bundle -------------------------------------------------------------------------------------------------------------


@dataclass
class MakeArgs:
    """What to make the bundles of, one for each robot."""

    folder: Path = Path("out/walk")
    """What `train` wrote."""
    output: Path | None = None
    """Folder for the bundles; that of the package unless given."""


def bundle_of(
    name: str,
    walked: Walk,
    reads: Sequence[str],
    tensors: dict[str, np.ndarray],
    training: dict[str, str],
    region: Region | None = None,
) -> Bundle:
    """Returns a network that corrects a trot as a bundle without metrics; the policy is the actor of that name."""
    robot = load_robot(ROBOT)
    sizes = {"base_quat": 4, "base_gyro": 3, "command": 3}
    settings, own = contents_of(walked)
    spec = PolicySpec(
        robot.name,
        robot.joint_names,
        tuple(ObservationKey(key, (sizes.get(key, len(robot.joints)),)) for key in reads),
        robot.control_rate,
        round(robot.control_rate / RATE),
        robot.command_mode,
    )
    return Bundle(name, name, "ppo", spec, {**settings, "symmetric": True}, own | tensors, training, region=region)


def told(recipe: str, record: dict[str, int], data: str) -> dict[str, str]:
    """Returns what a bundle says of its training: the commands of a recipe with `train` and `bundle`, and what it was trained on."""
    return {
        "command": f"python -m {recipe} train --steps {record['asked']} --seed {record['seed']}; python -m {recipe} bundle",
        "revision": f"ros_rl {__version__}",
        "data": f"{record['steps']} steps of simulation{data}",
    }


def bundled(tensors: dict[str, np.ndarray], training: dict[str, str]) -> Bundle:
    """Returns a network as a bundle without metrics."""
    return bundle_of(NAME, walk(), (*MEASURED, "command"), tensors, training)


def trained(folder: Path) -> Bundle:
    """Returns what a folder holds as a bundle without metrics.

    Raises:
        UserError: there is nothing, or it is damaged.
    """
    tensors, record = read(folder, "python -m ros_rl.learning.walk train")
    return bundled(tensors, told("ros_rl.learning.walk", record, ""))


def ship_all(folder: Path, output: Path) -> None:
    """Measures what a folder holds as the bundle of every robot, each on its own model, and writes them to `output`.

    Raises:
        UserError: there is nothing, or it is damaged.
    """
    bundle = trained(folder)
    for robot, name in BUNDLES.items():
        ship(replace(bundle, name=name, spec=replace(bundle.spec, robot=robot)), output / name, EPISODES)


# --- Measuring --------------------------------------------------------------------------------------------------------------


@dataclass
class EvaluateArgs:
    """What to measure."""

    bundle: str = NAME
    """Name or folder of the bundle."""
    seeds: int = 5
    """Episodes of each command, and of each direction of a push."""
    output: Path | None = None
    """JSON file to write the figures to."""


def play(environment: WalkVectorEnv, policy: Policy, steps: int, push: Callable[[int], np.ndarray] | None = None) -> tuple[np.ndarray, ...]:
    """Runs every copy from a new episode on.

    Args:
        environment: with commands that were told.
        policy: what acts.
        steps: actions of each copy.
        push: returns the change of velocity after each action, (n, 2).

    Returns:
        velocities after each action, (steps, n, 3), and who has fallen, (n,); a robot that has fallen is stood up again.
    """
    seen, _ = environment.reset(seed=0)
    fallen, velocity = np.zeros(environment.num_envs, bool), np.empty((steps, environment.num_envs, 3))
    for step in range(steps):
        seen, _, terminated, _, info = environment.step(policy(seen))
        velocity[step] = info["velocity"]
        fallen |= terminated
        if terminated.any():
            seen, _ = environment.reset(options={"reset_mask": terminated})
        if push is not None:
            environment.push(push(step))
    return velocity, fallen


def tracking(walked: Walk, policy: Policy, seeds: int, uneven: bool, make: Make = WalkVectorEnv) -> list[dict[str, Any]]:
    """Returns for each command the mean velocity, how far it is off as a share of the command, and how many robots fell."""
    commands = np.repeat(COMMANDS, seeds, axis=0)
    environment = make(walked, len(commands), replace(NOMINAL, uneven=float(uneven)), 10_000)
    environment.tell(commands)
    velocity, fallen = play(environment, policy, _WARM + _MEASURED)
    environment.close()
    reached = velocity[_WARM:].mean(axis=0)
    rows = []
    for number, command in enumerate(np.array(COMMANDS)):
        mine = slice(number * seeds, (number + 1) * seeds)
        errors = {}
        for name, part in (("linear", slice(2)), ("turn", slice(2, 3))):
            if (size := np.linalg.norm(command[part])) > 0:
                off = np.linalg.norm(reached[mine, part] - command[part], axis=1) / size
                errors[name] = round(float(np.where(fallen[mine], 1.0, off).mean()), 4)
        mean = [round(float(value), 4) for value in reached[mine].mean(axis=0)]
        rows.append({"command": command.tolist(), "velocity": mean, "error": errors, "fell": int(fallen[mine].sum()), "of": seeds})
    return rows


def survival(walked: Walk, policy: Policy, seeds: int, conditions: Conditions, size: float, make: Make = WalkVectorEnv) -> dict[str, Any]:
    """Returns how many robots that walk ahead stay up for two seconds after a push of `size`, m/s, for each direction.

    Directions go anticlockwise from ahead.
    """
    angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    direction, speed = (part.ravel() for part in np.meshgrid(angles, np.repeat(PUSHED_AT, seeds), indexing="ij"))
    environment = make(walked, len(direction), replace(conditions, push=0.0, commands=False), 10_000)
    environment.tell(np.stack([speed, 0 * speed, 0 * speed], axis=1))
    moment = _WARM + np.random.default_rng(0).integers(round(RATE / walked.gait.frequency), size=len(direction))

    def push(step: int) -> np.ndarray:
        yaw = environment.heading + direction
        return size * np.stack([np.cos(yaw), np.sin(yaw)], axis=1) * (moment == step)[:, None]

    _, fallen = play(environment, policy, _WARM + _AFTER, push)
    environment.close()
    up = ~fallen.reshape(DIRECTIONS, -1)
    return {"survived": float(up.mean()), "of": up.size, "by_direction": [float(share) for share in up.mean(axis=1)]}


def evaluate(walked: Walk, policy: Policy, seeds: int) -> dict[str, Any]:
    """Returns all figures of a policy."""
    found: dict[str, Any] = {}
    for ground, share in (("flat", 0.0), ("uneven", 1.0)):
        rows = tracking(walked, policy, seeds, bool(share))
        errors = {name: [row["error"][name] for row in rows if name in row["error"]] for name in ("linear", "turn")}
        means = {name: round(float(np.mean(values)), 4) for name, values in errors.items()}
        found[ground] = {
            "tracking": rows,
            "error": means,
            "pushes": {f"{size:g}": survival(walked, policy, seeds, replace(NOMINAL, uneven=share), size) for size in PUSHES},
            "pushes_varied": {f"{size:g}": survival(walked, policy, seeds, Conditions(uneven=share), size) for size in PUSHES},
        }
    return found


def missed(found: dict[str, Any]) -> list[str]:
    """Returns in words what of that which was asked some figures of `evaluate` do not reach."""
    names, words = {"linear": "speed", "turn": "turn rate"}, []
    for ground, figures in found.items():
        off = {name: value for name, value in figures["error"].items() if value > LARGEST_ERROR}
        words += [f"{ground}: off by {100 * value:.1f} % of the {names[name]}" for name, value in off.items()]
        survived = figures["pushes"][f"{PUSHES[0]:g}"]["survived"]
        words += [f"{ground}: survived {100 * survived:.1f} % of pushes of {PUSHES[0]:g} m/s"] if survived < LEAST_SURVIVAL else []
    return words


def _print(name: str, found: dict[str, Any]) -> None:
    for ground, figures in found.items():
        print(f"{name}, {ground}")
        for row in figures["tracking"]:
            errors = ", ".join(f"{part} {value:.0%}" for part, value in row["error"].items())
            print(f"  {row['command']} -> {row['velocity']}: off by {errors}; {row['fell']} of {row['of']} fell")
        print("  mean error " + ", ".join(f"{part} {value:.1%}" for part, value in figures["error"].items()))
        for kind in ("pushes", "pushes_varied"):
            shares = ", ".join(f"{size} m/s {row['survived']:.1%} of {row['of']}" for size, row in figures[kind].items())
            print(f"  {kind} survived: {shares}")
    print(f"{name}: " + ("; ".join(missed(found)) or "does what was asked"))


def measure(args: EvaluateArgs) -> dict[str, Any]:
    """Measures a bundle and its trot alone, prints that, and writes it if there is a file to write it to.

    Raises:
        UserError: there is no such bundle, or it is another kind of policy.
    """
    if args.seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {args.seeds}")
    bundle = load_bundle(args.bundle)
    walked = walk_in(bundle)
    found = {"trot": evaluate(walked, still, args.seeds), bundle.name: evaluate(walked, correction_in(bundle), args.seeds)}
    for name, figures in found.items():
        _print(name, figures)
    asked = {"largest_error": LARGEST_ERROR, "least_survival": LEAST_SURVIVAL}
    result = {"asked": asked, "pushed_at": list(PUSHED_AT), "seeds": args.seeds, "policies": found}
    if args.output is not None:
        save_json(args.output, result)
    return result


Command = (
    Annotated[TrainArgs, tyro.conf.subcommand("train")]
    | Annotated[MakeArgs, tyro.conf.subcommand("bundle")]
    | Annotated[EvaluateArgs, tyro.conf.subcommand("evaluate")]
)


def main(words: list[str]) -> int:
    """Does what the words ask for; returns the exit code."""
    args: Any = tyro.cli(Command, args=words, prog="python -m ros_rl.learning.walk")

    def work() -> None:
        if isinstance(args, TrainArgs):
            train(args)
        elif isinstance(args, MakeArgs):
            ship_all(args.folder, args.output or paths.share_dir() / "policies")
        else:
            measure(args)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

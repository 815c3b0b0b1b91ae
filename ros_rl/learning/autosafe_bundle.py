"""Makes policy bundles of what `ros_rl.learning.ladder` has trained, and measures them on their tasks.

python -m ros_rl.learning.autosafe_bundle --folder out/autosafe            # all that ship
python -m ros_rl.learning.autosafe_bundle --folder out/autosafe --name cartpole_autosafe
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

from ros_rl import __version__, paths
from ros_rl.errors import UserError, unknown
from ros_rl.learning.command import run_command
from ros_rl.learning.goal_tasks import TASKS
from ros_rl.learning.ladder import prior_of, read_networks, read_result
from ros_rl.learning.scripted import EPISODES, ship
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.learned import prior_tensors
from ros_rl.robots.spec import load_robot
from ros_rl.sim.goals import cartpole, quadrotor


@dataclass(frozen=True)
class Design:
    """Where a bundle comes from: seed 0 of a level of a task, not the best of several.

    Attributes:
        task: see `ros_rl.learning.goal_tasks`.
        level: of conflict.
        robot: that it commands.
        keys: what it reads, with their shapes.
        scale: typical size of each state, shape (k,).
        reach: see `ros_rl.sim.goals.interface.observe`.
        target: where the first states shall go when the goal is 1, shape (g,).
    """

    task: str
    level: str
    robot: str
    keys: dict[str, tuple[int, ...]]
    scale: np.ndarray
    reach: float
    target: np.ndarray


DESIGNS = {
    "cartpole_autosafe": Design(
        "cartpole",
        "mid",
        "cartpole",
        {"joint_position": (2,), "joint_velocity": (2,)},
        cartpole.SCALE,
        cartpole.REACH,
        np.ones(1),
    ),
    "quadrotor_autosafe": Design(
        "quadrotor",
        "mid",
        quadrotor.ROBOT,
        {"base_position": (3,), "base_velocity": (3,), "base_quat": (4,), "base_gyro": (3,)},
        quadrotor.SCALE,
        quadrotor.REACH,
        quadrotor.DIRECTION,
    ),
}


@dataclass
class BundleArgs:
    """What to make bundles of."""

    folder: Path = Path("out/autosafe")
    """What `python -m ros_rl.learning.ladder` wrote."""
    name: str = ""
    """One bundle; empty: all that ship."""
    output: Path | None = None
    """Folder for the bundles; the package's own policies/ unless given."""


def make(name: str, folder: Path, output: Path, episodes: int = EPISODES) -> Bundle:
    """Makes a bundle, measures it on every task that names it, and writes it to output/name.

    Raises:
        UserError: there is no design of that name, or what it needs has not been trained.
    """
    if name not in DESIGNS:
        raise unknown("AutoSafe bundle", name, DESIGNS)
    return ship(trained(name, DESIGNS[name], folder), output / name, episodes)


def trained(name: str, design: Design, folder: Path) -> Bundle:
    """Returns the bundle without its metrics.

    Raises:
        UserError: what it needs has not been trained, or beside another safe prior than that of the folder.
    """
    task, robot = TASKS[design.task], load_robot(design.robot)
    path = folder / task.name / "autosafe.safetensors"
    done = path.with_suffix(".json")
    if not (path.is_file() and done.is_file()):
        raise UserError(f"{path} is not there; train it with 'python -m ros_rl.learning.ladder --task {task.name} --folder {folder}'")
    prior, networks, result = prior_of(task, folder), read_networks(path), read_result(done)
    if result["prior"] != prior.digest():
        raise UserError(f"{done}: trained with the safe prior {result['prior']}, that of the folder is {prior.digest()}")
    run = list(task.goals).index(design.level)  # of seed 0
    tensors = {key: value[run : run + 1] for key, value in networks.items() if key.startswith("actor.")}
    spec = PolicySpec(
        robot.name,
        robot.joint_names,
        tuple(ObservationKey(key, shape) for key, shape in design.keys.items()),
        1.0 / prior.period,
        command_mode=robot.command_mode,
    )
    settings = {
        "prior": prior.description(),
        "target": (task.goals[design.level] * design.target).tolist(),
        "reach": design.reach,
        "sharpness": [0.0, prior.sharpness_bound],
    }
    training = {
        "command": f"python -m ros_rl.learning.ladder --task {task.name} --method autosafe --seeds {len(set(result['seeds']))}; "
        f"python -m ros_rl.learning.autosafe_bundle --name {name}",
        "revision": f"ros_rl {__version__}",
        "data": f"{result['steps']} steps of the task {task.name} at {design.level} conflict, seed 0",
    }
    tensors |= {"scale": design.scale, **prior_tensors(prior)}
    return Bundle(name, "autosafe", "autosafe", spec, settings, tensors, training)


def main(words: list[str]) -> int:
    """Makes the bundles that the words ask for; returns the exit code."""
    args = tyro.cli(BundleArgs, args=words, prog="python -m ros_rl.learning.autosafe_bundle")
    torch.set_num_threads(1)

    def work() -> None:
        for name in [args.name] if args.name else DESIGNS:
            make(name, args.folder, args.output or paths.share_dir() / "policies")

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`ros-rl replay`: a recorded episode once more."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from ros_rl.bringup import BRINGUPS, Graph, bringup_for, graph
from ros_rl.cli.ask import ask
from ros_rl.data.dataset import Dataset
from ros_rl.errors import UserError
from ros_rl.hardware.interface import NANOSECONDS
from ros_rl.nodes.environment import isolate
from ros_rl.policies.bundle import save_bundle
from ros_rl.policies.scripted.playback import playback_bundle
from ros_rl.robots.spec import CommandMode, RobotSpec, load_robot


@dataclass
class Replay:
    """Sends the recorded commands of an episode through safety filter and guard once more, and says how far the robot went from
    where it was. In simulation it begins with the episode's own reset, in lock-step; with mode:=robot the robot is first brought
    slowly to where the recording begins. Other arguments are those of `ros-rl up`, as key:=value.
    """

    dataset: tyro.conf.Positional[Path]
    """folder of the dataset"""
    episode: int = 0
    """Its number."""
    yes: bool = False
    """Move a real robot without asking."""
    json: bool = False
    """Print one JSON object."""
    arguments: tyro.conf.Suppress[dict[str, str]] = field(default_factory=dict)

    def take(self, given: dict[str, str]) -> None:
        """Takes the arguments for the graph."""
        if "policy" in given:
            raise UserError("policy:= is for 'ros-rl up'; here the recording takes its place")
        self.arguments = given

    def run(self) -> int:
        """Returns 0 when the episode has been played to its end."""
        from ros_rl.nodes.replay import Plan, play

        recorded = Recorded.read(self.dataset, self.episode)
        simulated = self.arguments.get("mode", "sim") == "sim"
        robot = load_robot(self.arguments.get("robot") or bringup_of(recorded.robot)[1])
        recorded.check(robot)
        with tempfile.TemporaryDirectory(prefix="ros_rl-replay-") as folder:
            given, from_reset = recorded.arguments(self.arguments, robot.control_rate), recorded.from_reset(self.arguments)
            recorded.save(Path(folder) / "replay", float(given.get("control_rate", robot.control_rate)), robot.command_mode, from_reset)
            described = graph(bringup_of(recorded.robot)[0], given | {"policy": str(Path(folder) / "replay")})
            described = Graph(
                described.bringup,
                described.namespace,
                tuple(node for node in described.nodes if node.executable != "task_node"),
                described.composed,
            )
            if simulated:
                isolate()
            elif not self.yes:
                where = f"where episode {self.episode} of {self.dataset} begins"
                ask(f"robot '{recorded.robot}' goes to {where}, then plays {recorded.seconds:.1f} s of it.")
            lockstep = given.get("lockstep") == "true"
            with tqdm(total=round(recorded.seconds, 3), unit="s", disable=None) as bar:

                def progress(seconds: float) -> None:
                    bar.update(max(round(seconds, 3) - bar.n, 0))

                plan = Plan(robot, recorded.actions[0], float(recorded.stamps[-1]), from_reset, lockstep)
                stamps, positions = play(described, plan, progress)
        report = recorded.compare(stamps, positions)
        if self.json:
            print(json.dumps({"dataset": str(self.dataset), "episode": self.episode, **report}))
        else:
            print(
                f"episode {self.episode}: {report['rows']} rows played, largest deviation {report['max_abs_difference']:g} "
                f"({report['joint']}, at {report['at']:.3f} s), root mean square {report['rms']:g}"
            )
        return 0


def bringup_of(robot: str) -> tuple[str, str]:
    """Returns the bring-up and the name of a recorded robot; any bring-up will do for one that does not ship."""
    try:
        return bringup_for(robot)
    except UserError:
        return next(iter(BRINGUPS)), robot


@dataclass(frozen=True, eq=False)
class Recorded:
    """An episode as it is played.

    Attributes:
        where: dataset and number, for messages.
        robot: its name.
        commanded: joints of `actions`.
        measured: joints of `positions`.
        about: how it was recorded, see `EpisodeMeta.recording`.
        sent: when each command was sent, s, shape (rows,).
        actions: the commands, shape (rows, n).
        stamps: when each position was measured, s, shape (rows,).
        positions: shape (rows, m).
    """

    where: str
    robot: str
    commanded: tuple[str, ...]
    measured: tuple[str, ...]
    about: dict[str, Any]
    sent: np.ndarray
    actions: np.ndarray
    stamps: np.ndarray
    positions: np.ndarray

    @classmethod
    def read(cls, root: Path, number: int) -> "Recorded":
        """Reads an episode.

        Raises:
            UserError: there is none of that number, or it was not recorded here and has no stamps.
        """
        dataset = Dataset.open(root)
        if not 0 <= number < len(dataset.episodes):
            raise UserError(f"{root}: has no episode {number}, it has 0 to {len(dataset.episodes) - 1}")
        columns, spec = dataset.columns(number), dataset.spec
        if "stamp" not in columns or "observation.state" not in columns:
            raise UserError(f"{root}: was written by another program; without measured stamps it cannot be replayed")
        rows, stamp = len(columns["action"]), columns["stamp"].reshape(len(columns["action"]), -1)
        actions, positions = (columns[key].reshape(rows, -1) for key in ("action", "observation.state"))
        where, about = f"{root}, episode {number}", dict(dataset.episodes[number].recording)
        sent, measured = (stamp[:, spec.sources.index(name)] for name in ("action", "joint_states"))
        return cls(where, spec.robot, spec.commanded, spec.measured, about, sent, actions, measured, positions)

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return float(self.stamps[-1] - self.stamps[0])

    def from_reset(self, given: dict[str, str]) -> bool:
        """Whether it can begin with its own reset: in simulation, with the task that it was recorded in."""
        return given.get("mode", "sim") == "sim" and "seed" in self.about and "tasks" not in given

    def check(self, robot: RobotSpec) -> None:
        """Refuses another robot.

        Raises:
            UserError: name, joints or command mode differ; names both sides.
        """
        for what, mine, theirs in (
            ("robot", self.robot, robot.name),
            ("commanded joints", ", ".join(self.commanded), ", ".join(robot.joint_names)),
            ("measured joints", ", ".join(self.measured), ", ".join(robot.measured_names)),
            ("command mode", self.about.get("command_mode", robot.command_mode), robot.command_mode),
        ):
            if mine != theirs:
                raise UserError(f"{self.where}: was recorded with another {what}: it has {mine}, the robot {theirs}")

    def arguments(self, given: dict[str, str], rate: float) -> dict[str, str]:
        """Returns the arguments of the graph that plays it."""
        defaults = {"tasks": "none", "robot": self.robot}
        if given.get("mode", "sim") == "sim":
            defaults |= {"lockstep": "true", "namespace": "replay"}
            if float(self.about.get("control_rate", rate)) != rate:
                defaults["control_rate"] = str(self.about["control_rate"])
        if self.from_reset(given):
            defaults |= {"tasks": str(self.about["task"]), "seed": str(self.about["seed"])}
        return defaults | given

    def save(self, folder: Path, rate: float, mode: CommandMode, from_reset: bool) -> None:
        """Writes the policy that plays it at a control rate, Hz."""
        stamps = np.round(self.sent * NANOSECONDS).astype(np.int64)
        save_bundle(folder, playback_bundle(self.robot, self.commanded, mode, rate, stamps, self.actions, from_reset))

    def compare(self, stamps: np.ndarray, positions: np.ndarray) -> dict[str, Any]:
        """Returns how far the robot was from where it had been: `max_abs_difference` and `rms` (rad or m), `joint`, `at` (s), `rows`."""
        played = np.stack([np.interp(self.stamps, stamps, column) for column in positions.T], axis=1)
        difference = np.abs(played - self.positions)
        row, joint = np.unravel_index(int(np.argmax(difference)), difference.shape)
        return {
            "rows": len(difference),
            "max_abs_difference": float(difference[row, joint]),
            "joint": self.measured[joint],
            "at": float(self.stamps[row]),
            "rms": float(np.sqrt(np.mean(difference**2))),
        }

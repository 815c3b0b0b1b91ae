"""`ros-rl collect`: demonstrations into a dataset."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro
from tqdm import tqdm

from ros_rl.bringup import NO_POLICY, Graph, bringup_named, graph
from ros_rl.cli.ask import ask
from ros_rl.data.dataset import Dataset
from ros_rl.data.integrity import open_logs
from ros_rl.data.layout import INFO, EpisodeMeta
from ros_rl.errors import UserError
from ros_rl.nodes.parameters import MOVE_EVERY_JOINT, Value
from ros_rl.robots.spec import load_robot

_WITH_BUTTONS = ("keyboard", "joy", "browser")
_ENDLESS = 1_000_000  # episodes that the task node would run; the recorder ends it before


@dataclass
class Collect:
    """Brings up a robot with a device and a recorder, and keeps each episode in a dataset. Other arguments are those of
    `ros-rl up`, as key:=value. Without teleop:= and policy:= the task's own policy is the demonstrator, in simulation in lock-step.
    """

    bringup: tyro.conf.Positional[str]
    """arm, cartpole, quadruped or quadrotor"""
    dataset: tyro.conf.Positional[Path]
    """folder of the dataset; a new one is made where there is none"""
    episodes: int = 0
    """Episodes to keep; discarded ones do not count. 0: until Ctrl-C."""
    yes: bool = False
    """Let a policy move a real robot without asking."""
    json: bool = False
    """Print the summary as one JSON object."""
    arguments: tyro.conf.Suppress[dict[str, str]] = field(default_factory=dict)

    def take(self, given: dict[str, str]) -> None:
        """Takes the arguments for the graph."""
        for key, mend in (("dataset", "it is the second word"), ("dataset_episodes", "write --episodes")):
            if key in given:
                raise UserError(f"{key}:= is for 'ros-rl up'; here {mend}")
        self.arguments, self.dataset = given, self.dataset.expanduser()

    def run(self) -> int:
        """Returns 0, also after Ctrl-C; 1 where something recorded is not in the dataset."""
        from ros_rl.nodes.collect import collect

        if self.episodes < 0:
            raise UserError(f"--episodes is a whole number from 0 on, got {self.episodes}")
        described = self.graph()
        device = self._device(described)
        if device == "keyboard" and not sys.stdin.isatty():
            raise UserError("the keyboard needs a terminal, and standard input is none: run this by hand, in the foreground")
        if not self.yes:
            self._ask(described)
        before, logs = len(_episodes(self.dataset)), open_logs(self.dataset)
        with tqdm(total=self.episodes or None, unit="episode", disable=None) as bar:
            last = collect(described, waits(described), lambda status: _show(bar, status))
        summary = summarise(self.dataset, before, logs) | {"discarded": last.get("discarded", 0), "problem": last.get("problem", "")}
        print(json.dumps(summary, ensure_ascii=False) if self.json else _text(self.dataset, summary))
        return int(bool(summary["left"]) or bool(summary["problem"]))

    def graph(self) -> Graph:
        """Returns what is brought up.

        Raises:
            UserError: an argument does not fit.
        """
        given = dict(self.arguments)
        simulated = given.get("mode", "sim") == "sim"
        if "teleop" not in given and "policy" not in given:
            given["teleop"] = "scripted"
            if simulated:
                given.setdefault("lockstep", "true")
        if given.get("teleop", "none") != "none" and "policy" not in given and not self._drives_a_policy(given):
            given["policy"] = NO_POLICY
        if simulated and given.get("tasks") != "none":
            given.setdefault("episodes", str(_ENDLESS))
        elif given.get("teleop") not in _WITH_BUTTONS:  # a person says when an episode begins, and needs something to say it with
            given.setdefault("web", "true")
        return graph(self.bringup, given | {"dataset": str(self.dataset), "dataset_episodes": str(self.episodes)})

    def _drives_a_policy(self, given: dict[str, str]) -> bool:
        robot = load_robot(given.get("robot") or bringup_named(self.bringup).robot)
        return robot.floating_base and given["teleop"] not in MOVE_EVERY_JOINT

    def _ask(self, described: Graph) -> None:
        """Asks where a real robot moves as soon as the graph is up, without a person who moves it."""
        mover = _parameter(described, "policy_node", "policy")
        if self._device(described) == "scripted":
            mover = _parameter(described, "teleop_node", "demonstrator")
        if mover and _parameter(described, "hardware_node", "backend") != "mujoco":
            ask(f"robot '{_parameter(described, 'hardware_node', 'robot')}' is moved by '{mover}' as soon as its graph is up.")

    @staticmethod
    def _device(described: Graph) -> str:
        return str(_parameter(described, "teleop_node", "device"))


def waits(described: Graph) -> bool:
    """Returns whether a person may let a graph wait: they have a device in hand, or say themselves when an episode begins."""
    by_hand = _parameter(described, "teleop_node", "device") not in ("", "scripted")
    return by_hand or _parameter(described, "task_node", "tasks") == [""]


def _parameter(described: Graph, executable: str, name: str) -> Value:
    """Returns a parameter of a node of a graph; empty where there is no such node."""
    return next((node.parameters[name] for node in described.nodes if node.executable == executable), "")


def _show(bar: Any, status: dict[str, Any]) -> None:
    bar.set_description(status["instruction"] or "no instruction", refresh=False)
    lost = sum(status["dropped"].values())
    state = f"{status['seconds']:.1f} s" if status["state"] == "recording" else status["state"]
    if status["missing"]:
        state = f"waits for the cameras {', '.join(status['missing'])}"
    words = [
        state,
        f"discarded {status['discarded']}",
        *([f"lost {lost}"] if lost else []),
        *([status["problem"]] if status["problem"] else []),
    ]
    bar.set_postfix_str(", ".join(words), refresh=False)
    bar.update(status["kept"] - bar.n)
    bar.refresh()


def _episodes(root: Path) -> list[EpisodeMeta]:
    """Returns the episodes of a dataset; none where it has not been made yet."""
    return Dataset.open(root).episodes if (root / INFO).exists() else []


def summarise(root: Path, first: int, logs: Sequence[Path] = ()) -> dict[str, Any]:
    """Returns what the episodes of a dataset from number `first` on hold, and which logs but those in `logs` are left beside them.

    Of each source: `count`, the lowest `rate` of an episode (Hz), `largest_gap` (s) and `dropped`.
    """
    known = _episodes(root)
    episodes = known[first:]
    sources: dict[str, dict[str, Any]] = {}
    for episode in episodes:
        for name, found in episode.recording.get("sources", {}).items():
            total = sources.setdefault(name, {"count": 0, "rate": found["rate"], "largest_gap": 0.0, "dropped": 0})
            total["count"] += found["count"]
            total["dropped"] += found["dropped"]
            total["rate"] = min(total["rate"], found["rate"])
            total["largest_gap"] = max(total["largest_gap"], found["largest_gap"])
    rows = sum(episode.length for episode in episodes)
    return {
        "dataset": str(root),
        "episodes": len(episodes),
        "in_dataset": len(known),
        "outcomes": dict(Counter(episode.outcome or "not said" for episode in episodes)),
        "rows": rows,
        "seconds": round(rows / Dataset.open(root).spec.fps, 3) if rows else 0.0,
        "sources": sources,
        "left": [str(path) for path in open_logs(root) if path not in logs],
    }


def _text(root: Path, summary: dict[str, Any]) -> str:
    outcomes = ", ".join(f"{word} {count}" for word, count in summary["outcomes"].items()) or "none"
    lines = [
        f"{summary['episodes']} episodes, {summary['rows']} rows, {summary['seconds']:.1f} s: {outcomes}; discarded {summary['discarded']}",
        f"{root} has {summary['in_dataset']} episodes",
    ]
    for name, found in summary["sources"].items():
        dropped = f", {found['dropped']} dropped" if found["dropped"] else ""
        lines.append(f"  {name}: at least {found['rate']:.1f} Hz, largest gap {1e3 * found['largest_gap']:.1f} ms{dropped}")
    lines += [
        f"{path} is not committed; 'ros-rl data repair {root}' makes an episode of it, or says why it is none" for path in summary["left"]
    ]
    return "\n".join([*lines, *([summary["problem"]] if summary["problem"] else [])])

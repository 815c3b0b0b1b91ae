"""`ros-rl teleop`: runs the teleoperation node of a bring-up in this terminal, beside a graph that runs in another."""

import os
import sys
from dataclasses import dataclass

from ros_rl.bringup import BRINGUPS, graph, read_words
from ros_rl.errors import UserError, unknown
from ros_rl.nodes.environment import ros_domain
from ros_rl.nodes.parameters import DEVICES, Value


@dataclass
class Teleop:
    """Takes over the robot of a graph that runs; the arguments are those of `ros-rl up`."""

    device: str
    bringup: str
    arguments: dict[str, str]

    @classmethod
    def from_words(cls, words: list[str]) -> "Teleop":
        """Reads ``DEVICE BRINGUP key:=value …``.

        Raises:
            UserError: device or bring-up is missing or unknown, or a word does not fit.
        """
        if not words or words[0] in ("-h", "--help"):
            print(usage())
            raise SystemExit(0 if words else 2)
        if words[0] not in DEVICES:
            raise unknown("device", words[0], DEVICES)
        if len(words) < 2 or ":=" in words[1]:
            raise UserError(f"name the bring-up that runs after the device: one of {', '.join(BRINGUPS)}")
        given = read_words(words[2:])
        if "teleop" in given:
            raise UserError("teleop:= is for 'ros-rl up'; here the device is the first word")
        return cls(words[0], words[1], given)

    def run(self) -> int:
        """Becomes the node: this terminal's keys and signals are its own."""
        words = self.command()
        if self.device == "keyboard" and not sys.stdin.isatty():
            raise UserError("the keyboard needs a terminal, and standard input is none: run this by hand, in the foreground")
        ros_domain()
        sys.stdout.flush()
        os.execv(words[0], words)

    def command(self) -> list[str]:
        """Returns the command line of the node.

        Raises:
            UserError: an argument does not fit.
        """
        described = graph(self.bringup, self.arguments | {"teleop": self.device})
        (node,) = (node for node in described.nodes if node.executable == "teleop_node")
        words = [sys.executable, "-m", "ros_rl.nodes", "teleop_node", "--ros-args"]
        words += ["-r", f"__ns:={described.namespace}", "-r", f"__node:=teleop_{self.device}"]
        for name, value in node.parameters.items():
            if value not in ("", [""]):  # ROS reads an empty word as no value at all; these are the defaults
                words += ["-p", f"{name}:={_yaml(value)}"]
        return words


def _yaml(value: Value) -> str:
    """Returns a value as ROS reads it from a command line; text in quotes, so that none is taken for a number."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def usage() -> str:
    """Returns the help text."""
    return (
        "usage: ros-rl teleop DEVICE BRINGUP [key:=value ...]\n\n"
        f"devices: {', '.join(DEVICES)}\nbring-ups: {', '.join(BRINGUPS)}\n\n"
        "Start the graph in another terminal first: ros-rl up BRINGUP. The arguments are those of 'ros-rl up'; give the same robot:=,\n"
        "namespace:=, mode:= and lockstep:= as there."
    )

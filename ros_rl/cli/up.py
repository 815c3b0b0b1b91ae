"""`ros-rl up`: starts the node graph of a bring-up, as `ros2 launch` does where it exists."""

import time
from dataclasses import dataclass

from ros_rl.bringup import ARGUMENTS, BRINGUPS, graph, read_words
from ros_rl.errors import UserError

_POLL = 0.1  # s


@dataclass
class Up:
    """Starts a bring-up and runs it until Ctrl-C."""

    bringup: str
    arguments: dict[str, str]

    @classmethod
    def from_words(cls, words: list[str]) -> "Up":
        """Reads ``BRINGUP key:=value …``.

        Raises:
            UserError: the bring-up is missing, or a word does not fit.
        """
        if not words or words[0] in ("-h", "--help"):
            print(usage())
            raise SystemExit(0 if words else 2)
        if ":=" in words[0]:
            raise UserError(f"name the bring-up first: one of {', '.join(BRINGUPS)}")
        return cls(words[0], read_words(words[1:]))

    def run(self) -> int:
        """Runs the graph; returns 0 after Ctrl-C, else the exit code of the node that ended it."""
        from ros_rl.nodes.launcher import GraphProcesses

        try:
            with GraphProcesses(graph(self.bringup, self.arguments)) as running:
                while (code := running.ended()) is None:
                    time.sleep(_POLL)
        except KeyboardInterrupt:
            return 0
        return code


def usage() -> str:
    """Returns the help text: the bring-ups and every argument."""
    lines = ["usage: ros-rl up BRINGUP [key:=value ...]", "", f"bring-ups: {', '.join(BRINGUPS)}", "", "arguments:"]
    width = max(map(len, ARGUMENTS))
    for name, parameter in ARGUMENTS.items():
        default = parameter.default_text()
        lines.append(f"  {name:<{width}}  {parameter.description} ({parameter.expected()}{f'; default {default}' if default else ''})")
    return "\n".join(lines)

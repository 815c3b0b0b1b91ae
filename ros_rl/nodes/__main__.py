"""Runs a node: ``python -m ros_rl.nodes hardware_node --ros-args ...``."""

import importlib
import os
import signal
import sys

from ros_rl.nodes.environment import BAD_INPUT
from ros_rl.nodes.parameters import NODES


def main() -> int:
    """Runs the node that the first argument names; returns its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))  # while it loads, there is nothing to bring to rest
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))  # the launcher starts it with them blocked
    known = [*NODES, "composed_node"]
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        print(f"ros_rl: name the node to run: one of {', '.join(known)}", file=sys.stderr)
        return BAD_INPUT
    code = int(importlib.import_module(f"ros_rl.nodes.{sys.argv.pop(1)}").main())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C comes twice under `ros2 launch`: from the terminal and from launch
    return code


if __name__ == "__main__":
    raise SystemExit(main())

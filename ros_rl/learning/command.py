"""What the trainings that are modules of Python share as commands."""

import sys
from collections.abc import Callable
from typing import Any

from ros_rl.errors import RobotFault, UserError


def run_command(read: Callable[[], Any]) -> int:
    """Reads a command from its words and runs it.

    Args:
        read: returns what has a method `run`.

    Returns:
        the exit code: 0, 1 for a fault, 2 for bad input, 130 after Ctrl-C; the first two with a line that says why.
    """
    try:
        read().run()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except RobotFault as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0

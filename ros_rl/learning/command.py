"""What the trainings that are modules of Python share as commands."""

import sys
from collections.abc import Callable

from ros_rl.errors import RobotFault, UserError


def run_command(work: Callable[[], object]) -> int:
    """Does the work of a command.

    Args:
        work: returns the exit code, or anything else for 0.

    Returns:
        the exit code: 1 for a fault or a file that cannot be read or written, 2 for bad input, 130 after Ctrl-C; each with a line
        that says why.
    """
    try:
        code = work()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except (RobotFault, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0

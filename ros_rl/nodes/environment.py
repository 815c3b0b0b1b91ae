"""What the processes of the stack agree on: exit codes and environment variables. Needs no ROS."""

import os
import re

from ros_rl.errors import UserError

BAD_INPUT = 2  # exit codes
FAILURE = 1
PAGE_IS_AT = "ros_rl: see the robot at "  # what the web node prints before the address of its page
LAUNCHER = "ROS_RL_LAUNCHER"  # environment variable: the process whose end ends this one


def ros_domain() -> int:
    """Returns the ROS domain that the environment chooses, 0 where it does not.

    Raises:
        UserError: it is none; the message names the variable.
    """
    text = os.environ.get("ROS_DOMAIN_ID") or "0"
    if not re.fullmatch(r"[0-9]+", text) or int(text) > 232:
        raise UserError(f"ROS_DOMAIN_ID='{text}' is no whole number from 0 to 232")
    return int(text)


def isolate() -> None:
    """Keeps a check's graph on this machine, and in a ROS domain of its own unless one was chosen."""
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))

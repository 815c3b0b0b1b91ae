"""Who drives a robot: one hardware node for each name in a ROS domain, for two would fight over it."""

import fcntl
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from rclpy.node import Node

from ros_rl.errors import UserError
from ros_rl.nodes.environment import ros_domain

_LOOK = 0.05  # s between looks for a node of the same name


def claim(node: Node, wait: float) -> IO[str]:
    """Takes the name of a node for this process alone.

    Args:
        node: its full name is claimed.
        wait: seconds in which a node of that name on another machine is looked for.

    Returns:
        the file that holds the claim; closing it gives the name back.

    Raises:
        UserError: another node has the name; says where. Or the claim cannot be filed safely.
    """
    name = node.get_fully_qualified_name()
    mend = "end it or give this one another namespace"
    owner = (_folder() / f"{ros_domain()}{name.replace('/', '.')}.lock").open("a+")
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner.truncate(0)
        owner.write(str(os.getpid()))
        owner.flush()
        deadline = time.monotonic() + wait
        while True:
            if node.get_node_names_and_namespaces().count((node.get_name(), node.get_namespace())) > 1:
                raise UserError(f"another {name} runs in this ROS domain, on another machine; {mend}")
            if time.monotonic() >= deadline:
                return owner
            time.sleep(_LOOK)
    except BlockingIOError:
        owner.seek(0)
        process = owner.read().strip()
        owner.close()
        raise UserError(f"another {name} runs in this ROS domain (process {process}); {mend}") from None
    except BaseException:
        owner.close()
        raise


def _folder() -> Path:
    """Returns the folder for this user's claims; in a place where everybody may write, so who made it is looked at."""
    folder = Path(tempfile.gettempdir()) / f"ros_rl-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{folder} is not a folder of this user; remove it, or set TMPDIR to a folder of your own")
    if found.st_mode & 0o077:
        folder.chmod(0o700)  # made by an earlier version
    return folder

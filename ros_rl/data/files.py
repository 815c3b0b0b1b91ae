"""Files that are there whole or not at all, also after SIGKILL or a power cut."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from ros_rl.errors import UserError

PARTIAL = ".partial"  # how the name of a file that is being written ends


def commit_file(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` make a file beside its place, brings it to the disk and renames it there; an older file is replaced.

    A crash leaves at most a hidden file that ends in `PARTIAL`, which no reader takes for data.
    """
    new = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in new:
        sync(folder.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        write(partial)
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until a file's content, or the names in a folder, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(root: Path) -> int:
    """Takes the right to write into a dataset and returns the descriptor that holds it until it is closed.

    Raises:
        UserError: another process has it.
    """
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UserError(f"{root}: another process writes into this dataset; end it, or choose a new folder") from None
    return descriptor


def free_name(path: Path) -> Path:
    """Returns `path`, or where that is taken, the first of path.1, path.2, … that is not."""
    candidate, number = path, 0
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}.{number}")
    return candidate


def move_aside(path: Path, root: Path, aside: Path) -> Path:
    """Moves a file of a dataset to the same place below `aside` and returns where it is now; nothing is ever overwritten."""
    target = free_name(aside / path.relative_to(root))
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    return target

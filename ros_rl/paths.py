"""Files: where those that ship with the package are, and how one is written whole."""

import os
import sys
from functools import cache
from pathlib import Path

from ros_rl.errors import unknown

_MARKER = "package.xml"


@cache
def share_dir() -> Path:
    """Returns the folder that holds `urdf/`, `sim/`, `policies/` and `launch/`.

    That is the repository in a source checkout (editable installs included), `<prefix>/share/ros_rl` otherwise.

    Raises:
        FileNotFoundError: the package was installed without its data files.
    """
    package = Path(__file__).resolve().parent
    prefixes = [*package.parents, Path(sys.prefix)]
    candidates = [package.parent, *(prefix / "share" / "ros_rl" for prefix in prefixes)]
    for folder in candidates:
        if (folder / _MARKER).is_file() and (folder / "urdf").is_dir():
            return folder
    raise FileNotFoundError(f"the data files of ros_rl (urdf/, sim/, policies/) are not beside {package}; reinstall the package")


def names(pattern: str) -> list[str]:
    """Lists what ships under a pattern with one ``*``, such as ``urdf/*/robot.yaml``: the text that the star stands for.

    Hidden files and folders are left out.
    """
    head, tail = pattern.split("*")
    root = share_dir()
    found = (path.relative_to(root).as_posix() for path in root.glob(pattern))
    stems = (text[len(head) : len(text) - len(tail)] for text in found)
    return sorted(stem for stem in stems if not stem.startswith("."))


def find(kind: str, pattern: str, name: str | Path) -> Path:
    """Returns the file for `name`: a path that exists is taken as it is, else a name that ships.

    Args:
        kind: what is looked for, for the error message, such as "robot".
        pattern: where such files ship, with one ``*`` for the name.
        name: a name from `names(pattern)` or a path to a file.

    Raises:
        UserError: there is no such file; the message lists the names that exist.
    """
    text = str(name)
    if ("/" in text or text.endswith((".yaml", ".urdf"))) and Path(text).exists():
        return Path(text).resolve()
    known = names(pattern)
    if text not in known:
        raise unknown(kind, text, known)
    return share_dir() / pattern.replace("*", text)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file beside its place and renames it there, so that no reader ever sees half of one.

    An older file at `path` is replaced.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

"""Where files of a robot's package are: what a path or a ``package://`` address in a URDF or robot.yaml means here."""

import os
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_PACKAGE = ("package", "model")


def candidates(reference: str, file: Path) -> list[Path]:
    """Returns the paths that a reference may mean, the likeliest first; none for a kind of address that is not known.

    ``package://`` is looked up in ROS_PACKAGE_PATH and AMENT_PREFIX_PATH, then beside each folder above the file: in one
    of the package's name, or in the folder itself where that is its name or the one its package.xml gives; at last among
    the installed Python packages. Other paths are relative to the file.

    Args:
        reference: the path or address.
        file: the file in which it stands.
    """
    scheme, _, rest = reference.rpartition("://")
    if scheme in ("", "file"):
        return [(file.parent / rest).absolute()]
    if scheme not in _PACKAGE:
        return []
    package, _, inside = rest.lstrip("/").partition("/")
    return list(dict.fromkeys(folder / inside for folder in _folders(package, file)))


def package_of(reference: str) -> str | None:
    """Returns the name of the package in an address; None where it is a path."""
    scheme, _, rest = reference.rpartition("://")
    return rest.lstrip("/").partition("/")[0] if scheme in _PACKAGE else None


def _folders(name: str, file: Path) -> Iterator[Path]:
    """Yields the folders that may be the package `name`."""
    for entry in _environment("ROS_PACKAGE_PATH"):
        if entry.name == name:
            yield entry
        yield entry / name
        yield from sorted(entry.glob(f"*/{name}"))
    for entry in _environment("AMENT_PREFIX_PATH"):
        yield entry / "share" / name
    for folder in file.absolute().parents:
        if folder.name == name or _package_name(folder) == name:
            yield folder
        yield folder / name
    try:
        # Where the wheels of robotics libraries that are built with cmeel have what is in /usr/share elsewhere.
        yield Path(str(distribution(name).locate_file(f"cmeel.prefix/share/{name}")))
    except (PackageNotFoundError, ValueError):  # ValueError: an empty name
        return


def _environment(variable: str) -> list[Path]:
    return [Path(entry) for entry in os.environ.get(variable, "").split(os.pathsep) if entry]


def _package_name(folder: Path) -> str | None:
    try:
        found = re.search(r"<name>\s*(\S+?)\s*</name>", (folder / "package.xml").read_text(errors="replace"))
    except OSError:
        return None
    return found[1] if found else None

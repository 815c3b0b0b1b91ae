"""Installs what a ROS package needs beside its code; everything else about the package stands in pyproject.toml."""

from pathlib import Path

from setuptools import Distribution, setup

NAME = "ros_rl"


class RosDistribution(Distribution):
    """Installs its data files in editable mode too: setuptools means to, but asks for a method that nobody defines."""

    has_data = Distribution.has_data_files


def share() -> list[tuple[str, list[str]]]:
    """Lists the files of the data folders, each with the folder under the prefix that it goes to."""
    files: dict[str, list[str]] = {f"share/{NAME}": ["package.xml"]}
    for root in ("urdf", "sim", "policies", "launch"):
        for path in sorted(Path(root).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                files.setdefault(f"share/{NAME}/{path.parent.as_posix()}", []).append(path.as_posix())
    return list(files.items())


setup(
    distclass=RosDistribution,
    # Not in pyproject.toml: there, setuptools of Ubuntu 24.04 and of today disagree on the form of the license, and colcon
    # cannot read what setuptools makes of the Python version.
    license="Apache-2.0",
    python_requires=">=3.10",
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"lib/{NAME}", sorted(path.as_posix() for path in Path("scripts/nodes").iterdir())),
        *share(),
    ],
)

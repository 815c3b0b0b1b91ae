"""Checkpoints of trainings: one file of arrays, written whole, with the one before it kept."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ros_rl import paths


def previous(path: Path) -> Path:
    """Returns where the checkpoint before the newest one is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint atomically; the one that was there becomes the previous one."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        path.replace(previous(path))
    paths.write_atomically(path, buffer.getvalue())


def load(path: Path) -> tuple[dict[str, np.ndarray] | None, str]:
    """Reads the newest whole checkpoint.

    Returns:
        its arrays, None if there is no whole one; and in words which it is and what was wrong with newer ones.
    """
    complaints = []
    for candidate in (path, previous(path)):
        if not candidate.is_file():
            continue
        try:
            with np.load(candidate, allow_pickle=False) as file:
                arrays = dict(file)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            complaints.append(f"{candidate} is not whole ({' '.join(str(error).split())})")
        else:
            return arrays, "; ".join([*complaints, f"going on from {candidate}"])
    return None, "; ".join([*complaints, "starting from zero"])


def flattened(parts: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the entries of all parts as "part/entry"."""
    return {f"{part}/{name}": np.asarray(value) for part, entries in parts.items() for name, value in entries.items()}


def parts_of(arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Undoes `flattened`; a part without entries is not there."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, value in arrays.items():
        part, _, entry = name.partition("/")
        parts.setdefault(part, {})[entry] = value
    return parts

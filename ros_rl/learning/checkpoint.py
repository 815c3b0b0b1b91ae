"""Checkpoints of trainings: one file of arrays, written whole, with the one before it kept."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ros_rl import paths
from ros_rl.errors import UserError


def previous(path: Path) -> Path:
    """Returns where the checkpoint before the newest one is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint atomically; the one that was there becomes the previous one."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    if zipfile.is_zipfile(path):  # else it is not whole, and must not take the place of one that is
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
        except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
            complaints.append(f"{candidate} is not whole ({' '.join(str(error).split())})")
        else:
            return arrays, "; ".join([*complaints, f"going on from {candidate}"])
    return None, "; ".join([*complaints, "starting from zero"])


def resume(path: Path, restore: Callable[[dict[str, dict[str, np.ndarray]]], None]) -> str:
    """Goes on from the newest whole checkpoint, or from zero, and returns in words which.

    Args:
        path: of the newest.
        restore: takes the parts of a checkpoint, see `parts_of`.

    Raises:
        UserError: it is of another training.
    """
    arrays, words = load(path)
    if arrays is not None:
        try:
            restore(parts_of(arrays))
        except KeyError as error:
            raise UserError(f"{path}: is of another kind of training, {error} is missing; train anew in another folder") from None
        except ValueError as error:
            raise UserError(f"{path}: {error}; train anew in another folder") from None
    return words


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


def packed(settings: Mapping[str, Any]) -> np.ndarray:
    """Returns settings as the bytes of their JSON, for a file of arrays."""
    return np.frombuffer(json.dumps(settings).encode(), np.uint8)


def unpacked(array: np.ndarray) -> dict[str, Any]:
    """Undoes `packed`."""
    settings: dict[str, Any] = json.loads(array.tobytes())
    return settings


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as they come back from JSON: tuples are lists."""
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found


def refuse_other(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any], remedy: str = "") -> None:
    """Compares the settings of a training with those that are asked for now; both as JSON holds them.

    Raises:
        UserError: they differ; the message names the first difference and what holds the former.
    """
    for name, old, new in _differences(found, wanted):
        raise UserError(f"{what} holds a training with {name} = {old}, asked for is {new}{remedy and '; ' + remedy}")


def _differences(found: Any, wanted: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key in dict.fromkeys([*wanted, *found]):
            yield from _differences(found.get(key, "nothing"), wanted.get(key, "nothing"), f"{name}.{key}" if name else key)
    elif found != wanted:
        yield name, found, wanted

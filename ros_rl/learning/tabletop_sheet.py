"""Draws the tabletop suite: each task at its start and where its expert ends, as the front camera sees it.

python -m ros_rl.learning.tabletop_sheet docs/images/tabletop.png
"""

import sys
import textwrap
from pathlib import Path

import cv2
import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.learning.tabletop_bench import SerialPlayer, episodes_of, rows_of
from ros_rl.paths import write_atomically
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import SimModel, build
from ros_rl.sim.camera import CameraRenderer, pose_and_render

_COLUMNS = 5
_LINE, _LINES, _MARGIN = 13, 3, 4  # px


def sheet(families: list[str]) -> np.ndarray:
    """Returns a picture of some tasks of the suite (none named: of all), each with its instruction, (height, width, 3) uint8 RGB.

    Raises:
        UserError: there is no such task.
    """
    player, tiles = SerialPlayer(load_robot("arm")), []
    renderers: dict[str, CameraRenderer[SimModel]] = {}
    for row in rows_of(["train", "long_horizon"], families):
        task, seed = episodes_of(row.items, 1)[0]
        seen: list[Observation] = []
        player.play(task, seed, lambda step, seen=seen: _keep(step.observation, seen))  # type: ignore[misc]
        if task.scene not in renderers:
            renderers[task.scene] = CameraRenderer(build(player.spec, task.scene))
        ends = (pose_and_render(renderers[task.scene], "front", it.joint_position, it.privileged) for it in (seen[0], seen[-1]))
        tiles.append(_tile(f"{row.task}: {task.instruction}", *ends))
    player.close()
    blank = np.full_like(tiles[0], 255)
    tiles += [blank] * (-len(tiles) % _COLUMNS)
    return np.vstack([np.hstack(tiles[start : start + _COLUMNS]) for start in range(0, len(tiles), _COLUMNS)])


def _keep(newest: Observation, seen: list[Observation]) -> None:
    """Keeps the first observation and the newest."""
    del seen[1:]
    seen.append(newest)


def _tile(caption: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    pictures = np.hstack([start, np.full((start.shape[0], 2, 3), 255, np.uint8), end])
    text = np.full((_LINE * _LINES + _MARGIN, pictures.shape[1], 3), 255, np.uint8)
    for number, line in enumerate(textwrap.wrap(caption, 46)[:_LINES]):
        where = (1, _LINE * (number + 1) - 3)
        cv2.putText(text, line, where, cv2.FONT_HERSHEY_SIMPLEX, 0.36, (0, 0, 0), 1, cv2.LINE_AA)
    return np.pad(np.vstack([pictures, text]), ((_MARGIN,) * 2, (_MARGIN,) * 2, (0, 0)), constant_values=255)


def main(words: list[str]) -> int:
    """Writes the sheet to the file that is named first, of the tasks named after it; returns the exit code."""
    if not words:
        print("name the file to write, then the tasks to draw (none: all)", file=sys.stderr)
        return 2
    try:
        picture = sheet(words[1:])
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    done, data = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, 9])
    assert done
    write_atomically(Path(words[0]), data.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

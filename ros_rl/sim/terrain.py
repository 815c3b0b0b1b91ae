"""Uneven ground: a height field in place of a scene's floor, drawn from a seed."""

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.ndimage import gaussian_filter

FLOOR = "floor"
_BASE = 0.1  # m of solid ground below the lowest point


@dataclass(frozen=True, eq=False)
class Terrain:
    """Heights on a square grid about the origin; the ground goes on from point to point.

    Attributes:
        heights: m, shape (n, n): first index along y, second along x, from -half_width to half_width; the lowest is 0.
        half_width: m.
    """

    heights: np.ndarray
    half_width: float

    def height(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Returns how high the ground is, m, of the shape of x and y, m; beyond its edge as high as there.

        Linear between four points of the grid, where MuJoCo has two triangles: the two differ by less than the four points do.
        """
        last = len(self.heights) - 1
        across, along = (np.clip((value / self.half_width + 1.0) * last / 2, 0.0, last) for value in (x, y))
        column, row = (np.minimum(value.astype(int), last - 1) for value in (across, along))
        right, up = across - column, along - row
        near = (1.0 - right) * self.heights[row, column] + right * self.heights[row, column + 1]
        far = (1.0 - right) * self.heights[row + 1, column] + right * self.heights[row + 1, column + 1]
        found: np.ndarray = (1.0 - up) * near + up * far
        return found

    def lay(self, world: mujoco.MjSpec) -> None:
        """Puts the ground in the place of a world's plane named "floor", with its material and friction."""
        top = float(self.heights.max())
        world.add_hfield(
            name=FLOOR,
            size=[self.half_width, self.half_width, max(top, 1e-6), _BASE],
            nrow=len(self.heights),
            ncol=len(self.heights),
            userdata=(self.heights / max(top, 1e-6)).ravel(),
        )
        floor = world.geom(FLOOR)
        floor.type, floor.hfieldname, floor.size = mujoco.mjtGeom.mjGEOM_HFIELD, FLOOR, [0, 0, 0]


def bumpy(
    seed: int, lowest: float = 0.02, highest: float = 0.05, half_width: float = 6.0, cell: float = 0.1, length: float = 0.15
) -> Terrain:
    """Returns ground with smooth bumps, the same for the same seed.

    Args:
        seed: of the draw.
        lowest: height of the bumps where the ground is smoothest, m.
        highest: height of the bumps where it is roughest, m.
        half_width: m.
        cell: distance of the points, m.
        length: over which the ground is about as high, m.
    """
    points = 2 * round(half_width / cell) + 1
    draw = np.random.default_rng(seed)
    bumps, rough = (gaussian_filter(draw.standard_normal((points, points)), size / cell, mode="wrap") for size in (length, 10 * length))
    amplitude = lowest + (highest - lowest) * _stretched(rough)
    heights = amplitude * _stretched(bumps)
    return Terrain(heights - heights.min(), half_width)


def _stretched(values: np.ndarray) -> np.ndarray:
    """Returns values from 0 at two standard deviations below their mean to 1 at two above."""
    return np.clip(0.5 + (values - values.mean()) / (4 * values.std()), 0.0, 1.0)

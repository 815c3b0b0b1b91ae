"""A picture of a robot alone, from far enough away to see all of it."""

import math

import mujoco
import numpy as np

from ros_rl.sim.agreement import MujocoReading
from ros_rl.sim.gl import choose_gl

_AZIMUTH, _ELEVATION = 145.0, -20.0  # degrees: from the front, to its left, a little above
_COLLISION_GROUP = 0  # where MuJoCo's reader of URDFs leaves shapes that collide
_BACKGROUND = (0.86, 0.89, 0.93)
_FOVY = 45.0  # degrees, of MuJoCo's free camera


def portrait(reading: MujocoReading, width: int = 640, height: int = 480) -> np.ndarray:
    """Returns a picture of a robot where it was last placed, shape (height, width, 3), uint8 RGB.

    Links that have a visual shape are drawn with it, all others with their collision shapes.

    Raises:
        UserError: there is no way to render on this machine.
    """
    choose_gl()
    model, data = reading.mj, reading.data
    visible = _visible(model)
    model.vis.global_.offwidth, model.vis.global_.offheight = width, height
    camera = mujoco.MjvCamera()
    camera.azimuth, camera.elevation = _AZIMUTH, _ELEVATION
    camera.lookat, radius = _bounds(model, data, visible)
    camera.distance = 1.05 * radius / math.sin(math.radians(_FOVY / 2))
    # The near and far planes of the view are shares of the extent.
    model.stat.extent, model.stat.center = 2 * radius, camera.lookat
    model.vis.headlight.ambient, model.vis.headlight.diffuse = [0.35] * 3, [0.6] * 3
    colours, model.geom_rgba[~visible, 3] = model.geom_rgba.copy(), 0.0
    try:
        with mujoco.Renderer(model, height, width) as renderer:
            options = mujoco.MjvOption()
            options.geomgroup[:] = 1
            renderer.update_scene(data, camera, options)
            picture = renderer.render().copy()
            renderer.enable_segmentation_rendering()
            renderer.update_scene(data, camera, options)
            empty = renderer.render()[..., 0] < 0
    finally:
        model.geom_rgba[:] = colours
    picture[empty] = np.array(_BACKGROUND) * 255
    return picture


def _visible(model: mujoco.MjModel) -> np.ndarray:
    """Tells which geoms to draw, shape (ngeom,)."""
    visual = model.geom_group != _COLLISION_GROUP
    seen = np.isin(model.geom_bodyid, model.geom_bodyid[visual])
    return visual | ~seen


def _bounds(model: mujoco.MjModel, data: mujoco.MjData, visible: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns centre and radius of a sphere around all that is drawn and all links, m."""
    low, high = [data.xpos.min(axis=0)], [data.xpos.max(axis=0)]
    for geom in np.flatnonzero(visible):
        turn = data.geom_xmat[geom].reshape(3, 3)
        centre, half = model.geom_aabb[geom].reshape(2, 3)
        middle, reach = data.geom_xpos[geom] + turn @ centre, np.abs(turn) @ half
        low.append(middle - reach)
        high.append(middle + reach)
    low, high = np.min(low, axis=0), np.max(high, axis=0)
    return (low + high) / 2, max(float(np.linalg.norm(high - low)) / 2, 1e-3)

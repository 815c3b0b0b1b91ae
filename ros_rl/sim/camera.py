"""Offscreen images of a simulation, and of a configuration that was recorded earlier."""

import threading
from collections.abc import Mapping

import mujoco
import numpy as np

from ros_rl.errors import UserError, unknown
from ros_rl.sim.build import SimModel


class CameraRenderer:
    """Renders the cameras of one model. Each thread that renders gets an OpenGL context of its own."""

    def __init__(self, model: SimModel):
        """Prepares for `model`; the OpenGL context is made at the first image."""
        self.model = model
        self._local = threading.local()

    def render(self, data: mujoco.MjData, camera: str) -> np.ndarray:
        """Returns what a camera sees, shape (height, width, 3), uint8 RGB. `data` needs positions up to date.

        Raises:
            UserError: there is no such camera, or no way to render on this machine.
        """
        if camera not in self.model.cameras:
            raise unknown("camera", camera, self.model.cameras)
        size = self.model.cameras[camera].height, self.model.cameras[camera].width
        renderers = self._local.__dict__.setdefault("renderers", {})
        if size not in renderers:
            renderers[size] = mujoco.Renderer(self.model.mj, *size)
        renderers[size].update_scene(data, camera)
        return renderers[size].render()

    def close(self) -> None:
        """Frees the calling thread's contexts."""
        for renderer in self._local.__dict__.pop("renderers", {}).values():
            renderer.close()

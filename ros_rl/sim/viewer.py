"""A window that shows a running simulation, where there is a display."""

import warnings
from typing import Any

import mujoco

from ros_rl.errors import UserError


class Viewer:
    """MuJoCo's passive viewer: a window of its own thread, that shows a simulation whenever `sync` is called."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData):
        """Opens the window.

        Raises:
            UserError: there is no display.
        """
        import glfw

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GLFW's own words say less than the error below
            if not glfw.init():
                raise UserError("render_mode 'human' needs a display and none is there; 'rgb_array' gives pictures without one")
        import mujoco.viewer

        self._handle: Any = mujoco.viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False)

    def sync(self) -> None:
        """Shows the state that the simulation has now; nothing happens after a person closed the window."""
        if self._handle.is_running():
            self._handle.sync()

    def close(self) -> None:
        """Closes the window."""
        self._handle.close()

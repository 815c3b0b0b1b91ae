"""MuJoCo's own window onto a running simulation. It looks at a copy: neither it nor its user can hold up or move the robot."""

import copy
import threading
import warnings
from collections.abc import Callable

import mujoco
import numpy as np

from ros_rl.errors import UserError

_PERIOD = 1 / 30  # s between two pictures
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


def check_display(asked: str = "viewer:=true", instead: str = "web:=true shows the robot without one") -> None:
    """Checks that a window can be opened.

    Args:
        asked: what needs it, for the error message.
        instead: what else there is.

    Raises:
        UserError: there is no display, or what DISPLAY names does not answer.
    """
    import glfw

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", glfw.GLFWError)
        opened = glfw.init()
        glfw.terminate()
    if not opened:
        raise UserError(f"{asked} needs a display (DISPLAY is not set, or nothing answers there); {instead}")


class Viewer:
    """A window that follows a simulation until it or the simulation is closed."""

    def __init__(self, model: mujoco.MjModel, read: Callable[[], np.ndarray]):
        """Opens the window; `check_display` says beforehand whether it can.

        Args:
            model: of the simulation.
            read: returns the newest integration state of the simulation, in no time; called from a thread of the viewer.
        """
        self._read = read
        self._model = copy.copy(model)  # the window's switches change what it is given
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="viewer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the window."""
        self._closed.set()
        self._thread.join(2.0)

    def _follow(self) -> None:
        from mujoco import viewer

        data = mujoco.MjData(self._model)
        with viewer.launch_passive(self._model, data, show_left_ui=False, show_right_ui=False) as window:
            while window.is_running() and not self._closed.wait(_PERIOD):
                state = self._read()
                with window.lock():
                    mujoco.mj_setState(self._model, data, state, _STATE)
                    mujoco.mj_forward(self._model, data)
                window.sync()

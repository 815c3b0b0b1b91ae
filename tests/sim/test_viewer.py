"""Tests of ros_rl.sim.viewer: a window that follows a simulation and cannot touch it, or one line without a display."""

import threading
from contextlib import contextmanager

import mujoco
import numpy as np
import pytest
from mujoco import viewer as mujoco_viewer

from ros_rl.errors import UserError
from ros_rl.sim import viewer as module
from ros_rl.sim.viewer import Viewer, check_display

BALL = '<mujoco><worldbody><body name="ball" pos="0 0 1"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>'


@pytest.fixture
def ball() -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_string(BALL)
    return model, mujoco.MjData(model)


class Window:
    """Stands in for MuJoCo's window; keeps what it was given and shown."""

    def __init__(self, model, data):
        self.model, self.data, self.shown, self.open = model, data, [], True
        self.synced = threading.Event()

    def is_running(self):
        return self.open

    @contextmanager
    def lock(self):
        yield

    def sync(self):
        self.shown.append(self.data.xpos[1].copy())
        self.synced.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open = False


@pytest.fixture
def windows(monkeypatch):
    opened: list[Window] = []

    def launch(model, data, **_):
        opened.append(Window(model, data))
        return opened[-1]

    monkeypatch.setattr(mujoco_viewer, "launch_passive", launch)
    monkeypatch.setattr(module, "check_display", lambda: None)
    return opened


def state_of(model, data):
    state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    return state


@pytest.mark.parametrize("display", [None, ":4711"])
def test_without_a_display_one_line_says_so(monkeypatch, display):
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    if display:
        monkeypatch.setenv("DISPLAY", display)
    with pytest.raises(UserError, match=r"^viewer:=true needs a display") as refused:
        check_display()
    assert "\n" not in str(refused.value)


def test_the_window_shows_where_the_simulation_is(ball, windows):
    model, data = ball
    data.qpos[:3] = [1.0, 2.0, 3.0]
    viewer = Viewer(model, lambda: state_of(model, data))
    try:
        while not windows:
            viewer._closed.wait(0.01)
        assert windows[0].synced.wait(60)
        assert windows[0].shown[-1] == pytest.approx([1, 2, 3])
        data.qpos[:3] = [4.0, 5.0, 6.0]
        for _ in range(2):  # the first of them may have been on its way
            windows[0].synced.clear()
            assert windows[0].synced.wait(60)
        assert windows[0].shown[-1] == pytest.approx([4, 5, 6])
    finally:
        viewer.close()
    assert not windows[0].open and not viewer._thread.is_alive()


def test_whoever_plays_with_the_window_does_not_touch_the_simulation(ball, windows):
    model, data = ball
    viewer = Viewer(model, lambda: state_of(model, data))
    try:
        while not windows:
            viewer._closed.wait(0.01)
        assert windows[0].synced.wait(60)
        windows[0].model.opt.gravity[:] = 0
        windows[0].data.xfrc_applied[:] = 100
        assert model.opt.gravity[2] == pytest.approx(-9.81)
        assert not data.xfrc_applied.any()
    finally:
        viewer.close()


def test_when_the_window_is_closed_nothing_is_read_any_more(ball, windows):
    model, data = ball
    viewer = Viewer(model, lambda: state_of(model, data))
    while not windows:
        viewer._closed.wait(0.01)
    windows[0].open = False
    viewer._thread.join(60)
    assert not viewer._thread.is_alive()
    viewer.close()

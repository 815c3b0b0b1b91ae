"""Tests of ros_rl.web.page: what is wrong with a robot is said on top, and panels are updated at their own pace."""

import asyncio

import numpy as np
import pytest

from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.web.page import RELEASE, CameraPanel, ControlPanel, Page, build_page, node_table
from ros_rl.web.scene import TRUTH
from ros_rl.web.server import WebServer
from ros_rl.web.view import Actions, View


@pytest.fixture
def served():
    server = WebServer(0, "token")
    yield server
    server.stop()


def recorded(simulated: bool = True) -> tuple[list[str], Actions]:
    pressed: list[str] = []

    def action(name):
        def run(report):
            pressed.append(name)
            report(f"{name} answered")

        return run

    names = ("estop", "release", "start", "stop", *(["reset"] if simulated else []))
    return pressed, Actions(**{name: action(name) for name in names})


def labels(served) -> set[str]:
    """Returns what can be pressed or switched on the page."""
    handles = served.viser.gui._gui_input_handle_from_uuid.values()
    shown = [handle for handle in handles if handle.visible]
    return {option for handle in shown for option in getattr(handle, "options", ())} | {
        getattr(handle, "label", None) or "" for handle in shown
    }


def press(handle) -> None:
    for callback in handle._impl.update_cb:
        asyncio.run(callback(None))


@pytest.mark.parametrize(
    ("view", "text", "colour"),
    [
        (View(), "arm: no joint states yet", "#868e96"),
        (View(silence=0.1), "arm is being asked for its state", "#868e96"),
        (View(silence=0.1, hardware={"state": "ok"}), "arm runs", "#2b8a3e"),
        (View(silence=0.1, hardware={"state": "hold"}, trouble="no command"), "arm holds its target · no command", "#e67700"),
        (View(silence=0.1, hardware={"state": "stop"}, trouble="no command"), "arm was stopped by the guard · no command", "#c92a2a"),
        (View(silence=0.1, hardware={"state": "estop"}, trouble="estop service"), "arm is stopped, E-STOP is latched", "#c92a2a"),
        (View(silence=0.1, trouble="diverged at 3 s"), "arm has failed · diverged at 3 s", "#c92a2a"),
        # What was true when the robot was last heard of is not said to be so now.
        (View(silence=7.2, hardware={"state": "ok"}), "arm: no joint states for 7 s", "#c92a2a"),
        (View(silence=0.1, hardware={"state": "ok"}, trouble="<b>x</b>"), "arm runs · &lt;b&gt;x&lt;/b&gt;", "#2b8a3e"),
    ],
)
def test_how_the_robot_is_stands_on_top(served, view, text, colour):
    panel = ControlPanel(served.viser.gui, "arm", recorded()[1])
    panel.update(view, 0.0)
    assert f">{text}</div>" in panel._state.content
    assert colour in panel._state.content


def test_buttons_do_what_they_say_and_show_the_answer(served):
    pressed, actions = recorded()
    panel = ControlPanel(served.viser.gui, "arm", actions)
    handles = list(served.viser.gui._gui_input_handle_from_uuid.values())
    for label, name in (("E-STOP", "estop"), (RELEASE, "release")):
        press(next(handle for handle in handles if handle.label == label))
        assert pressed[-1] == name
        assert panel._answer.content == f"{label}: {name} answered"
    group = next(handle for handle in handles if hasattr(handle, "options"))
    for name in ("start", "stop", "reset"):
        group.value = name
        press(group)
        assert pressed[-1] == name


def test_a_callback_of_a_button_waits_for_no_thread_pool(served):
    ControlPanel(served.viser.gui, "arm", recorded()[1])
    for handle in served.viser.gui._gui_input_handle_from_uuid.values():
        assert handle._impl.update_cb
        assert all(asyncio.iscoroutinefunction(callback) for callback in handle._impl.update_cb)


def test_the_emergency_stop_can_be_released_only_while_it_is_latched(served):
    panel = ControlPanel(served.viser.gui, "arm", recorded()[1])
    assert RELEASE not in labels(served)
    for state, there in (("ok", False), ("estop", True), ("stop", False)):
        panel.update(View(silence=0.1, hardware={"state": state}), 0.0)
        assert (RELEASE in labels(served)) == there
        assert "E-STOP" in labels(served)


@pytest.mark.parametrize("simulated", [True, False])
def test_only_a_simulation_can_be_reset_and_has_objects_to_hide(served, simulated):
    spec = load_robot("arm")
    build_page(served.viser, spec, build(spec, "tabletop"), simulated, recorded(simulated)[1])
    assert ("reset" in labels(served)) == simulated
    assert (TRUTH in labels(served)) == simulated


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ({}, "no task"),
        ({"state": "running", "reason": "", "instruction": "push the button"}, "task: push the button · running"),
        ({"state": "failure", "reason": "block fell", "instruction": "stack"}, "task: stack · failure · block fell"),
    ],
)
def test_the_task_is_told(served, task, text):
    panel = ControlPanel(served.viser.gui, "arm", recorded()[1])
    panel.update(View(task=task), 0.0)
    assert panel._task.content == text


def test_without_a_camera_the_page_says_so(served):
    panel = CameraPanel(served.viser.gui, served.viser.gui.add_tab_group().add_tab("Cameras"))
    panel.update(View(), 0.0)
    assert panel._text.visible and "No camera" in panel._text.content
    panel.update(View(images={"wrist": np.zeros((48, 64, 3), np.uint8)}), 1.0)
    assert not panel._text.visible


@pytest.mark.parametrize(("shape", "sent"), [((480, 640, 3), (240, 320, 3)), ((48, 64, 3), (48, 64, 3)), ((1080, 1920, 3), (180, 320, 3))])
def test_images_are_sent_as_small_jpegs(served, shape, sent):
    panel = CameraPanel(served.viser.gui, served.viser.gui.add_tab_group().add_tab("Cameras"))
    for _ in range(2):
        panel.update(View(images={"wrist": np.zeros(shape, np.uint8)}), 0.0)
    (image,) = panel._images.values()
    assert image.image.shape == sent
    assert image._data[:2] == b"\xff\xd8"  # how a JPEG begins


def test_panels_are_updated_at_their_own_pace(served):
    class Counter:
        def __init__(self, period: float):
            self.period, self.times = period, []

        def update(self, view, now):
            self.times.append(now)

        def start_over(self):
            self.times.clear()

    page = Page(served.viser)
    fast, slow = Counter(0.1), Counter(1.0)
    for panel in (fast, slow):
        page.add(panel)
    for k in range(41):
        page.update(View(), 100 + 0.05 * k)
    assert (len(fast.times), len(slow.times)) == (21, 3)
    page.update(View(), 200.0)  # late: once, not many times
    assert (len(fast.times), len(slow.times)) == (22, 4)
    page.start_over()
    page.update(View(), 200.0)
    assert (fast.times, slow.times) == ([200.0], [200.0])


def test_nodes_are_a_table():
    assert node_table({}) == "no node found yet"
    assert node_table({"b": "active", "a": "inactive"}).splitlines()[2:] == ["| a | inactive |", "| b | active |"]

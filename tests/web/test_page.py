"""Tests of ros_rl.web.page: what is wrong with a robot is said on top, and panels are updated at their own pace."""

import asyncio
import re
from dataclasses import replace

import numpy as np
import pytest
from viser import GuiHtmlHandle
from viser._messages import GuiUpdateMessage

from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.web.page import RELEASE, CameraPanel, ControlPanel, Page, build_page, node_table
from ros_rl.web.pilot import Pilot
from ros_rl.web.scene import TRUTH
from ros_rl.web.server import WebServer
from ros_rl.web.view import Actions, View


@pytest.fixture
def served():
    server = WebServer(0, "token", Pilot(1.0))
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
    record = lambda word, instruction, report: (pressed.append(f"{word} '{instruction}'"), report(f"{word} answered"))  # noqa: E731
    return pressed, Actions(**{name: action(name) for name in names}, record=record)


def labels(served) -> set[str]:
    """Returns what can be pressed or switched on the page."""
    handles = served.viser.gui._gui_input_handle_from_uuid.values()
    shown = [handle for handle in handles if handle.visible]
    return {option for handle in shown for option in getattr(handle, "options", ())} | {
        getattr(handle, "label", None) or "" for handle in shown
    }


def press(handle, client: int = 99) -> None:
    """Presses as a browser does that viser does not count as a client: its message reaches all handlers, viser's own included."""
    gui = handle._impl.gui_api
    asyncio.run(gui._websock_interface._handle_incoming_message(client, GuiUpdateMessage(handle._impl.uuid, {"value": handle.value})))


def click(handle) -> None:
    """Calls what viser calls for a press by a client that it counts."""
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
    assert f'<div style="background:{colour};' in panel._banner.content
    assert f">{text}</div>" in panel._banner.content


def handle_of(served, label):
    handles = served.viser.gui._gui_input_handle_from_uuid.values()
    return next(handle for handle in handles if getattr(handle, "label", None) == label or label in getattr(handle, "options", ()))


def test_buttons_do_what_they_say_and_show_the_answer(served):
    pressed, actions = recorded()
    panel = ControlPanel(served.viser.gui, "arm", actions)
    for label, name, touch in (("E-STOP", "estop", press), (RELEASE, "release", click)):
        touch(handle_of(served, label))
        assert pressed[-1] == name
        assert f">{label}: {name} answered</div>" in panel._answer.content
    group = handle_of(served, "start")
    for name in ("start", "stop", "reset"):
        group._impl.value = name  # the setter would press it once more, when it likes
        click(group)
        assert pressed[-1] == name


def test_the_emergency_stop_of_a_page_that_viser_does_not_count_yet_is_heard_once(served):
    pressed, actions = recorded()
    ControlPanel(served.viser.gui, "arm", actions)
    press(handle_of(served, "E-STOP"))
    press(handle_of(served, RELEASE))
    assert pressed == ["estop"]


def test_a_callback_of_a_button_waits_for_no_thread_pool(served):
    ControlPanel(served.viser.gui, "arm", recorded()[1])
    for label in (RELEASE, "start"):
        callbacks = handle_of(served, label)._impl.update_cb
        assert callbacks and all(asyncio.iscoroutinefunction(callback) for callback in callbacks)
    assert not handle_of(served, "E-STOP")._impl.update_cb  # or it would be sent twice


def test_nothing_that_can_be_pressed_is_moved_by_what_comes_and_goes(served):
    panel = ControlPanel(served.viser.gui, "arm", recorded()[1])
    estop, group = handle_of(served, "E-STOP"), handle_of(served, "stop")
    orders = [element.order for element in (estop, group, panel._banner, panel._answer, panel._release, panel._task)]
    assert orders == sorted(orders)


def test_start_is_refused_while_the_emergency_stop_is_latched(served):
    pressed, actions = recorded()
    panel = ControlPanel(served.viser.gui, "arm", actions)
    group = handle_of(served, "start")
    for state, heard in (("estop", []), ("stop", ["start"])):
        panel.update(View(silence=0.1, hardware={"state": state}), 0.0)
        group._impl.value = "start"  # the setter would press it once more, when it likes
        click(group)
        assert set(pressed) == set(heard)
        assert ("start: the e-stop is latched; release it first" in panel._answer.content) == (state == "estop")


def test_an_emergency_stop_that_is_not_confirmed_is_said_above_all_and_at_once(served):
    alarms, reports = [""], []
    actions = replace(recorded()[1], estop=reports.append, alarm=lambda: alarms[-1])
    panel = ControlPanel(served.viser.gui, "arm", actions)
    running = View(silence=0.1, hardware={"state": "ok"})
    panel.update(running, 0.0)
    press(handle_of(served, "E-STOP"))
    alarms.append("E-STOP NOT CONFIRMED")
    reports[0]("sent again")  # draws, also if the page gets no updates any more
    for _ in range(2):
        assert "background:#c92a2a" in panel._banner.content and ">E-STOP NOT CONFIRMED</div>" in panel._banner.content
        assert "arm runs" not in panel._banner.content and "animation" not in panel._banner.content
        panel.update(running, 10.0)
    alarms.append("")
    reports[0]("latched")
    assert "arm runs" in panel._banner.content


def test_a_banner_is_sent_anew_every_second_and_else_covers_itself(served):
    panel = ControlPanel(served.viser.gui, "arm", recorded()[1])
    contents = []
    for now in (10.0, 10.5, 11.0, 12.0):
        panel.update(View(silence=0.1, hardware={"state": "ok"}), now)
        contents.append(panel._banner.content)
    assert contents[0] == contents[1] == contents[3] != contents[2]
    for content in contents:
        (name,) = re.findall(r"animation:(\w+) 0.1s 3s forwards", content)
        assert f"@keyframes {name}{{to{{opacity:1}}}}" in content and ">page is not being updated</div>" in content


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
    build_page(served.viser, spec, build(spec, "tabletop"), simulated, recorded(simulated)[1], Pilot(1.0))
    assert ("reset" in labels(served)) == simulated
    assert (TRUTH in labels(served)) == simulated


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ({}, "no task"),
        ({"state": "running", "reason": "", "instruction": "push the button"}, "task: push the button · running"),
        ({"state": "failure", "reason": "block fell", "instruction": "stack"}, "task: stack · failure · block fell"),
        ({"state": "running", "instruction": "<b>*x*</b>"}, "task: &lt;b&gt;*x*&lt;/b&gt; · running"),
    ],
)
def test_the_task_is_told(served, task, text):
    panel = ControlPanel(served.viser.gui, "arm", recorded()[1])
    panel.update(View(task=task), 0.0)
    assert f">{text}</div>" in panel._task.content
    assert isinstance(panel._task, GuiHtmlHandle)  # Markdown would read an asterisk, and HTML


def test_without_a_camera_the_page_says_so(served):
    panel = CameraPanel(served.viser.gui, served.viser.gui.add_tab_group().add_tab("Cameras"))
    panel.update(View(), 0.0)
    assert panel._text.visible and "No camera" in panel._text.content
    panel.update(View(images={"wrist": np.zeros((48, 64, 3), np.uint8)}), 1.0)
    assert not panel._text.visible


def test_the_image_of_a_camera_that_has_fallen_silent_is_taken_away(served):
    panel = CameraPanel(served.viser.gui, served.viser.gui.add_tab_group().add_tab("Cameras"))
    image = np.zeros((48, 64, 3), np.uint8)
    panel.update(View(images={"wrist": image, "overhead": image}), 0.0)
    panel.update(View(images={"wrist": image}), 2.0)
    assert set(panel._images) == {"wrist", "overhead"}
    panel.update(View(), 4.0)
    assert set(panel._images) == {"wrist"} and not panel._text.visible
    panel.update(View(), 6.0)
    assert not panel._images and panel._text.visible
    panel.update(View(images={"wrist": image}), 7.0)
    assert set(panel._images) == {"wrist"}


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


def test_a_panel_that_fails_is_named_and_holds_up_no_other(served):
    class Failing:
        period = 0.1

        def update(self, view, now):
            raise ValueError("no")

        def start_over(self):
            pass

    failed = []

    def contained(place, update):
        def call(*arguments):
            try:
                update(*arguments)
            except ValueError:
                failed.append(place)

        return call

    page = Page(served.viser, contained)
    control = ControlPanel(served.viser.gui, "arm", recorded()[1])
    page.add(Failing())
    page.add(control)
    page.update(View(silence=0.1, hardware={"state": "ok"}), 1.0)
    assert failed == ["Failing"] and "arm runs" in control._banner.content


def test_nodes_are_a_table():
    assert "no node found yet" in node_table({})
    assert "<tr><td>a</td><td>inactive</td></tr><tr><td>b</td><td>active</td></tr>" in node_table({"b": "active", "a": "inactive"})
    assert "<td>&lt;b&gt;a*</td><td>&lt;i&gt;|</td>" in node_table({"<b>a*": "<i>|"})

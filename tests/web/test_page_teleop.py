"""Tests of ros_rl.web.teleop: the handle is at the tool, on one page alone, and what is dragged is told in the root link."""

import asyncio
import html
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.web.pilot import Pilot
from ros_rl.web.server import WebServer
from ros_rl.web.teleop import TARGET, TeleopPanel, can_be_moved
from ros_rl.web.view import View

ARM = load_robot("arm")


class Scene:
    """Stands for the scene of one page."""

    def __init__(self):
        self.handles = []

    def add_transform_controls(self, name, **options):
        handle = SimpleNamespace(name=name, options=options, position=None, wxyz=None, callbacks=[], removed=False)
        handle.on_update = handle.callbacks.append
        handle.remove = lambda: setattr(handle, "removed", True)
        self.handles.append(handle)
        return handle


class Page:
    def __init__(self, number):
        self.client_id, self.scene = number, Scene()
        self.gui = SimpleNamespace(add_html=lambda content: SimpleNamespace(content=content, remove=lambda: None))


class Stage:
    """A panel on a real server, with two pages that are none of viser's."""

    def __init__(self, server, spec, scene, pilot):
        self.pages, self.pilot, self.now = {0: Page(0), 1: Page(1)}, pilot, 0.0
        server.viser.get_clients = lambda: self.pages
        self.panel = TeleopPanel(server.viser, spec, build(spec, scene), pilot)
        self.beat()

    def beat(self):
        for page in self.pages:
            self.pilot.beat(page, True, "", self.now)

    def update(self, **known):
        self.panel.update(View(listening=True, joint_position=ARM.home, **known), self.now)

    def handles(self, page):
        return [handle for handle in self.pages[page].scene.handles if not handle.removed]

    @property
    def says(self):
        return html.unescape(self.panel._state.content)


@pytest.fixture
def stage():
    pilot = Pilot(0.5)
    server = WebServer(0, "token", pilot)
    yield Stage(server, ARM, "floor", pilot)
    server.stop()


def test_robots_with_a_tool_and_those_that_walk_can_be_moved():
    moved = {name: can_be_moved(load_robot(name)) for name in ("arm", "quadruped", "cartpole")}
    assert moved == {"arm": True, "quadruped": True, "cartpole": False}
    assert not can_be_moved(replace(ARM, command_mode="velocity"))


def test_nothing_is_shown_until_a_node_listens(stage):
    stage.panel.update(View(joint_position=ARM.home), 0.0)
    assert not stage.panel._folder.visible and not stage.panel._marks
    stage.update()
    assert stage.panel._folder.visible
    assert ['data-page="0"' in mark.content for mark in stage.panel._marks.values()] == [True, False]


def test_the_handle_is_at_the_tool_of_the_page_that_has_the_robot(stage):
    stage.update()
    assert not stage.handles(0) and not stage.handles(1)
    stage.pilot.take(1, stage.now)
    stage.update()
    assert not stage.handles(0)
    (handle,) = stage.handles(1)
    there = RobotModel(ARM).frame_pose(ARM.tool_frame, ARM.home)
    assert handle.name == TARGET and not handle.options["disable_rotations"]
    np.testing.assert_allclose(handle.position, there.position, atol=1e-9)
    np.testing.assert_allclose(Rotation.from_quat(handle.wxyz, scalar_first=True).as_matrix(), there.rotation, atol=1e-9)
    assert ['data-pilot="yes"' in mark.content for mark in stage.panel._marks.values()] == [False, True]
    stage.pilot.let_go(1)
    stage.update()
    assert not stage.handles(1)


def test_what_is_dragged_is_the_target_and_stays_where_it_was_put(stage):
    stage.pilot.take(0, stage.now)
    stage.update()
    (handle,) = stage.handles(0)
    handle.position, handle.wxyz = np.array([0.4, 0.1, 0.5]), np.array([0.0, 0.8, 0.6, 0.0])
    asyncio.run(handle.callbacks[0](SimpleNamespace(target=handle)))
    np.testing.assert_allclose(np.abs(stage.pilot.target), [0.4, 0.1, 0.5, 0.0, 0.8, 0.6, 0.0], atol=1e-9)
    stage.update()
    np.testing.assert_allclose(handle.position, [0.4, 0.1, 0.5])


def test_an_arm_with_few_joints_has_no_rings_to_turn_its_tool():
    spec, pilot = load_robot("so101"), Pilot(0.5)
    server = WebServer(0, "token", pilot)
    try:
        stage = Stage(server, spec, "floor", pilot)
        stage.pilot.take(0, stage.now)
        stage.panel.update(View(listening=True, joint_position=spec.home), stage.now)
        assert stage.handles(0)[0].options["disable_rotations"]
    finally:
        server.stop()


def test_the_gripper_shows_what_is_measured_until_it_is_moved(stage):
    slider, index = stage.panel._tool._gripper, ARM.joint_names.index(ARM.gripper.joint)
    half = ARM.home.copy()
    half[index] = 0.5 * (ARM.gripper.open + ARM.gripper.closed)
    stage.panel.update(View(listening=True, joint_position=half), stage.now)
    assert slider.value == 0.5
    stage.pilot.take(0, stage.now)
    slider.value = 0.2
    for client in (1, 0):
        for callback in slider._impl.update_cb:
            asyncio.run(callback(SimpleNamespace(client_id=client)))
        assert stage.pilot.gripper == (0.2 if client == 0 else None)
    stage.panel.update(View(listening=True, joint_position=half), stage.now)
    assert slider.value == 0.2
    for keys, shown in (("g", 1.0), ("", 1.0), ("g", 0.0)):
        stage.pilot.beat(0, True, keys, stage.now)
        stage.panel.update(View(listening=True, joint_position=half), stage.now)
        assert slider.value == shown
    stage.pilot.let_go(0)
    stage.panel.update(View(listening=True, joint_position=half), stage.now)
    assert slider.value == stage.pilot.opening == 0.5


def test_who_has_the_robot_is_said_to_all(stage):
    stage.update()
    assert "the policy has the robot" in stage.says
    stage.update(safety={"control": "teleop", "device": "joy", "state": "active"})
    assert "'joy' has the robot · teleop<" in stage.says
    stage.pilot.take(0, stage.now)
    stage.update(safety={"control": "hold", "device": "joy", "state": "teleoperation: 'browser' is refused, 'joy' has control"})
    assert "page 0 has the robot · hold · teleoperation: 'browser' is refused" in stage.says
    stage.pilot.gone(0)
    stage.update(safety={"control": "hold", "device": "browser", "state": "teleoperation: browser is lost: its page was closed"})
    assert "held for page 0 · hold · its page was closed<" in stage.says


def test_a_robot_that_goes_on_when_it_is_let_go_is_not_said_to_be_held(stage):
    stage.pilot.take(0, stage.now)
    stage.pilot.let_go(0)
    for control in ("hand_back", "policy"):  # on_release:=hand_back, or a walking robot
        stage.update(safety={"control": control, "device": "browser", "state": "active"})
        assert f"page 0 has let go · the policy has the robot · {control}<" in stage.says and "held" not in stage.says
    stage.update(safety={"control": "teleop", "device": "joy", "state": "active"})
    assert "page 0 has let go · 'joy' has the robot · teleop<" in stage.says
    stage.update(safety={"control": "hold", "device": "browser", "state": "teleoperation: the dead-man switch is released"})
    assert ">held for page 0 · hold<" in stage.says


def test_the_buttons_answer_in_words(stage):
    group = next(handle for handle in stage.panel._server.gui._gui_input_handle_from_uuid.values() if "let go" in handle.options)
    stage.panel.update(View(listening=True), 0.0)
    answers = []
    for page, word in ((0, "let go"), (0, "take over"), (1, "take over"), (0, "let go"), (1, "give back")):
        stage.pilot.beat(page, True, "", 1e9)  # the buttons go by the clock, which is never that late
        group._impl.value = word  # the handle's own setter would press the button once more, for no page, when it likes
        for callback in group._impl.update_cb:
            asyncio.run(callback(SimpleNamespace(client_id=page)))
        answers.append(stage.panel._answer.content.split(">")[1].split("<")[0])
    assert answers == [
        "page 0: this page does not have the robot",
        "page 0: taken over",
        "page 1: page 0 has the robot",
        "page 0: let go",
        "page 1: given back to the policy",
    ]
    stage.panel.start_over()
    assert stage.panel._answer.content.split(">")[1] == "</div"


def test_nothing_that_is_said_moves_what_can_be_pressed(stage):
    heights = set()
    for control in ("policy", "hold"):
        stage.update(safety={"control": control, "device": "joy", "state": "teleoperation: " + 20 * "very "})
        heights.add(re.search(r"height:[\d.]+em;overflow:hidden", stage.panel._state.content)[0])
    assert len(heights) == 1


def test_a_walking_robot_has_sliders_which_spring_back():
    spec, pilot = load_robot("quadruped"), Pilot(0.5)
    server = WebServer(0, "token", pilot)
    try:
        stage = Stage(server, spec, "floor", pilot)
        stage.pilot.take(0, stage.now)
        forward, left, turn = stage.panel._sliders
        for slider, share in ((forward, 0.5), (left, -0.25), (turn, 1.0)):
            slider.value = share
            for callback in slider._impl.update_cb:
                asyncio.run(callback(SimpleNamespace(client_id=0)))
        assert stage.pilot.state(stage.now).twist == [0.5, -0.25, 0.0, 0.0, 0.0, 1.0]
        stage.pilot.let_go(0)
        stage.panel.update(View(listening=True, joint_position=spec.home), stage.now)
        assert [slider.value for slider in stage.panel._sliders] == [0.0, 0.0, 0.0]
        assert not stage.handles(0)
    finally:
        server.stop()

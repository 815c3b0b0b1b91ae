"""What moves the robot from a page: the dead-man switch, a handle at the tool to drag, the gripper; sliders for a robot that walks."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pinocchio as pin

from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.build import SimModel
from ros_rl.teleop.mapping import can_be_turned
from ros_rl.web.heartbeat import mark
from ros_rl.web.pilot import Pilot
from ros_rl.web.scene import ScenePlacer
from ros_rl.web.text import lines, set_content, set_text
from ros_rl.web.view import View

if TYPE_CHECKING:
    import viser

TAKE, LET_GO, GIVE_BACK = "take over", "let go", "give back"
TARGET = "/tool target"  # the handle in the scene's tree
_HANDLE_SIZE = 0.15  # m
_AXES = {"forward": 0, "left": 1, "turn left": 5}  # of a walking robot's twist
_KEYS = "keys: w s a d r f move, u o i k j l turn, g gripper, space lets go, h gives back, 1 begin, 2 success, 3 failure, 4 discard"
_WALKING_KEYS = "keys: w s forward and back, a d left and right, j l turn, space lets go, h gives back"


def can_be_moved(spec: RobotSpec) -> bool:
    """Whether a page can move a robot: by its tool, or by telling its policy where to walk."""
    return spec.floating_base or (spec.tool_frame is not None and spec.command_mode == "position")


class TeleopPanel:
    """Takes the robot over from its policy, while a teleoperation node listens to pages."""

    period = 0.1  # s

    def __init__(self, server: "viser.ViserServer", spec: RobotSpec, model: SimModel, pilot: Pilot):
        """Adds the controls, unseen until somebody listens.

        Args:
            server: takes them.
            spec: a robot for which `can_be_moved` holds.
            model: the robot in its world.
            pilot: what a person does goes there.
        """
        self._server, self._pilot = server, pilot
        self._tool = None if spec.floating_base else ToolHandle(server, spec, model, pilot)
        self._marks: dict[int, Any] = {}
        self._folder = server.gui.add_folder("Teleoperation", visible=False)
        with self._folder:
            self._switch(server.gui)
            self._state, self._answer = server.gui.add_html(lines("", 2)), server.gui.add_html(lines("", 2))
            self._sliders = self._walking(server.gui) if spec.floating_base else []
            if self._tool is not None:
                self._tool.add_gripper(server.gui)
            set_text(server.gui.add_html(""), _WALKING_KEYS if spec.floating_base else _KEYS)

    def update(self, view: View, now: float) -> None:
        """Shows who has the robot; gives the handle to the page that has it."""
        pilot = self._pilot
        self._folder.visible = view.listening
        self._mark(self._server.get_clients() if view.listening else {})
        set_content(self._state, lines(self._words(view), 2))
        if self._tool is not None:
            self._tool.update(view)
        if not pilot.engaged:
            for slider in self._sliders:
                slider.value = 0.0

    def start_over(self) -> None:
        """Forgets the last answer."""
        set_content(self._answer, lines("", 2))

    def _words(self, view: View) -> str:
        """Returns who has the robot: what letting go has done is for the safety node to say, a walking robot goes on, for one."""
        pilot, safety = self._pilot, view.safety
        detail, control = safety.get("state", ""), safety.get("control", "policy")
        before = ""
        if pilot.page is not None and not pilot.engaged:
            before, detail = f"page {pilot.page} has let go", pilot.reason
        if pilot.engaged:
            words = f"page {pilot.page} has the robot"
        elif before and control == "hold":
            before, words = "", f"held for page {pilot.page}"
        elif control not in ("policy", "hand_back"):
            words = f"'{safety.get('device')}' has the robot"
        else:
            words = "the policy has the robot"
        said = [before, words, safety.get("control", ""), detail if detail not in ("active", "inactive") else ""]
        return " · ".join(word for word in said if word)

    # Callbacks are coroutines, as those of the other buttons.

    def _switch(self, gui: "viser.GuiApi") -> None:
        group = gui.add_button_group("robot", (TAKE, LET_GO, GIVE_BACK))

        async def press(event: Any) -> None:
            page, now = event.client_id, time.monotonic()
            if group.value == TAKE:
                answer = self._pilot.take(page, now)
            elif group.value == LET_GO:
                answer = self._pilot.let_go(page)
            else:
                answer = self._pilot.give_back(page, now)
            set_content(self._answer, lines(f"page {page}: {answer}", 2))

        group.on_click(press)

    def _walking(self, gui: "viser.GuiApi") -> list[Any]:
        return [self._slider(gui, label, axis) for label, axis in _AXES.items()]

    def _slider(self, gui: "viser.GuiApi", label: str, axis: int) -> Any:
        slider = gui.add_slider(label, -1.0, 1.0, 0.05, 0.0)

        @slider.on_update
        async def _(event: Any) -> None:
            if event.client_id is not None:
                self._pilot.deflect(event.client_id, axis, float(slider.value))

        return slider

    def _mark(self, clients: Any) -> None:
        """Tells every page its number, and whose keys are for the robot."""
        for page in set(self._marks) - set(clients):
            gone = self._marks.pop(page)
            if page in self._server.get_clients():
                gone.remove()
        for page, client in clients.items():
            if page not in self._marks:
                self._marks[page] = client.gui.add_html("")
            content = mark(page, page == self._pilot.page)
            if self._marks[page].content != content:
                self._marks[page].content = content


class ToolHandle:
    """The handle at the tool, on the page that has the robot alone, and the gripper's slider."""

    def __init__(self, server: "viser.ViserServer", spec: RobotSpec, model: SimModel, pilot: Pilot):
        assert spec.tool_frame is not None
        self._server, self._spec, self._pilot = server, spec, pilot
        self._model, self._tool = RobotModel(spec), spec.tool_frame
        data = ScenePlacer(model).data
        self._root = pin.SE3(pin.Quaternion(*data.xquat[model.base]), data.xpos[model.base])
        self._turns = can_be_turned(spec)
        self._page: int | None = None  # on which the handle is
        self._handle: Any = None
        self._gripper: Any = None

    def add_gripper(self, gui: "viser.GuiApi") -> None:
        """Adds the gripper's slider, if there is a gripper."""
        if self._spec.gripper is None:
            return
        slider = self._gripper = gui.add_slider("gripper", 0.0, 1.0, 0.01, 0.0, hint="0: closed, 1: open")

        @slider.on_update
        async def _(event: Any) -> None:
            if event.client_id is not None:
                self._pilot.grip(event.client_id, float(slider.value))

    def update(self, view: View) -> None:
        """Shows the handle to whom it belongs: at the tool, or where it was dragged."""
        page = self._pilot.page if self._pilot.engaged else None
        if page != self._page:
            self._give_to(page)
        if view.joint_position is None:
            return
        if self._handle is not None and self._pilot.target is None:
            self._place(self._model.frame_pose(self._tool, view.joint_position))
        gripper = self._spec.gripper
        if gripper is not None:
            opening = gripper.opening(view.joint_position[self._spec.joint_names.index(gripper.joint)])
            self._pilot.opening = float(np.clip(opening, 0.0, 1.0))
            told = self._pilot.gripper
            shown = round(self._pilot.opening if told is None else told, 2)
            if self._gripper.value != shown:  # not into the hand that drags it
                self._gripper.value = shown

    def _give_to(self, page: int | None) -> None:
        clients = self._server.get_clients()
        if self._handle is not None and self._page in clients:
            self._handle.remove()
        self._page, self._handle = page, None
        client = clients.get(page) if page is not None else None
        if client is None:
            return
        # Behind nothing: the gripper's fingers are around it.
        self._handle = client.scene.add_transform_controls(TARGET, scale=_HANDLE_SIZE, disable_rotations=not self._turns, depth_test=False)

        async def drag(event: Any) -> None:
            there = self._root.inverse() * pin.SE3(pin.Quaternion(*event.target.wxyz), np.array(event.target.position))
            self._pilot.drag(client.client_id, there.translation, _wxyz(there.rotation))

        self._handle.on_update(drag)

    def _place(self, pose: Pose) -> None:
        there = self._root * pin.SE3(pose.rotation, pose.position)
        with self._server.atomic():
            self._handle.position = there.translation
            self._handle.wxyz = _wxyz(there.rotation)


def _wxyz(rotation: np.ndarray) -> np.ndarray:
    """Returns a rotation (3, 3) as a quaternion (w, x, y, z)."""
    attitude = pin.Quaternion(rotation)
    return np.array([attitude.w, attitude.x, attitude.y, attitude.z])

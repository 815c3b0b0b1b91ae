"""The page: buttons on top, then tabs; what is in it are panels, so that others can be added."""

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.build import SimModel
from ros_rl.web.plots import JointPanel, LoopPanel, SafetyPanel
from ros_rl.web.scene import TRUTH, TRUTH_NODE, ScenePanel
from ros_rl.web.view import Action, Actions, Panel, Report, View

if TYPE_CHECKING:
    import viser

RELEASE = "release e-stop"
_SILENT = 1.0  # s without a joint state after which the page says so
_IMAGE_WIDTH = 320  # px; wider images are made smaller before they are sent
_JPEG_QUALITY = 70
_GREEN, _YELLOW, _RED, _GREY = "#2b8a3e", "#e67700", "#c92a2a", "#868e96"
_GUARD_COLOURS = {"ok": _GREEN, "hold": _YELLOW, "stop": _RED, "estop": _RED}
_GUARD_WORDS = {"ok": "runs", "hold": "holds its target", "stop": "was stopped by the guard", "estop": "is stopped, E-STOP is latched"}


class Page:
    """A page made of panels; all of its clients see the same."""

    def __init__(self, server: "viser.ViserServer"):
        """Takes an empty page."""
        self.server = server
        server.gui.main_panel.dock_right()
        self.panels: list[Panel] = []
        self._due: list[float] = []
        self._tabs: viser.GuiTabGroupHandle | None = None

    def add(self, panel: Panel) -> None:
        """Adds a panel that has put its elements on the page."""
        self.panels.append(panel)
        self._due.append(0.0)

    def tab(self, title: str) -> "viser.GuiTabHandle":
        """Returns a new tab; what is added in its context is in it."""
        if self._tabs is None:
            self._tabs = self.server.gui.add_tab_group()
        return self._tabs.add_tab(title)

    def update(self, view: View, now: float) -> None:
        """Updates the panels that are due; `now` is a monotonic time in s."""
        for index, panel in enumerate(self.panels):
            if now >= self._due[index]:
                # Not a period after the last time: what is late stays late, and does not come twice.
                self._due[index] = now + 0.9 * panel.period
                panel.update(view, now)

    def start_over(self) -> None:
        """Forgets the past; called when the first client comes."""
        self._due = [0.0] * len(self.panels)
        for panel in self.panels:
            panel.start_over()


def build_page(server: "viser.ViserServer", spec: RobotSpec, model: SimModel, simulated: bool, actions: Actions) -> Page:
    """Makes the page of a robot.

    Args:
        server: takes the page.
        spec: the robot.
        model: the robot in its world.
        simulated: whether the robot is a simulated one.
        actions: what the buttons do.
    """
    page = Page(server)
    gui = server.gui
    page.add(ControlPanel(gui, spec.name, actions))
    page.add(ScenePanel(server, model, simulated))
    if simulated and model.objects:
        _add_truth_switch(server)
    page.add(JointPanel(gui, page.tab("Joints"), spec))
    page.add(LoopPanel(gui, page.tab("Loop"), spec))
    page.add(SafetyPanel(gui, page.tab("Safety")))
    page.add(CameraPanel(gui, page.tab("Cameras")))
    page.add(NodePanel(gui, page.tab("Nodes")))
    return page


def _add_truth_switch(server: "viser.ViserServer") -> None:
    """Lets the objects be hidden that only the simulator knows of."""
    objects = server.scene.add_frame(TRUTH_NODE, show_axes=False)
    switch = server.gui.add_checkbox(
        TRUTH, True, hint="Shows the scene's objects. Their poses come from sim/privileged; no sensor measures them."
    )

    @switch.on_update
    def _(_: Any) -> None:
        objects.visible = switch.value


class ControlPanel:
    """How the robot is, and the buttons."""

    period = 0.2  # s

    def __init__(self, gui: "viser.GuiApi", robot: str, actions: Actions):
        """Adds the state and the buttons where the page is being built."""
        self._robot = robot
        self._state = gui.add_html(_banner("waits for the robot", _GREY))
        self._button(gui, "E-STOP", actions.estop, "red", "Latches the emergency stop in the hardware node.")
        self._release = self._button(gui, RELEASE, actions.release, "gray", "The target is then the measured position.")
        self._release.visible = False
        rest = {"start": actions.start, "stop": actions.stop} | ({"reset": actions.reset} if actions.reset else {})
        self._buttons(gui, rest)
        self._answer = gui.add_markdown("")
        self._task = gui.add_markdown("")

    def update(self, view: View, now: float) -> None:
        """Shows guard and task."""
        _set(self._state, _banner(*self._words(view)))
        self._release.visible = view.hardware.get("state") == "estop"
        task = view.task
        words = [str(task[key]) for key in ("instruction", "state", "reason") if task.get(key)]
        _set(self._task, "task: " + " · ".join(words) if words else "no task")

    def start_over(self) -> None:
        """Forgets the last answer."""
        _set(self._answer, "")

    def _words(self, view: View) -> tuple[str, str]:
        if view.silence is None:
            return f"{self._robot}: no joint states yet", _GREY
        if view.silence > _SILENT:
            return f"{self._robot}: no joint states for {view.silence:.0f} s", _RED
        state = view.hardware.get("state", "")
        text = f"{self._robot} {_GUARD_WORDS.get(state, 'has failed' if view.trouble else 'is being asked for its state')}"
        colour = _GUARD_COLOURS.get(state, _RED if view.trouble else _GREY)
        return f"{text} · {view.trouble}" if view.trouble and state != "estop" else text, colour

    # Callbacks are coroutines: they run at once in the server's own thread, behind nothing that a thread pool still has to do.

    def _button(self, gui: "viser.GuiApi", label: str, action: Action, colour: Any, hint: str) -> "viser.GuiButtonHandle":
        button = gui.add_button(label, color=colour, hint=hint)

        async def press(_: Any) -> None:
            action(self._reporter(label))

        button.on_click(press)
        return button

    def _buttons(self, gui: "viser.GuiApi", actions: Mapping[str, Action]) -> None:
        group = gui.add_button_group("policy and task", tuple(actions))

        async def press(_: Any) -> None:
            actions[group.value](self._reporter(group.value))

        group.on_click(press)

    def _reporter(self, label: str) -> Report:
        return lambda answer: _set(self._answer, f"{label}: {answer}")


class CameraPanel:
    """The newest image of every camera that publishes."""

    period = 0.2  # s

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle"):
        """Adds a line of text; images come with the first ones."""
        self._gui, self._tab = gui, tab
        with tab:
            self._text = gui.add_markdown("No camera publishes images.")
        self._images: dict[str, Any] = {}

    def update(self, view: View, now: float) -> None:
        """Shows new images."""
        for name, image in view.images.items():
            small = _smaller(image)
            if name in self._images:
                self._images[name].image = small
            else:
                with self._tab:
                    self._images[name] = self._gui.add_image(small, label=name, format="jpeg", jpeg_quality=_JPEG_QUALITY)
                self._text.visible = False

    def start_over(self) -> None:
        """Takes away images that may be old."""
        for image in self._images.values():
            image.remove()
        self._images.clear()
        self._text.visible = True


def _smaller(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    if width <= _IMAGE_WIDTH:
        return image
    return cv2.resize(image, (_IMAGE_WIDTH, round(height * _IMAGE_WIDTH / width)), interpolation=cv2.INTER_AREA)


class NodePanel:
    """The nodes of the graph, each with its lifecycle state."""

    period = 1.0  # s

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle"):
        """Adds the table."""
        with tab:
            self._text = gui.add_markdown("")

    def update(self, view: View, now: float) -> None:
        """Shows the nodes."""
        _set(self._text, node_table(view.nodes))

    def start_over(self) -> None:
        """Has nothing to forget."""


def node_table(nodes: Mapping[str, str]) -> str:
    """Returns the nodes as a table in Markdown."""
    if not nodes:
        return "no node found yet"
    return "\n".join(["| node | state |", "|---|---|", *(f"| {name} | {state} |" for name, state in sorted(nodes.items()))])


def _banner(text: str, colour: str) -> str:
    style = f"background:{colour};color:white;padding:0.5em 0.75em;margin:0 0.75em 0.5em;border-radius:4px;font-weight:600"
    return f'<div style="{style}">{html.escape(text)}</div>'


def _set(handle: Any, text: str) -> None:
    """Sets the text of an element; what is the same is not sent again."""
    if handle.content != text:
        handle.content = text

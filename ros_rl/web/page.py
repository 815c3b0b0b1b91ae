"""The page: buttons on top, then tabs; what is in it are panels, so that others can be added."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.build import SimModel
from ros_rl.web.pilot import Pilot
from ros_rl.web.plots import JointPanel, LoopPanel, SafetyPanel
from ros_rl.web.record import RecordPanel
from ros_rl.web.scene import TRUTH, TRUTH_NODE, ScenePanel
from ros_rl.web.server import on_press
from ros_rl.web.teleop import TeleopPanel, can_be_moved
from ros_rl.web.text import banner, escape, set_content, set_text, text
from ros_rl.web.view import Action, Actions, Panel, Report, View

if TYPE_CHECKING:
    import viser

RELEASE = "release e-stop"
_SILENT = 1.0  # s without a joint state after which the page says so
_IMAGE_OLD = 3.0  # s without a new image of a camera after which its last one is taken away
_IMAGE_WIDTH = 320  # px; wider images are made smaller before they are sent
_JPEG_QUALITY = 70
_GREEN, _YELLOW, _RED, _GREY = "#2b8a3e", "#e67700", "#c92a2a", "#868e96"
_GUARD_COLOURS = {"ok": _GREEN, "hold": _YELLOW, "stop": _RED, "estop": _RED}
_GUARD_WORDS = {"ok": "runs", "hold": "holds its target", "stop": "was stopped by the guard", "estop": "is stopped, E-STOP is latched"}

Contained = Callable[[str, Callable[..., Any]], Callable[..., Any]]


def _as_it_is(_: str, update: Callable[..., Any]) -> Callable[..., Any]:
    return update


class Page:
    """A page made of panels; all of its clients see the same."""

    def __init__(self, server: "viser.ViserServer", contained: Contained = _as_it_is):
        """Takes an empty page.

        Args:
            server: takes the page.
            contained: given a panel's name and its update, returns one that may report what is raised, so that the other panels go on.
        """
        self.server = server
        self._contained = contained
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
                self._contained(type(panel).__name__, panel.update)(view, now)

    def start_over(self) -> None:
        """Forgets the past; called when the first client comes."""
        self._due = [0.0] * len(self.panels)
        for panel in self.panels:
            panel.start_over()


def build_page(
    server: "viser.ViserServer",
    spec: RobotSpec,
    model: SimModel,
    simulated: bool,
    actions: Actions,
    pilot: Pilot,
    contained: Contained = _as_it_is,
) -> Page:
    """Makes the page of a robot.

    Args:
        server: takes the page.
        spec: the robot.
        model: the robot in its world.
        simulated: whether the robot is a simulated one.
        actions: what the buttons do.
        pilot: takes what a person does to move the robot.
        contained: as for `Page`.
    """
    page = Page(server, contained)
    gui = server.gui
    page.add(ControlPanel(gui, spec.name, actions))
    page.add(ScenePanel(server, model, simulated))
    if simulated and model.objects:
        _add_truth_switch(server)
    if can_be_moved(spec):
        page.add(TeleopPanel(server, spec, model, pilot))
    record = RecordPanel(gui, page.tab("Record"), actions)
    page.add(record)
    pilot.word = record.say
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
        self._alarm = actions.alarm
        self._state = ("waits for the robot", _GREY)
        self._latched = False
        # What can be pressed comes first, so that no text that grows moves it; what comes and goes is below what stays.
        estop = gui.add_button("E-STOP", color="red", hint="Latches the emergency stop in the hardware node.")
        on_press(estop, lambda: actions.estop(self._reporter("E-STOP")))
        rest = {"start": self._unless_latched(actions.start), "stop": actions.stop} | ({"reset": actions.reset} if actions.reset else {})
        self._buttons(gui, rest)
        self._banner = gui.add_html("")
        self._answer = gui.add_html("")
        hint = "Deactivates the policy, then releases the emergency stop. The robot goes on with start."
        self._release = gui.add_button(RELEASE, color="gray", hint=hint, visible=False)

        @self._release.on_click
        async def _(_: Any) -> None:
            actions.release(self._reporter(RELEASE))

        self._task = gui.add_html("")
        self._beat = 0
        self._draw()

    def update(self, view: View, now: float) -> None:
        """Shows guard and task."""
        self._beat = int(now) % 2
        self._state = self._words(view)
        self._draw()
        self._latched = view.hardware.get("state") == "estop"
        self._release.visible = self._latched
        task = view.task
        words = [str(task[key]) for key in ("instruction", "state", "reason") if task.get(key)]
        set_text(self._task, "task: " + " · ".join(words) if words else "no task")

    def start_over(self) -> None:
        """Forgets the last answer."""
        set_text(self._answer, "")

    def _draw(self) -> None:
        # A banner of the e-stop that is not confirmed stays, whatever becomes of the page's updates.
        alarm = self._alarm()
        set_content(self._banner, banner(alarm, _RED) if alarm else banner(*self._state, beat=self._beat))

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

    def _buttons(self, gui: "viser.GuiApi", actions: Mapping[str, Action]) -> None:
        group = gui.add_button_group("policy and task", tuple(actions))

        async def press(_: Any) -> None:
            actions[group.value](self._reporter(group.value))

        group.on_click(press)

    def _unless_latched(self, action: Action) -> Action:
        def unless_latched(report: Report) -> None:
            if self._latched or self._alarm():
                report("the e-stop is latched; release it first")
            else:
                action(report)

        return unless_latched

    def _reporter(self, label: str) -> Report:
        def report(answer: str) -> None:
            set_text(self._answer, f"{label}: {answer}")
            self._draw()

        return report


class CameraPanel:
    """The newest image of every camera that publishes."""

    period = 0.2  # s

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle"):
        """Adds a line of text; images come with the first ones."""
        self._gui, self._tab = gui, tab
        with tab:
            self._text = gui.add_markdown("No camera publishes images.")
        self._images: dict[str, Any] = {}
        self._came: dict[str, float] = {}

    def update(self, view: View, now: float) -> None:
        """Shows new images, and takes away those of cameras that have fallen silent."""
        for name, image in view.images.items():
            self._came[name] = now
            small = _smaller(image)
            if name in self._images:
                self._images[name].image = small
            else:
                with self._tab:
                    self._images[name] = self._gui.add_image(small, label=name, format="jpeg", jpeg_quality=_JPEG_QUALITY)
        for name in [name for name in self._images if now - self._came[name] > _IMAGE_OLD]:
            self._images.pop(name).remove()
        self._text.visible = not self._images

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
            self._text = gui.add_html("")

    def update(self, view: View, now: float) -> None:
        """Shows the nodes."""
        set_content(self._text, node_table(view.nodes))

    def start_over(self) -> None:
        """Has nothing to forget."""


def node_table(nodes: Mapping[str, str]) -> str:
    """Returns the nodes as a table in HTML."""
    if not nodes:
        return text("no node found yet")
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(state)}</td></tr>" for name, state in sorted(nodes.items()))
    return f'<table style="width:100%;text-align:left;padding:0 0.75em"><tr><th>node</th><th>state</th></tr>{rows}</table>'

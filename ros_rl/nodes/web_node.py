"""The node that shows the robot in a browser. A process of its own, also where the others are composed: it never holds up control."""

import os
import threading
import time
from dataclasses import replace
from typing import Any

from rclpy.timer import Timer
from std_msgs.msg import String

from ros_rl.nodes.base import StackNode, run
from ros_rl.nodes.environment import PAGE_IS_AT
from ros_rl.nodes.messages import CLAIM_QOS
from ros_rl.nodes.observer import GraphObserver
from ros_rl.nodes.operator import Operator
from ros_rl.nodes.parameters import WEB_NODE
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.task import load_task
from ros_rl.web.page import Page, build_page
from ros_rl.web.pilot import Pilot
from ros_rl.web.server import WebServer, new_token

_LOOK_FOR_CLIENTS = 0.5  # s
_UPDATE_PERIOD = 0.05  # s; panels have slower periods of their own
_TELL_PERIOD = 0.05  # s
_NICE = 5  # on a busy machine the control loop comes first


class WebNode(StackNode):
    """Serves a page on this machine, behind a secret in its address. While no page is open it listens to nothing."""

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("web_node", WEB_NODE, **options)
        self._token = new_token()  # stays the same if the node is configured anew
        self.server: WebServer | None = None
        self._page: Page | None = None
        self._observer: GraphObserver | None = None
        self._updater: Timer | None = None
        self._teller: Timer | None = None
        self._telling = threading.Lock()

    @property
    def url(self) -> str:
        """The address of the page, secret included; empty while nothing is served."""
        return self.server.url if self.server is not None else ""

    def configure(self) -> None:
        """Builds the page and serves it."""
        spec = load_robot(self.value("robot"), self.value("control_rate"))
        simulated = self.value("backend") == "mujoco"
        scene = load_task(self.value("task")).scene if self.value("task") else self.value("scene")
        # This node moves nothing itself, so it needs none of the gains without which a simulation in position or velocity mode is refused.
        model = build(replace(spec, command_mode="effort"), scene)
        self._pilot = Pilot(self.value("device_timeout"))
        self._says = self.create_publisher(String, "teleop/page", CLAIM_QOS)
        self._pilot.changed = self.contained("teleop/page", self._tell)
        self.server = WebServer(self.value("web_port"), self._token, self._pilot)
        self._spec, self._simulated = spec, simulated
        self._page = build_page(self.server.viser, spec, model, simulated, Operator(self, simulated).actions, self._pilot, self.contained)

    def activate(self) -> None:
        """Looks for clients from now on."""
        self.every(_LOOK_FOR_CLIENTS, self._look_for_clients)
        # In one write, its end included: the nodes of a graph share their output, and the address is copied from there.
        print(f"{PAGE_IS_AT}{self.url}\n", end="", flush=True)

    def deactivate(self) -> None:
        """Lets the page stand still; one that has the robot lets go of it."""
        if self.server is not None and self._pilot.page is not None:
            self._pilot.gone(self._pilot.page, "its page stands still")
        self._close_eyes()

    def release(self) -> None:
        """Ends the server."""
        self._close_eyes()
        server, self.server, self._page = self.server, None, None
        if server is not None:
            server.stop()

    def _look_for_clients(self) -> None:
        if not self.active or self.server is None or self._page is None:
            return
        if self.server.clients and self._observer is None:
            self._page.start_over()
            self._observer = GraphObserver(self, self._spec, self._simulated)
            self._updater = self.every(_UPDATE_PERIOD, self._update)
            self._teller = self.every(_TELL_PERIOD, self._repeat)
        elif not self.server.clients:
            self._close_eyes()

    def _update(self) -> None:
        if self._observer is not None and self._page is not None:
            self._page.update(self._observer.view(), time.monotonic())

    def _repeat(self) -> None:
        """Says again and again what the page says while it has the robot: silence holds it."""
        if self._pilot.engaged:
            self._tell()

    def _tell(self) -> None:
        """Publishes what the page says, in the thread in which it said so: a switch that is let go waits for nothing."""
        with self._telling:  # else an older state might be published after a newer one
            state = self._pilot.state(time.monotonic())
            if self.active or not state.engaged:
                self._says.publish(String(data=state.to_json()))

    def _close_eyes(self) -> None:
        for timer in (self._updater, self._teller):
            if timer is not None:
                self.destroy_timer(timer)
        self._updater = self._teller = None
        if self._observer is not None:
            self._observer.close()
            self._observer = None


def main() -> int:
    """Runs the node; returns the exit code."""
    os.nice(_NICE)
    return run(lambda: [WebNode()])

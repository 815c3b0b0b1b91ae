"""Tests of ros_rl.web.heartbeat in a real browser: which keys are the robot's, and that none stays down that nobody holds."""

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ros_rl.web.heartbeat import mark
from ros_rl.web.pilot import Pilot
from ros_rl.web.server import WebServer

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine: apt-get install chromium")
PATIENCE = 60.0  # s
STILL = [0.0] * 6


@pytest.fixture
def pilot() -> Pilot:
    return Pilot(PATIENCE)


@pytest.fixture
def page(pilot) -> Iterator[Any]:
    """A page that has the robot, with a button and a place to write."""
    server = WebServer(0, "secret", pilot)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        )
        page = browser.new_page()
        page.set_default_timeout(1e3 * PATIENCE)
        page.goto(server.url)
        added = mark(0, True) + '<button id="button" style="position:fixed;top:0;z-index:9999">take over</button><input id="text">'
        page.evaluate("added => document.body.insertAdjacentHTML('afterbegin', added)", added)
        page.evaluate("window.clicks = 0; document.getElementById('button').addEventListener('click', () => { window.clicks += 1; });")
        page.evaluate("window.seen = []; document.addEventListener('keydown', event => window.seen.push(event.key));")
        until(page, lambda: pilot.take(0, time.monotonic()) == "taken over")
        yield page
        browser.close()
    server.stop()


def until(page: Any, condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)


def twist(pilot: Pilot) -> list[float]:
    return list(pilot.state(time.monotonic()).twist or [])


def test_a_key_moves_the_robot_as_long_as_it_is_held_and_nothing_else_of_the_page_hears_it(page, pilot):
    page.keyboard.down("w")
    until(page, lambda: twist(pilot) == [1.0, 0, 0, 0, 0, 0])
    page.keyboard.down("q")  # is not the robot's
    page.keyboard.up("w")
    until(page, lambda: twist(pilot) == STILL)
    assert page.evaluate("window.seen") == ["q"]


@pytest.mark.parametrize("loss", ["meta", "menu", "blur"])
def test_a_key_that_may_be_let_go_unheard_is_let_go(page, pilot, loss):
    page.keyboard.down("w")
    until(page, lambda: twist(pilot) == [1.0, 0, 0, 0, 0, 0])
    if loss == "meta":
        page.keyboard.down("Meta")
    else:
        page.evaluate("name => window.dispatchEvent(new Event(name))", {"menu": "contextmenu", "blur": "blur"}[loss])
    until(page, lambda: twist(pilot) == STILL)


def test_what_is_written_moves_nothing(page, pilot):
    page.evaluate("document.getElementById('text').focus()")
    page.keyboard.down("w")
    until(page, lambda: page.evaluate("document.getElementById('text').value") == "w")
    page.keyboard.up("w")
    page.evaluate("document.getElementById('text').blur()")
    page.keyboard.down("s")
    until(page, lambda: twist(pilot)[0] != 0.0)
    assert twist(pilot) == [-1.0, 0, 0, 0, 0, 0]


def test_space_lets_go_before_the_page_knows_that_it_has_the_robot(page, pilot):
    page.evaluate("document.querySelector('[data-page]').dataset.pilot = 'no'")
    page.locator("#button").click(force=True)  # which has the focus then
    page.keyboard.press(" ", delay=300)
    until(page, lambda: not pilot.engaged)
    assert page.evaluate("window.clicks") == 1

"""The page in a real browser: the robot is seen, seen to move, and stopped by a click."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from harness import PATIENCE
from sensor_msgs.msg import JointState

from ros_rl.nodes.launcher import GraphProcesses

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine: apt-get install chromium")
TEAL = np.array([90, 120, 60]), np.array([105, 255, 255])  # of the rings on the arm's links, in OpenCV's HSV


@pytest.fixture
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        )
        yield browser
        browser.close()


def opened(browser: Any, url: str) -> Any:
    page = browser.new_page(viewport={"width": 760, "height": 400})
    page.set_default_timeout(1e3 * PATIENCE)
    page.goto(url)
    return page


def picture(page: Any) -> np.ndarray:
    """Returns what the page shows in 3D, to the left of its panel, shape (height, width, 3), BGR."""
    encoded = page.screenshot(clip={"x": 0, "y": 0, "width": 370, "height": 400}, timeout=1e3 * PATIENCE)
    return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)


def teal(image: np.ndarray) -> int:
    return int(np.count_nonzero(cv2.inRange(cv2.cvtColor(image, cv2.COLOR_BGR2HSV), *TEAL)))


def changed(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the share of pixels that differ by more than a shade."""
    return float((np.abs(first.astype(int) - second).max(axis=2) > 40).mean())


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Returns what a condition gives once that is neither None nor False."""
    deadline = time.monotonic() + PATIENCE
    while (found := condition()) is None or found is False:
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s in vain for {what}"
        time.sleep(0.1)
    return found


def address(running: GraphProcesses) -> str:
    found = wait_for(lambda: re.search(r"http://\S+", running.log.read_text() if running.log.exists() else ""), "the address")
    return str(found[0])


def test_the_robot_is_seen_to_move_and_is_stopped_by_a_click(ros, processes, browser):
    running = processes("arm", without=(), web=True, web_port=0, episodes=1000)
    url = address(running)
    page = opened(browser, url)
    page.get_by_text("arm runs").wait_for()
    page.get_by_text("stop", exact=True).click()
    page.get_by_text("stop: stopped").wait_for()

    def standing() -> np.ndarray | None:  # also until the light has been loaded
        first, second = picture(page), picture(page)
        return second if changed(first, second) < 1e-3 and teal(second) > 50 else None

    before = wait_for(standing, "the arm to be seen, and to stand")
    page.get_by_text("start", exact=True).click()
    page.get_by_text("start: started").wait_for()
    wait_for(lambda: changed(before, picture(page)) > 0.01, "the arm to be seen to move")

    page.get_by_text("E-STOP", exact=True).click()
    page.get_by_text("E-STOP is latched").wait_for()
    states = ros.hear(JointState, "joint_states")  # only those from now on
    ros.until(lambda: states and np.abs(states[-1].velocity).max() < 1e-2, "for the arm to stand")
    there, seen = np.array(states[-1].position), len(states)
    ros.until(lambda: len(states) > seen + 200)
    assert np.array(states[-1].position) == pytest.approx(there, abs=1e-2)

    page.close()
    again = opened(browser, url)
    again.get_by_text("E-STOP is latched").wait_for()
    wait_for(lambda: teal(picture(again)) > 50, "the arm to be seen again")
    again.goto(re.sub(r"(:\d+/)..", r"\1xx", url))
    assert "403" in again.inner_text("body")

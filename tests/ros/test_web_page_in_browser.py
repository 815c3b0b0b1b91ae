"""The page in a real browser: the robot is seen, seen to move, stopped by a click, and moved with the mouse."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from harness import PATIENCE, graph_of, value
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from ros_rl.bringup import Graph, NodeDescription
from ros_rl.data.dataset import Dataset
from ros_rl.nodes.launcher import GraphProcesses
from ros_rl.nodes.messages import CLAIM_QOS, COMMAND_QOS, TASK_STATE_QOS
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import load_task
from ros_rl.teleop.browser import PageState

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
    found = wait_for(lambda: re.search(r"http://[\d.:]+/[\w-]+/", running.log.read_text() if running.log.exists() else ""), "the address")
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


ARM = load_robot("arm")
MODEL = RobotModel(ARM)
ARROW = np.array([102, 150, 150]), np.array([112, 255, 255])  # of the handle's third axis, in OpenCV's HSV; the rings are greener
DRAGGED = 40  # px


def tip_of_the_arrow(image: np.ndarray) -> tuple[int, int] | None:
    """Returns the pixel (x, y) at the tip of the arrow along the tool, which points down; None while it is not to be seen."""
    found = np.argwhere(cv2.inRange(cv2.cvtColor(image, cv2.COLOR_BGR2HSV), *ARROW))
    if len(found) < 50:
        return None
    y, x = found[found[:, 0].argmax()]
    return int(x), int(y)


def tool(state: JointState) -> np.ndarray:
    position = dict(zip(state.name, state.position, strict=True))
    return MODEL.frame_pose(ARM.tool_frame, np.array([position[name] for name in ARM.measured_names])).position


@pytest.fixture
def recorded_arm(tmp_path) -> Iterator[GraphProcesses]:
    """The arm with a page and a recorder, in a task that only a person ends; none follows by itself, which would move the arm."""
    task = load_task("arm_circle").path.read_text().replace("time_limit: 15.0", "time_limit: 3000.0").replace("hold: 6.0", "hold: 2000.0")
    (tmp_path / "draw.yaml").write_text(task)
    patient = {"device_timeout": 10, "teleop_timeout": 10}  # software draws the page, on a machine that may be busy
    described = graph_of("arm", teleop="browser", web_port=0, tasks=tmp_path / "draw.yaml", episodes=1, **patient)
    recorder = NodeDescription("recorder_node", {"robot": "arm", "dataset": str(tmp_path / "set"), "fps": 20})
    with GraphProcesses(Graph(described.bringup, described.namespace, (*described.nodes, recorder), False), quiet=True) as running:
        yield running


def test_the_arm_follows_the_mouse_the_episode_is_recorded_and_a_page_that_closes_holds_the_arm(ros, recorded_arm, browser, tmp_path):
    states, statuses = ros.hear(JointState, "joint_states", COMMAND_QOS), ros.hear(DiagnosticStatus, "safety/status")
    said, recorded = ros.hear(String, "teleop/page", CLAIM_QOS), ros.hear(String, "recorder/status", TASK_STATE_QOS)
    page = opened(browser, address(recorded_arm))
    page.get_by_text("the policy has the robot").wait_for()
    # Without the wait for an element to stand still, which takes frames: nothing here moves, and software draws slowly.
    page.get_by_text("begin", exact=True).click(force=True)
    page.get_by_text("begin: done").wait_for()

    def taken() -> tuple[int, int] | None:
        """Takes over, again if the page was lost: the first drawing of the handle may keep it busy for long."""
        page.get_by_text("take over", exact=True).click(force=True)
        page.wait_for_timeout(500)
        first, second = tip_of_the_arrow(picture(page)), tip_of_the_arrow(picture(page))
        has = page.get_by_text(re.compile("page 0 has the robot · teleop")).count()
        return second if has and first == second else None

    tip = wait_for(taken, "the page to have the robot, and its handle to stand")
    ros.until(lambda: states and statuses and value(statuses[-1], "control") == "teleop")
    before = tool(states[-1])
    x, y = tip[0], tip[1] - 2
    page.mouse.move(x, y)
    wait_for(lambda: (tip_of_the_arrow(picture(page)) or tip)[1] < tip[1] - 5, "the arrow to take another colour under the mouse")

    def target() -> np.ndarray | None:
        newest = PageState.of_json(said[-1].data)
        assert newest.engaged, newest
        return np.array(newest.pose[:3]) if newest.pose else None

    page.mouse.down()
    ros.until(lambda: target() is not None, "for the page to say that the handle is dragged")
    for k in range(1, 11):
        page.mouse.move(x, y - k * DRAGGED / 10)
    ros.until(lambda: target()[2] > before[2] + 0.03, "for the page to say where the tool shall go")
    page.mouse.up()
    ros.until(lambda: np.linalg.norm(tool(states[-1]) - target()) < 5e-3, "for the tool to be there")
    assert np.abs((target() - before)[:2]).max() < 5e-3  # along the arrow alone
    page.get_by_text("success", exact=True).click(force=True)
    page.get_by_text("success: done").wait_for()

    page.close()
    ros.until(
        lambda: value(statuses[-1], "control") == "hold" and "browser is lost: its page" in statuses[-1].message, "for the arm to be held"
    )
    assert value(statuses[-1], "intervention") == "true"
    ros.until(lambda: np.abs(states[-1].velocity).max() < 1e-2)
    there, seen = np.array(states[-1].position), len(states)
    ros.until(lambda: len(states) > seen + 200)
    assert np.array(states[-1].position) == pytest.approx(there, abs=1e-2)
    assert value(statuses[-1], "control") == "hold"

    def succeeded() -> bool:
        ros.until(lambda: recorded and json.loads(recorded[-1].data)["committed"])
        return any(episode.outcome == "success" for episode in Dataset.open(tmp_path / "set").episodes)

    wait_for(succeeded, "the episode to be in the dataset")
    dataset = Dataset.open(tmp_path / "set")
    (episode,) = (episode for episode in dataset.episodes if episode.outcome == "success")
    columns = dataset.columns(episode.index)
    assert columns["intervention"].any() and columns["next.success"][-1]

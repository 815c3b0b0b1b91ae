"""Tests of ros_rl.teleop.browser: what a page says, and that one which falls silent lets go for good."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.teleop.browser import Browser, PageState
from ros_rl.teleop.device import DeviceLost
from ros_rl.teleop.mapping import CartesianMapping
from ros_rl.teleop.session import Session

NOTHING = Observation(0.0, np.zeros(0), np.zeros(0), np.zeros(0))
ENGAGED = PageState(True).to_json()
RELEASED = PageState(False).to_json()


def device():
    return Browser(speed=0.4, turn=2.0, timeout=0.5)


def test_before_the_page_says_anything_its_switch_is_released_and_nothing_is_wrong():
    sample = device().read(NOTHING, 7.0)
    assert (sample.engaged, sample.stamp, sample.pressed) == (False, 7.0, ())


def test_deflections_are_shares_of_the_speeds():
    browser = device()
    browser.receive(PageState(True, twist=[0.5, 0.0, -1.0, 0.25, 0.0, 1.0], gripper=0.25).to_json(), 1.0)
    sample = browser.read(NOTHING, 1.1)
    assert sample.engaged and sample.pose is None and sample.gripper == 0.25
    np.testing.assert_allclose(sample.twist, [0.2, 0.0, -0.4, 0.5, 0.0, 2.0])


def test_a_pose_counts_rather_than_a_twist():
    browser = device()
    half = np.sqrt(0.5)
    browser.receive(PageState(True, pose=[0.1, 0.2, 0.3, half, 0.0, 0.0, half], twist=[1.0] * 6).to_json(), 1.0)
    sample = browser.read(NOTHING, 1.0)
    assert sample.twist is None and sample.pose is not None
    np.testing.assert_allclose(sample.pose.position, [0.1, 0.2, 0.3])
    np.testing.assert_allclose(sample.pose.rotation, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)  # a quarter turn about z


def test_giving_back_is_a_button_pressed_once():
    browser = device()
    browser.receive(PageState(False, hand_back=True).to_json(), 1.0)
    assert [browser.read(NOTHING, 1.0).pressed for _ in range(2)] == [("hand_back",), ()]


def test_a_page_that_falls_silent_is_lost_until_its_switch_is_let_go_and_pressed_anew():
    browser = device()
    browser.receive(ENGAGED, 1.0)
    assert browser.read(NOTHING, 1.5).engaged
    with pytest.raises(DeviceLost, match="fell silent"):
        browser.read(NOTHING, 1.6)
    for now in (1.7, 1.8):  # it comes again as if nothing had been
        browser.receive(ENGAGED, now)
        with pytest.raises(DeviceLost, match="fell silent"):
            browser.read(NOTHING, now)
    browser.receive(RELEASED, 1.9)
    assert not browser.read(NOTHING, 1.9).engaged
    browser.receive(ENGAGED, 2.0)
    assert browser.read(NOTHING, 2.0).engaged


def test_a_switch_that_is_pressed_when_the_device_is_opened_anew_has_to_be_let_go_first():
    browser = device()
    browser.receive(ENGAGED, 1.0)
    browser.open()
    browser.receive(ENGAGED, 1.1)
    with pytest.raises(DeviceLost, match="let go there, and take over anew"):
        browser.read(NOTHING, 1.1)
    browser.receive(RELEASED, 1.2)
    browser.receive(ENGAGED, 1.3)
    assert browser.read(NOTHING, 1.3).engaged


def test_silence_that_nobody_read_in_counts_too():
    browser = device()
    browser.receive(ENGAGED, 1.0)
    browser.receive(ENGAGED, 3.0)
    with pytest.raises(DeviceLost):
        browser.read(NOTHING, 3.0)


def test_silence_of_a_page_that_has_let_go_is_no_loss():
    browser = device()
    browser.receive(RELEASED, 1.0)
    assert not browser.read(NOTHING, 100.0).engaged


def test_a_page_that_was_closed_says_so():
    browser = device()
    browser.receive(PageState(False, "its page was closed").to_json(), 1.0)
    with pytest.raises(DeviceLost, match="its page was closed"):
        browser.read(NOTHING, 1.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "the whole: Invalid JSON"),
        ('{"engaged": 1}', "engaged: Input should be a valid boolean"),
        ('{"engaged": true, "pose": [0, 0, 0, 1, 0, 0]}', "pose: List should have at least 7 items"),
        ('{"engaged": true, "pose": [NaN, 0, 0, 1, 0, 0, 0]}', "pose.0: Input should be a finite number"),
        ('{"engaged": true, "twist": [0, 0, 0, 0, 0, 1.5]}', "twist.5: Input should be less than or equal to 1"),
        ('{"engaged": true, "gripper": -0.1}', "gripper: Input should be greater than or equal to 0"),
        ('{"engaged": true, "speed": 9}', "speed: Unexpected keyword argument"),
    ],
)
def test_what_makes_no_sense_lets_go(text, problem):
    browser = device()
    browser.receive(ENGAGED, 1.0)
    with pytest.raises(UserError, match=problem):
        browser.receive(text, 1.1)
    with pytest.raises(DeviceLost):
        browser.read(NOTHING, 1.1)


def test_an_attitude_that_is_none_holds_the_robot():
    browser = device()
    browser.receive(PageState(True, pose=[0.4, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0]).to_json(), 1.0)
    with pytest.raises(UserError, match="no unit quaternion"):
        browser.read(NOTHING, 1.0)


def test_the_tool_goes_to_where_the_page_wants_it_no_faster_than_told_and_is_held_when_the_page_closes():
    arm = load_robot("arm")
    model, speed = RobotModel(arm), 0.1
    browser = Browser(speed, 0.5, timeout=0.5)
    running = Session(browser, CartesianMapping(arm, speed, 0.5, [-2, -2, 0, 2, 2, 2]), 0.5)
    q, still = arm.home.copy(), np.zeros(len(arm.home))
    start = model.frame_pose(arm.tool_frame, q)
    goal = start.position + [0.03, -0.04, 0.05]
    attitude = [0.0, 1.0, 0.0, 0.0]
    assert np.allclose(np.diag([1.0, -1.0, -1.0]), start.rotation, atol=1e-3)  # of that quaternion: the tool points down
    said = PageState(True, pose=[*goal.tolist(), *attitude]).to_json()
    way, steps = float(np.linalg.norm(goal - start.position)), 0
    for step in range(400):
        now = step * arm.period
        browser.receive(said, now)
        done = running.step(Observation(now, q, still, still), now)
        assert done.claim == "engaged" and done.command is not None
        before = model.frame_pose(arm.tool_frame, q).position
        q[: len(arm.joints)] = done.command.values
        there = model.frame_pose(arm.tool_frame, q).position
        assert np.linalg.norm(there - before) <= 1.05 * speed * arm.period
        steps += bool(np.linalg.norm(there - goal) > 1e-3)
    assert np.linalg.norm(there - goal) < 1e-3
    assert steps * arm.period >= 0.95 * (way - 1e-3) / speed
    browser.receive(PageState(False, "its page was closed").to_json(), now)
    lost = running.step(Observation(now, q, still, still), now)
    assert (lost.claim, lost.command, lost.problem) == ("holding", None, "browser is lost: its page was closed")

"""Tests of ros_rl.web.pilot: one page has the robot, and only as long as it is alive and seen."""

import numpy as np
import pytest

from ros_rl.teleop.browser import PageState
from ros_rl.web.pilot import Pilot

HELD_STILL = PageState(True, twist=[0.0] * 6)


class Stage:
    """Two pages that beat, and what is said of them."""

    def __init__(self):
        self.pilot = Pilot(0.5)
        self.said, self.words = [], []
        self.pilot.changed = lambda: self.said.append(self.pilot.state(self.now))
        self.pilot.word = self.words.append
        self.now = 0.0
        self.beat(0, 1)

    def beat(self, *pages, keys="", after=0.1):
        self.now += after
        for page in pages:
            self.pilot.beat(page, True, keys, self.now)

    @property
    def state(self):
        return self.pilot.state(self.now)


@pytest.fixture
def stage():
    return Stage()


def test_the_first_page_has_the_robot_until_it_lets_go(stage):
    pilot = stage.pilot
    assert stage.state == PageState(False)
    assert pilot.take(0, stage.now) == "taken over"
    assert stage.state == stage.said[-1] == HELD_STILL
    assert pilot.take(1, stage.now) == pilot.give_back(1, stage.now) == "page 0 has the robot"
    assert pilot.let_go(1) == "this page does not have the robot"
    assert pilot.page == 0 and stage.state.engaged
    assert pilot.let_go(0) == "let go"
    assert stage.state == stage.said[-1] == PageState(False)
    assert pilot.take(1, stage.now) == "taken over"
    assert pilot.page == 1 and stage.state.engaged


def test_only_the_page_that_has_the_robot_moves_it(stage):
    pilot = stage.pilot
    pilot.drag(0, np.ones(3), np.array([1.0, 0.0, 0.0, 0.0]))
    pilot.take(0, stage.now)
    assert stage.state == HELD_STILL  # what was dragged before it had the robot counts for nothing
    pilot.drag(1, np.ones(3), np.array([1.0, 0.0, 0.0, 0.0]))
    pilot.grip(1, 0.5)
    pilot.deflect(1, 0, 1.0)
    pilot.beat(1, True, "w", stage.now)
    assert stage.state == HELD_STILL
    pilot.drag(0, np.array([0.4, 0.1, 0.3]), np.array([0.0, 1.0, 0.0, 0.0]))
    pilot.grip(0, 1.5)
    pilot.deflect(0, 5, -0.5)
    assert stage.state == stage.said[-1]
    assert stage.state == PageState(True, pose=[0.4, 0.1, 0.3, 0.0, 1.0, 0.0, 0.0], twist=[0, 0, 0, 0, 0, -0.5], gripper=1.0)
    pilot.let_go(0)
    pilot.take(0, stage.now)
    assert stage.state == HELD_STILL  # an old target is none any more


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda stage: stage.pilot.gone(0), "its page was closed"),
        (lambda stage: stage.pilot.beat(0, False, "", stage.now), "its page was hidden"),
        (lambda stage: stage.beat(1, after=0.6), "its page fell silent"),
    ],
    ids=["closed", "hidden", "silent"],
)
def test_a_page_that_is_lost_lets_go_gives_nothing_back_and_takes_nothing_by_itself(stage, loss, reason):
    pilot = stage.pilot
    pilot.take(0, stage.now)
    loss(stage)
    assert stage.state == PageState(False, reason)
    for _ in range(3):  # seen again
        stage.beat(0, 1, keys="w")
        assert stage.state == PageState(False, reason)
    assert not any(said.hand_back for said in stage.said)
    assert pilot.take(0, stage.now) == "taken over"
    assert stage.state.engaged


def test_silence_is_noticed_by_the_next_beat_before_it_counts(stage):
    stage.pilot.take(0, stage.now)
    stage.beat(0, after=0.6)
    assert stage.said[-1] == PageState(False, "its page fell silent")


def test_a_page_of_which_nothing_is_heard_takes_nothing(stage):
    assert stage.pilot.take(2, stage.now) == "not taken over: nothing is heard of this page"
    stage.now += 0.6
    assert stage.pilot.take(0, stage.now) == "not taken over: nothing is heard of this page"
    assert not stage.state.engaged


def test_giving_back_is_said_once_and_open_to_any_page_while_the_robot_is_held(stage):
    pilot = stage.pilot
    pilot.take(0, stage.now)
    pilot.gone(0)
    assert pilot.give_back(1, stage.now) == "given back to the policy"
    assert stage.said[-1] == PageState(False, hand_back=True)
    assert stage.state == PageState(False)
    assert pilot.page is None


def test_keys_move_as_those_of_a_terminal_as_long_as_they_are_held(stage):
    pilot = stage.pilot
    pilot.take(0, stage.now)
    pilot.drag(0, np.ones(3), np.array([1.0, 0.0, 0.0, 0.0]))
    stage.beat(0, keys="wrj")
    assert stage.said[-1] == PageState(True, twist=[1, 0, 1, 0, 0, 1])  # the target of the mouse is given up
    stage.beat(0, keys="ws")
    assert stage.said[-1].twist == [0.0] * 6
    said = len(stage.said)
    stage.beat(0, keys="ws")
    assert len(stage.said) == said  # nothing new, nothing said
    stage.beat(0)
    assert stage.said[-1] == HELD_STILL


def test_what_was_held_on_a_page_that_is_lost_moves_nothing_for_the_next_one(stage):
    stage.pilot.take(0, stage.now)
    stage.beat(0, 1, keys="w")
    stage.pilot.gone(0)
    assert stage.pilot.take(1, stage.now) == "taken over"
    assert stage.state == HELD_STILL


def test_g_opens_a_gripper_that_is_seen_closed(stage):
    stage.pilot.take(0, stage.now)
    stage.pilot.opening = 0.1
    stage.beat(0, keys="g")
    assert stage.state.gripper == 1.0


def test_g_opens_and_closes_space_lets_go_h_gives_back_and_digits_judge_once_a_press(stage):
    pilot = stage.pilot
    pilot.take(0, stage.now)
    grips = []
    for keys in ("g", "g", "", "g", ""):
        stage.beat(0, keys=keys)
        grips.append(stage.state.gripper)
    assert grips == [0.0, 0.0, 0.0, 1.0, 1.0]
    for keys in ("1", "12", "12", "", "4", "3"):
        stage.beat(0, keys=keys)
    assert stage.words == ["start", "success", "discard", "failure"]
    stage.beat(0, keys=" w")
    assert stage.said[-1] == PageState(False)
    stage.beat(0, keys="w")
    assert not stage.state.engaged  # moving takes nothing over
    stage.beat(0, keys="h")
    assert stage.said[-1] == PageState(False, hand_back=True)
    assert stage.words == ["start", "success", "discard", "failure"]


def test_deflections_and_keys_add_up_to_full_speed_at_most(stage):
    stage.pilot.take(0, stage.now)
    stage.pilot.deflect(0, 0, 0.5)
    stage.beat(0, keys="w")
    assert stage.state.twist == [1.0, 0, 0, 0, 0, 0]

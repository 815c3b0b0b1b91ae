"""Tests of ros_rl.teleop.session: the dead-man switch, hand-back, and devices that are lost or talk nonsense."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.spec import load_robot
from ros_rl.teleop.device import DeviceLost, Sample
from ros_rl.teleop.mapping import JointMapping, VelocityMapping
from ros_rl.teleop.session import Session

ARM = load_robot("arm")
HOME = ARM.home[: len(ARM.joints)]
OBSERVATION = Observation(0.5, ARM.home, np.zeros(len(ARM.home)), np.zeros(len(ARM.home)))


class Fake:
    """A device that says what a test tells it to."""

    name = "fake"

    def __init__(self, has_switch=True):
        self.says = None
        self.has_switch = has_switch
        self.opened = 0

    def open(self):
        self.opened += 1

    def read(self, observation, now):
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def close(self):
        pass


def session(**options):
    device = Fake()
    return device, Session(device, JointMapping(ARM), timeout=0.5, **options)


def sample(engaged, *pressed, stamp=0.0, values=HOME, names=ARM.joint_names, **fields):
    fields = fields or {"joints": JointCommand(tuple(names), np.asarray(values), stamp)}
    return Sample(stamp, engaged, pressed=pressed, **fields)


def claims(device, session, *samples):
    found = []
    for device.says in samples:
        step = session.step(OBSERVATION, 0.1)
        assert (step.command is not None) == (step.claim == "engaged")
        found.append(step.claim)
    return found


def test_letting_go_holds_and_only_the_button_hands_back():
    device, running = session()
    assert claims(device, running, sample(False), sample(True), sample(False), sample(True), sample(False), sample(False, "hand_back")) == [
        "released", "engaged", "holding", "engaged", "holding", "released",
    ]  # fmt: skip


def test_letting_go_hands_back_where_told_so():
    device, running = session(on_release="hand_back")
    assert claims(device, running, sample(True), sample(False), sample(True)) == ["engaged", "released", "engaged"]


def test_a_switch_that_is_still_pressed_after_the_hand_back_claims_nothing_until_let_go():
    device, running = session()
    assert claims(device, running, sample(True), sample(True, "hand_back"), sample(True), sample(False), sample(True)) == [
        "engaged", "released", "released", "released", "engaged",
    ]  # fmt: skip


def test_a_command_answers_the_observation_and_names_its_source():
    device, running = session(name="left hand")
    device.says = sample(True, "success", stamp=7.0)
    step = running.step(OBSERVATION, 7.1)
    assert (step.command.stamp, step.command.source, step.pressed, step.problem) == (0.5, "left hand", ("success",), None)
    np.testing.assert_array_equal(step.command.values, HOME)


def test_after_a_restart_a_switch_has_to_be_let_go_first():
    device, running = session()
    assert claims(device, running, sample(True)) == ["engaged"]
    running.restart()
    assert device.opened == 1
    assert claims(device, running, sample(True)) == ["released"]
    assert "the dead-man switch of fake is pressed since before" in running.step(OBSERVATION, 0.1).problem
    assert claims(device, running, sample(False)) == ["released"]
    assert running.step(OBSERVATION, 0.1).problem is None
    assert claims(device, running, sample(True)) == ["engaged"]
    always = Fake(has_switch=False)
    running = Session(always, JointMapping(ARM), timeout=0.5)
    running.restart()
    assert claims(always, running, sample(True)) == ["engaged"]


def test_what_was_pressed_while_nobody_looked_is_forgotten():
    device, running = session()
    device.says = sample(True)
    for now, opened in ((0.0, 0), (0.5, 0), (1.1, 1)):
        running.step(OBSERVATION, now)
        assert device.opened == opened


class Memory:
    """A mapping that remembers what it is told."""

    def __init__(self):
        self.sent = []

    def restart(self, sent):
        self.sent.append(sent)

    def command(self, sample, observation):
        return JointCommand(ARM.joint_names, HOME, observation.stamp)


def test_c6_a_mapping_begins_anew_whenever_the_device_is_engaged():
    device, mapping = Fake(), Memory()
    running, sent = Session(device, mapping, timeout=0.5), []
    for engaged in (True, True, False, True, True):
        device.says = sample(engaged)
        sent.append(JointCommand(ARM.joint_names, HOME, 0.0))
        running.step(OBSERVATION, 0.1, sent[-1])
    assert mapping.sent == [sent[0], sent[3]]


@pytest.mark.parametrize("on_release", ["hold", "hand_back"])
@pytest.mark.parametrize(
    ("says", "problem"),
    [
        (DeviceLost("unplugged"), "fake is lost: unplugged"),
        (UserError("a joy message has 2 axes"), "a joy message has 2 axes"),
        (sample(True, stamp=-1.0), "fake has been silent for more than 0.5 s"),
        (None, "nothing usable has come from fake"),
    ],
)
def test_a_device_that_is_lost_holds_the_robot_and_never_hands_it_back(says, problem, on_release):
    device, running = session(on_release=on_release)
    assert claims(device, running, sample(True)) == ["engaged"]
    device.says = says
    step = running.step(OBSERVATION, 0.1)
    assert (step.claim, step.command) == ("holding", None)
    assert problem in step.problem
    assert claims(device, running, sample(False), sample(True)) == ["holding", "engaged"]


@pytest.mark.parametrize("values", [np.where(np.arange(8) == 2, bad, HOME) for bad in (np.nan, np.inf)] + [HOME[:7]])
def test_c1_what_is_no_command_holds_and_says_why(values):
    device, running = session()
    device.says = sample(True, values=values)
    step = running.step(OBSERVATION, 0.1)
    assert step.command is None
    assert "joint3 is not finite" in step.problem or "8 values are needed" in step.problem


def test_c2_a_misspelt_joint_is_refused_with_both_lists():
    device, running = session()
    device.says = sample(True, names=("joint_1", *ARM.joint_names[1:]))
    assert "got joint_1, joint2" in running.step(OBSERVATION, 0.1).problem


def test_a_walking_robot_gets_the_velocity_of_the_twist_or_none_at_all():
    device = Fake()
    running = Session(device, VelocityMapping(load_robot("quadruped"), 10.0, 10.0), timeout=0.5)
    device.says = sample(True, twist=np.arange(1.0, 7.0))
    np.testing.assert_array_equal(running.step(OBSERVATION, 0.1).velocity, [1.0, 2.0, 6.0])
    device.says = sample(True, twist=np.array([np.nan, 0, 0, 0, 0, 0]))
    step = running.step(OBSERVATION, 0.1)
    assert (step.claim, step.velocity) == ("holding", None)
    assert "six finite numbers" in step.problem

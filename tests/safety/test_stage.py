"""Tests of ros_rl.safety.stage."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough, SafetyFilter, SafetyReport
from ros_rl.safety.stage import SafetyStage

ARM = load_robot("arm")


class Halving:
    """Halves every action and counts how often it was told to forget."""

    reads = ("joint_position",)

    def __init__(self):
        self.actions = []
        self.resets = 0

    def reset(self):
        self.resets += 1

    def filter(self, observation, action, distribution=None):
        if action is None:
            return np.full(8, 9.0), SafetyReport(True, {"margin": 0.5})
        self.actions.append(action)
        return action / 2, SafetyReport(True, {"margin": 0.5})

    def fallback(self):
        return self.actions[-1] / 4 if self.actions else None


def seen(stamp: float = 0.0) -> Observation:
    return Observation(stamp, ARM.home, np.zeros(8), np.zeros(8))


def test_the_filters_are_filters():
    assert isinstance(Halving(), SafetyFilter)
    assert isinstance(PassThrough(), SafetyFilter)


def test_the_filtered_command_keeps_stamp_and_source():
    command, report = SafetyStage(ARM, Halving()).apply(seen(), JointCommand(ARM.joint_names, np.arange(8.0), 0.3, "policy"))
    np.testing.assert_array_equal(command.values, np.arange(8) / 2)
    assert (command.stamp, command.source) == (0.3, "policy")
    assert report == SafetyReport(True, {"margin": 0.5})


def test_c3_the_filter_gets_its_action_in_the_robots_order():
    values = np.random.default_rng(0).normal(size=8)
    for order in itertools.islice(itertools.permutations(range(8)), 0, 40320, 997):
        halving = Halving()
        names = tuple(ARM.joint_names[index] for index in order)
        command, _ = SafetyStage(ARM, halving).apply(seen(), JointCommand(names, values[list(order)], 0.0))
        assert command.joint_names == ARM.joint_names
        assert halving.actions[0].tobytes() == values.tobytes()
        assert command.values.tobytes() == (values / 2).tobytes()


BAD = pytest.mark.parametrize(
    "command",
    [
        JointCommand(ARM.joint_names, np.where(np.arange(8) == 2, np.nan, 0.0), 0.0),
        JointCommand(ARM.joint_names, np.where(np.arange(8) == 2, np.inf, 0.0), 0.0),
        JointCommand(ARM.joint_names[:-1], np.zeros(7), 0.0),
        JointCommand((*ARM.joint_names[:-1], "finger"), np.zeros(8), 0.0),
        JointCommand(ARM.joint_names, np.zeros(7), 0.0),
        JointCommand((), np.zeros(0), 0.0),
    ],
    ids=["nan", "inf", "missing", "misspelt", "short", "empty"],
)


@BAD
def test_c1_c2_without_a_filter_a_bad_command_goes_on_to_the_guard_as_it_is(command):
    passed, report = SafetyStage(ARM, PassThrough()).apply(None, command)
    assert passed is command
    assert report == SafetyReport()


@BAD
def test_c1_c2_a_filter_that_reads_the_state_gives_the_safe_action_instead_of_a_bad_one(command):
    given, report = SafetyStage(ARM, Halving()).apply(seen(), replace(command, stamp=0.3))
    assert (given.joint_names, given.stamp, given.source) == (ARM.joint_names, 0.3, "safety")
    np.testing.assert_array_equal(given.values, np.full(8, 9.0))
    with pytest.raises(UserError) as problem:
        command.in_order_of(ARM)
    assert report == SafetyReport(True, {"margin": 0.5}, str(problem.value))


def test_the_fallback_is_the_filters_in_the_robots_order():
    stage = SafetyStage(ARM, Halving())
    assert stage.fallback(0.2) is None
    stage.apply(seen(), JointCommand(ARM.joint_names[::-1], np.arange(8.0)[::-1], 0.0))
    command = stage.fallback(0.2)
    assert (command.joint_names, command.stamp, command.source) == (ARM.joint_names, 0.2, "safety")
    np.testing.assert_array_equal(command.values, np.arange(8) / 4)
    assert SafetyStage(ARM, PassThrough()).fallback(0.2) is None


def test_pass_through_changes_no_bit():
    command = JointCommand(ARM.joint_names, np.array([0.1, -0.0, 1e-310, 3.0, 4.0, 5.0, 6.0, 7.0]), 0.0)
    passed, report = SafetyStage(ARM, PassThrough()).apply(seen(), command)
    assert passed.values.tobytes() == command.values.tobytes()
    assert report == SafetyReport()


def test_s5_the_filter_forgets_when_time_jumps_back():
    halving = Halving()
    stage = SafetyStage(ARM, halving)
    resets = []
    for stamp in (5.0, 5.005, 5.005, 0.0, 0.005, 0.004):
        stage.apply(seen(stamp), JointCommand(ARM.joint_names, np.zeros(8), stamp))
        resets.append(halving.resets)
    assert resets == [0, 0, 0, 1, 1, 2]
    stage.reset()
    stage.apply(seen(0.001), JointCommand(ARM.joint_names, np.zeros(8), 0.001))
    assert halving.resets == 3

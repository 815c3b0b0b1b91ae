"""Tests of ros_rl.policies.scripted.playback."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import save_bundle
from ros_rl.policies.scripted.playback import Playback, playback_bundle
from ros_rl.robots.spec import load_robot

ARM, CARTPOLE = load_robot("arm"), load_robot("cartpole")
HOME = ARM.home[: len(ARM.joints)]
SPAN = 100_000_000  # ns between two recorded commands


def bundle(from_reset, robot=ARM, rows=5):
    actions = np.array([robot.home[: len(robot.joints)] + 0.01 * row for row in range(rows)])
    stamps = SPAN * np.arange(rows) + 300_000_000
    return playback_bundle(robot.name, robot.joint_names, robot.command_mode, robot.control_rate, stamps, actions, from_reset), actions


def at(stamp, position=None, robot=ARM):
    measured = robot.home if position is None else np.append(position, robot.home[len(robot.joints) :])
    return Observation(stamp, measured, np.zeros_like(measured), np.zeros_like(measured))


def test_from_a_reset_every_recorded_stamp_gets_its_command_bit_for_bit():
    made, actions = bundle(True)
    policy = Playback(made, ARM)
    for row, stamp in enumerate((0.3, 0.4, 0.5, 0.6, 0.7)):
        assert np.array_equal(policy.act(at(stamp)).values[0], actions[row])
    assert np.array_equal(policy.act(at(0.0)).values[0], actions[0]) and np.array_equal(policy.act(at(9.0)).values[0], actions[-1])
    np.testing.assert_allclose(policy.act(at(0.425)).values[0], 0.75 * actions[1] + 0.25 * actions[2], atol=1e-15)
    assert policy.report() == {"began": 0.0}


def test_efforts_are_kept_until_the_next_one_is_due():
    made, actions = bundle(True, CARTPOLE)
    assert np.array_equal(Playback(made, CARTPOLE).act(at(0.4999, robot=CARTPOLE)).values[0], actions[1])


def test_a_robot_that_stands_elsewhere_is_brought_to_the_first_command_within_a_fifth_of_its_speed():
    made, actions = bundle(False)
    policy = Playback(made, ARM)
    position, commands, stamp = np.clip(HOME - 0.5, ARM.lower, ARM.upper), [], 12.0
    while "began" not in policy.report():
        commands.append(policy.act(at(stamp, position)).values[0])
        position, stamp = commands[-1], stamp + ARM.period
        assert stamp < 60.0
    steps = np.abs(np.diff(commands, axis=0)) / ARM.period
    assert (steps <= 0.2 * ARM.velocity + 1e-9).all() and steps.max() > 0.19 * ARM.velocity.min()
    assert np.array_equal(commands[-1], actions[0])
    began = policy.report()["began"]
    np.testing.assert_allclose(policy.act(at(began + 0.35, position)).values[0], 0.5 * (actions[0] + actions[1]), atol=1e-9)


def test_a_robot_that_does_not_get_there_is_not_sent_further():
    made, actions = bundle(False)
    policy = Playback(made, ARM)
    blocked = np.clip(HOME - 0.5, ARM.lower, ARM.upper)
    for stamp in np.arange(0.0, 60.0, 0.5):
        command = policy.act(at(float(stamp), blocked)).values[0]
    assert np.array_equal(command, actions[0]) and "began" not in policy.report()


def test_it_says_when_the_robot_should_have_arrived():
    made, actions = bundle(False)
    policy = Playback(made, ARM)
    assert policy.report() == {}
    there = np.clip(HOME - 0.5, ARM.lower, ARM.upper)
    policy.act(at(12.0, there))
    # A quintic's peak is 15/8 of its mean speed.
    assert policy.report() == {"arrives": pytest.approx(12.0 + 15 / 8 * np.max(np.abs(actions[0] - there) / (0.2 * ARM.velocity)))}


def test_a_gap_is_no_time_of_the_recording_nor_of_the_way_to_it():
    made, actions = bundle(False)
    policy = Playback(made, ARM)
    far = np.clip(HOME - 0.5, ARM.lower, ARM.upper)
    policy.act(at(12.0, far))
    arrives = policy.report()["arrives"]
    early = policy.act(at(12.1, far)).values[0]
    late = policy.act(at(42.2, far)).values[0]  # half a minute in which nothing was seen
    assert (np.abs(late - early) <= 0.2 * ARM.velocity * 0.1 + 1e-9).all()
    assert policy.report()["arrives"] == pytest.approx(arrives + 30.0)
    policy = Playback(made, ARM)
    for stamp in (0.0, 0.1):
        policy.act(at(stamp, HOME))
    assert policy.report() == {"began": pytest.approx(-0.2)}  # stamps of the recording begin at 0.3
    np.testing.assert_allclose(policy.act(at(7.15, HOME)).values[0], actions[1], atol=1e-9)  # row 1 is due 0.1 s after row 0
    assert policy.report() == {"began": pytest.approx(-0.2 + 6.95)}


def test_the_bundle_survives_the_disk_and_is_for_its_robot_alone(tmp_path):
    made, actions = bundle(True)
    save_bundle(tmp_path / "replay", made)
    assert np.array_equal(load_policy(tmp_path / "replay", ARM).act(at(0.4)).values[0], actions[1])
    with pytest.raises(UserError, match=r"bundle 'replay' commands the joints joint1, .* robot 'cartpole' has slider"):
        load_policy(tmp_path / "replay", CARTPOLE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensors": {}}, "needs tensors 'stamps'"),
        ({"tensors": {"stamps": np.array([2, 1]), "actions": np.zeros((2, 8))}}, "its stamps must rise"),
        ({"tensors": {"stamps": np.array([1, 2]), "actions": np.full((2, 8), np.nan)}}, "be finite"),
        ({"parameters": {"from_reset": True, "approach": 0.0}}, "parameter 'approach'"),
    ],
)
def test_damaged_bundles_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        Playback(replace(bundle(True)[0], **change), ARM)


def test_efforts_bring_no_robot_to_where_a_recording_begins():
    with pytest.raises(UserError, match="robot 'cartpole' takes effort commands, which bring it to no place"):
        Playback(bundle(False, CARTPOLE)[0], CARTPOLE)

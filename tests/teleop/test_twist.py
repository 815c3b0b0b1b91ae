"""Tests of ros_rl.teleop.twist: the conventions of MoveIt Servo."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.teleop.twist import TwistInput

NOTHING = Observation(0.0, np.zeros(0), np.zeros(0), np.zeros(0))


def device(units="unitless"):
    return TwistInput(("base", "tool"), units, speed=0.4, turn=2.0, timeout=0.5)


@pytest.mark.parametrize(("units", "factor"), [("unitless", [0.4, 2.0]), ("speed_units", [1.0, 1.0])])
def test_units(units, factor):
    twist = device(units)
    twist.receive("tool", [0.5, 0.0, -1.0, 0.25, 0.0, 1.0], 3.0)
    sample = twist.read(NOTHING, 3.0)
    np.testing.assert_allclose(sample.twist, np.array([0.5, 0.0, -1.0, 0.25, 0.0, 1.0]) * np.repeat(factor, 3))
    assert (sample.stamp, sample.engaged, sample.frame) == (3.0, True, "tool")


def test_messages_that_cease_are_the_dead_man_switch():
    twist = device()
    assert twist.read(NOTHING, 0.0) is None
    twist.receive("", [0.0] * 6, 0.0)
    assert twist.read(NOTHING, 0.5).engaged
    assert not twist.read(NOTHING, 0.6).engaged


@pytest.mark.parametrize(
    ("frame", "values", "problem"),
    [
        ("", [np.nan, 0, 0, 0, 0, 0], "it is not finite"),
        ("", [0, 0, 0, 0, 0, -np.inf], "it is not finite"),
        ("", [1.2, 0, 0, 0, 0, 0], "unitless means from -1 to 1"),
        ("tol", [0] * 6, "unknown frame of a twist 'tol', did you mean 'tool'? (known: base, tool)"),
    ],
)
def test_a_message_that_does_not_fit_lets_go(frame, values, problem):
    twist = device()
    twist.receive("", [0.0] * 6, 0.0)
    with pytest.raises(UserError) as caught:
        twist.receive(frame, values, 0.0)
    assert problem in str(caught.value)
    assert twist.read(NOTHING, 0.0) is None

"""Tests of ros_rl.hardware.limits: many copies at once get what each gets alone; the guard's tests say what that is."""

import numpy as np
import pytest

from ros_rl.hardware.limits import CommandLimits
from ros_rl.robots.spec import load_robot


@pytest.mark.parametrize("name", ["arm", "quadruped", "cartpole", "quadrotor"])
def test_copies_are_cut_as_each_alone(name):
    spec = load_robot(name)
    limits, draw = CommandLimits(spec), np.random.default_rng(0)
    lower, upper = spec.command_limits
    wanted, target = (draw.uniform(1.5 * lower - 1, 1.5 * upper + 1, (2, 3, len(lower))) for _ in range(2))
    position, velocity = draw.normal(0.0, 2.0, (2, 2, 3, len(lower)))
    together = limits.apply(wanted, target, position, velocity, speed=0.5)
    for index in np.ndindex(2, 3):
        np.testing.assert_array_equal(together[index], limits.apply(wanted[index], target[index], position[index], velocity[index], 0.5))


def test_a_position_target_moves_by_its_velocity_limit_at_most():
    spec = load_robot("arm")
    rest = spec.home[:8]
    sent = CommandLimits(spec).apply(rest + np.array([1.0, -1.0, 0, 0, 0, 0, 0, 0]), rest, rest, np.zeros(8))
    np.testing.assert_allclose(sent - rest, np.array([2.175, -2.175, 0, 0, 0, 0, 0, 0]) / 200, atol=1e-12)

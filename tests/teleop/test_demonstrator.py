"""Tests of ros_rl.teleop.scripted: a demonstrator does what its policy does."""

import numpy as np

from ros_rl.hardware.interface import Observation
from ros_rl.policies.actors import load_policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.teleop.scripted import Demonstrator

ARM = load_robot("arm")


def test_a_demonstrator_is_engaged_and_does_what_its_policy_does_bit_for_bit():
    device, runner = Demonstrator(load_policy("arm_circle", ARM), seed=3), PolicyRunner(load_policy("arm_circle", ARM), seed=3)
    device.open()
    for tick in range(20):
        observation = Observation(tick * ARM.period, ARM.home, np.zeros_like(ARM.home), np.zeros_like(ARM.home), instruction="circle")
        sample = device.read(observation, 100.0 + tick)
        assert (sample.engaged, sample.stamp) == (True, 100.0 + tick)
        np.testing.assert_array_equal(sample.joints.values, runner.command(observation).values)
    device.close()

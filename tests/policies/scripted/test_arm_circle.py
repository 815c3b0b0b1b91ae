"""Tests of ros_rl.policies.scripted.arm_circle."""

import numpy as np
import pytest

from ros_rl.hardware.interface import Observation
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot

ROBOT = load_robot("arm")
POSTURES = {"home": ROBOT.home, "to the side": np.array([1.2, 0.2, -0.3, -1.8, 0.4, 1.9, 0.1, 0.01])}


@pytest.mark.parametrize("posture", POSTURES.values(), ids=POSTURES.keys())
def test_draws_the_circle_from_any_posture(play, posture):
    def put(robot, stamp):
        if stamp < 0.0:
            robot.data.qpos[robot.model.qpos] = posture

    bundle = load_bundle("arm_circle")
    radius, period = bundle.parameters["radius"], bundle.parameters["period"]
    run = play("arm_circle", "arm", "floor", 20.0, disturb=put)
    np.testing.assert_allclose(run.sent[0], posture, atol=1e-3)
    joints = np.array([seen.joint_position for seen in run.seen])
    assert np.abs(np.diff(run.sent, axis=0)).max() < 0.012 * ROBOT.velocity.max()
    assert run.counts["limited"] == 0

    model = RobotModel(ROBOT)
    last_round = [model.frame_pose("tool", q) for q in joints[-round(period * ROBOT.control_rate) :: 10]]
    offset = np.array([pose.position for pose in last_round]) - bundle.tensors["centre"]
    error = np.hypot(offset[:, 0], np.hypot(offset[:, 1], offset[:, 2]) - radius)
    assert error.max() < 2e-3
    angles = np.unwrap(np.arctan2(offset[:, 1], offset[:, 2]))
    assert np.isclose(angles[-1] - angles[0], 2 * np.pi, atol=0.1)
    turned = [np.arccos((np.trace(pose.rotation.T @ bundle.tensors["rotation"]) - 1) / 2) for pose in last_round]
    assert max(turned) < 0.01


def test_an_arm_that_is_held_back_is_not_pulled_ahead():
    policy = load_policy("arm_circle", ROBOT)
    posture = POSTURES["to the side"]
    for tick in range(4000):
        command = policy.act(Observation(tick * ROBOT.period, posture, np.zeros(8), np.zeros(8))).values[0]
        assert np.abs(command - posture).max() < 0.3

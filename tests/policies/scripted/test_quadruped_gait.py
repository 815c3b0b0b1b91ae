"""Tests of ros_rl.policies.scripted.quadruped_gait: leg kinematics against Pinocchio, standing and trotting in MuJoCo."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.policies.scripted.quadruped_gait import LEGS, legs_of
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot

ROBOT = load_robot("quadruped")
SLICES = {leg: slice(3 * index, 3 * index + 3) for index, leg in enumerate(LEGS)}


def random_legs(count: int) -> list[np.ndarray]:
    """Joint positions, shape (12,), with the feet below the hips."""
    random = np.random.default_rng(0)
    return [random.uniform([-0.6, 0.2, -2.4] * 4, [0.6, 1.4, -1.0] * 4) for _ in range(count)]


@pytest.mark.parametrize("leg", LEGS)
def test_leg_kinematics_invert_the_robot_model(leg):
    model, legs = RobotModel(ROBOT), legs_of(ROBOT)
    for joints in random_legs(50):
        foot = model.frame_pose(f"{leg}_foot", joints).position
        np.testing.assert_allclose(legs[leg].joints(foot), joints[SLICES[leg]], atol=1e-9)


def test_a_foot_out_of_reach_stretches_the_leg():
    leg = legs_of(ROBOT)["FL"]
    joints = leg.joints(leg.hip + [0.0, leg.offset, -1.0])
    assert np.isfinite(joints).all()
    assert joints[2] == 0.0


@pytest.mark.parametrize("leg", LEGS)
def test_torques_balance_a_load_on_the_foot(leg):
    model, legs = RobotModel(ROBOT), legs_of(ROBOT)
    for joints in random_legs(20):
        upwards = model.jacobian(f"{leg}_foot", joints)[2, 6:][SLICES[leg]]
        np.testing.assert_allclose(legs[leg].torques(joints[SLICES[leg]], 30.0), -30.0 * upwards, atol=1e-9)


def test_other_robots_are_refused():
    with pytest.raises(UserError, match=r"FL_hip_joint.*robot 'arm' has joint1"):
        legs_of(load_robot("arm"))


@pytest.mark.parametrize("bundle", ["quadruped_stand", "quadruped_trot"])
def test_stands_without_a_command(play, bundle):
    run = play(bundle, "quadruped", "quadruped_stand", 3.0, command=(0.0, 0.0, 0.0))
    np.testing.assert_allclose(run.sent[0], run.seen[0].joint_position, atol=1e-9)
    assert np.ptp(run.sent[200:], axis=0).max() == 0.0
    moved = run.seen[-1].privileged["base_pose"][:2] - run.seen[400].privileged["base_pose"][:2]
    assert np.linalg.norm(moved) < 1e-3


def test_stand_ignores_a_command(play):
    run = play("quadruped_stand", "quadruped", "floor", 2.0, command=(0.5, 0.0, 0.0))
    assert np.ptp(run.sent[200:], axis=0).max() == 0.0


@pytest.mark.parametrize(("command", "least"), [((0.3, 0.0, 0.0), 0.2), ((-0.3, 0.0, 0.0), 0.2), ((0.0, 0.2, 0.0), 0.15)])
def test_trots_where_it_is_told_for_twenty_seconds(play, command, least):
    run = play("quadruped_trot", "quadruped", "floor", 20.0, command=command)
    poses = np.array([seen.privileged["base_pose"] for seen in run.seen])
    assert poses[:, 2].min() > 0.25
    assert (1.0 - 2.0 * (poses[:, 4] ** 2 + poses[:, 5] ** 2)).min() > np.cos(0.2)
    direction = np.array(command[:2]) / np.linalg.norm(command[:2])
    speed = (poses[400, :2] - poses[200, :2]) @ direction  # between 1 s and 2 s, before the heading has drifted
    assert least < speed < 0.4
    assert run.counts["limited"] == 0


def test_turns_on_the_spot(play):
    run = play("quadruped_trot", "quadruped", "floor", 6.0, command=(0.0, 0.0, 0.5))
    rates = np.array([seen.base_gyro[2] for seen in run.seen])[400:]
    assert 0.4 < rates.mean() < 0.6

"""Tests of ros_rl.policies.scripted.quadruped_gait: standing and trotting in MuJoCo."""

import numpy as np
import pytest


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

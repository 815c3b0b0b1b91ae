"""Tests of ros_rl.policies.scripted.cartpole_lqr and the gain it ships with."""

import numpy as np
import pytest

from ros_rl.hardware.interface import Observation
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.scripted.design import linearised, lqr
from ros_rl.robots.spec import load_robot


def test_the_shipped_gain_stabilises_the_linearised_pole():
    a, b = linearised(load_robot("cartpole"))
    gain = load_bundle("cartpole_lqr").tensors["gain"]
    assert np.abs(np.linalg.eigvals(a)).max() > 1.0
    assert np.abs(np.linalg.eigvals(a - b @ gain)).max() < 0.999


def test_the_gain_solves_the_riccati_equation():
    a, b = linearised(load_robot("cartpole"))
    q, r = np.diag([1.0, 2.0, 3.0, 4.0]), np.array([[0.5]])
    gain, cost = lqr(a, b, q, r)
    residual = q + a.T @ cost @ a - a.T @ cost @ b @ gain - cost
    assert np.abs(residual).max() < 1e-9 * np.abs(cost).max()
    assert np.linalg.eigvalsh(cost).min() > 0.0


@pytest.mark.parametrize("lean", [-0.2, 0.2])
def test_catches_a_leaning_pole(play, lean):
    def tip(robot, stamp):
        if stamp < 0.0:
            robot.data.joint("pole").qpos = lean

    run = play("cartpole_lqr", "cartpole", "floor", 6.0, disturb=tip)
    assert run.seen[0].joint_position[1] == lean
    positions = np.array([seen.joint_position for seen in run.seen])
    assert np.abs(positions[:, 0]).max() < 0.8
    assert np.abs(positions[-1]).max() < 0.01


def test_whole_turns_of_the_pole_do_not_matter():
    policy = load_policy("cartpole_lqr", load_robot("cartpole"))
    forces = []
    for turns in (0, 1, -2):
        position = np.array([0.1, 0.05 + turns * 2 * np.pi])
        forces.append(policy.act(Observation(0.0, position, np.zeros(2), np.zeros(2))).values)
    np.testing.assert_allclose(forces[1:], [forces[0]] * 2, rtol=1e-9)

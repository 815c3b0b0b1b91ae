"""Tests of ros_rl.learning.walk: training that stops and goes on, and figures that say what happened."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.learning import walk
from ros_rl.sim.walk_env import NOMINAL, WalkVectorEnv
from ros_rl.sim.walk_env import walk as trotting

SMALL = replace(walk.PPO, copies=4, rollout=8, batch=16, epochs=1)


def test_a_training_that_was_stopped_goes_on_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(walk, "SAVE_EVERY", 1)
    whole = walk.train(walk.TrainArgs(steps=4 * 32, folder=tmp_path / "whole"), SMALL)
    iterate, done = walk.Ppo.iterate, []

    def stop(learner):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return iterate(learner)

    monkeypatch.setattr(walk.Ppo, "iterate", stop)
    with pytest.raises(KeyboardInterrupt):
        walk.train(walk.TrainArgs(steps=4 * 32, folder=tmp_path / "parts"), SMALL)
    monkeypatch.setattr(walk.Ppo, "iterate", iterate)
    again = walk.train(walk.TrainArgs(steps=4 * 32, folder=tmp_path / "parts"), SMALL)
    np.testing.assert_array_equal(again.parameters.values, whole.parameters.values)
    assert again.steps == whole.steps == 128
    bundle = walk.trained(tmp_path / "parts")
    np.testing.assert_array_equal(bundle.tensors["weight0"], whole.actor.layers[0][0])
    assert "--steps 128 --seed 0" in bundle.training["command"]


def test_the_velocity_that_is_measured_is_that_of_the_robots(monkeypatch):
    monkeypatch.setattr(walk, "COMMANDS", ((0.4, 0.0, 0.0), (0.0, 0.0, 0.5)))
    rows = walk.tracking(trotting(), walk.still, 2, uneven=False)
    assert [row["command"] for row in rows] == [[0.4, 0.0, 0.0], [0.0, 0.0, 0.5]]
    for row, part in zip(rows, (0, 2), strict=True):
        assert row["fell"] == 0 and row["of"] == 2
        (error,) = row["error"].values()
        assert error < 0.5
        assert abs(row["velocity"][part] / row["command"][part] - 1.0) <= error + 1e-3


def test_a_robot_that_falls_counts_as_standing_and_not_as_a_survivor(monkeypatch):
    monkeypatch.setattr(walk, "COMMANDS", ((0.4, 0.0, 0.0),))
    over = lambda observation: np.sign(np.sin(np.arange(12) + 1.0)) * np.ones((len(observation), 1))  # noqa: E731
    hopeless = replace(trotting(), correction=1.2)
    (row,) = walk.tracking(hopeless, over, 2, uneven=False)
    assert row["fell"] == 2 and row["error"] == {"linear": 1.0}
    found = walk.survival(hopeless, over, 1, NOMINAL, 0.5)
    assert found["survived"] == 0.0 and found["of"] == 16


def test_a_gentle_push_is_survived_and_a_violent_one_is_not():
    shares = [walk.survival(trotting(), walk.still, 1, NOMINAL, push)["survived"] for push in (0.05, 4.0)]
    assert shares[0] == 1.0 and shares[1] < 0.3


def test_pushes_come_from_all_sides_in_the_robots_own_directions():
    environment = WalkVectorEnv(trotting(), 2, NOMINAL)
    environment.tell([0.0, 0.0, 0.0])
    environment.reset(seed=0)
    assert np.ptp(environment.heading) > 0.1  # they start in any direction
    yaw = environment.heading + np.pi / 2
    before = environment.velocity
    environment.push(0.3 * np.stack([np.cos(yaw), np.sin(yaw)], axis=1))
    np.testing.assert_allclose(environment.velocity - before, np.tile([0.0, 0.3, 0.0], (2, 1)), atol=1e-9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--steps", "0"], "--steps must be at least 1"),
        (["bundle", "--folder", "nowhere"], "nowhere: no trained policy can be read"),
        (["evaluate", "--seeds", "0"], "--seeds must be at least 1"),
        (["evaluate", "--bundle", "quadruped_trot"], "parameter"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert walk.main(words) == 2
    assert message in capsys.readouterr().err


def test_a_folder_of_another_training_is_refused(tmp_path):
    walk.train(walk.TrainArgs(steps=32, folder=tmp_path), SMALL)
    with pytest.raises(UserError, match="train anew in another folder"):
        walk.train(walk.TrainArgs(steps=32, folder=tmp_path), replace(SMALL, hidden=(8,)))

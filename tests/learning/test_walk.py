"""Tests of ros_rl.learning.walk: training that stops and goes on, and figures that say what happened."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from ros_rl.errors import UserError
from ros_rl.learning import walk
from ros_rl.sim.walk_env import NOMINAL, Conditions, WalkVectorEnv
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
    for name, value in {"COMMANDS": ((0.4, 0.0, 0.0),), "_WARM": 30, "_MEASURED": 20, "_AFTER": 30}.items():
        monkeypatch.setattr(walk, name, value)
    over = lambda observation: np.sign(np.sin(np.arange(12) + 1.0)) * np.ones((len(observation), 1))  # noqa: E731
    hopeless = replace(trotting(), correction=1.2)
    (row,) = walk.tracking(hopeless, over, 2, uneven=False)
    assert row["fell"] == 2 and row["error"] == {"linear": 1.0}
    found = walk.survival(hopeless, over, 1, NOMINAL, 0.5)
    assert found["survived"] == 0.0 and found["of"] == 16


def test_a_gentle_push_is_survived_and_a_violent_one_is_not(monkeypatch):
    monkeypatch.setattr(walk, "_WARM", 60)
    monkeypatch.setattr(walk, "_AFTER", 50)
    shares = [walk.survival(trotting(), walk.still, 1, NOMINAL, push)["survived"] for push in (0.05, 4.0)]
    assert shares[0] == 1.0 and shares[1] < 0.3


def test_pushes_come_from_all_sides_in_the_directions_of_robots_that_walk(monkeypatch):
    pushed, speed = np.zeros((16, 2)), np.zeros(16)

    class Spied(WalkVectorEnv):
        def push(self, velocity):
            before, moment = self.velocity, velocity.any(axis=1)
            super().push(velocity)
            pushed[moment] += (self.velocity - before)[moment, :2]
            speed[moment] = before[moment, 0]

    monkeypatch.setattr(walk, "_AFTER", 25)
    assert walk.survival(trotting(), walk.still, 1, NOMINAL, 0.3, Spied)["by_direction"] == [1.0] * 8
    angle = np.repeat(np.deg2rad(45.0) * np.arange(8), 2)
    np.testing.assert_allclose(pushed, 0.3 * np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-9)
    assert (speed > 0.2).all() and (speed[1::2] > speed[::2]).all(), "told 0.5 and 0.8 m/s in turn"


def test_each_ground_is_measured_on_that_ground(monkeypatch):
    monkeypatch.setattr(walk, "tracking", lambda walked, policy, seeds, uneven: [{"error": {"linear": float(uneven), "turn": 0.0}}])
    monkeypatch.setattr(walk, "survival", lambda walked, policy, seeds, conditions, size: (conditions, size))
    found = walk.evaluate(trotting(), walk.still, 1)
    assert list(found) == ["flat", "uneven"]
    for share, row in zip((0.0, 1.0), found.values(), strict=True):
        assert row["error"] == {"linear": share, "turn": 0.0}
        assert row["pushes"] == {"0.5": (replace(NOMINAL, uneven=share), 0.5), "1": (replace(NOMINAL, uneven=share), 1.0)}
        assert row["pushes_varied"]["1"] == (Conditions(uneven=share), 1.0)


def test_the_spread_of_the_policy_shrinks_with_training(monkeypatch, tmp_path):
    iterate, spreads = walk.Ppo.iterate, []
    monkeypatch.setattr(walk.Ppo, "iterate", lambda learner: (spreads.append(learner.log_std.max()), iterate(learner))[1])
    walk.train(walk.TrainArgs(steps=3 * 32, folder=tmp_path), SMALL)
    assert (np.array(spreads) <= [-2.0, -2.5, -3.0]).all()


def test_what_ships_does_what_was_asked():
    """The figures that are kept, beside the bounds that were set before."""
    found = json.loads((Path(__file__).parents[2] / "docs/results/quadruped_walk.json").read_text())
    assert found["asked"] == {"largest_error": walk.LARGEST_ERROR, "least_survival": walk.LEAST_SURVIVAL}
    assert walk.missed(found["policies"]["quadruped_walk"]) == []
    assert walk.missed(found["policies"]["trot"]) == ["uneven: off by 22.7 % of the speed"]


@pytest.mark.parametrize("text", ["{}", "[]", '{"asked": null, "seed": 0, "steps": 1}', "{"])
def test_a_damaged_folder_is_one_line(text, tmp_path, capsys):
    (tmp_path / "policy.safetensors").write_bytes(save({"bias0": np.zeros(3)}))
    (tmp_path / "training.json").write_text(text)
    assert walk.main(["bundle", "--folder", str(tmp_path)]) == 2
    assert f"{tmp_path}: no trained" in capsys.readouterr().err


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

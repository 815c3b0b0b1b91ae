"""Tests of ros_rl.learning.quadruped_recovery: where it starts, and a training long enough to see that it trains."""

import json

import numpy as np
import pytest

from ros_rl.learning.quadruped_recovery import REGION, main, make_env, pushed_states
from ros_rl.learning.recovery import load_recovery, start_from


@pytest.fixture(scope="module")
def states():
    return pushed_states(60, 0)


def test_states_are_between_the_region_and_a_fall_and_episodes_go_on_from_there(states):
    environment = make_env(len(states))
    environment.reset(seed=0)
    start_from(environment, np.arange(len(states)), states)
    rho = environment.instability()
    assert (rho >= 0.8 * REGION - 1e-9).all() and (rho <= 0.95).all()
    assert rho.max() > 0.6 and np.median(rho) < 0.5
    np.testing.assert_array_equal(environment.copies.snapshot(), states)
    model = environment.copies.model
    told, measured = environment.copies.ctrl[:, model.actuators].copy(), environment.copies.qpos[:, model.qpos]
    np.testing.assert_array_equal(environment.walker.posture, measured)
    environment.step(np.zeros((len(states), 12)))
    reached = environment.copies.ctrl[:, model.actuators]
    step = np.array([joint.velocity for joint in model.spec.joints]) / 50.0  # of one action, within the guard's limits
    assert (np.abs(reached - told) <= step + 1e-9).all(), "no target jumps, and the robot does not stand up first"
    assert environment.copies.time.max() > 0.5 and len(np.unique(environment.copies.time)) > 10


def test_a_policy_is_trained_and_compared_with_the_stance(tmp_path, monkeypatch, states):
    monkeypatch.setattr("ros_rl.learning.quadruped_recovery.pushed_states", lambda count, seed: states[:count])
    for module in ("quadruped_recovery", "recovery"):
        monkeypatch.setattr(f"ros_rl.learning.{module}.HELD_OUT", 40)
    assert main(["--steps", "1200", "--snapshots", "20", "--folder", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "recovery.json").read_text())
    assert (found["states"], found["steps"], found["snapshots"]) == (40, 1200, 20)
    assert all(0.0 <= rate <= 1.0 for rate in found["rescue_rate"].values())
    assert 0.05 < found["rescue_rate"]["stance"] < 0.6
    policy = load_recovery(tmp_path / "recovery.safetensors", 47, 12)
    actions = policy(np.random.default_rng(0).standard_normal((5, 47)))
    assert actions.shape == (5, 12) and (np.abs(actions) <= 1.0).all()


def test_bad_numbers_are_one_line_and_exit_code_2(tmp_path, capsys):
    assert main(["--steps", "0", "--folder", str(tmp_path)]) == 2
    assert "--steps and --snapshots must be at least 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

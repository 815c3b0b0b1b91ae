"""Tests of ros_rl.learning.recovery: snapshots, rewards, files; a training long enough to rescue more often than doing nothing."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.learning.recovery import (
    RecoveryArgs,
    RecoveryPolicy,
    collect_snapshots,
    load_recovery,
    recovery_reward,
    rescue_rate,
    save_recovery,
    start_from,
    train_recovery,
)
from ros_rl.learning.sac import SacArgs
from ros_rl.sim.fall_env import make_fall_env


def cheetahs(copies: int):
    return make_fall_env("halfcheetah", copies)


@pytest.mark.parametrize("name", ["halfcheetah", "ant"])
def test_snapshots_are_on_the_way_to_a_fall_and_episodes_start_there(name):
    states, spent = collect_snapshots(make_fall_env(name, 8), 20, 0.35, 0)
    environment = make_fall_env(name, 20)
    environment.reset(seed=3)
    seen = start_from(environment, np.arange(20), states)
    rho = environment.instability()
    assert ((rho >= 0.28 - 1e-9) & (rho <= 0.95)).all()
    assert rho.max() > 0.6 and rho.min() < 0.5
    np.testing.assert_array_equal(seen, environment.observe())
    np.testing.assert_array_equal(environment.copies.snapshot(), states)
    again, spent_again = collect_snapshots(make_fall_env(name, 8), 20, 0.35, 0)
    np.testing.assert_array_equal(states, again)
    assert spent == spent_again


def test_what_snapshots_cost_is_counted(monkeypatch):
    environment = cheetahs(8)
    step, taken, fallen = environment.step, [], []

    def watched(actions):
        found = step(actions)
        taken.append(len(actions))
        fallen.append((found[4]["rho"] >= 1.0).sum())
        return found

    monkeypatch.setattr(environment, "step", watched)
    _, spent = collect_snapshots(environment, 60, 0.35, 0)
    assert spent == (sum(taken), sum(fallen)) and spent.falls > 0


def test_the_reward_is_that_of_the_recipe():
    rho, action = np.array([0.2, 0.5, 1.2]), np.array([[1.0, 1.0], [0.5, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(recovery_reward(rho, action, np.array([0.02, 0.5, 0.5]), 0.35, 10.0), [0.76, -0.625, -11.2])


def test_the_rescue_rate_counts_who_comes_back_before_falling():
    """Zero torque is a recovery for an ant, some of the time, and never for a cheetah, which keeps lying as it lies."""
    ants = lambda copies: make_fall_env("ant", copies)  # noqa: E731
    states, _ = collect_snapshots(ants(16), 40, 0.35, 1)
    at_rest = lambda seen: np.zeros((len(seen), 8))  # noqa: E731
    assert 0.1 < rescue_rate(ants, at_rest, states, 0.35) < 0.95
    assert rescue_rate(ants, at_rest, states, 1.25) == 1.0  # whatever has not fallen is below 0.8 · 1.25
    with pytest.raises(UserError, match="must have the shape"):
        rescue_rate(ants, lambda seen: np.zeros((len(seen), 5)), states, 0.35)


def test_policies_are_trained_side_by_side_and_the_same_again():
    args = RecoveryArgs(snapshots=64, steps=640, copies=8, updates=1, sac=SacArgs(batch=16, hidden=(16, 16), warmup=160))
    seen = []
    trained = train_recovery(cheetahs, (0.02, 0.5), args, 0, seen.append)
    policies = trained.policies
    assert len(policies) == 2 and len(trained.held_out) == 200 and sum(seen) == 640
    assert [spent.steps for spent in trained.training] == [640, 640] and trained.collecting.steps > 0
    observation = np.random.default_rng(0).standard_normal((5, 17))
    actions = [policy(observation) for policy in policies]
    assert actions[0].shape == (5, 6) and (np.abs(actions[0]) <= 1.0).all()
    assert not np.allclose(actions[0], actions[1])
    again = train_recovery(cheetahs, (0.02, 0.5), args, 0).policies
    np.testing.assert_array_equal(again[0](observation), actions[0])
    assert again[0].digest() == policies[0].digest() != policies[1].digest()
    other = train_recovery(cheetahs, (0.02, 0.5), replace(args, steps=480), 0).policies
    assert not np.array_equal(other[0](observation), actions[0])


def test_each_policy_learns_with_its_own_price_from_what_the_environment_showed():
    """The rewards are those of the recipe, with ρ from the pitch that the observation holds."""
    args = RecoveryArgs(snapshots=64, steps=1600, copies=4, updates=1, sac=SacArgs(batch=16, hidden=(16, 16), warmup=1600))
    trained = train_recovery(cheetahs, (0.02, 0.5), args, 0)
    for price, spent, parts in zip((0.02, 0.5), trained.training, trained.transitions, strict=True):
        assert len(parts["reward"]) == 1600 and np.abs(parts["action"]).max() <= 1.0
        rho = np.abs(parts["next_observation"][:, 1]) / (np.pi / 2)
        fell = parts["terminated"] > 0
        assert spent.falls == fell.sum() > 0
        np.testing.assert_array_equal(rho >= 1.0, fell)
        np.testing.assert_allclose(parts["reward"], recovery_reward(rho, parts["action"], np.array(price), 0.35, 10.0), atol=1e-4)
        same = np.flatnonzero(~fell[:-4] & (np.abs(parts["observation"][4:, 1] - parts["next_observation"][:-4, 1]) < 1e-5))
        assert len(same) > 1400  # what followed is what was seen next, but where an episode began


def test_it_trains():
    args = RecoveryArgs(
        snapshots=300, steps=4800, copies=8, updates=4, sac=SacArgs(learning_rate=2e-3, batch=64, hidden=(32, 32), warmup=800)
    )
    trained = train_recovery(cheetahs, (0.02,), args, 0)
    at_rest = rescue_rate(cheetahs, lambda seen: np.zeros((len(seen), 6)), trained.held_out, 0.35)
    assert rescue_rate(cheetahs, trained.policies[0], trained.held_out, 0.35) > at_rest + 0.1


def policy_of(observations=4, actions=2) -> RecoveryPolicy:
    draw = np.random.default_rng(0)
    shapes = [(observations, 8), (8, actions)]
    weights, biases = [draw.standard_normal(shape) for shape in shapes], [draw.standard_normal(shape[1]) for shape in shapes]
    return RecoveryPolicy(weights, biases, draw.standard_normal(observations), np.full(observations, 2.0))


def test_a_policy_is_read_as_it_was_written(tmp_path):
    policy, path = policy_of(), tmp_path / "folder" / "recovery.safetensors"
    save_recovery(path, policy)
    observation = np.random.default_rng(1).standard_normal((3, 4))
    np.testing.assert_array_equal(load_recovery(path, 4, 2)(observation), policy(observation))


@pytest.mark.parametrize("broken", ["other", "nan", "empty", "missing", "another kind"])
def test_a_file_that_holds_no_fitting_policy_is_refused(broken, tmp_path):
    from safetensors.numpy import save_file

    path, policy = tmp_path / "recovery.safetensors", policy_of()
    if broken == "nan":
        policy.biases[0][0] = np.nan
    save_recovery(path, policy)
    if broken == "empty":
        path.write_bytes(b"")
    elif broken == "missing":
        path.unlink()
    elif broken == "another kind":
        save_file({"values": np.zeros(3)}, path)
    message = {"other": "takes 4 observations to 2 actions, the environment has 17 and 6", "nan": "not finite"}
    with pytest.raises(UserError, match=message.get(broken, "no recovery policy can be read from it")):
        load_recovery(path, *((17, 6) if broken == "other" else (4, 2)))

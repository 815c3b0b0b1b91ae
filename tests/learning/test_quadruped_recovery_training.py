"""Tests of ros_rl.learning.quadruped_recovery: where it starts, training that stops and goes on, and figures that say what happened."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.learning import quadruped_recovery as recovery
from ros_rl.learning.filtered_walk import FilteredWalk
from ros_rl.learning.ppo import Ppo
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.quadruped_walk import correction_in, walk_in
from ros_rl.robots.walking import Catcher, Walker
from ros_rl.safety.interface import PassThrough, SafetyReport
from ros_rl.sim.catch_env import CatchVectorEnv, catch
from ros_rl.sim.walk_env import NOMINAL, WalkVectorEnv

FEW = {"_COPIES": 16, "_MOMENTS": 2, "_WARM": 40}
SMALL = replace(recovery.PPO, copies=4, rollout=8, batch=16, epochs=1)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Starts from few robots at few moments."""
    for name, value in {**FEW, "HELD_OUT": 12, "STARTS": 20, "RANDOM_STEPS": 4}.items():
        monkeypatch.setattr(recovery, name, value)


@pytest.fixture(scope="module")
def starts():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FEW.items():
            patch.setattr(recovery, name, value)
        return recovery.near_falls(40, 0)


def some(starts: recovery.NearFalls, count: int) -> recovery.NearFalls:
    """Returns a few of the states, from both grounds."""
    rows = np.linspace(0, len(starts.states) - 1, count).astype(int)
    return recovery.NearFalls(*(part[rows] for part in starts))


def test_states_are_between_walking_and_a_fall_and_know_their_walk(starts):
    assert len(starts.states) == 40 and 8 < starts.uneven.sum() < 32 and (np.diff(starts.uneven.astype(int)) >= 0).all()
    environment = WalkVectorEnv(walk_in(load_bundle("quadruped_walk")), 40, replace(NOMINAL, uneven=starts.uneven.mean()))
    environment.reset(seed=0)
    environment.resume(np.arange(40), starts.states)
    rho = environment.instability()
    assert (rho >= 0.08 - 1e-9).all() and (rho <= 0.95).all()
    assert np.median(rho) < 0.4 < rho.max()
    np.testing.assert_allclose(starts.clock, np.rint(environment.copies.time * 50.0), err_msg="the clock counts actions from the start")
    assert (np.abs(starts.action) <= 1.0).all() and np.ptp(starts.velocity[:, 0]) > 0.2


def test_the_same_seed_gives_the_same_states():
    one, again, other = (recovery.near_falls(10, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.states, again.states)
    assert not np.array_equal(one.states, other.states)


def test_training_begins_with_what_the_walk_does_when_it_is_told_to_stand(starts):
    environment = CatchVectorEnv(catch(), starts.states, starts.uneven, 0.15, 4, replace(NOMINAL, uneven=0.5))
    learner, bundle = Ppo(SMALL, environment, 3, seed=0), load_bundle("quadruped_walk")
    recovery.begin_with(learner, bundle)
    plain = correction_in(replace(bundle, parameters=bundle.parameters | {"symmetric": False}))
    walk, robot = walk_in(bundle), environment.robot
    walker, catcher, draw = Walker(walk, robot, 3), Catcher(catch(), robot, 3), np.random.default_rng(0)
    walker.clock[:], walker.action[:] = walker.settling + 5, draw.uniform(-1.0, 1.0, (3, 12))
    catcher.clock[:], catcher.action[:] = 5, walker.action * walk.correction / catch().correction
    quat = np.tile([1.0, 0.05, 0.02, 0.0], (3, 1))
    measured = quat, draw.standard_normal((3, 3)), robot.home + 0.1 * draw.standard_normal((3, 12)), draw.standard_normal((3, 12))
    actions = learner.policy(catcher.observation(*measured))
    expected = walker.walk_on(plain(walker.observation(*measured)))
    np.testing.assert_allclose(catcher.walk_on(actions), expected, atol=1e-5)
    assert (actions[:, 12:] == 0.0).all() and np.abs(actions[:, :12]).max() > 0.05


def test_a_training_that_was_stopped_goes_on_bit_for_bit(tmp_path, monkeypatch, starts):
    monkeypatch.setattr(recovery, "near_falls", lambda count, seed: some(starts, count))
    monkeypatch.setattr("ros_rl.learning.walk.SAVE_EVERY", 1)
    args = recovery.TrainArgs(steps=4 * 32, folder=tmp_path / "whole")
    whole = recovery.train(args, SMALL)
    iterate, done = Ppo.iterate, []

    def stop(learner):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return iterate(learner)

    monkeypatch.setattr(Ppo, "iterate", stop)
    parts = replace(args, folder=tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        recovery.train(parts, SMALL)
    monkeypatch.setattr(Ppo, "iterate", iterate)
    again = recovery.train(parts, SMALL)
    np.testing.assert_array_equal(again.parameters.values, whole.parameters.values)
    assert recovery.main(["bundle", "--folder", str(tmp_path / "parts"), "--output", str(tmp_path)]) == 0
    bundle = load_bundle(tmp_path / "quadruped_recovery")
    np.testing.assert_array_equal(bundle.tensors["weight0"], whole.actor.layers[0][0])
    assert bundle.region == recovery.REGION and "--steps 128" in bundle.training["command"]
    assert bundle.metrics["brought_back"]["of"] == 12
    with pytest.raises(UserError, match="train anew in another folder"):
        recovery.train(args, replace(SMALL, epochs=2))


def test_a_robot_is_back_if_it_stands_two_seconds_later(starts):
    bundle = load_bundle("quadruped_recovery")
    few = some(starts, 16)
    back, stance, walk = (recovery.brought_back(acting, few)[0] for acting in (bundle, load_bundle("quadruped_stand"), None))
    assert back.sum() > max(stance.sum(), walk.sum()) and 0 < stance.sum() < 16
    lying = few._replace(states=few.states.copy())
    lying.states[:, 4:8] = [0.0, 1.0, 0.0, 0.0]  # time and position, then the attitude: on its back
    back, outside = recovery.brought_back(bundle, lying)
    assert outside.all() and not back.any()


class Told(WalkVectorEnv):
    """Robots of which a test says who falls in every step, and what ρ they have after it."""

    fallen, rho = np.zeros(1, bool), np.zeros(1)

    def step(self, actions):
        seen, reward, _, truncated, info = super().step(actions)
        return seen, reward, np.resize(self.fallen, self.num_envs), truncated, info | {"rho": np.resize(self.rho, self.num_envs)}


def test_a_robot_that_lies_low_or_has_fallen_on_the_way_is_not_back_and_the_walk_keeps_its_stride(starts, monkeypatch):
    clocks = []

    class Seen(Told):
        fallen, rho = np.array([False, False, True]), np.array([0.1, 0.5, 0.1])

        def step(self, actions):
            clocks.append(self.walker.clock.copy())
            return super().step(actions)

    monkeypatch.setattr(recovery, "WalkVectorEnv", Seen)
    monkeypatch.setattr(recovery, "_AFTER", 2)
    few = some(starts, 6)
    back, outside = recovery.brought_back(None, few)
    assert back.tolist() == [True, False, False] * 2
    assert recovery.shares(back, outside)["of"] == 6
    stride = round(50.0 / walk_in(load_bundle("quadruped_walk")).gait.frequency)
    np.testing.assert_array_equal((clocks[0] + 25 - few.clock) % stride, 0, "the stance took 25 actions, which this clock does not count")


def test_shares_are_of_all_and_of_those_outside():
    found = recovery.shares(np.array([True, True, False, True]), np.array([False, True, True, False]))
    assert found == {"all": 0.75, "of": 4, "outside": 0.5, "of_outside": 2}
    assert recovery.shares(np.ones(2, bool), np.zeros(2, bool))["outside"] is None


def test_every_fall_under_random_targets_is_counted():
    class Falling(Told):
        fallen = np.array([True, False, False, False])

    assert recovery.random_falls(Falling, 3) == {"falls": 12, "steps": 48, "per_1000": 250.0}


def test_triggers_are_counted_in_a_minute_of_walking(monkeypatch):
    class Once(PassThrough):
        def filter(self, observation, action):
            return action, SafetyReport(values={"triggers": 1})

    for name, value in {"COMMANDS": ((0.5, 0.0, 0.0), (0.0, 0.0, 0.5)), "_WARM": 10, "_MEASURED": 15}.items():
        monkeypatch.setattr(f"ros_rl.learning.walk.{name}", value)
    found = recovery.walking(lambda *args: FilteredWalk(*args, Once), uneven=False)
    assert (found["triggers"], found["robots_with_triggers"], found["of"]) == (6, 6, 6)
    seconds = 6 * (0.5 + 25 / 50.0)  # each stands up first
    assert found["minutes"] == pytest.approx(seconds / 60.0, abs=0.006)
    assert found["triggers_per_minute"] == pytest.approx(6 / (seconds / 60.0), rel=0.01)


def test_figures_of_all_are_written_and_say_what_was_asked(tmp_path, monkeypatch, capsys, starts):
    monkeypatch.setattr(recovery, "near_falls", lambda count, seed: some(starts, count))
    monkeypatch.setattr(recovery, "PUSHES", (0.5, 1.0))
    for name, value in {"COMMANDS": ((0.5, 0.0, 0.0), (0.0, 0.0, 0.5)), "_WARM": 20, "_MEASURED": 20, "_AFTER": 20}.items():
        monkeypatch.setattr(f"ros_rl.learning.walk.{name}", value)
    assert recovery.main(["evaluate", "--seeds", "1", "--output", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["asked"]["more_survival"] == 0.05 and found["region"]["d"] == recovery.REGION.d
    assert list(found["policies"]) == ["none", "quadruped_stand", "quadruped_recovery"]
    for name, figures in found["policies"].items():
        assert figures["pushes"]["1"]["of"] == 16 and figures["brought_back"]["of"] == 12
        assert figures["random_targets"]["steps"] == 4 * 16 and figures["walking"]["fell"] == 0
        assert ("triggers_per_minute" in figures["walking"]) == (name != "none")
    assert "quadruped_recovery: brings back" in capsys.readouterr().out


def test_what_ships_does_what_was_asked():
    found = json.loads((Path(__file__).parents[2] / "docs/results/quadruped_recovery.json").read_text())["policies"]
    assert recovery.missed(found, "quadruped_recovery") == []
    assert len(recovery.missed(found, "quadruped_stand")) == 2, "the stance brings back and survives no more than without"
    assert load_bundle("quadruped_recovery").metrics["brought_back"] == found["quadruped_recovery"]["brought_back"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--steps", "0"], "--steps must be at least 1"),
        (["bundle", "--folder", "nowhere"], "nowhere: no trained policy can be read"),
        (["evaluate", "--seeds", "0"], "--seeds must be at least 1"),
        (["evaluate", "--bundle", "quadruped_trot"], "says no region"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert recovery.main(words) == 2
    assert message in capsys.readouterr().err

"""Tests of ros_rl.learning.rollout: one episode through the whole data path, in one process."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import ActionChunk
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.policies.interface import PolicySpec
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough, SafetyReport
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import TaskMonitor, TaskState, load_task

SPEC = load_robot("cartpole")
TASK = load_task("cartpole_balance")


class Noise:
    """Random pushes, drawn anew from the seed of every episode."""

    spec = PolicySpec("cartpole", ("slider",), (), 100.0)

    def __init__(self, force: float):
        self.force = force
        self.seeds: list[int] = []

    def reset(self, seed: int, instruction: str) -> None:
        self.seeds.append(seed)
        self.random = np.random.default_rng(seed)

    def act(self, observation):
        return ActionChunk(("slider",), self.force * self.random.normal(size=(1, 1)), 0.01, observation.stamp, "noise")


class Loop:
    """Keeps what an episode needs between episodes."""

    def __init__(self, force: float = 1.0, time_limit: float = TASK.time_limit, hold: float = TASK.success.hold, safety=None):
        task = replace(TASK, time_limit=time_limit, success=replace(TASK.success, hold=hold))
        self.robot = GuardedRobot(MujocoRobot(SPEC, task), Guard(SPEC))
        self.policy = Noise(force)
        self.runner = PolicyRunner(self.policy, seed=3)
        self.stage = SafetyStage(SPEC, safety or PassThrough())
        self.monitor = TaskMonitor(task, SPEC)

    def run(self, seed: int = 0, steps: int = 1000, judged: bool = True) -> tuple[TaskState | None, list[Step]]:
        ticks: list[Step] = []
        state = run_episode(self.robot, self.runner, self.stage, seed, steps, self.monitor if judged else None, ticks.append)
        return state, ticks


def trace(ticks: list[Step]) -> bytes:
    return np.array([[*tick.observation.joint_position, *tick.sent.values, tick.observation.stamp] for tick in ticks]).tobytes()


def test_the_same_seed_gives_the_same_episode_whatever_ran_before():
    fresh, used = Loop(), Loop()
    used.run(seed=5)
    used.runner.episode = -1
    (_, one), (_, other) = fresh.run(seed=1), used.run(seed=1)
    assert trace(one) == trace(other)


def test_episodes_begin_at_time_zero_with_a_policy_seed_of_their_own():
    loop = Loop()
    starts = [loop.run(seed, steps=5)[1][0].observation for seed in (1, 2)]
    assert [start.stamp for start in starts] == [0.0, 0.0]
    assert loop.policy.seeds == [3, 4]
    assert not np.array_equal(starts[0].joint_position, starts[1].joint_position)


def test_without_a_monitor_all_steps_run_one_period_apart():
    state, ticks = Loop(force=50.0).run(steps=300, judged=False)
    assert state is None
    np.testing.assert_allclose([tick.observation.stamp for tick in ticks], np.arange(300) * 0.01, atol=1e-9)
    assert all(tick.task is None for tick in ticks)


def test_a_failure_ends_the_episode_at_once():
    state, ticks = Loop(force=300.0).run()
    assert (state.terminated, state.success, state.truncated) == (True, False, False)
    assert 0 < len(ticks) < 1000
    assert not any(tick.task.done for tick in ticks)


def test_every_episode_is_judged_and_played_from_its_own_start():
    loop = Loop(force=0.0, hold=0.1)
    for _ in range(2):
        state, ticks = loop.run()
        assert state.success
        assert len(ticks) == 10
        loop.monitor.reset()
        loop.monitor.update(replace(ticks[0].observation, stamp=-1.0))  # what was seen in between does not count
    loop.run(steps=1)
    loop.run(steps=1)
    assert loop.policy.seeds == [3, 4, 5, 6]


def test_l3_the_time_limit_truncates_and_does_not_terminate():
    state, ticks = Loop(force=0.0, time_limit=0.1).run()
    assert (state.terminated, state.truncated) == (False, True)
    assert len(ticks) == 10


def test_steps_that_run_out_leave_the_episode_open():
    state, ticks = Loop(force=0.0).run(steps=7)
    assert not state.done
    assert len(ticks) == 7


def test_what_is_recorded_is_what_was_seen_and_sent():
    _, ticks = Loop(force=1e6).run(steps=20, judged=False)
    for tick in ticks:
        assert tick.sent.stamp == tick.observation.stamp
        assert abs(tick.sent.values[0]) <= SPEC.effort[0]
        assert tick.sent.source == "noise"


class Refusing:
    """Lets nothing through."""

    def reset(self):
        pass

    def filter(self, observation, action, distribution=None):
        return 0 * action, SafetyReport(intervened=True)


def test_the_safety_filter_stands_before_the_robot():
    _, ticks = Loop(force=5.0, safety=Refusing()).run(steps=20, judged=False)
    assert all(tick.safety.intervened and tick.sent.values[0] == 0.0 for tick in ticks)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_c1_a_policy_that_breaks_is_held_and_the_episode_goes_on(bad):
    loop = Loop(force=bad)
    _, ticks = loop.run(steps=20, judged=False)
    assert len(ticks) == loop.robot.guard.counts["rejected"] == 20
    assert all(tick.sent.values[0] == 0.0 and tick.sent.source == "guard" for tick in ticks)

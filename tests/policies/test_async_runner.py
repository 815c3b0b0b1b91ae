import threading
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.async_runner import AsyncRunner
from ros_rl.policies.interface import PolicySpec, PolicyUnavailable

DT = 0.1


class Slow:
    """Row i of the chunk for stamp s is s + i·dt plus a number for each answer; it answers when it is let."""

    spec = PolicySpec("arm", ("a",), (), 1 / DT, 10)

    def __init__(self, step=0.0, fault=None):
        self.let, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.resets, self.answers, self.step, self.fault = [], 0, step, fault

    def reset(self, seed, instruction):
        self.resets.append((seed, instruction))

    def act(self, observation):
        self.begun.release()
        assert self.let.acquire(timeout=30)
        if self.fault is not None:
            raise self.fault
        values = observation.stamp + DT * np.arange(10)[:, None] + self.step * self.answers
        self.answers += 1
        return ActionChunk(("a",), values, DT, observation.stamp, "slow")


def see(stamp, instruction="go"):
    zero = np.zeros(1)
    return Observation(stamp, zero, zero, zero, instruction=instruction)


def answer(runner, policy):
    """Lets the policy answer, and waits until it has."""
    asked = runner._asked
    policy.let.release()
    assert asked is not None
    asked.answer.exception(timeout=30)


@pytest.fixture
def make():
    runners = []

    def of(policy, **options):
        runners.append((AsyncRunner(policy, **options), policy))
        return runners[-1][0]

    yield of
    for runner, policy in runners:
        if isinstance(policy, Slow):
            policy.let.release(100)
        runner.close()


def value(command):
    return None if command is None else pytest.approx(float(command.values[0]))


def test_it_never_waits_and_drops_only_rows_whose_time_has_passed(make):
    policy = Slow()
    runner = make(policy, blend=0.0)
    assert runner.command(see(0.0)) is None and runner.command(see(0.1)) is None
    answer(runner, policy)
    for stamp in (0.2, 0.3, 0.4):
        assert value(runner.command(see(stamp))) == stamp  # rows 2, 3, 4 of the chunk for 0
    assert runner.counts == {"answers": 1, "late": 0, "starved": 2, "failed": 0}


def test_the_first_answer_does_not_count_as_the_usual_delay(make):
    policy = Slow()
    runner = make(policy, blend=0.0)
    runner.command(see(0.0))
    answer(runner, policy)
    runner.command(see(0.5))  # the first took 0.5 s: it would be asked again at once if that counted
    assert runner._asked is None and runner.report()["async_delay"] == 0.0
    runner.command(see(0.99))
    assert runner._asked is not None
    answer(runner, policy)
    runner.command(see(1.3))
    assert runner.report()["async_delay"] == pytest.approx(0.31)
    for stamp in (1.4, 1.6):
        assert value(runner.command(see(stamp))) == pytest.approx(stamp, abs=0.011)
        assert runner._asked is None
    runner.command(see(1.7))  # 0.29 s of the chunk for 0.99 are left
    assert runner._asked is not None and policy.resets == [(0, "go")]


def test_the_command_moves_from_the_old_chunk_to_the_new_one(make):
    policy = Slow(step=1.0)
    runner = make(policy, blend=0.4, margin=0.25)
    runner.command(see(0.0))
    answer(runner, policy)
    runner.command(see(0.1))
    runner.command(see(0.8))
    answer(runner, policy)
    values = [float(runner.command(see(stamp)).values[0]) - stamp for stamp in (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)]
    np.testing.assert_allclose(values, [0.0, 0.25, 0.5, 0.75, 1.0, 1.0], atol=1e-9)  # shares of the new chunk, which is 1 higher


class Level:
    """Every row of its chunks is the present level; it answers at once, or not at all."""

    spec = PolicySpec("arm", ("a",), (), 100.0, 50)

    def __init__(self, rows):
        self.rows, self.level, self.away, self.closed = rows, 0.0, False, 0

    def reset(self, seed, instruction):
        pass

    def act(self, observation):
        if self.away:
            raise PolicyUnavailable("away")
        return ActionChunk(("a",), np.full((self.rows, 1), self.level), 0.01, observation.stamp, "level")

    def close(self):
        self.closed += 1


def play(runner, stamp, measured=0.0):
    """Shows an observation, and waits for the answer to the question, so that the next observation finds it."""
    command = runner.command(replace(see(stamp), joint_position=np.array([measured])))
    if runner._asked is not None:
        runner._asked.answer.exception(timeout=30)
    return None if command is None else float(command.values[0])


@pytest.mark.parametrize("rows", [1, 5, 30])
@pytest.mark.parametrize("seed", range(5))
def test_no_step_is_larger_than_the_rate_of_the_blend(make, rows, seed):
    """Whenever answers come, whatever they say, and however long there were none: levels within 1 and 0.1 s of blend make 0.1 a tick."""
    draw, policy = np.random.default_rng(seed), Level(rows)
    runner, last, moved = make(policy, hold=0.05), 0.3, 0.0
    for tick in range(400):
        policy.level = float(draw.uniform())
        policy.away = (tick // 40) % 3 == 2 or bool(draw.integers(2))
        now = play(runner, tick * 0.01, last)  # without a command the robot stays where it is
        if now is not None:
            moved = max(moved, abs(now - last))
            last = now
    assert 0.02 < moved <= 0.1 + 1e-9


def test_after_an_outage_it_begins_where_the_robot_is_then(make):
    policy = Level(50)
    runner = make(policy)
    for tick in range(3):
        play(runner, tick * 0.01)
    policy.away = True
    assert play(runner, 60.0) is None
    policy.away, policy.level = False, 0.5
    assert play(runner, 60.01, 0.5) is None
    assert [play(runner, 60.02 + tick * 0.01, 0.5) for tick in range(12)] == pytest.approx([0.5] * 12)


def test_a_used_up_chunk_is_held_for_a_while_and_counted(make):
    policy = Slow()
    runner = make(policy, hold=0.3)
    runner.command(see(0.0))
    answer(runner, policy)
    runner.command(see(0.1))
    assert value(runner.command(see(1.1))) == 0.9 and value(runner.command(see(1.25))) == 0.9
    assert runner.command(see(1.4)) is None
    assert runner.counts["starved"] == 1 + 3


def test_an_answer_of_an_old_episode_is_thrown_away(make):
    policy = Slow()
    runner = make(policy, blend=0.0)
    runner.command(see(0.0))
    assert policy.begun.acquire(timeout=30)
    old = runner._asked
    runner.command(see(0.0, "stop"))
    policy.let.release()
    old.answer.result(timeout=30)
    assert runner.command(see(0.1, "stop")) is None  # the new question is still on its way
    answer(runner, policy)
    assert value(runner.command(see(0.2, "stop"))) == 0.2
    assert policy.resets == [(0, "go"), (1, "stop")] and runner.episode == 1 and runner.counts["late"] == 1


def test_a_question_that_has_not_begun_is_withdrawn(make):
    policy = Slow()
    runner = make(policy, blend=0.0)
    runner.command(see(0.0))
    assert policy.begun.acquire(timeout=30)
    for word in ("stop", "go on", "wait"):  # the first is with the policy still
        runner.command(see(0.0, word))
    policy.let.release()
    answer(runner, policy)
    assert value(runner.command(see(0.1, "wait"))) == 0.1
    assert policy.resets == [(0, "go"), (3, "wait")] and runner.counts["late"] == 1


def test_a_closed_runner_begins_anew(make):
    policy = Level(5)
    runner = make(policy)
    play(runner, 0.0)
    assert play(runner, 0.01) == 0.0
    runner.close()
    assert policy.closed >= 1
    assert play(runner, 0.02) is None and play(runner, 0.03) == 0.0 and runner.episode == 1


def test_a_policy_that_is_away_is_asked_again_and_a_refusal_is_raised(make):
    policy = Slow(fault=PolicyUnavailable("away"))
    runner = make(policy, blend=0.0)
    for stamp in (0.0, 0.1):
        runner.command(see(stamp))
        answer(runner, policy)
    policy.fault = None
    runner.command(see(0.2))
    answer(runner, policy)
    assert value(runner.command(see(0.3))) == 0.3 and runner.counts["failed"] == 2
    policy.fault = UserError("no such word")
    runner.command(see(1.19))
    answer(runner, policy)
    with pytest.raises(UserError, match="no such word"):
        runner.command(see(1.2))

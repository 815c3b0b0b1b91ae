"""Tests of ros_rl.policies.runner."""

import numpy as np
import pytest

from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.interface import PolicySpec
from ros_rl.policies.runner import PolicyRunner

DT = 0.02


class Counting:
    """Row i of its k-th chunk commands 10 k + i."""

    def __init__(self, rows: int = 4):
        self.spec = PolicySpec("test", ("a",), (), 1 / DT, rows)
        self.resets: list[tuple[int, str]] = []
        self.asked: list[float] = []

    def reset(self, seed: int, instruction: str) -> None:
        self.resets.append((seed, instruction))

    def act(self, observation: Observation) -> ActionChunk:
        self.asked.append(observation.stamp)
        values = 10.0 * len(self.asked) + np.arange(self.spec.chunk)[:, None]
        return ActionChunk(("a",), values, DT, observation.stamp, "counting")


def seen(stamp: float, instruction: str = "") -> Observation:
    return Observation(stamp, np.zeros(1), np.zeros(1), np.zeros(1), instruction=instruction)


def play(runner: PolicyRunner, stamps) -> list[float]:
    return [runner.command(seen(stamp)).values[0] for stamp in stamps]


def test_rows_are_held_for_their_time_and_the_policy_is_asked_when_they_are_used_up():
    policy = Counting(rows=2)
    ticks = [round(5 * tick * 1e6) / 1e9 for tick in range(20)]
    assert play(PolicyRunner(policy), ticks) == [10] * 4 + [11] * 4 + [20] * 4 + [21] * 4 + [30] * 4
    assert policy.asked == [0.0, 0.04, 0.08]


def test_stamps_that_jitter_do_not_shift_the_rows():
    jitter = np.random.default_rng(0).uniform(-0.001, 0.001, 40)
    stamps = np.arange(40) * DT + jitter
    assert play(PolicyRunner(Counting()), stamps) == [10 * (1 + tick // 4) + tick % 4 for tick in range(40)]


@pytest.mark.parametrize(("rows", "periods"), [(4, 1), (1, 4), (1, 1)])
def test_a_policy_is_asked_as_often_as_its_rate_says_where_stamps_jitter(rows, periods):
    policy, draw, period = Counting(rows), np.random.default_rng(0), DT / periods
    stamps = period * (np.arange(2000) + 0.1 * draw.standard_normal(2000))
    play(PolicyRunner(policy), stamps[np.diff(stamps, prepend=-1.0) > 0.0])
    assert len(policy.asked) == pytest.approx(2000 / (rows * periods), rel=0.002)


def test_c9_only_rows_whose_time_has_passed_are_dropped():
    policy = Counting()
    assert play(PolicyRunner(policy), [1.0, 1.06, 1.5, 1.52]) == [10, 13, 20, 21]
    assert policy.asked == [1.0, 1.5]


def test_the_same_observation_gets_the_same_answer_unasked():
    policy = Counting(rows=1)
    runner = PolicyRunner(policy)
    first, again = runner.command(seen(0.5)), runner.command(seen(0.5))
    assert again is first
    assert policy.asked == [0.5]


def test_a_command_says_what_it_answers_and_whose_it_is():
    runner = PolicyRunner(Counting())
    runner.command(seen(1.0))
    command = runner.command(seen(1.02))
    assert (command.joint_names, command.stamp, command.source) == (("a",), 1.02, "counting")


@pytest.mark.parametrize("back", [0.0, 0.99])
def test_s5_time_that_jumps_back_starts_an_episode(back):
    policy = Counting()
    runner = PolicyRunner(policy, seed=7)
    assert play(runner, [1.0, 1.02, back, back + DT]) == [10, 11, 20, 21]
    assert policy.resets == [(7, ""), (8, "")]
    assert runner.episode == 1


def test_a_new_instruction_starts_an_episode():
    policy = Counting()
    runner = PolicyRunner(policy)
    for stamp, instruction in [(0.0, "push"), (0.02, "push"), (0.04, "pull"), (0.04, "push")]:
        runner.command(seen(stamp, instruction))
    assert policy.resets == [(0, "push"), (1, "pull"), (2, "push")]
    assert policy.asked == [0.0, 0.04, 0.04]


def test_restart_makes_the_next_observation_the_first():
    policy = Counting()
    runner = PolicyRunner(policy)
    assert play(runner, [0.0]) == [10]
    runner.restart()
    assert play(runner, [0.0, 0.02]) == [20, 21]
    assert policy.resets == [(0, ""), (1, "")]

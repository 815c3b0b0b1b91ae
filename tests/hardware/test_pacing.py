"""Tests of ros_rl.hardware.pacing on a clock that only work and sleep move on."""

import pytest

from ros_rl.hardware.pacing import Pacer


class Clock:
    """Counts microseconds; `late` is what every sleep takes too long."""

    def __init__(self, late: int = 0):
        self.now = 0
        self.late = late

    def __call__(self) -> float:
        return self.now / 1e6

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += round(seconds * 1e6) + self.late


def paced(works: list[int], late: int = 0) -> tuple[Pacer, list[int]]:
    """Runs a 5 ms loop whose rounds take `works` microseconds; returns when each began."""
    clock = Clock(late)
    pacer = Pacer(0.005, clock, clock.sleep)
    starts = []
    for work in works:
        starts.append(clock.now)
        clock.now += work
        pacer.wait()
    return pacer, starts


def test_s4_work_of_1_9_ms_in_a_5_ms_loop_runs_at_exactly_200_hz():
    pacer, starts = paced([1900] * 1000)
    assert starts == list(range(0, 5_000_000, 5000))
    assert (pacer.ticks, pacer.overruns) == (1000, 0)


def test_s4_work_that_varies_and_sleep_that_is_late_do_not_add_up():
    _, starts = paced([1900, 100, 4800, 3000] * 100, late=70)
    assert starts[1:] == [index * 5000 + 70 for index in range(1, 400)]


@pytest.mark.parametrize(("work", "missed"), [(5100, 1), (9900, 1), (12_000, 2), (100_100, 20)])
def test_s4_missed_deadlines_are_counted_and_not_made_up_for(work, missed):
    pacer, starts = paced([1900, work, 1900, 1900])
    assert pacer.overruns == missed
    late = 5000 + 5000 * (missed + 1)
    assert starts == [0, 5000, late, late + 5000]


def test_a_deadline_met_to_the_microsecond_is_no_overrun():
    pacer, starts = paced([5000] * 3)
    assert starts == [0, 5000, 10_000]
    assert pacer.overruns == 0


def test_wait_tells_how_late_it_was():
    clock = Clock(late=300)
    assert Pacer(0.005, clock, clock.sleep).wait() == pytest.approx(0.0003)

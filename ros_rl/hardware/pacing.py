"""The one pacing rule of every loop: absolute deadlines on the monotonic clock."""

import time
from collections.abc import Callable


class Pacer:
    """Waits for deadlines that lie whole periods apart, whatever the work in between took.

    A deadline that has passed is counted and left out; the next wait ends at the next one that lies ahead, so that a
    late loop never makes up for it with a burst.
    """

    def __init__(self, period: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep):
        """Starts counting periods from now.

        Args:
            period: seconds between deadlines.
            clock: monotonic time in s.
            sleep: waits for a number of seconds.
        """
        self.period = period
        self.overruns = 0
        self.ticks = 0
        self._clock = clock
        self._sleep = sleep
        self._deadline = clock()

    def wait(self) -> float:
        """Sleeps until the next deadline and returns how late it was met, s."""
        self._deadline += self.period
        self.ticks += 1
        now = self._clock()
        missed = int((now - self._deadline) / self.period) + 1 if now > self._deadline else 0
        if missed:
            self.overruns += missed
            self._deadline += missed * self.period
        if (remaining := self._deadline - now) > 0:
            self._sleep(remaining)
        return self._clock() - self._deadline

"""The controller's clock: the only clock that stamps a history.

Workers never stamp anything: a worker whose clock is skewed on purpose cannot skew the evidence.
Time is passed in wherever it is needed, so tests run on a `FakeClock` and do not sleep.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Nanoseconds since the start of the run, never going backwards."""

    def now_ns(self) -> int:
        """Return the time since the start of the run in nanoseconds."""
        ...


class MonotonicClock:
    """CLOCK_MONOTONIC counted from the moment of construction."""

    def __init__(self) -> None:
        self.origin_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        """Return the time since construction in nanoseconds."""
        return time.monotonic_ns() - self.origin_ns


class FakeClock:
    """A clock that a test moves by hand."""

    def __init__(self, start_ns: int = 0) -> None:
        self.time_ns = start_ns

    def now_ns(self) -> int:
        """Return the time that the test has set."""
        return self.time_ns

    def advance(self, delta_ns: int) -> None:
        """Move forward by `delta_ns` nanoseconds; going back is a mistake of the test."""
        assert delta_ns >= 0
        self.time_ns += delta_ns

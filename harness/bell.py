"""Waiting in a worker, whose clocks may be made to lie.

Python's `time.sleep`, and the time-outs of its locks, events and queues, wait for a *point* in
time: the process computes it from the clock that it sees, and the kernel compares it with the true
one.  In a worker whose monotonic clock was put an hour ahead, `time.sleep(0.02)` lasts an hour.
Here a wait is given to the kernel as a *length*, as C programs, Go and Java do, and stays that
long.
"""

import contextlib
import math
import os
import select


def rest(seconds: float) -> None:
    """Do nothing for a length of true time."""
    select.select([], [], [], max(0.0, seconds))


class Bell:
    """One thread waits, others ring; a ring that nobody waited for ends the next wait at once."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def ring(self) -> None:
        """End the wait."""
        with contextlib.suppress(BlockingIOError):  # it has been rung often enough
            os.write(self._write, b"!")

    def wait(self, seconds: float | None = None) -> None:
        """Wait for a ring, no longer than a length of true time (rounded up to milliseconds)."""
        self._poll.poll(None if seconds is None else max(0, math.ceil(seconds * 1000)))
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

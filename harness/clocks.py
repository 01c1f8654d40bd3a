"""A lie about the time, as data.

A process sees `true + offset + (true - since) * (rate - 1)`.  The wall clock and the monotonic
clock lie apart from each other; CLOCK_MONOTONIC_RAW always stays true.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lie:
    """How one clock lies: `offset_s` at once, then `rate` (1 true, 0 frozen, 2 double)."""

    offset_s: float = 0.0
    rate: float = 1.0

    def reading_s(self, true_s: float, since_s: float) -> float:
        """Return what a process sees at `true_s`, having been lied to since `since_s`."""
        return true_s + self.offset_s + (true_s - since_s) * (self.rate - 1.0)


@dataclass(frozen=True)
class Skew:
    """How a node's clocks lie."""

    wall: Lie = Lie()
    monotonic: Lie = Lie()

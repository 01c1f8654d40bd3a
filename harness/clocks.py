"""A lie about the time, as data, and what a clock was seen to show.

There are two lines of time that a process can be lied to about, apart from each other: the wall
clock (CLOCK_REALTIME and its kin) and the monotonic clock (CLOCK_MONOTONIC, CLOCK_BOOTTIME).
CLOCK_MONOTONIC_RAW and the CPU clocks always stay true.

Arithmetic is in whole nanoseconds, with rates in units of 2**-32, exactly as the machine code in
`harness.vdso` does it: the two can be compared without a tolerance.
"""

import time
from dataclasses import dataclass, field

RATE_ONE = 1 << 32
_CLOCK_TAI = 11  # Linux's number; Python knows its name from 3.9 on


@dataclass(frozen=True)
class Lie:
    """How one clock lies, counted from the moment at which the lie begins.

    It jumps by `offset_s` and from then on runs at `rate` (1 true, 0 frozen, 2 double).  With
    `strobe_s` it jumps forth and back with that period: the first half of it with the jump.
    """

    offset_s: float = 0.0
    rate: float = 1.0
    strobe_s: float = 0.0

    @property
    def offset_ns(self) -> int:
        """The jump in nanoseconds."""
        return round(self.offset_s * 1e9)

    @property
    def rate_fixed(self) -> int:
        """The rate in units of 2**-32."""
        return round(self.rate * RATE_ONE)

    @property
    def half_strobe_ns(self) -> int:
        """Half of the strobe's period in nanoseconds, 0 without one."""
        return round(self.strobe_s * 1e9 / 2)

    def reading_ns(self, true_ns: int, since_ns: int) -> int:
        """Return what a process reads at `true_ns`, having been lied to since `since_ns`."""
        return self.without_jump_ns(true_ns, since_ns) + self.jump_ns(true_ns, since_ns)

    def without_jump_ns(self, true_ns: int, since_ns: int) -> int:
        """Return the reading less the jump: it never goes backwards."""
        return since_ns + ((true_ns - since_ns) * self.rate_fixed >> 32)

    def jump_ns(self, true_ns: int, since_ns: int) -> int:
        """Return the jump at `true_ns`, 0 in the second half of a strobe."""
        half = self.half_strobe_ns
        return 0 if half and abs(true_ns - since_ns) // half % 2 else self.offset_ns

    def __str__(self) -> str:
        parts = [f"{self.offset_s:+g} s"] if self.offset_s else []
        if self.rate != 1.0:
            parts.append("frozen" if self.rate == 0 else f"at {self.rate:g} times the true speed")
        if self.strobe_s:
            parts.append(f"forth and back every {self.strobe_s:g} s")
        return ", ".join(parts) or "true"


@dataclass(frozen=True)
class Skew:
    """How the clocks of a node lie; None says nothing about that clock."""

    wall: Lie | None = None
    monotonic: Lie | None = None


@dataclass(frozen=True)
class Moment:
    """One moment, as the four lines of time that a process may ask for show it truly."""

    wall_ns: int
    tai_ns: int
    monotonic_ns: int
    boot_ns: int

    @classmethod
    def now(cls) -> "Moment":
        """Return this moment."""
        return cls(
            time.clock_gettime_ns(time.CLOCK_REALTIME),
            time.clock_gettime_ns(_CLOCK_TAI),
            time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        )


@dataclass(frozen=True)
class Glimpse:
    """A reading of a clock between two readings of the true one, in nanoseconds.

    `grain_ns` is how coarse the answer is: the clock showed `seen_ns` or up to that much more.
    """

    before_ns: int
    seen_ns: int
    after_ns: int
    grain_ns: int = 0

    @property
    def error_s(self) -> float:
        """How far the clock was from the truth, in seconds."""
        return (self.seen_ns - (self.before_ns + self.after_ns) / 2 + self.grain_ns / 2) / 1e9

    def fits(self, lie: Lie, since_ns: int, within_ns: int) -> bool:
        """Whether this is what `lie` makes a process read, give or take `within_ns`."""
        low_ns = lie.without_jump_ns(self.before_ns, since_ns) - within_ns
        high_ns = lie.without_jump_ns(self.after_ns, since_ns) + within_ns
        # Of a strobe that turned over meanwhile both sides are right.
        jumps = {lie.jump_ns(at_ns, since_ns) for at_ns in (self.before_ns, self.after_ns)}
        return any(
            low_ns + jump <= self.seen_ns + self.grain_ns and self.seen_ns <= high_ns + jump
            for jump in jumps
        )


@dataclass(frozen=True)
class Readings:
    """The clocks of one process, or of the program on a node; None was not read.

    `original`: a process reads them by the kernel's own code.  `trouble` says why a process could
    not be lied to or not be looked at.
    """

    wall: Glimpse | None = None
    monotonic: Glimpse | None = None
    original: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class Applied:
    """A process that was lied to: `after_s` from the beginning of the lie, in `took_ms`."""

    pid: int
    after_s: float
    took_ms: float = field(compare=False)

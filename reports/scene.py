"""What the picture shows: lanes with bars and marks, as plain data and without any coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A bar.  `labels` from long to short: the longest that fits is written into it.

    `must` words are written below the bar when not even the shortest fits.
    """

    start_ns: int
    end_ns: int
    style: str
    labels: tuple[str, ...] = ()
    title: str = ""
    op: int | None = None
    must: bool = False


@dataclass(frozen=True)
class Mark:
    """A moment: `style` is tick, write, cross, refused, unknown, read or end."""

    time_ns: int
    style: str
    title: str
    op: int | None = None
    words: str = ""


@dataclass(frozen=True)
class Row:
    """Bars and marks at one height."""

    spans: Sequence[Span] = ()
    marks: Sequence[Mark] = ()
    thin: bool = False


@dataclass(frozen=True)
class Lane:
    """One line of the picture with its name; `sub` explains its first row, `second` the next."""

    title: str
    sub: str
    rows: Sequence[Row]
    second: str = ""


@dataclass(frozen=True)
class Bracket:
    """The named stretch of time that the finding is about."""

    start_ns: int
    end_ns: int
    words: str


@dataclass(frozen=True)
class Scene:
    """Everything that is drawn between `start_ns` and `end_ns`, and at `tail_ns` (the run's end).

    `moments` are the told times, between which a gap longer than `long_ns` may be cut.
    """

    start_ns: int
    end_ns: int
    moments: Sequence[int]
    lanes: Sequence[Lane]
    bracket: Bracket | None = None
    tail_ns: int | None = None
    long_ns: int = 4_000_000_000

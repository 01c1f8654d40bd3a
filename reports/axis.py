"""A true time axis, with the long quiet stretches cut out and the cuts drawn.

Durations must be visible, so time is never warped to fit text.  But a run that sleeps for a minute
around 100 ms of trouble would show nothing; so a gap between two told moments that is far longer
than all shorter gaps together is cut in its middle, and the reader is told how much is missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

CUT_PX = 30.0
TAIL_PX = 165.0
_TICK_PX = 95.0


@dataclass(frozen=True)
class Piece:
    """An unbroken stretch of time from `start_ns` to `end_ns`, drawn from `left` to `right`."""

    start_ns: int
    end_ns: int
    left: float
    right: float


@dataclass(frozen=True)
class Axis:
    """Pieces in order; between two of them lies a cut.  With `tail`, the last is the run's end."""

    pieces: Sequence[Piece]
    tail: bool = False

    def x(self, time_ns: int) -> float:
        """Where a time is drawn: inside a cut on its middle, outside of the axis on its rim."""
        before: Piece | None = None
        for piece in self.pieces:
            if time_ns < piece.start_ns:
                return piece.left if before is None else (before.right + piece.left) / 2
            if time_ns <= piece.end_ns:
                share = (time_ns - piece.start_ns) / max(1, piece.end_ns - piece.start_ns)
                return piece.left + share * (piece.right - piece.left)
            before = piece
        return self.pieces[-1].right

    @property
    def cuts(self) -> Sequence[tuple[Piece, Piece]]:
        """The pieces on both sides of each cut."""
        return tuple(pairwise(self.pieces))

    def ticks(self) -> Sequence[tuple[float, str]]:
        """Where to write which time."""
        whole = self.pieces[:-1] if self.tail else self.pieces
        length_ns = sum(piece.end_ns - piece.start_ns for piece in whole)
        width = sum(piece.right - piece.left for piece in whole)
        step_ns, digits = _step(round(length_ns * min(_TICK_PX, width / 4) / max(width, 1.0)))
        found = []
        for piece in whole:
            first = -(-piece.start_ns // step_ns) * step_ns
            found += [
                (self.x(time_ns), f"{time_ns / 1e9:.{digits}f} s")
                for time_ns in range(first, piece.end_ns + 1, step_ns)
            ]
        return found


def _step(at_least_ns: float) -> tuple[int, int]:
    """The next step of 1, 2 or 5 times a power of ten, and the decimals it needs in seconds."""
    power, digits = 1_000, 6
    while power * 10 <= at_least_ns:
        power, digits = power * 10, digits - 1
    for factor in (1, 2, 5):
        if factor * power >= at_least_ns:
            return factor * power, max(0, digits)
    return 10 * power, max(0, digits - 1)


def axis(
    start_ns: int,
    end_ns: int,
    moments: Iterable[int],
    *,
    left: float,
    right: float,
    long_ns: int,
    tail_ns: int | None = None,
) -> Axis:
    """Lay out `start_ns` to `end_ns` between two x positions.

    `moments` are the told times: only gaps between them may be cut, and only when longer than
    `long_ns`.  `tail_ns` is a single later moment (the end of the run) with a piece of its own.
    """
    points = sorted({start_ns, end_ns, *(t for t in moments if start_ns < t < end_ns)})
    gaps = list(pairwise(points))
    shown = _shown(gaps, long_ns)
    cut = [length < b - a for (a, b), length in zip(gaps, shown, strict=True)]
    space = right - left - CUT_PX * sum(cut) - (0 if tail_ns is None else TAIL_PX + CUT_PX)
    scale = space / max(1, sum(shown))
    pieces: list[Piece] = []
    begin_ns, begin_x, x = start_ns, left, left
    for (a, b), length, is_cut in zip(gaps, shown, cut, strict=True):
        if not is_cut:
            x += (b - a) * scale
            continue
        half = length // 2
        pieces.append(Piece(begin_ns, a + half, begin_x, x + half * scale))
        begin_ns, begin_x = b - half, x + half * scale + CUT_PX
        x = begin_x + half * scale
    pieces.append(Piece(begin_ns, end_ns, begin_x, x))
    if tail_ns is not None:
        pieces.append(Piece(tail_ns - 1, tail_ns + 8, right - TAIL_PX, right))
    return Axis(pieces, tail=tail_ns is not None)


def _shown(gaps: Sequence[tuple[int, int]], long_ns: int) -> list[int]:
    """How much of each gap is drawn: all of it, or of a long one as much as all shorter ones."""
    shown = [b - a for a, b in gaps]
    shorter = 0
    cap: int | None = None
    for i in sorted(range(len(gaps)), key=lambda i: shown[i]):
        if cap is None and shown[i] > long_ns and shown[i] > 2 * shorter > 0:
            cap = shorter
        if cap is not None:
            shown[i] = cap
        else:
            shorter += shown[i]
    return shown

"""How many datagrams it takes to tell a bad link from a good one, and what they told."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

from harness.shape import Shape, slowest_s
from harness.site import Burst

_COUNT_MIN = 60
_COUNT_ALL_MAX = 3000
# So many of an event are expected that seeing none of them is a chance of one in 100,000.
_EXPECTED = 12
_SMALL_BYTES, _LARGE_BYTES = 64, 1400
_GAP_S = 0.0003
_RATE_S = 0.25
# What a sender in Python reaches by itself; a bound above cannot be told from none.
_RATE_MAX = 50e6
_LEAST_S = 0.0002
_TELLING_S = 0.001
_NOISE_S = 0.005


@dataclass(frozen=True)
class Plan:
    """A burst that shows what a shape does."""

    count: int
    size_bytes: int
    gap_s: float
    wait_s: float


def plan(shape: Shape, pairs: int) -> Plan:
    """Return the burst over each of so many pairs."""
    wait_s = slowest_s([shape]) + 0.3
    if shape.rate_bytes_s is not None:
        count = ceil(shape.rate_bytes_s * _RATE_S / _LARGE_BYTES)
        return Plan(min(400, max(10, count)), _LARGE_BYTES, 0.0, wait_s)
    shares = [share for share in (shape.loss, shape.duplicate, shape.reorder) if share > 0]
    count = max([_COUNT_MIN, *(ceil(_EXPECTED / share) for share in shares)])
    return Plan(min(count, _COUNT_ALL_MAX // max(1, pairs)), _SMALL_BYTES, _GAP_S, wait_s)


@dataclass(frozen=True)
class Sign:
    """One thing that was asked for: whether it is seen (None: it cannot be told), and how much."""

    seen: bool | None
    text: str


def signs(shape: Shape, others: Shape, now: Burst) -> Iterator[Sign]:
    """Yield what a burst shows of each thing that was asked for, beside what other faults do."""
    if now.delay_s is None:
        yield Sign(True if shape.loss == 1 else None, "nothing arrived")
        return
    if shape.delay_s:
        yield Sign(_late(shape, others, now), f"{now.delay_s * 1000:.1f} ms late")
    if shape.jitter_s and now.spread_s is not None:
        yield Sign(now.spread_s >= 0.3 * shape.jitter_s, f"spread {now.spread_s * 1000:.1f} ms")
    for share, number, word in (
        (shape.loss, now.lost, "lost"),
        (shape.duplicate, now.doubled, "doubled"),
        (shape.reorder, now.swapped, "out of order"),
    ):
        if share:
            yield Sign(_often(share, number, now.sent, shape), f"{number} of {now.sent} {word}")
    if shape.rate_bytes_s is not None:
        rate = now.rate_bytes_s
        slow = (
            None
            if rate is None or shape.rate_bytes_s > _RATE_MAX
            else (rate <= 1.2 * shape.rate_bytes_s)
        )
        yield Sign(slow, f"{(rate or 0) / 1000:.0f} kB/s")


def _often(share: float, number: int, sent: int, shape: Shape) -> bool | None:
    expected = share * sent
    if number >= max(1.0, expected - 5 * sqrt(expected)):
        return True
    # A slow link has few packets at a time: they may be too far apart to overtake each other.
    return None if expected < _EXPECTED or shape.rate_bytes_s is not None else False


def _late(shape: Shape, others: Shape, now: Burst) -> bool | None:
    """Whether packets are as late as they should be.

    The shortest time of the burst counts: a busy machine makes packets late, and never early.
    """
    least_s = shape.delay_s - shape.jitter_s
    if least_s < _LEAST_S or now.least_s is None:
        return None
    return now.least_s >= 0.8 * least_s + max(0.0, others.delay_s - others.jitter_s)


def is_good(shape: Shape, now: Burst) -> bool:
    """Whether a burst shows nothing of a shape, on a link that no fault should make bad."""
    if now.delay_s is None or now.least_s is None or now.lost or now.doubled or now.swapped:
        return False
    least_s = shape.delay_s - shape.jitter_s
    if least_s >= _TELLING_S:
        late = now.least_s > 0.5 * least_s
    else:  # all that is left of such a delay is its jitter
        late = now.delay_s > max(_NOISE_S, 0.5 * shape.delay_s)
    bound = shape.rate_bytes_s
    if late or bound is None or bound > _RATE_MAX or now.rate_bytes_s is None:
        return not late
    return now.rate_bytes_s > 1.2 * bound

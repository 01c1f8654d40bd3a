"""How a bad link behaves, as data."""

from collections.abc import Iterable
from dataclasses import dataclass

QUEUE_S = 1.0  # what a link of bounded rate holds; more is lost
OVERTAKEN_S = 0.01  # how long a packet that is reordered is held back


@dataclass(frozen=True)
class Shape:
    """Delay and jitter in seconds; loss, duplication and reordering as shares of packets.

    Jitter is added to the delay or taken from it, and does not change the order of packets;
    `reorder` does: that share is held back until later ones have overtaken it.  `rate_bytes_s`
    bounds the throughput, None for no bound.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    rate_bytes_s: float | None = None


def together(shapes: Iterable[Shape]) -> Shape:
    """Return how a link behaves that several faults make bad, as if it were one after the other."""
    whole = Shape()
    for shape in shapes:
        rates = [r for r in (whole.rate_bytes_s, shape.rate_bytes_s) if r is not None]
        whole = Shape(
            delay_s=whole.delay_s + shape.delay_s,
            jitter_s=whole.jitter_s + shape.jitter_s,
            loss=_either(whole.loss, shape.loss),
            duplicate=_either(whole.duplicate, shape.duplicate),
            reorder=_either(whole.reorder, shape.reorder),
            rate_bytes_s=min(rates, default=None),
        )
    return whole


def _either(one: float, other: float) -> float:
    """The chance that at least one of two independent things happens."""
    return one + other - one * other


def slowest_s(shapes: Iterable[Shape]) -> float:
    """Return how long a packet may take, at most, over the worst of some links."""
    return max((_slow_s(shape) for shape in shapes), default=0.0)


def _slow_s(shape: Shape) -> float:
    queued = QUEUE_S if shape.rate_bytes_s is not None else 0.0
    overtaken = OVERTAKEN_S if shape.reorder else 0.0
    return shape.delay_s + shape.jitter_s + queued + overtaken

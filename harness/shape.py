"""How a bad link behaves, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Delay and jitter in seconds; loss, duplication and reordering as shares of packets.

    `rate_bytes_s` bounds the throughput, None for no bound.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    rate_bytes_s: float | None = None

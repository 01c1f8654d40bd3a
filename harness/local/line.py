"""What a bad link does to one packet after another: a pure function of a seed and the arrivals.

Packets first wait for their turn at the bounded rate, in a queue that holds one second, and then
travel.  Loss happens before the queue.  A packet that is reordered is held back a little longer
than the others, so that later ones overtake it; a doubled one arrives twice in a row.
"""

import random

from harness.shape import OVERTAKEN_S, QUEUE_S, Shape


class Line:
    """One directed link that behaves like a shape; times are monotonic seconds."""

    def __init__(self, shape: Shape, seed: int | str) -> None:
        self.shape = shape
        self._random = random.Random(seed)  # noqa: S311 - chance, not secrets
        self._free_at = 0.0
        self._last_due = 0.0

    def due(self, size_bytes: int, now: float) -> list[float]:
        """Return when a packet is to arrive that comes now: never, once, or twice."""
        shape, draw = self.shape, self._random.random
        if draw() < shape.loss:
            return []
        sent = now
        if shape.rate_bytes_s is not None:
            begins = max(now, self._free_at)
            if begins - now > QUEUE_S:
                return []
            sent = self._free_at = begins + size_bytes / shape.rate_bytes_s
        due = sent + max(0.0, shape.delay_s + shape.jitter_s * (2 * draw() - 1))
        due = max(due, self._last_due)
        if draw() < shape.reorder:
            due += OVERTAKEN_S
        else:
            self._last_due = due
        return [due, due] if draw() < shape.duplicate else [due]

"""Bad links: packets on their way to other hosts are late, lost, doubled, or out of order.

What becomes of a packet is decided by the harness's own line (`harness.local.line`), a link for
each receiver.  It is all done in a thread of its own, because packets come whenever they like.
"""

import heapq
import itertools
import os
import select
import sys
import threading
import time
from typing import Any

from harness.local.line import Line
from harness.shape import Shape
from harness.ssh.agent.packets import Packet, Queue

_AT_ONCE = 64  # then what is due gets its turn
_SWITCH_S = 0.0005  # how long the rest of the agent may keep this thread from its packets


class Lines:
    """The links to other hosts; `queue` hands over what goes there."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._lines: dict[str, Line] = {}
        self._held: list[tuple[float, int, Packet, bool]] = []
        self._count = itertools.count()
        self._guard = threading.Lock()
        self._bell_r, self._bell_w = os.pipe()
        sys.setswitchinterval(_SWITCH_S)
        threading.Thread(target=self._work, daemon=True).start()

    def change(self, links: dict[str, tuple[dict[str, Any], str]]) -> None:
        """Let these links be bad, by receiver: with a shape, and a seed for its chances.

        What is held of others arrives at once.
        """
        shapes = {to: (Shape(**shape), seed) for to, (shape, seed) in links.items()}
        with self._guard:
            old = self._lines
            self._lines = {
                to: old[to] if to in old and old[to].shape == shape else Line(shape, seed)
                for to, (shape, seed) in shapes.items()
            }
            now = time.monotonic()
            good = [entry for entry in self._held if entry[2].destination not in shapes]
            bad = [entry for entry in self._held if entry[2].destination in shapes]
            self._held = bad + [(now, *entry[1:]) for entry in good]
            heapq.heapify(self._held)
        os.write(self._bell_w, b"\0")

    def forget(self, receivers: list[str]) -> None:
        """Lose what is on the way to these."""
        with self._guard:
            lost = [entry for entry in self._held if entry[2].destination in receivers]
            self._held = [e for e in self._held if e[2].destination not in receivers]
            heapq.heapify(self._held)
        for _, _, packet, taken in lost:
            if not taken:
                self._queue.take_away(packet)

    def _work(self) -> None:
        watched = [self._queue.socket.fileno(), self._bell_r]
        while True:
            ready = select.select(watched, [], [], self._deliver())[0]
            if self._bell_r in ready:
                os.read(self._bell_r, 4096)
            with self._guard:
                for packet in itertools.islice(self._queue.packets(), _AT_ONCE):
                    self._take(packet)

    def _deliver(self) -> "float | None":
        """Send what is due; return how long nothing else is, None for ever."""
        while True:
            with self._guard:
                if not self._held:
                    return None
                left_s = self._held[0][0] - time.monotonic()
                if left_s > 0:
                    return left_s
                _, _, packet, taken = heapq.heappop(self._held)
            if taken:
                self._queue.send_copy(packet)
            else:
                self._queue.pass_on(packet)

    def _take(self, packet: Packet) -> None:
        line = self._lines.get(packet.destination)
        if line is None:
            self._queue.pass_on(packet)
            return
        due = line.due(len(packet.data), time.monotonic())
        taken = not due or self._queue.can_copy(packet)
        if taken:
            self._queue.take_away(packet)
        # What cannot be copied stays in the kernel until it is due, once.
        for at in due if taken else due[:1]:
            heapq.heappush(self._held, (at, next(self._count), packet, taken))

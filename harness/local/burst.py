"""How good a link is, told from a burst of numbered datagrams over it.

Sent and received by the harness's own sockets in the nodes' networks, and counted there: what the
packet engine says that it did is not asked.
"""

import contextlib
import itertools
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from harness.local.post import Post
from harness.site import Burst, Pair

QUIET_S = 0.05  # doubles come after
_STAMP = struct.Struct("=4sQIId")
_MARK = b"wkb1"
_HEADER_BYTES = 28  # of UDP and IPv4
_rounds = itertools.count(1)


def stamped(number: int, index: int, i: int, size_bytes: int) -> bytes:
    """Return the datagram `i` over the pair `index` of the burst `number`; it says when it left."""
    data = _STAMP.pack(_MARK, number, index, i, time.monotonic())
    return data + b"\0" * max(0, size_bytes - _STAMP.size - _HEADER_BYTES)


class Arrivals:
    """What arrived of the burst `number`, by the index of its pair."""

    def __init__(self, number: int, indexes: Sequence[int]) -> None:
        self._number = number
        self._arrived: dict[int, list[tuple[int, float, float]]] = {i: [] for i in indexes}

    def take(self, receiver: socket.socket) -> None:
        """Take in what is waiting at a socket."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = receiver.recv(2048)
                now = time.monotonic()
                if data[:4] != _MARK or len(data) < _STAMP.size:
                    continue
                _, number, index, i, sent = _STAMP.unpack_from(data)
                if number == self._number and index in self._arrived:
                    self._arrived[index].append((i, sent, now))

    def count(self) -> int:
        """Return how many datagrams arrived so far."""
        return sum(map(len, self._arrived.values()))

    def told(self, count: int, size_bytes: int) -> dict[int, Burst]:
        """Return what became of the `count` datagrams over each pair."""
        return {i: outcome(count, size_bytes, each) for i, each in self._arrived.items()}


def burst(
    posts: Mapping[str, Post],
    pairs: Sequence[Pair],
    count: int,
    size_bytes: int,
    gap_s: float,
    wait_s: float,
) -> dict[Pair, Burst]:
    """Send `count` datagrams over each pair, `gap_s` apart, and wait `wait_s` for the last."""
    number = next(_rounds)
    arrivals = Arrivals(number, range(len(pairs)))
    takes: dict[int, Callable[[], None]] = {}
    poll = select.poll()
    for name in {far for _, far in pairs}:
        receiver = posts[name].datagrams
        takes[receiver.fileno()] = partial(arrivals.take, receiver)
        poll.register(receiver, select.POLLIN)

    def receive(until_s: float, enough: Callable[[], bool] = lambda: False) -> None:
        while not enough() and (left_s := until_s - time.monotonic()) > 0:
            for fd, _ in poll.poll(left_s * 1000):
                takes[fd]()

    began = time.monotonic()
    for i in range(count):
        for index, (near, far) in enumerate(pairs):
            posts[near].send(stamped(number, index, i, size_bytes), posts[far])
        receive(began + (i + 1) * gap_s)
    whole = count * len(pairs)
    last = time.monotonic() + wait_s
    receive(last, lambda: arrivals.count() >= whole)
    receive(min(last, time.monotonic() + QUIET_S))
    told = arrivals.told(count, size_bytes)
    return {pair: told[index] for index, pair in enumerate(pairs)}


def outcome(count: int, size_bytes: int, arrived: Sequence[tuple[int, float, float]]) -> Burst:
    """Return what became of `count` datagrams: which arrived, when each was sent and got."""
    firsts: dict[int, tuple[float, float]] = {}
    swapped, highest = 0, -1
    for i, sent, got in arrived:
        if i not in firsts:
            firsts[i] = (sent, got)
            swapped += i < highest
            highest = max(highest, i)
    delays = [got - sent for sent, got in firsts.values()]
    times = [got for _, got in firsts.values()]
    span_s = times[-1] - times[0] if times else 0.0
    return Burst(
        sent=count,
        delay_s=median(delays) if delays else None,
        least_s=min(delays) if delays else None,
        spread_s=max(delays) - min(delays) if delays else None,
        lost=count - len(firsts),
        doubled=len(arrived) - len(firsts),
        swapped=swapped,
        rate_bytes_s=(len(times) - 1) * size_bytes / span_s if span_s > 0 else None,
    )

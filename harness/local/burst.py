"""How good a link is, told from a burst of numbered datagrams over it.

Sent and received by the harness's own sockets in the nodes' networks, and counted there: what the
packet engine says that it did is not asked.
"""

import contextlib
import itertools
import select
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from harness.local.post import Post
from harness.site import Burst, Pair

_STAMP = struct.Struct("=4sQId")
_MARK = b"wkb1"
_HEADER_BYTES = 28  # of UDP and IPv4
_QUIET_S = 0.05
_rounds = itertools.count(1)


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
    arrivals: dict[Pair, list[tuple[int, float, float]]] = {pair: [] for pair in pairs}
    by_address = {(posts[a].datagram_address, b): (a, b) for a, b in pairs}
    takes: dict[int, Callable[[], None]] = {}
    poll = select.poll()
    for name in {far for _, far in pairs}:
        receiver = posts[name].datagrams
        takes[receiver.fileno()] = partial(_take, posts[name], name, number, by_address, arrivals)
        poll.register(receiver, select.POLLIN)

    def receive(until_s: float, enough: Callable[[], bool] = lambda: False) -> None:
        while not enough() and (left_s := until_s - time.monotonic()) > 0:
            for fd, _ in poll.poll(left_s * 1000):
                takes[fd]()

    padding = b"\0" * max(0, size_bytes - _STAMP.size - _HEADER_BYTES)
    began = time.monotonic()
    for i in range(count):
        for near, far in pairs:
            data = _STAMP.pack(_MARK, number, i, time.monotonic()) + padding
            posts[near].send(data, posts[far])
        receive(began + (i + 1) * gap_s)
    whole = count * len(pairs)
    last = time.monotonic() + wait_s
    receive(last, lambda: sum(map(len, arrivals.values())) >= whole)
    receive(min(last, time.monotonic() + _QUIET_S))  # doubles come after
    return {pair: _told(count, size_bytes, arrived) for pair, arrived in arrivals.items()}


def _take(
    post: Post,
    name: str,
    number: int,
    by_address: Mapping[tuple[tuple[str, int], str], Pair],
    arrivals: Mapping[Pair, list[tuple[int, float, float]]],
) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            data, sender = post.datagrams.recvfrom(2048)
            now = time.monotonic()
            pair = by_address.get((sender, name))
            if pair is None or data[:4] != _MARK or len(data) < _STAMP.size:
                continue
            _, burst_number, i, sent = _STAMP.unpack_from(data)
            if burst_number == number:
                arrivals[pair].append((i, sent, now))


def _told(count: int, size_bytes: int, arrived: Sequence[tuple[int, float, float]]) -> Burst:
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

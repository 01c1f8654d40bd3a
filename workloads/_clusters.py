"""A write and everything that saw its value, as one thing with two times.

With unique values every sight (a read, or the answer of a write that names what it overwrote)
names one write.  A cluster is a write with its sights; `first_ns` is when the first of these
operations had ended, so the write had certainly taken effect; `last_ns` is when the last of them
began, so the value was still current at that time or later.  Gibbons and Korach (Testing shared
memories, SIAM J. Computing 1997) judge a register by these two times alone.

A write with unknown outcome counts only when its value was seen, by a client or by the store's own
log: then it certainly took effect.  Otherwise leaving it out is always legal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from harness.history import Call
from workloads._trace import Trace, Write
from workloads._words import done_ns, ended

Oddity = Literal["unwritten", "early", "token", "aborted"]


@dataclass(frozen=True, slots=True)
class Sight:
    """A value that was current at some time between `call`'s invocation and its answer."""

    call: Call
    value: Any
    token: int | None

    @property
    def ret_ns(self) -> int:
        """When the answer was there."""
        return done_ns(self.call)


@dataclass(slots=True)
class Cluster:
    """A write with its sights; `write` None is the state in which nothing was ever written."""

    level: int
    write: Write | None
    first_ns: float
    first: Call | None
    last_ns: float
    last: Call | None
    known: bool
    sights: int = 0

    @property
    def call_ns(self) -> float:
        """When the write was asked for."""
        return -inf if self.write is None else self.write.call.call_ns

    @property
    def ret_ns(self) -> float:
        """When the write was answered, infinity when it never was."""
        return -inf if self.write is None else ended(self.write.call)

    def see(self, call: Call) -> None:
        """Add a sight."""
        self.known = True
        self.sights += 1
        ret_ns = done_ns(call)
        if ret_ns < self.first_ns:
            self.first_ns, self.first = ret_ns, call
        if call.call_ns > self.last_ns:
            self.last_ns, self.last = call.call_ns, call


@dataclass(frozen=True)
class Odd:
    """A sight that no order of operations can explain; `write` is whose value it was, if any."""

    what: Oddity
    sight: Sight
    write: Write | None


@dataclass(frozen=True)
class Seen:
    """The clusters of writes that certainly took effect, and the sights that fit nowhere.

    `over` gives for the index of a write the cluster that it said it overwrote.
    """

    clusters: tuple[Cluster, ...]
    odd: tuple[Odd, ...]
    over: dict[int, Cluster]
    sights: int


def sights_of(trace: Trace) -> Iterable[Sight]:
    """Return what reads returned and what writes said they overwrote, failed ones apart."""
    for call in trace.of("read"):
        if call.outcome == "ok":
            yield Sight(call, call.result, call.result_token)
    for call in trace.of("write"):
        over = overwritten(call)
        if over is not None:
            yield Sight(call, over.get("value"), over.get("token"))


def overwritten(write: Call) -> dict[str, Any] | None:
    """Return what an accepted write says it overwrote, None when it does not say."""
    if write.outcome != "ok" or not isinstance(write.result, dict):
        return None
    over = write.result.get("over")
    return over if isinstance(over, dict) and over.get("value") is not None else None


def gather(trace: Trace, logged: frozenset[Any]) -> Seen:
    """Return the clusters of one key; `logged` are the values that the store's log accepted."""
    empty = Cluster(-1, None, -inf, None, -inf, None, known=True)
    by_value: dict[Any, Cluster] = {None: empty}
    refused: dict[Any, Write] = {}
    for write in trace.writes:
        call = write.call
        if call.outcome == "fail":
            refused[call.value] = write
        else:
            known = call.outcome == "ok" or call.value in logged
            by_value[call.value] = Cluster(
                write.level, write, ended(call), call, call.call_ns, call, known
            )
    odd: list[Odd] = []
    over: dict[int, Cluster] = {}
    count = 0
    for sight in sights_of(trace):
        count += 1
        value = sight.value if isinstance(sight.value, str | int | None) else repr(sight.value)
        cluster = by_value.get(value)
        if cluster is None:
            write_of = refused.get(value)
            odd.append(Odd("aborted" if write_of else "unwritten", sight, write_of))
        elif sight.ret_ns < cluster.call_ns:
            odd.append(Odd("early", sight, cluster.write))
        elif trace.tokens and _other_token(sight, cluster):
            odd.append(Odd("token", sight, cluster.write))
        else:
            cluster.see(sight.call)
            if sight.call.f == "write":
                over[sight.call.index] = cluster
    known_ones = tuple(cluster for cluster in by_value.values() if cluster.known)
    return Seen(known_ones, tuple(odd), over, count)


def _other_token(sight: Sight, cluster: Cluster) -> bool:
    """Whether a sight names a token that is not the one that its value was written with."""
    return (
        sight.token is not None
        and cluster.write is not None
        and sight.token != cluster.write.call.token
    )

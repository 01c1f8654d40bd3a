"""Which owner came first at the resource: the order of clusters across levels.

In every legal order accepted levels never decrease.  So for a cluster A of a lower level and a
cluster B of a higher one, no operation of B may have ended before one of A began: f(B) < s(A) is a
proof that A's write took effect, or A's value was still served, after the newer owner's.

* A's *write* was asked for after f(B): it took effect after B's, whatever else happened: certain.
* A's write was answered before B's write was asked for: A came first, so the sight of A's value
  after f(B) is the mistake: a late sight (a stale read, or an effect that was lost).
* Otherwise the two writes were under way together: one of the two, the operations do not say which.

Two further proofs need no clock: a write whose answer names what it overwrote, where that was of a
higher level; and the store's own log, in its own order.

Everything is sorts, minima from above, and one sweep with a Fenwick tree: O(n log n).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from harness.history import Call
from workloads._clusters import Cluster, Seen
from workloads._storelog import KeyLog
from workloads._trace import Trace, Write
from workloads._words import refusal

Proof = Literal["order", "over", "store-log", "read"]


@dataclass(frozen=True)
class StaleWrite:
    """An accepted write of an older owner after the resource had accepted, or shown, a newer one's.

    `newer` is the newer owner's write, `proof` what proves the order: `order` (it was answered
    before the stale write was asked for), `read` (its value had been seen before), `over` or
    `store-log`.  `certain` False: the late sight `seen_by` may be the mistake instead.
    `forgotten`: the resource had lost the newer write when it accepted this one.
    """

    write: Write
    newer: Write
    proof: Proof
    certain: bool = True
    forgotten: bool = False
    seen_by: Call | None = None


@dataclass(frozen=True)
class LateSight:
    """`seen_by` was shown `old`, after `newer` had replaced it for certain."""

    old: Cluster
    newer: Cluster
    seen_by: Call


@dataclass(frozen=True)
class Order:
    """What is wrong with the order of owners on one key."""

    stale: tuple[StaleWrite, ...]
    late: tuple[LateSight, ...]


def judge_order(trace: Trace, seen: Seen, log: KeyLog, fence: str | None) -> Order:
    """Compare every owner with the newer ones; `fence` is what the resource does with tokens."""
    stale, doubtful = _by_clock(seen.clusters)
    for write, over in _by_answer(trace, seen):
        stale.setdefault(write.call.index, StaleWrite(write, over, "over"))
    for write, before in log.inversions():
        stale.setdefault(write.call.index, StaleWrite(write, before, "store-log"))
    asked = [(cluster.level, cluster.last_ns) for cluster in doubtful]
    late: list[LateSight] = []
    for cluster, newer in zip(doubtful, latest_above(seen.clusters, asked), strict=True):
        assert newer is not None  # it is what made the cluster doubtful, or one asked for later
        assert cluster.last is not None
        if cluster.write is not None and cluster.write.call.index in stale:
            continue  # it came late for certain, so the late sight is no mistake of its own
        if cluster.write is None or cluster.ret_ns < newer.call_ns:
            late.append(LateSight(cluster, newer, cluster.last))
        else:
            stale[cluster.write.call.index] = StaleWrite(
                cluster.write, _write(newer), "read", certain=False, seen_by=cluster.last
            )
    found = sorted(stale.values(), key=lambda s: s.write.call.index)
    if fence != "none":
        found = _mark_forgotten(found, trace, seen, log, fence)
    return Order(tuple(found), tuple(late))


def _by_clock(
    clusters: Sequence[Cluster],
) -> tuple[dict[int, StaleWrite], list[Cluster]]:
    """The writes that were asked for too late, and the clusters that were only seen too late."""
    stale: dict[int, StaleWrite] = {}
    doubtful: list[Cluster] = []
    best: Cluster | None = None  # of all higher levels: the one that took effect first,
    answered: Cluster | None = None  # and the one whose write was answered first
    ordered = sorted(clusters, key=lambda cluster: -cluster.level)
    start = 0
    while start < len(ordered):
        stop = start
        while stop < len(ordered) and ordered[stop].level == ordered[start].level:
            stop += 1
        group = ordered[start:stop]
        for cluster in group:
            if best is None or best.first_ns >= cluster.last_ns:
                continue
            write = cluster.write
            if write is None or best.first_ns >= cluster.call_ns:
                doubtful.append(cluster)
            elif answered is not None and answered.ret_ns < cluster.call_ns:
                stale[write.call.index] = StaleWrite(write, _write(answered), "order")
            else:
                stale[write.call.index] = StaleWrite(
                    write, _write(best), "read", seen_by=best.first
                )
        for cluster in group:
            if best is None or cluster.first_ns < best.first_ns:
                best = cluster
            if answered is None or cluster.ret_ns < answered.ret_ns:
                answered = cluster
        start = stop
    return stale, doubtful


def _write(cluster: Cluster) -> Write:
    assert cluster.write is not None  # only the lowest level has no write
    return cluster.write


def _by_answer(trace: Trace, seen: Seen) -> list[tuple[Write, Write]]:
    """Writes that say themselves that they overwrote a newer owner's write."""
    found = []
    for write in trace.writes:
        cluster = seen.over.get(write.call.index)
        if cluster is not None and cluster.write is not None and cluster.level > write.level:
            found.append((write, cluster.write))
    return found


def latest_above(
    clusters: Sequence[Cluster], asked: Sequence[tuple[int, float]]
) -> list[Cluster | None]:
    """For each (level, time) find the cluster above that level whose write was asked for last.

    Only clusters that had certainly taken effect before that time count; None when there is none.
    """
    levels = sorted({cluster.level for cluster in clusters})
    size = len(levels)
    tree: list[Cluster | None] = [None] * (size + 1)  # Fenwick: maxima over the top levels
    by_effect = sorted(clusters, key=lambda cluster: cluster.first_ns)
    answers: list[Cluster | None] = [None] * len(asked)
    place = 0
    for n in sorted(range(len(asked)), key=lambda n: asked[n][1]):
        level, before_ns = asked[n]
        while place < len(by_effect) and by_effect[place].first_ns < before_ns:
            cluster = by_effect[place]
            slot = size - bisect_left(levels, cluster.level)
            while slot <= size:
                tree[slot] = _later(tree[slot], cluster)
                slot += slot & -slot
            place += 1
        slot = size - bisect_left(levels, level + 1)
        while slot > 0:
            answers[n] = _later(answers[n], tree[slot])
            slot -= slot & -slot
    return answers


def _later(one: Cluster | None, other: Cluster | None) -> Cluster | None:
    if one is None or other is None:
        return other if one is None else one
    return other if other.call_ns > one.call_ns else one


def _mark_forgotten(
    found: Sequence[StaleWrite], trace: Trace, seen: Seen, log: KeyLog, fence: str | None
) -> list[StaleWrite]:
    """Mark the stale writes that prove that the resource no longer knew of a newer owner.

    Such a write overwrote something older although a newer owner's write, asked for after that
    older one was answered, had taken effect before: nothing but a loss brings the older one back.
    Or its token, or a higher one, had been refused before: a fence that keeps what it has seen
    refuses it for ever (one that asks the lock service may just have met the end of a lease).  Or
    the resource's own log says what it still knew.
    """
    asked = [(stale.write.level, float(stale.write.call.call_ns)) for stale in found]
    refused = sorted(
        (write.call.ret_ns, write.level)
        for write in trace.writes
        if fence != "guarded" and refusal(write.call) == "fenced" and write.call.ret_ns is not None
    )
    highest = list(accumulate((level for _, level in refused), max, initial=-1))
    marked = []
    for stale, newer in zip(found, latest_above(seen.clusters, asked), strict=True):
        under = seen.over.get(stale.write.call.index)
        lost = (
            newer is not None
            and under is not None
            and under.level <= stale.write.level
            and under.ret_ns < newer.call_ns
        )
        before = bisect_left(refused, (stale.write.call.call_ns, -1))
        turned = highest[before] >= stale.write.level
        forgotten = lost or turned or stale.write.call.value in log.forgot
        marked.append(replace(stale, forgotten=True) if forgotten else stale)
    return marked

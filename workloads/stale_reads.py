"""`stale-read`, `lost-ack`: a replaced value was shown, or an acknowledged one is gone.

Across owners the order of writes is that of their levels; within one level the operations must
allow some order at all, which Gibbons and Korach's two conditions decide: no two values may both
be current in one stretch of time.  A late sight is called a lost acknowledgement where no later
read can make it good: the final reads, after all faults were healed, or a write's own word that it
overwrote the older value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from harness.history import Call
from harness.verdict import Anomaly
from workloads._clusters import Cluster, Seen
from workloads._owners import LateSight
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import instant, length, show

NAME = "stale-read"
LOST = "lost-ack"


@dataclass(frozen=True)
class Clash:
    """Two clusters of one level that cannot both be right; `old` is the one seen too late."""

    old: Cluster
    newer: Cluster


def stale_reads(
    trace: Trace, seen: Seen, late: Sequence[LateSight], final_ns: int | None
) -> list[Result]:
    """Return both properties; one finding for each value that was seen too late."""
    sights = [*late, *_within_levels(seen.clusters)]
    made = [_anomaly(trace, sight, final_ns) for sight in sights]
    acked = sum(write.call.outcome == "ok" for write in trace.writes)
    return [
        found(NAME, seen.sights, (a for a in made if a.name == NAME)),
        found(LOST, acked, (a for a in made if a.name == LOST)),
    ]


def _anomaly(trace: Trace, sight: LateSight, final_ns: int | None) -> Anomaly:
    old, newer, call = sight.old, sight.newer, sight.seen_by
    final = final_ns is not None and call.f == "read" and call.call_ns >= final_ns
    gone = final or call.f == "write"
    write = newer.write
    ops = [c.write.call.index for c in (old, newer) if c.write is not None]
    if newer.first is not None and newer.first.index not in ops:
        ops.append(newer.first.index)
    proven_ns = newer.first_ns if newer.first_ns < inf else newer.call_ns
    shown = "nothing" if old.write is None else show(old.write.call.value)
    whose = "a newer value" if write is None else f"{write.call.worker}'s {show(write.call.value)}"
    verb = "was told that it overwrote" if call.f == "write" else "read"
    tail = "; the newer value is gone for good" if final else ""
    return Anomaly(
        name=LOST if gone else NAME,
        sentence=(
            f"{call.worker} {verb} {shown} on {trace.key} at {instant(call.call_ns)} or later,"
            f" {length(call.call_ns - proven_ns)} after {whose} had certainly replaced it{tail}."
        ),
        ops=(*ops, call.index),
        time_ns=call.call_ns if call.ret_ns is None else call.ret_ns,
        key=trace.key,
        size_s=max(0.0, (call.call_ns - proven_ns) / 1e9),
        details={
            "old_write": None if old.write is None else old.write.call.index,
            "newer_write": None if write is None else write.call.index,
            "read": call.index,
            "worker": call.worker,
        },
    )


def _within_levels(clusters: Iterable[Cluster]) -> Iterable[LateSight]:
    """Clashes inside each level, one for each cluster that was seen too late."""
    levels: dict[int, list[Cluster]] = {}
    for cluster in clusters:
        levels.setdefault(cluster.level, []).append(cluster)
    told: set[int] = set()
    for level in sorted(levels):
        for clash in _clashes(levels[level]):
            seen_by: Call | None = clash.old.last
            if seen_by is not None and id(clash.old) not in told:
                told.add(id(clash.old))
                yield LateSight(clash.old, clash.newer, seen_by)


def _clashes(clusters: Sequence[Cluster]) -> Iterable[Clash]:
    """Gibbons and Korach: forward zones must not overlap, nor contain a backward zone."""
    forward = sorted(
        (c for c in clusters if c.first_ns < c.last_ns), key=lambda cluster: cluster.first_ns
    )
    widest: Cluster | None = None  # the zone that reaches furthest among those begun
    for cluster in forward:
        if widest is not None and cluster.first_ns < widest.last_ns:
            yield _clash(widest, cluster)
        if widest is None or cluster.last_ns > widest.last_ns:
            widest = cluster
    widest, place = None, 0
    for cluster in sorted(
        (c for c in clusters if c.first_ns >= c.last_ns), key=lambda cluster: cluster.last_ns
    ):
        while place < len(forward) and forward[place].first_ns < cluster.last_ns:
            if widest is None or forward[place].last_ns > widest.last_ns:
                widest = forward[place]
            place += 1
        if widest is not None and cluster.first_ns < widest.last_ns:
            yield _clash(widest, cluster)


def _clash(one: Cluster, other: Cluster) -> Clash:
    """Say which was seen too late: the one written first, or if that is open the one seen last."""
    if other.ret_ns < one.call_ns:
        return Clash(other, one)
    if one.ret_ns < other.call_ns or one.last_ns >= other.last_ns:
        return Clash(one, other)
    return Clash(other, one)

"""`lost-update`: acknowledged writes that a stale write covered without having seen them.

An owner works on what it has read: read, think, write.  A stale owner's base is its last read
before its write.  What newer owners wrote and got acknowledged after that base and before the
stale write was asked for is gone from the result of that work.  Each lost write is laid to the
first stale write that cost it, so the counts add up.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from harness.history import Call
from harness.verdict import Anomaly
from workloads._clusters import Seen
from workloads._owners import StaleWrite
from workloads._result import Result
from workloads._trace import Trace, Write
from workloads._words import count, done_ns, instant
from workloads.stale import when_ns

NAME = "lost-update"


def losses(trace: Trace, seen: Seen, stale: Sequence[StaleWrite]) -> dict[int, list[Call]]:
    """Return for each stale write (by index) the acknowledged writes that it has cost."""
    acked = sorted(
        (w for w in trace.writes if w.call.outcome == "ok"), key=lambda w: done_ns(w.call)
    )
    ends = [done_ns(write.call) for write in acked]
    free = list(range(len(acked) + 1))  # the next write that is not yet known to be lost
    bases = _Bases(trace)
    lost: dict[int, list[Call]] = {}
    for one in sorted(stale, key=lambda s: s.write.call.call_ns):
        if not one.certain:
            continue
        base_ns, base = bases.of(one.write.call)
        mine: list[Call] = []
        place = _next(free, bisect_right(ends, base_ns))
        stop = bisect_left(ends, one.write.call.call_ns)
        while place < stop:
            if acked[place].level > one.write.level and not _saw(base, acked[place]):
                mine.append(acked[place].call)
                free[place] = place + 1
            place = _next(free, place + 1)
        under = seen.over.get(one.write.call.index)
        if under is not None and under.write is not None and under.level > one.write.level:
            spot = bisect_left(ends, under.ret_ns)
            while spot < len(acked) and acked[spot] is not under.write:
                spot += 1
            if spot < len(acked) and free[spot] == spot and not _saw(base, under.write):
                mine.append(under.write.call)
                free[spot] = spot + 1
        if mine:
            lost[one.write.call.index] = mine
    return lost


def _next(free: list[int], place: int) -> int:
    """The first place from `place` on that is free; shortens the way for the next search."""
    root = place
    while free[root] != root:
        root = free[root]
    while free[place] != root:
        free[place], place = root, free[place]
    return root


def _saw(base: Write | None, write: Write) -> bool:
    """Whether a reader of `base` had the effect of `write` before its eyes."""
    if base is None:
        return False
    if base.level != write.level:
        return base.level > write.level
    return write.call.index <= base.call.index


class _Bases:
    """What each worker had read last on this key."""

    def __init__(self, trace: Trace) -> None:
        self._writes: dict[Any, Write] = {write.call.value: write for write in trace.writes}
        self._reads: dict[str, list[Call]] = defaultdict(list)
        answered = [read for read in trace.of("read") if read.outcome == "ok"]
        for read in sorted(answered, key=lambda read: read.ret_index or 0):
            self._reads[read.worker].append(read)
        self._ends: dict[str, list[int]] = {
            worker: [read.ret_index or 0 for read in reads] for worker, reads in self._reads.items()
        }

    def of(self, call: Call) -> tuple[int, Write | None]:
        """When the caller's last read before the call had ended, and the write that it saw."""
        place = bisect_left(self._ends.get(call.worker, ()), call.index)
        if not place:
            return -1, None
        read = self._reads[call.worker][place - 1]
        value = read.result
        return done_ns(read), self._writes.get(value if isinstance(value, str | int) else None)


def lost_updates(
    trace: Trace, stale: Sequence[StaleWrite], lost: Mapping[int, Sequence[Call]], acked: int
) -> Result:
    """Return the property; broken counts the lost writes; `acked` all acknowledged of the run."""
    anomalies = []
    for one in stale:
        call = one.write.call
        gone = lost.get(call.index, ())
        if not gone:
            continue
        share = len(gone) / acked if acked else 0.0
        workers = " and ".join(sorted({write.worker for write in gone}))
        anomalies.append(
            Anomaly(
                name=NAME,
                sentence=(
                    f"{call.worker}'s write to {trace.key} at {instant(when_ns(one))} covered"
                    f" {count(len(gone), 'acknowledged write')} of {workers} that it had not seen"
                    f" ({100 * share:.0f} % of all acknowledged writes)."
                ),
                ops=(*dict.fromkeys((gone[0].index, gone[-1].index)), call.index),
                time_ns=when_ns(one),
                key=trace.key,
                details={
                    "stale_write": call.index,
                    "lost": [write.index for write in gone],
                    "share": share,
                    "worker": call.worker,
                },
            )
        )
    checked = sum(write.call.outcome == "ok" for write in trace.writes)
    broken = sum(len(gone) for gone in lost.values())
    return Result(NAME, checked, tuple(anomalies), broken)

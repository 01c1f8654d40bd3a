"""`late-loss-notice`: an owner went on believing in a lock that somebody else had by then.

A holder can know by itself when its lease ends: the TTL after its last acknowledged renewal.  It is
late when it still believed longer than that, and a margin, while a later owner had been granted the
lock.  Time in which its node was provably stopped does not count: a frozen process cannot notice
anything, and one that finds out promptly when it wakes up did nothing wrong.

The margin is one renewal period of a usual client (a third of the TTL), because a client without a
timer of its own learns of a loss by its next renewal; and at least half a second, because a loaded
machine delays a thread that long.

What a worker believed is what it said.  A lease check that the service answered with `held` counts
too; a write does not, since it is the harness that asks for it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from harness.verdict import Anomaly
from workloads._beliefs import Belief, Watch
from workloads._grants import Grant
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import done_ns, instant, length, said_held

NAME = "late-loss-notice"
SLACK_NS = 500_000_000


def late_notices(trace: Trace, held: Sequence[Belief], watched: Watch) -> Result:
    """Return the property; a case is a grant that was superseded while its owner was out."""
    until_ns = {belief.grant.acquire.index: belief.until_ns for belief in held}
    for call in trace.of("check"):
        grant = trace.grant_of(call)
        if grant is None or call.outcome != "ok" or not said_held(call):
            continue
        index = grant.acquire.index
        until_ns[index] = max(until_ns.get(index, 0), call.call_ns)
    takers = _Takers(trace)
    checked = 0
    anomalies = []
    for grant in trace.grants:
        until = until_ns.get(grant.acquire.index)
        taker = takers.after(grant)
        if until is None or taker is None or taker.start_ns >= grant.left_ns:
            continue
        checked += 1
        anomaly = _judge(trace, grant, until, taker, watched)
        if anomaly is not None:
            anomalies.append(anomaly)
    note = "" if held else "no worker said what it believed"
    return found(NAME, checked, anomalies, note)


class _Takers:
    """For each grant the first later one to another worker."""

    def __init__(self, trace: Trace) -> None:
        self._grants = sorted(trace.grants, key=lambda grant: grant.level)
        self._levels = [grant.level for grant in self._grants]
        first: list[Grant] = []  # from the end: the earliest, and the earliest of another worker
        self._best: list[tuple[Grant, ...]] = [()]
        for grant in reversed(self._grants):
            ranked = sorted([grant, *first], key=lambda g: g.start_ns)
            first = ranked[:1] + [g for g in ranked if g.worker != ranked[0].worker][:1]
            self._best.append(tuple(first))
        self._best.reverse()

    def after(self, grant: Grant) -> Grant | None:
        """The earliest grant of a higher level to somebody else."""
        best = self._best[bisect_right(self._levels, grant.level)]
        return next((other for other in best if other.worker != grant.worker), None)


def _judge(
    trace: Trace, grant: Grant, until_ns: float, taker: Grant, watched: Watch
) -> Anomaly | None:
    if grant.ttl_ns is None or until_ns <= taker.start_ns:
        return None
    renewed = max([grant.start_ns, *(done_ns(call) for call in grant.renewals)])
    due_ns = renewed + grant.ttl_ns
    stopped_ns = _overlap(watched.stops.get(grant.worker, ()), due_ns, until_ns)
    late_ns = until_ns - due_ns - stopped_ns
    if late_ns <= max(SLACK_NS, grant.ttl_ns / 3):
        return None
    slept = f" (the {length(stopped_ns)} in which it was stopped apart)" if stopped_ns else ""
    return Anomaly(
        name=NAME,
        sentence=(
            f"{grant.worker} still believed at {instant(until_ns)} that it held {trace.key},"
            f" {length(late_ns)} after its lease had run out{slept}; {taker.worker} held it from"
            f" {instant(taker.start_ns)} on."
        ),
        ops=(
            grant.acquire.index,
            *(call.index for call in grant.renewals[-1:]),
            taker.acquire.index,
        ),
        time_ns=round(until_ns),
        key=trace.key,
        size_s=late_ns / 1e9,
        details={
            "grant": grant.acquire.index,
            "next_grant": taker.acquire.index,
            "worker": grant.worker,
            "due_ns": due_ns,
            "believed_until_ns": round(until_ns),
            "stopped_s": stopped_ns / 1e9,
        },
    )


def _overlap(spans: Iterable[tuple[int, int]], start_ns: float, end_ns: float) -> float:
    """How much of [start, end] the spans cover together."""
    covered, reached = 0.0, start_ns
    for on_ns, off_ns in sorted(spans):
        low, high = max(on_ns, reached), min(off_ns, end_ns)
        if high > low:
            covered += high - low
            reached = high
    return covered

"""`refused-newest`: the current owner was turned away, and nobody newer can have been there.

A write refused as `fenced` needs a higher token that somebody may have used by then: a write with
it was asked for, or it was granted, or an acquire with unknown outcome may have brought it.  A
write refused as `not-holder` may also come after the end of its lease, so it counts only when all
of it lies inside the certain hold of its grant.
"""

from math import inf

from harness.target import Accept
from harness.verdict import Anomaly
from workloads._result import Result, found
from workloads._storelog import KeyLog
from workloads._trace import Trace, Write
from workloads._words import done_ns, instant, refusal, with_token

NAME = "refused-newest"
CODES = ("fenced", "not-holder")


def refused_newest(trace: Trace, log: KeyLog) -> Result:
    """Return the property; every refused write is a case."""
    refused = [write for write in trace.writes if refusal(write.call) in CODES]
    moments = [(grant.level, grant.acquire.call_ns) for grant in trace.grants]
    moments += [(write.level, write.call.call_ns) for write in trace.writes]
    above = trace.earliest_above(moments)
    in_doubt_ns = min(
        (c.call_ns for c in trace.of("acquire") if c.outcome in ("info", "open")), default=inf
    )
    shared = _shared_levels(trace)
    entries = {
        write.call.index: entry for entry, write in log.entries if write and not entry.accepted
    }
    anomalies = [
        _anomaly(trace, write, entries.get(write.call.index))
        for write in refused
        if write.grant is not None
        and write.level not in shared
        and min(above[write.level], in_doubt_ns) > done_ns(write.call)
        and (refusal(write.call) == "fenced" or _inside_hold(write))
    ]
    return found(NAME, len(refused), anomalies)


def _shared_levels(trace: Trace) -> set[int]:
    """Levels of several grants (ranked by time, order unknown): each may be the newer one."""
    seen: set[int] = set()
    shared: set[int] = set()
    for grant in trace.grants:
        (shared if grant.level in seen else seen).add(grant.level)
    return shared


def _inside_hold(write: Write) -> bool:
    return write.grant is not None and done_ns(write.call) < write.grant.end_ns


def _anomaly(trace: Trace, write: Write, entry: Accept | None) -> Anomaly:
    call, grant = write.call, write.grant
    assert grant is not None
    believed = ""
    if entry is not None and entry.highest is not None:
        believed = f" (its log says that the highest token it knew was {entry.highest})"
    newer = (
        "no higher token can have been used" if trace.tokens else "nobody newer can have been there"
    )
    return Anomaly(
        name=NAME,
        sentence=(
            f"{call.worker}'s write to {trace.key}{with_token(call)} was refused at"
            f" {instant(done_ns(call))} ({call.error}), although it was the newest owner and"
            f" {newer}{believed}."
        ),
        ops=(grant.acquire.index, call.index),
        time_ns=done_ns(call),
        key=trace.key,
        details={"grant": grant.acquire.index, "write": call.index, "worker": call.worker},
    )

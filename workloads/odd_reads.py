"""`phantom-read`, `aborted-read`: a value that nobody wrote, or that was reported as never written.

An aborted read has two readings, and both are worth knowing: the resource applied a write that it
reported as failed, or the adapter calls an error a proof of failure that is none.
"""

from collections.abc import Iterable

from harness.verdict import Anomaly
from workloads._clusters import Odd, Seen
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import done_ns, instant, show


def odd_reads(trace: Trace, seen: Seen, logged: Iterable[Anomaly]) -> list[Result]:
    """Return both properties; `logged` are the failed writes that the store's log accepted."""
    phantoms: dict[str, Anomaly] = {}
    aborted: dict[int, Anomaly] = {}
    for odd in seen.odd:
        if odd.what == "aborted":
            assert odd.write is not None
            aborted.setdefault(odd.write.call.index, _aborted(trace, odd))
        else:
            phantoms.setdefault(show(odd.sight.value), _phantom(trace, odd))
    for anomaly in logged:
        aborted.setdefault(anomaly.ops[0], anomaly)
    failed = sum(write.call.outcome == "fail" for write in trace.writes)
    return [
        found("aborted-read", failed, aborted.values()),
        found("phantom-read", seen.sights, phantoms.values()),
    ]


def _aborted(trace: Trace, odd: Odd) -> Anomaly:
    write, call = odd.write, odd.sight.call
    assert write is not None
    return Anomaly(
        name="aborted-read",
        sentence=(
            f"{call.worker} saw {show(odd.sight.value)} on {trace.key} at {instant(call.call_ns)}"
            f" or later, although {write.call.worker}'s write of it was reported as failed"
            f" ({write.call.error}): either the resource applied it, or the adapter takes an error"
            " for a proof of failure that is none."
        ),
        ops=(write.call.index, call.index),
        time_ns=odd.sight.ret_ns,
        key=trace.key,
        details={"write": write.call.index, "read": call.index, "worker": write.call.worker},
    )


def _phantom(trace: Trace, odd: Odd) -> Anomaly:
    call, value = odd.sight.call, show(odd.sight.value)
    saw = f"{call.worker} saw {value} on {trace.key} at {instant(done_ns(call))}"
    if odd.write is None:
        sentence = f"{saw}, but nobody ever wrote that there."
    elif odd.what == "early":
        before = odd.write.call.call_ns - odd.sight.ret_ns
        sentence = f"{saw}, {before / 1e6:.3f} ms before anybody asked to write it."
    else:
        sentence = (
            f"{saw} with token {odd.sight.token}, but it was written with token"
            f" {odd.write.call.token}."
        )
    ops = (call.index,) if odd.write is None else (odd.write.call.index, call.index)
    return Anomaly(
        name="phantom-read",
        sentence=sentence,
        ops=ops,
        time_ns=odd.sight.ret_ns,
        key=trace.key,
        details={"read": call.index, "worker": call.worker},
    )

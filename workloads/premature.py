"""`premature-expiry`: a lease ended although it had been renewed within its TTL.

The witness is an answer of the service inside the certain hold: a renewal, a release or a check of
the owner that says that it is no longer the holder.  Only renewals that were acknowledged before
the refused call was asked for count.  Where somebody else was granted the lock in that time, the
finding is a duplicate grant; where a stranger released it, a forged token.

A worker that answers by itself, because its own clock says that the lease is over, says nothing
about the service: `no-effect` for a release, `asked` false for a check.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from harness.history import Call
from harness.verdict import Anomaly
from workloads._grants import Grant
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import done_ns, instant, length, refusal

NAME = "premature-expiry"


def premature_expiries(trace: Trace) -> Result:
    """Return the property; every grant with a lease is a case, and at most one finding."""
    leases = sum(grant.ttl_ns is not None for grant in trace.grants)
    first: dict[int, Anomaly] = {}
    stranger_ns = _given_by_strangers(trace)
    refused = [call for f in ("renew", "release", "check") for call in trace.of(f) if _lost(call)]
    for call in sorted(refused, key=lambda call: call.index):
        grant = trace.grant_of(call)
        if grant is None or grant.acquire.index in first:
            continue
        last = _last_before(grant, call)
        if (
            last is None
            or done_ns(call) >= min(last.call_ns + (grant.ttl_ns or 0), grant.killed_ns)
            or _given_back(grant, call)
            or _taken_over(trace.grants, grant)
            or stranger_ns.get(grant.token, inf) <= done_ns(call)
        ):
            continue
        first[grant.acquire.index] = _anomaly(trace, grant, last, call)
    return found(NAME, leases, first.values())


def _lost(call: Call) -> bool:
    """Whether the service says that the caller does not hold the lock."""
    if call.f != "check":
        return refusal(call) == "not-holder"
    asked = isinstance(call.value, dict) and call.value.get("ask") is True
    answer = call.result if call.outcome == "ok" else None
    if not asked or not isinstance(answer, dict):
        return False
    return answer.get("held") is False and answer.get("asked") is not False


def _last_before(grant: Grant, call: Call) -> Call | None:
    """The acquire or the last renewal that was acknowledged before a call was asked for."""
    known = [one for one in (grant.acquire, *grant.renewals) if one.precedes(call)]
    return max(known, key=lambda one: one.call_ns, default=None)


def _given_back(grant: Grant, call: Call) -> bool:
    """Whether the owner had asked to release the lock before it was refused."""
    release = grant.release
    return release is not None and release is not call and release.call_ns <= done_ns(call)


def _taken_over(grants: Sequence[Grant], grant: Grant) -> bool:
    """Whether somebody else was granted the lock inside the certain hold."""
    place = bisect_left(grants, grant.start_ns, key=lambda other: other.start_ns)
    for other in grants[place:]:
        if other.start_ns >= grant.end_ns:
            return False
        if other.worker != grant.worker and other.end_ns > other.start_ns:
            return True
    return False


def _given_by_strangers(trace: Trace) -> dict[int | None, int]:
    """When workers that never had a grant first asked to give it back, by its token."""
    asked_ns: dict[int | None, int] = {}
    for call in trace.of("release"):
        if call.outcome != "fail" and trace.grant_of(call) is None:
            asked_ns.setdefault(call.token if trace.tokens else None, call.call_ns)
    return asked_ns


def _anomaly(trace: Trace, grant: Grant, last: Call, call: Call) -> Anomaly:
    early_ns = last.call_ns + (grant.ttl_ns or 0) - done_ns(call)
    renewed = "its grant" if last is grant.acquire else "a renewal"
    said = call.error if call.f != "check" else "a check said that it is not held"
    return Anomaly(
        name=NAME,
        sentence=(
            f"{grant.worker}'s lease on {trace.key} had ended at {instant(done_ns(call))} ({said}),"
            f" at least {length(early_ns)} too early: {renewed} asked for at"
            f" {instant(last.call_ns)} had been acknowledged with {length(grant.ttl_ns or 0)}."
        ),
        ops=(grant.acquire.index, *([] if last is grant.acquire else [last.index]), call.index),
        time_ns=done_ns(call),
        key=trace.key,
        size_s=early_ns / 1e9,
        details={
            "grant": grant.acquire.index,
            "worker": grant.worker,
            "renewed": last.index,
            "refused": call.index,
        },
    )

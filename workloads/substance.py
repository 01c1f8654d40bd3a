"""Whether enough happened for a pass to mean something, and how close it was to trouble.

A run in which nobody took over, or in which no old owner came back to write, says nothing about the
fence, unless forged tokens were its only fault, and were tried, or unless only waiters were hit,
and the lease of one ended in the queue.  A run in which the system answered
nothing before, during or after the faults says nothing about the faults.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.evidence import Evidence
from harness.history import Call
from harness.note import PHASES
from harness.verdict import Reason, Unknown
from harness.window import Window
from workloads._clusters import Seen
from workloads._grants import Grant
from workloads._owners import Order
from workloads._trace import OPERATIONS, Trace, Write
from workloads._waits import lost_places
from workloads._words import count, done_ns, made_up, refusal

_NEEDED = ("acquire", "write", "read")


@dataclass(frozen=True)
class Tally:
    """What happened on one key, or on all of them.

    `attempts` are writes of owners that had been superseded when they asked, or when the resource
    dealt with it: one that is long on its way becomes stale there.  `forged` are writes, renewals
    and releases by somebody who was never granted what he used.  `lost_places` are answered
    acquires whose lease had ended in the queue.  `takeover_ns`: from the end of an unreleased lease
    to the next grant; `renewal_ns`: from a renewal's answer to the end of the lease that it found.
    """

    takeovers: int
    attempts: int
    refused: int
    stale: int
    takeover_ns: tuple[int, ...]
    renewal_ns: tuple[int, ...]
    late_effects: int
    forged: int = 0
    forged_refused: int = 0
    lost_places: int = 0
    lost_refused: int = 0


def tally(trace: Trace, seen: Seen, order: Order) -> Tally:
    """Count one key."""
    later_ns = trace.earliest_above((grant.level, grant.start_ns) for grant in trace.grants)
    superseded = [grant for grant in trace.grants if later_ns[grant.level] < grant.left_ns]
    accepted = {one.write.call.index for one in order.stale}
    attempts = [
        w for w in trace.writes if w.call.index in accepted or _too_late(w, later_ns[w.level])
    ]
    forged = _forged(trace)
    lost = lost_places(trace.of("acquire"), trace.of("keep")).values()
    return Tally(
        takeovers=len(superseded),
        attempts=len(attempts),
        refused=sum(_turned_away(w.call) for w in attempts),
        stale=len(order.stale),
        takeover_ns=tuple(
            round(later_ns[grant.level]) - grant.lease_end_ns
            for grant in superseded
            if grant.lease_end_ns is not None
        ),
        renewal_ns=tuple(gap for grant in trace.grants for gap in _renewal_gaps(grant)),
        late_effects=sum(
            cluster.write is not None and cluster.write.call.ret_ns is None
            for cluster in seen.clusters
        ),
        forged=len(forged),
        forged_refused=sum(_turned_away(call) for call in forged),
        lost_places=len(lost),
        lost_refused=sum(refusal(call) == "not-holder" for call in lost),
    )


def _too_late(write: Write, later_ns: float) -> bool:
    """Whether a write began after the later grant, or was refused after it."""
    call = write.call
    if write.grant is None:
        return False
    return later_ns < call.call_ns or (_turned_away(call) and later_ns < done_ns(call))


def _turned_away(call: Call) -> bool:
    return refusal(call) in ("fenced", "not-holder")


def _forged(trace: Trace) -> list[Call]:
    """What was tried with a token that its caller was never granted."""
    if not trace.grants:
        return []
    written = [w.call for w in trace.writes if w.grant is None]
    return written + [c for f in ("renew", "release") for c in trace.of(f) if made_up(c)]


def _renewal_gaps(grant: Grant) -> Iterable[int]:
    if grant.ttl_ns is None:
        return
    since_ns = grant.acquire.call_ns
    for call in grant.renewals:
        yield since_ns + grant.ttl_ns - done_ns(call)
        since_ns = call.call_ns


def add(tallies: Sequence[Tally]) -> Tally:
    """Return the counts of all keys together."""
    return Tally(
        takeovers=sum(t.takeovers for t in tallies),
        attempts=sum(t.attempts for t in tallies),
        refused=sum(t.refused for t in tallies),
        stale=sum(t.stale for t in tallies),
        takeover_ns=tuple(gap for t in tallies for gap in t.takeover_ns),
        renewal_ns=tuple(gap for t in tallies for gap in t.renewal_ns),
        late_effects=sum(t.late_effects for t in tallies),
        forged=sum(t.forged for t in tallies),
        forged_refused=sum(t.forged_refused for t in tallies),
        lost_places=sum(t.lost_places for t in tallies),
        lost_refused=sum(t.lost_refused for t in tallies),
    )


def margins(summed: Tally, lost: int, acked: int) -> dict[str, Any]:
    """Return the distances to trouble; None where the run had no case."""
    gaps = [gap / 1e9 for gap in summed.takeover_ns]
    return {
        "renewal_margin_s": min(summed.renewal_ns) / 1e9 if summed.renewal_ns else None,
        "takeover_median_s": median(gaps) if gaps else None,
        "takeover_max_s": max(gaps) if gaps else None,
        "stale_attempts": summed.attempts,
        "stale_refused": summed.refused,
        "stale_accepted": summed.stale,
        "stale_share": summed.stale / summed.attempts if summed.attempts else None,
        "share_lost": lost / acked if acked else None,
    }


def stats(traces: Iterable[Trace], summed: Tally, lost: int) -> dict[str, Any]:
    """Return the counts of operations by outcome, and of what the workload is about."""
    operations: dict[str, dict[str, int]] = {}
    for trace in traces:
        for f in sorted(OPERATIONS):
            ended = Counter(call.outcome for call in trace.of(f))
            mine = operations.setdefault(f, {})
            for outcome in ("ok", "fail", "info", "open"):
                mine[outcome] = mine.get(outcome, 0) + ended[outcome]
    return {
        "operations": operations,
        "takeovers": summed.takeovers,
        "stale_attempts": summed.attempts,
        "stale_refused": summed.refused,
        "stale_accepted": summed.stale,
        "acked_writes": operations.get("write", {}).get("ok", 0),
        "lost_writes": lost,
        "late_effects": summed.late_effects,
        "forged_attempts": summed.forged,
        "forged_refused": summed.forged_refused,
        "lost_places": summed.lost_places,
        "lost_places_refused": summed.lost_refused,
    }


def vacuous(traces: Sequence[Trace], summed: Tally, evidence: Evidence) -> list[Unknown]:
    """Return why a pass would mean nothing, or nothing."""
    missing = []
    if _only_forgeries(evidence):
        if not summed.forged:
            missing.append("nobody tried a token that he was never granted")
    elif _only_waiters(evidence):
        if not summed.lost_places:
            missing.append("no worker was answered whose lease had ended in the queue")
    else:
        if not summed.takeovers:
            missing.append("no lock was taken over while its old owner was out")
        if not summed.attempts:
            missing.append("no old owner tried to write after that")
    missing += _around_faults(traces, evidence)
    if not missing:
        return []
    counts = (
        f"{count(summed.takeovers, 'takeover')}, {count(summed.attempts, 'stale write')} attempted"
    )
    text = f"Too little happened: {'; '.join(missing)} ({counts})."
    return [Unknown(reason=Reason.VACUOUS, text=text)]


def _only_forgeries(evidence: Evidence) -> bool:
    """Whether the faults of this run put no owner out: then it is about forged tokens alone."""
    kinds = [window.kind for window in evidence.windows]
    return bool(kinds) and all(kind.startswith("authority") for kind in kinds)


def _only_waiters(evidence: Evidence) -> bool:
    """Whether the faults of this run hit none but those who queue."""
    return bool(evidence.windows) and all(w.who == "waiter" for w in evidence.windows)


def _around_faults(traces: Sequence[Trace], evidence: Evidence) -> list[str]:
    """What did not succeed before, during and after the faults."""
    missing = []
    windows = [w for w in evidence.windows if w.on_ns is not None and w.grade != "not-effective"]
    if windows:
        first = min(windows, key=lambda window: window.on_ns or 0)
        first_ns = first.on_ns or 0
        last_ns = max(w.off_ns or w.heal_ns or evidence.history.end_ns for w in windows)
        before = _succeeded(traces, 0, first_ns)
        during = _succeeded(traces, first_ns, last_ns)
        if not _enough(before, first):
            missing.append(f"too little succeeded before the first fault ({_told(before)})")
        if not all(during[f] for f in _NEEDED):
            missing.append(f"too little succeeded during the faults ({_told(during)})")
    if not windows and evidence.spec is None:
        return missing  # a bare history has no phases
    after = 0
    if evidence.final_ns is not None:
        after = sum(
            call.outcome == "ok" and call.call_ns >= evidence.final_ns
            for trace in traces
            for call in trace.of("read")
        )
    if not after:
        missing.append("no final read succeeded after the faults")
    return missing


def _enough(before: Mapping[str, int], first: Window) -> bool:
    """Whether the system was seen to work before the first fault.

    A fault that a worker's own phase triggers may come inside the very first round, which is the
    sharpest moment; that it came there shows that the lock had answered.
    """
    if first.op is not None or first.at in PHASES:
        return any(before.values())
    return all(before[f] for f in _NEEDED)


def _succeeded(traces: Iterable[Trace], start_ns: int, end_ns: int) -> dict[str, int]:
    return {
        f: sum(
            call.outcome == "ok" and start_ns <= done_ns(call) <= end_ns
            for trace in traces
            for call in trace.of(f)
        )
        for f in _NEEDED
    }


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{f} {number}" for f, number in counts.items())

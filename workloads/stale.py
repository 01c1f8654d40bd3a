"""`stale-owner-write`: a sleeper wakes up and overwrites what the next owner has done.

The resource accepted a write of a lower level after it had accepted, or shown, one of a higher
level.  A resource that keeps the highest token it has seen and refuses lower ones cannot do this,
whatever its clients do.  `forgotten-fence` is the same write where the resource had such a fence
and lost it (a restart, a failover, a collected record): it is named apart, because the remedy is
another one.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from harness.history import Call
from harness.verdict import Anomaly
from workloads._clusters import overwritten
from workloads._grants import Grant
from workloads._owners import StaleWrite
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import count, instant, length

NAME = "stale-owner-write"
FORGOTTEN = "forgotten-fence"


def stale_writes(
    trace: Trace,
    stale: Sequence[StaleWrite],
    lost: Mapping[int, Sequence[Call]],
    accepted: int,
    acked: int,
) -> list[Result]:
    """Return both properties.

    `lost` are the calls that each stale write (by index) has cost, `accepted` counts the writes of
    the key that took effect, `acked` all acknowledged writes of the run.
    """
    made = [_anomaly(trace, one, lost.get(one.write.call.index, ()), acked) for one in stale]
    plain = [anomaly for anomaly in made if anomaly.name == NAME]
    forgotten = [anomaly for anomaly in made if anomaly.name == FORGOTTEN]
    return [found(NAME, accepted, plain), found(FORGOTTEN, accepted, forgotten)]


def when_ns(stale: StaleWrite) -> int:
    """Return when the stale write was known to be in effect, as early as the history tells."""
    call = stale.write.call
    if call.ret_ns is not None:
        return call.ret_ns
    return call.call_ns if stale.seen_by is None else stale.seen_by.call_ns


def _anomaly(trace: Trace, stale: StaleWrite, lost: Sequence[Call], acked: int) -> Anomaly:
    call, newer = stale.write.call, stale.newer.call
    old, new = stale.write.grant, stale.newer.grant
    effect_ns = when_ns(stale)
    newer_ns = newer.call_ns if newer.ret_ns is None else newer.ret_ns
    window_s = max(0, effect_ns - newer_ns) / 1e9
    lease_end_ns = None if old is None else old.lease_end_ns
    acquires = [grant.acquire.index for grant in (old, new) if grant is not None]
    seen_by = [stale.seen_by.index] if stale.seen_by is not None and not stale.certain else []
    return Anomaly(
        name=FORGOTTEN if stale.forgotten else NAME,
        sentence=_sentence(trace, stale, window_s, len(lost), acked),
        ops=(*acquires, newer.index, *seen_by, call.index),
        time_ns=effect_ns,
        key=trace.key,
        size_s=window_s,
        certain=stale.certain,
        details={
            "stale_grant": None if old is None else old.acquire.index,
            "newer_grant": None if new is None else new.acquire.index,
            "stale_write": call.index,
            "newer_write": newer.index,
            "over": overwritten(call),
            "lease_end_ns": lease_end_ns,
            "window_s": window_s,
            "worker": call.worker,
            "newer_worker": newer.worker,
            "lost": [one.index for one in lost],
            "proof": stale.proof,
        },
    )


def _sentence(trace: Trace, stale: StaleWrite, window_s: float, lost: int, acked: int) -> str:
    call, newer = stale.write.call, stale.newer.call
    if not stale.certain:
        return _doubtful(trace, stale)
    later = length(window_s * 1e9)
    whom = _whom(trace, stale)
    mine = f"token {call.token}" if trace.tokens else "its write"
    theirs = f"token {newer.token} of {whom}" if trace.tokens else f"one of {whom}"
    order = f"{mine} was accepted {later} after {theirs}"
    if stale.proof == "over":
        order = f"{mine} overwrote {theirs}"
    elif stale.proof == "store-log":
        order = f"by the resource's own log {mine} was accepted after {theirs}"
    more = ""
    if lost:
        share = f" ({100 * lost / acked:.0f} % of all)" if acked else ""
        writes = count(lost, "acknowledged write")
        more = f", and {writes} {'is' if lost == 1 else 'are'} lost{share}"
    if stale.forgotten:
        more += "; the resource no longer knew of the newer owner"
    return f"{_late(trace, stale.write.grant, call)}: {order}{more}."


def _late(trace: Trace, grant: Grant | None, call: Call) -> str:
    """Who wrote, and why it was no longer the owner."""
    wrote = f"wrote to {trace.key}"
    if grant is None:
        return f"{call.worker}, which was never granted token {call.token}, {wrote}"
    release, lease_end_ns = grant.release, grant.lease_end_ns
    if release is not None and release.call_ns < call.call_ns:
        since = length(call.call_ns - release.call_ns)
        return f"{call.worker} {wrote} {since} after it had asked to release the lock"
    if lease_end_ns is None:
        return f"{call.worker}, whose lock has no lease, {wrote}"
    if lease_end_ns <= call.call_ns:
        since = length(call.call_ns - lease_end_ns)
        return f"{call.worker} {wrote} {since} after its lease had ended"
    return f"{call.worker} {wrote} while its lease still had {length(lease_end_ns - call.call_ns)}"


def _whom(trace: Trace, stale: StaleWrite) -> str:
    """The newer owner, and whether it was the next one."""
    worker = stale.newer.call.worker
    old, new = stale.write.grant, stale.newer.grant
    if old is not None and new is not None and new.acquire.precedes(old.acquire):
        return f"{worker}, who had been granted the lock before it"
    if worker == stale.write.call.worker:
        return f"{worker} itself under a newer grant"
    levels = trace.granted_levels
    place = bisect_right(levels, stale.write.level)
    is_next = place < len(levels) and levels[place] == stale.newer.level
    return f"its next owner {worker}" if is_next else f"a later owner {worker}"


def _doubtful(trace: Trace, stale: StaleWrite) -> str:
    """The sentence when a late sight is the only sign: both readings of it."""
    call, newer = stale.write.call, stale.newer.call
    seen_by = stale.seen_by
    assert seen_by is not None
    older = f"token {call.token}" if trace.tokens else "the older grant"
    later = f"token {newer.token}" if trace.tokens else "the newer grant"
    return (
        f"{seen_by.worker} saw {call.worker}'s write under {older} on {trace.key} at"
        f" {instant(seen_by.call_ns)} or later, although {newer.worker}'s write under {later} had"
        f" taken effect before: either the resource accepted the older owner's write after the"
        " newer one's, or it showed an old value; the two writes were under way together."
    )

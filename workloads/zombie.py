"""`zombie-lease`: the lock stays held although nobody can hold it any more.

The witness is an attempt to acquire that the service itself refused as `held`, asked for so late
that no grant can possibly be in force.  A grant may be in force until a release of it was
acknowledged, until somebody else was granted the lock, or until its lease has run out, counted from
the *answer* to the last renewal.  A renewal with unknown outcome may come at any later time, but
only while the lease still lives: it can lengthen it by one TTL.  So can one by a stranger with the
holder's token.

The margin after a release is one second.  After the end of a lease it is one TTL and a second:
services end leases lazily, and may give each its full TTL again, once, without a fault that anybody
knows of.  Around faults of the servers the margin begins anew.

An acquire whose outcome nobody knows may have taken the lock at any later time, once, for one
lease.  What that can explain is a note and no finding: nobody could have released it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from harness.history import Call
from harness.verdict import Anomaly
from workloads._faults import Unrest
from workloads._grants import Grant
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import count, done_ns, instant, length, refusal

NAME = "zombie-lease"
SLACK_NS = 1_000_000_000


@dataclass(frozen=True)
class Claim:
    """What may explain that the lock is held: a grant, or (None) somebody before the history.

    `until_ns` is when it must have ended; the margin comes on top.
    """

    grant: Grant | None
    asked_ns: float
    until_ns: float
    margin_ns: float
    released: Call | None = None

    @property
    def limit_ns(self) -> float:
        """From when on no margin excuses it any more."""
        return self.until_ns + self.margin_ns


@dataclass
class Stretch:
    """Refusals, one after the other, after the latest claim had ended.

    `proven` are those that no acquire with unknown outcome can explain either.
    """

    claim: Claim
    refused: list[Call] = field(default_factory=list)
    proven: list[Call] = field(default_factory=list)


def zombie_leases(trace: Trace, unrest: Unrest) -> tuple[Result, list[str]]:
    """Return the property, with notes; every attempt that was refused as `held` is a case."""
    refused = [call for call in trace.of("acquire") if refusal(call) == "held"]
    stretches = _stretches(trace, refused, unrest)
    anomalies = [_anomaly(trace, one) for one in stretches if one.proven]
    lost = [one for one in stretches if one.refused and not one.proven]
    return found(NAME, len(refused), anomalies), _notes(trace, lost)


def _stretches(trace: Trace, refused: Sequence[Call], unrest: Unrest) -> list[Stretch]:
    claims = sorted(_claims(trace), key=lambda claim: claim.asked_ns)
    latest = longest = _before(trace)
    doubtful = [c.call_ns for c in trace.of("acquire") if c.outcome in ("info", "open")]
    length_ns = 2 * _ttl_ns(trace) + SLACK_NS
    place, used, covered_ns = 0, 0, -inf
    stretches: list[Stretch] = []
    for call in refused:
        ret_ns = done_ns(call)
        while place < len(claims) and claims[place].asked_ns <= ret_ns:
            claim = claims[place]
            latest = max(latest if place else claim, claim, key=lambda one: one.until_ns)
            longest = max(longest if place else claim, claim, key=lambda one: one.limit_ns)
            place += 1
        if call.call_ns <= latest.until_ns:
            continue
        if not stretches or stretches[-1].claim is not latest:
            stretches.append(Stretch(latest))
        stretches[-1].refused.append(call)
        stirred_ns = unrest.ended_ns(ret_ns) + longest.margin_ns
        if call.call_ns <= max(longest.limit_ns, stirred_ns, covered_ns):
            continue
        if used < bisect_right(doubtful, ret_ns):
            used, covered_ns = used + 1, ret_ns + length_ns
        else:
            stretches[-1].proven.append(call)
    return stretches


def _before(trace: Trace) -> Claim:
    """Return what explains a lock that is held before its first grant: it was taken earlier."""
    began_ns = min((call.call_ns for call in trace.of("acquire")), default=0)
    return Claim(None, -inf, began_ns, 2 * _ttl_ns(trace) + SLACK_NS)


def _claims(trace: Trace) -> Iterable[Claim]:
    """Return what each grant explains."""
    released = {
        grant.acquire.index: call
        for call in trace.of("release")
        if call.outcome == "ok" and (grant := trace.grant_of(call)) is not None
    }
    doubtful: dict[int, int] = {}
    by_token = {grant.token: grant for grant in trace.grants} if trace.tokens else {}
    for call in trace.of("renew"):
        grant = trace.grant_of(call)
        by_owner = grant is not None
        grant = grant or by_token.get(call.token)  # a stranger may have renewed it as well
        if grant is not None and call.outcome in ("info", "open", *(() if by_owner else ("ok",))):
            doubtful[grant.acquire.index] = doubtful.get(grant.acquire.index, 0) + 1
    next_ns = trace.earliest_above((grant.level, grant.start_ns) for grant in trace.grants)
    for grant in trace.grants:
        release = released.get(grant.acquire.index)
        ended_ns = inf if release is None else float(done_ns(release))
        until_ns = min(ended_ns, next_ns[grant.level])
        margin_ns = SLACK_NS
        if grant.ttl_ns is not None:
            renewed_ns = max([grant.start_ns, *(done_ns(call) for call in grant.renewals)])
            lease_ns = grant.ttl_ns * (1 + doubtful.get(grant.acquire.index, 0))
            if renewed_ns + lease_ns < until_ns:
                until_ns, margin_ns = renewed_ns + lease_ns, grant.ttl_ns + SLACK_NS
        yield Claim(grant, grant.acquire.call_ns, until_ns, margin_ns, release)


def _ttl_ns(trace: Trace) -> float:
    """The longest lease that was granted or asked for on this key; infinity without any."""
    asked = [
        round(ttl_s * 1e9)
        for call in trace.of("acquire")
        if isinstance(call.value, dict)
        and isinstance(ttl_s := call.value.get("ttl_s"), int | float)
        and 0 < ttl_s < 1e9
    ]
    granted = [grant.ttl_ns for grant in trace.grants if grant.ttl_ns is not None]
    return max([*asked, *granted], default=inf)


def _anomaly(trace: Trace, stretch: Stretch) -> Anomaly:
    claim, first, last = stretch.claim, stretch.proven[0], stretch.proven[-1]
    grant = claim.grant
    over_ns = last.call_ns - claim.until_ns
    tries = count(len(stretch.proven), "attempt")
    was = "was" if len(stretch.proven) == 1 else "were"
    why, ops = "nobody had been granted it", []
    if grant is not None:
        ops = [grant.acquire.index]
        why = f"the lease of {grant.worker}, the last who was granted it, had ended"
        if claim.released is not None and done_ns(claim.released) <= claim.until_ns:
            ops.append(claim.released.index)
            why = f"{grant.worker}, the last who was granted it, had released it"
        elif grant.renewals:
            ops.append(grant.renewals[-1].index)
    return Anomaly(
        name=NAME,
        sentence=(
            f"{trace.key} stayed held after {why} at {instant(claim.until_ns)} at the latest:"
            f" {tries} to acquire it {was} still refused, the last one {length(over_ns)} later."
        ),
        ops=(*ops, *dict.fromkeys((first.index, last.index))),
        time_ns=done_ns(first),
        key=trace.key,
        size_s=over_ns / 1e9,
        details={
            "grant": None if grant is None else grant.acquire.index,
            "worker": None if grant is None else grant.worker,
            "free_ns": round(claim.until_ns),
            "refused": len(stretch.proven),
        },
    )


def _notes(trace: Trace, lost: Sequence[Stretch]) -> list[str]:
    """Say how long the lock may have been held by somebody whose grant was lost on its way."""
    doubtful = [c.call_ns for c in trace.of("acquire") if c.outcome in ("info", "open")]
    starts = sorted(grant.start_ns for grant in trace.grants)
    longest = 0.0
    for stretch in lost:
        first, last = stretch.refused[0], stretch.refused[-1]
        if any(asked_ns < done_ns(first) for asked_ns in doubtful):
            end_ns = next((ns for ns in starts if ns > done_ns(last)), done_ns(last))
            longest = max(longest, end_ns - first.call_ns)
    if not longest:
        return []
    held = f"{trace.key} was refused as held for up to {length(longest)}"
    why = "an acquire whose answer was lost may have taken it, and nobody could release it"
    return [f"{held} while nobody is known to have held it: {why}."]

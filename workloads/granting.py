"""`duplicate-grant`, `fence-regression`, `fence-collision`: what the lock service itself got wrong.

Two certain holds of one lock must not overlap.  Grants that follow each other (the earlier was
acknowledged before the later was asked for) must bring growing tokens, and no token twice.  The
order in which answers arrive proves nothing: in a healthy hand-over the next owner's answer may
come before the previous owner's release is acknowledged.  A worker that is granted what it already
holds (a re-entrant lock) endangers nobody and is left out.

A grant to a lease that the service itself had called ended (see `unearned-hold`) has no certain
hold by that lease.  Its holder was told all the same that the lock is his, and nothing could end
that: until he turns away from it, it collides with any certain hold of somebody else.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from harness.verdict import Anomaly
from workloads._grants import Grant
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import done_ns, instant, length


def grant_faults(trace: Trace) -> list[Result]:
    """Return the three properties of one lock."""
    grants = trace.grants
    with_tokens = sum(grant.token is not None for grant in grants)
    return [
        found("duplicate-grant", len(grants), _duplicates(trace.key, grants)),
        found("fence-collision", with_tokens, _collisions(trace.key, grants)),
        found("fence-regression", with_tokens, _regressions(trace.key, grants)),
    ]


def _duplicates(key: str, grants: Sequence[Grant]) -> Iterable[Anomaly]:
    """Sweep over the certain holds by their start, keeping the two that reach furthest."""
    furthest: list[Grant] = []  # of different workers
    dead = {grant.acquire.index for grant, _ in dead_waiters(grants)}
    for given in grants:  # in the order of their starts
        grant = _as_told(given) if given.acquire.index in dead else given
        if grant.end_ns <= grant.start_ns:
            continue
        other = next((g for g in furthest if g.worker != grant.worker), None)
        if other is not None and grant.start_ns < other.end_ns:
            yield _duplicate(key, other, grant)
        best = {g.worker: g for g in sorted([*furthest, grant], key=lambda g: g.end_ns)}
        furthest = sorted(best.values(), key=lambda g: -g.end_ns)[:2]


def dead_waiters(grants: Sequence[Grant]) -> list[tuple[Grant, Grant]]:
    """Return the grants that no moment is left for, each with who held the lock meanwhile.

    A grant is made between the request and the answer, and before its lease has ended.  Where
    somebody else certainly held the lock until the service called that lease ended, there is none.
    """
    found = []
    for grant in grants:
        if grant.lost is None:
            continue
        ended_ns = done_ns(grant.lost)
        for other in grants:
            covers = other.start_ns <= grant.acquire.call_ns and ended_ns <= other.end_ns
            if covers and other.worker != grant.worker:
                found.append((grant, other))
                break
    return found


def _as_told(grant: Grant) -> Grant:
    """Return a grant that no lease ends, only its holder."""
    return replace(grant, ttl_ns=None, killed_ns=grant.left_ns)


def _duplicate(key: str, one: Grant, two: Grant) -> Anomaly:
    until_ns = min(one.end_ns, two.end_ns)
    overlap_s = None if until_ns == inf else (until_ns - two.start_ns) / 1e9
    kept = "held it without end"
    if one.end_ns != inf:
        what = (
            "the lease ran" if one.end_ns == one.lease_end_ns else "it had not asked to release it"
        )
        kept = f"held it until {instant(one.end_ns)} at the earliest ({what})"
    tokens = f" (tokens {one.token} and {two.token})" if None not in (one.token, two.token) else ""
    both = "" if overlap_s is None else f" for {length(overlap_s * 1e9)}"
    return Anomaly(
        name="duplicate-grant",
        sentence=(
            f"{one.worker} and {two.worker} both held {key}{both}: {two.worker} was granted it at"
            f" {instant(two.start_ns)} while {one.worker} {kept}{tokens}."
        ),
        ops=(one.acquire.index, *(r.index for r in one.renewals[-1:]), two.acquire.index),
        time_ns=two.start_ns,
        key=key,
        size_s=overlap_s,
        details={
            "first_grant": one.acquire.index,
            "second_grant": two.acquire.index,
            "worker": one.worker,
            "second_worker": two.worker,
        },
    )


def _collisions(key: str, grants: Sequence[Grant]) -> Iterable[Anomaly]:
    last: dict[int, Grant] = {}
    for grant in grants:
        if grant.token is None:
            continue
        twin = last.get(grant.token)
        last[grant.token] = grant
        if twin is not None and not _re_entered(twin, grant):
            yield Anomaly(
                name="fence-collision",
                sentence=(
                    f"Two grants of {key} share token {grant.token}: {twin.worker}'s of"
                    f" {instant(twin.start_ns)} and {grant.worker}'s of {instant(grant.start_ns)}."
                ),
                ops=(twin.acquire.index, grant.acquire.index),
                time_ns=grant.start_ns,
                key=key,
                details={"first_grant": twin.acquire.index, "second_grant": grant.acquire.index},
            )


def _re_entered(one: Grant, two: Grant) -> bool:
    """Whether a worker was only granted again what it had not given back."""
    given_back = one.release is not None and one.release.index < two.acquire.index
    return one.worker == two.worker and not given_back


def _regressions(key: str, grants: Sequence[Grant]) -> Iterable[Anomaly]:
    """Compare each grant with the highest token acknowledged before it was asked for."""
    ordered = [grant for grant in grants if grant.token is not None]
    starts = [grant.start_ns for grant in ordered]
    highest: list[Grant] = []
    for grant in ordered:
        top = highest[-1] if highest else grant
        highest.append(grant if (grant.token or 0) > (top.token or 0) else top)
    for grant in ordered:
        place = bisect_left(starts, grant.acquire.call_ns)
        if not place:
            continue
        before = highest[place - 1]
        assert before.token is not None
        assert grant.token is not None
        if grant.token < before.token:
            yield Anomaly(
                name="fence-regression",
                sentence=(
                    f"The fencing token of {key} went backwards: {before.worker} was granted"
                    f" {before.token} at {instant(before.start_ns)}, and {grant.worker}, who asked"
                    f" at {instant(grant.acquire.call_ns)}, only {grant.token}."
                ),
                ops=(before.acquire.index, grant.acquire.index),
                time_ns=grant.start_ns,
                key=key,
                details={"first_grant": before.acquire.index, "second_grant": grant.acquire.index},
            )

"""Grants of a lock, what followed from each, and how owners are ranked.

A *certain hold* runs from the answer to the acquire to the earliest of the request for the release
and the request for the last acknowledged renewal plus the TTL: the service starts to count when it
handles a request, so not before it was made.  The lease of a worker that queued began when it took
its place, and was kept alive (`keep`) until its turn came.  A hold ends earlier when the holder is
killed, since a service may free the lock of a session that died.  What is in doubt is left out, so
two certain holds that overlap are a fault of the lock whichever way the doubts went.

Owners are ranked by *level*.  Where every grant carries a fencing token, the level is the rank of
the token.  Where a lock gives none, grants are ranked by real time: acquires whose intervals
overlap, directly or through others, share a level, so a lower level certainly was granted before.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from harness.history import Call
from workloads._waits import Waits, lost_in_queue
from workloads._words import done_ns, show


class ShapeError(Exception):
    """The calls on one key cannot be understood; the text says which."""


@dataclass(frozen=True, slots=True)
class Grant:
    """An acknowledged acquire with what followed from it.

    `renewals` are the acknowledged ones, those of the queue first; `lost` says that the service had
    called the lease ended while its owner still queued.  `release` is the first one asked for,
    whatever its outcome.
    `left_ns` is when the worker turned away from it: it asked for the release, or for another lock,
    or was killed, which was ordered at `killed_ns`.
    """

    acquire: Call
    level: int
    ttl_ns: int | None
    renewals: tuple[Call, ...]
    release: Call | None
    left_ns: float
    killed_ns: float = inf
    lost: Call | None = None

    @property
    def worker(self) -> str:
        """Who got it."""
        return self.acquire.worker

    @property
    def token(self) -> int | None:
        """The fencing token that came with it."""
        return self.acquire.result_token

    @property
    def start_ns(self) -> int:
        """When it was acknowledged: the certain hold begins."""
        return done_ns(self.acquire)

    @property
    def lease_end_ns(self) -> int | None:
        """When the lease ends at the earliest; None when it has no end."""
        if self.ttl_ns is None:
            return None
        return max([self.acquire.call_ns, *(r.call_ns for r in self.renewals)]) + self.ttl_ns

    @property
    def end_ns(self) -> float:
        """When the certain hold ends, infinity when nothing ends it."""
        ends_ns = [self.killed_ns]
        if self.lease_end_ns is not None:
            ends_ns.append(self.lease_end_ns)
        if self.release is not None:
            ends_ns.append(self.release.call_ns)
        return min(ends_ns)


@dataclass
class Own:
    """The grants of each worker in the order of their acknowledgements, also by token."""

    _indexes: dict[tuple[str, int | None], list[int]] = field(default_factory=dict)
    _grants: dict[tuple[str, int | None], list[Grant]] = field(default_factory=dict)

    @classmethod
    def of(cls, grants: Iterable[Grant]) -> "Own":
        """Index some grants."""
        own = cls()
        for grant in sorted(grants, key=lambda grant: grant.acquire.ret_index or 0):
            for token in {None, grant.token}:
                whose = (grant.worker, token)
                own._indexes.setdefault(whose, []).append(grant.acquire.ret_index or 0)
                own._grants.setdefault(whose, []).append(grant)
        return own

    def latest(self, call: Call, token: int | None) -> Grant | None:
        """The caller's latest grant before the call; with `token` the latest of that token."""
        whose = (call.worker, token)
        place = bisect_left(self._indexes.get(whose, ()), call.index)
        return self._grants[whose][place - 1] if place else None


def ranks_by_token(won: Iterable[Call], written: Iterable[Call]) -> dict[int, int]:
    """Return the level of each token that was granted or used."""
    used = {call.result_token for call in won} | {call.token for call in written}
    return {token: level for level, token in enumerate(sorted(t for t in used if t is not None))}


def ranks_by_time(won: Sequence[Call]) -> dict[int, int]:
    """Return the level of each acquire by its index; `won` is in the order of invocations."""
    levels: dict[int, int] = {}
    level, until_ns = -1, -1
    for call in won:
        if call.call_ns > until_ns:
            level += 1
        until_ns = max(until_ns, done_ns(call))
        levels[call.index] = level
    return levels


def make_grants(
    won: Sequence[Call],
    level: Mapping[int, int],
    followed: Mapping[str, Sequence[Call]],
    next_try_ns: Mapping[int, float],
    killed: Mapping[str, Sequence[int]],
    *,
    tokens: bool,
) -> tuple[Grant, ...]:
    """Return the grants of one key in the order of their acknowledgements.

    `level` is by token or by index, `followed` the other calls on the key, `next_try_ns` when the
    winner of an acquire (by index) next asked for a lock, `killed` when workers were killed.
    Raises ShapeError.
    """
    own = Own.of(
        Grant(call, 0, None, (), None, inf)  # only to find out what belongs to which
        for call in won
    )
    renewals: dict[int, list[Call]] = defaultdict(list)
    releases: dict[int, Call] = {}
    waits = Waits.of(won)
    for call in followed.get("keep", ()):
        waited = waits.of_keep(call)
        if waited is not None and call.outcome == "ok":
            renewals[waited.index].append(call)
    lost = {
        waited.index: call
        for call in followed.get("keep", ())
        if (waited := waits.of_keep(call)) is not None and lost_in_queue(waited, call)
    }
    for call in followed.get("renew", ()):
        grant = own.latest(call, call.token if tokens else None)
        if grant is not None and call.outcome == "ok":
            renewals[grant.acquire.index].append(call)
    for call in followed.get("release", ()):
        grant = own.latest(call, call.token if tokens else None)
        if grant is not None:
            releases.setdefault(grant.acquire.index, call)
    made = []
    for call in won:
        rank = call.result_token if tokens and call.result_token is not None else call.index
        release = releases.get(call.index)
        left_ns = next_try_ns[call.index]
        if release is not None:
            left_ns = min(left_ns, release.call_ns)
        renewed = tuple(renewals.get(call.index, ()))
        killed_ns = _first_from(killed.get(call.worker, ()), call.call_ns)
        left_ns = min(left_ns, killed_ns)
        made.append(
            Grant(
                call,
                level[rank],
                _ttl_ns(call),
                renewed,
                release,
                left_ns,
                killed_ns,
                lost.get(call.index),
            )
        )
    return tuple(sorted(made, key=lambda grant: grant.acquire.ret_index or 0))


def _first_from(times_ns: Sequence[int], since_ns: int) -> float:
    place = bisect_left(times_ns, since_ns)
    return times_ns[place] if place < len(times_ns) else inf


def _ttl_ns(acquire: Call) -> int | None:
    """The lease as granted, or else as asked for; None when neither says one."""
    for value in (acquire.result, acquire.value):
        ttl_s = value.get("ttl_s") if isinstance(value, dict) else None
        if ttl_s is None:
            continue
        if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 0 < ttl_s < 1e9:
            raise ShapeError(f"op {acquire.index} has a lease of {show(ttl_s)} seconds")
        return round(ttl_s * 1e9)
    return None

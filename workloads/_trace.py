"""The history of the `fencing` workload, key by key: grants, the writes made under them, reads.

Owners are ranked by *level*.  Where every grant carries a fencing token, the level of a grant or a
write is the rank of its token.  Where a lock gives none, grants are ranked by real time: acquires
whose intervals overlap, directly or through others, share a level, so a lower level certainly was
granted before.  A key without any grant is a plain register, and all its writes are of one level.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from harness.history import Call, History
from harness.verdict import Reason, Unknown
from workloads._words import done_ns, ended, show

OPERATIONS = frozenset({"acquire", "renew", "check", "read", "write", "release"})


@dataclass(frozen=True, slots=True)
class Grant:
    """An acknowledged acquire with what followed from it.

    `renewals` are the acknowledged ones, `release` the first one asked for, whatever its outcome.
    `left_ns` is when the worker turned away from it: it asked for the release, or for another lock.
    """

    acquire: Call
    level: int
    ttl_ns: int | None
    renewals: tuple[Call, ...]
    release: Call | None
    left_ns: float

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
        """When the lease ends at the earliest, as acknowledged; None when it has no end.

        The service starts to count when it handles the request, so not before the request was made.
        """
        if self.ttl_ns is None:
            return None
        return max([self.acquire.call_ns, *(r.call_ns for r in self.renewals)]) + self.ttl_ns

    @property
    def end_ns(self) -> float:
        """When the certain hold ends: release asked for, or end of the lease; else never."""
        lease_end_ns = inf if self.lease_end_ns is None else self.lease_end_ns
        return lease_end_ns if self.release is None else min(lease_end_ns, self.release.call_ns)


@dataclass(frozen=True, slots=True)
class Write:
    """A write with its place among the owners; `grant` None: its token was never granted to it."""

    call: Call
    level: int
    grant: Grant | None


@dataclass(frozen=True)
class Trace:
    """All calls on one key; `tokens`: whether owners are ranked by fencing tokens."""

    key: str
    tokens: bool
    grants: tuple[Grant, ...]
    writes: tuple[Write, ...]
    calls: Mapping[str, Sequence[Call]]
    _own: Mapping[tuple[str, int | None], tuple[list[int], list[Grant]]]

    def of(self, f: str) -> Sequence[Call]:
        """The calls of one operation, in the order of their invocations."""
        return self.calls.get(f, ())

    def grant_of(self, call: Call) -> Grant | None:
        """The latest grant to the caller, of the token that it used, acknowledged before the call."""
        return _latest(self._own, call, call.token if self.tokens else None)


@dataclass(frozen=True)
class Book:
    """The traces of all keys, and why some key cannot be judged; `foreign` counts other operations."""

    traces: tuple[Trace, ...]
    unknown: tuple[Unknown, ...]
    foreign: Mapping[str, int]


class _ShapeError(Exception):
    """The calls on one key cannot be understood."""


def read_traces(history: History) -> Book:
    """Return the traces of a history.  Raises MalformedHistoryError when it is not one."""
    keys: dict[str, dict[str, list[Call]]] = {}
    foreign: Counter[str] = Counter()
    unknown: list[Unknown] = []
    acquires: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.f not in OPERATIONS:
            foreign[call.f] += 1
        elif call.key is None:
            unknown.append(_malformed(f"op {call.index}: {call.f} without a key"))
        else:
            keys.setdefault(call.key, {}).setdefault(call.f, []).append(call)
            if call.f == "acquire":
                acquires[call.worker].append(call)
    traces = []
    for key in sorted(keys):
        try:
            traces.append(_trace(key, keys[key], acquires))
        except _ShapeError as error:
            unknown.append(_malformed(f"{key}: {error}"))
    return Book(tuple(traces), tuple(unknown[:20]), foreign)


def _malformed(text: str) -> Unknown:
    return Unknown(reason=Reason.MALFORMED, text=text)


def _trace(
    key: str, calls: Mapping[str, Sequence[Call]], acquires: Mapping[str, Sequence[Call]]
) -> Trace:
    won = [call for call in calls.get("acquire", ()) if call.outcome == "ok"]
    written = calls.get("write", ())
    _check_shapes(calls)
    tokens = all(c.result_token is not None for c in won) if won else any(
        c.token is not None for c in written
    )
    rank = _by_token(won, written) if tokens else _by_time(won)
    grants = _grants(won, calls, rank, acquires, tokens=tokens)
    own = _index(grants)
    writes = []
    for call in written:
        grant = _latest(own, call, call.token if tokens else None)
        writes.append(Write(call, _level(call, grant, rank, tokens=tokens, free=not won), grant))
    return Trace(key, tokens, grants, tuple(writes), calls, own)


def _level(
    call: Call, grant: Grant | None, rank: Mapping[int, int], *, tokens: bool, free: bool
) -> int:
    if tokens:
        if call.token is None:
            raise _ShapeError(f"op {call.index} writes without a token, other ops have tokens")
        return rank[call.token]
    if grant is None and not free:
        raise _ShapeError(f"op {call.index} writes with neither a token nor a grant before it")
    return 0 if grant is None else grant.level


def _check_shapes(calls: Mapping[str, Sequence[Call]]) -> None:
    written: dict[Any, Call] = {}
    for call in calls.get("write", ()):
        if not isinstance(call.value, str | int):
            raise _ShapeError(f"op {call.index} writes {show(call.value)}, which is no text")
        twin = written.setdefault(call.value, call)
        if twin is not call:
            raise _ShapeError(
                f"ops {twin.index} and {call.index} both write {show(call.value)}, so a read of it"
                " does not say which of them it saw"
            )
    for call in calls.get("read", ()):
        if call.outcome == "ok" and call.result is None and call.result_token is not None:
            raise _ShapeError(f"op {call.index} read a token without a value")


def _by_token(won: Iterable[Call], written: Iterable[Call]) -> dict[int, int]:
    """The level of each token."""
    used = {c.result_token for c in won} | {c.token for c in written}
    return {token: level for level, token in enumerate(sorted(t for t in used if t is not None))}


def _by_time(won: Sequence[Call]) -> dict[int, int]:
    """The level of each acquire, by its index: a new one where all before it had ended."""
    levels: dict[int, int] = {}
    level, until_ns = -1, -1
    for call in won:  # already in the order of invocations
        if call.call_ns > until_ns:
            level += 1
        until_ns = max(until_ns, done_ns(call))
        levels[call.index] = level
    return levels


def _ttl_ns(acquire: Call) -> int | None:
    """The lease as granted, or else as asked for; None when neither says one."""
    for value in (acquire.result, acquire.value):
        ttl_s = value.get("ttl_s") if isinstance(value, dict) else None
        if ttl_s is None:
            continue
        if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 0 < ttl_s < 1e9:
            raise _ShapeError(f"op {acquire.index} has a lease of {show(ttl_s)} seconds")
        return round(ttl_s * 1e9)
    return None


def _grants(
    won: Sequence[Call],
    calls: Mapping[str, Sequence[Call]],
    rank: Mapping[int, int],
    acquires: Mapping[str, Sequence[Call]],
    *,
    tokens: bool,
) -> tuple[Grant, ...]:
    bare = [
        Grant(call, rank[_rank_key(call, tokens=tokens)], _ttl_ns(call), (), None, inf)
        for call in won
    ]
    own = _index(bare)
    renewals: dict[int, list[Call]] = defaultdict(list)
    releases: dict[int, Call] = {}
    for f in ("renew", "release"):
        for call in calls.get(f, ()):
            grant = _latest(own, call, call.token if tokens else None)
            if grant is not None and f == "release":
                releases.setdefault(grant.acquire.index, call)
            elif grant is not None and call.outcome == "ok":
                renewals[grant.acquire.index].append(call)
    tries = {worker: [c.index for c in mine] for worker, mine in acquires.items()}
    made = []
    for grant in bare:
        call = grant.acquire
        mine = acquires[call.worker]
        place = bisect_left(tries[call.worker], call.ret_index or 0)
        next_try_ns = mine[place].call_ns if place < len(mine) else inf
        release = releases.get(call.index)
        left_ns = next_try_ns if release is None else min(next_try_ns, release.call_ns)
        renewed = tuple(renewals[call.index])
        made.append(Grant(call, grant.level, grant.ttl_ns, renewed, release, left_ns))
    return tuple(sorted(made, key=lambda grant: (grant.start_ns, grant.acquire.index)))


def _rank_key(call: Call, *, tokens: bool) -> int:
    return call.result_token if tokens and call.result_token is not None else call.index


def _index(
    grants: Iterable[Grant],
) -> dict[tuple[str, int | None], tuple[list[int], list[Grant]]]:
    """Grants by worker, and by worker and token, in the order of their acknowledgements."""
    found: dict[tuple[str, int | None], tuple[list[int], list[Grant]]] = {}
    for grant in sorted(grants, key=lambda grant: grant.acquire.ret_index or 0):
        for token in {None, grant.token}:
            indexes, listed = found.setdefault((grant.worker, token), ([], []))
            indexes.append(grant.acquire.ret_index or 0)
            listed.append(grant)
    return found


def _latest(
    own: Mapping[tuple[str, int | None], tuple[list[int], list[Grant]]],
    call: Call,
    token: int | None,
) -> Grant | None:
    indexes, grants = own.get((call.worker, token), ([], []))
    place = bisect_left(indexes, call.index)
    return grants[place - 1] if place else None


def earliest(moments: Iterable[tuple[int, float]], levels: int) -> list[float]:
    """For each level, the earliest of the given (level, time) of any *higher* level; else infinity."""
    first = [inf] * (levels + 1)
    for level, time_ns in moments:
        first[level] = min(first[level], time_ns)
    above = [inf] * (levels + 1)
    for level in range(levels - 1, -1, -1):
        above[level] = min(above[level + 1], first[level + 1])
    return above


def top_level(trace: Trace) -> int:
    """Return how many levels a trace has."""
    highest = max((g.level for g in trace.grants), default=-1)
    return max(highest, max((w.level for w in trace.writes), default=-1)) + 1


__all__ = ["Book", "Grant", "Trace", "Write", "earliest", "ended", "read_traces", "top_level"]

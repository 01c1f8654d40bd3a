"""The history of the `fencing` workload, key by key: grants, the writes made under them, reads.

Keys are independent (locality, Herlihy and Wing 1990), so each is judged alone.  A key whose calls
cannot be understood is set aside with the reason, and the others are judged.  A key without any
grant is a plain register: all its writes are of one level.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from harness.history import Call, History
from harness.verdict import Reason, Unknown
from workloads._grants import (
    Grant,
    Own,
    ShapeError,
    make_grants,
    ranks_by_time,
    ranks_by_token,
)
from workloads._words import show

OPERATIONS = frozenset({"acquire", "keep", "renew", "check", "read", "write", "release"})
_REASONS_MAX = 20


@dataclass(frozen=True, slots=True)
class Write:
    """A write with its place among the owners; `grant` None: it was never granted what it used."""

    call: Call
    level: int
    grant: Grant | None


@dataclass(frozen=True)
class Trace:
    """All calls on one key; `tokens`: whether owners are ranked by fencing tokens."""

    key: str
    tokens: bool
    levels: int
    grants: tuple[Grant, ...]
    writes: tuple[Write, ...]
    calls: Mapping[str, Sequence[Call]]
    own: Own

    @cached_property
    def granted_levels(self) -> list[int]:
        """The levels that were granted, from the lowest."""
        return sorted({grant.level for grant in self.grants})

    def of(self, f: str) -> Sequence[Call]:
        """The calls of one operation, in the order of their invocations."""
        return self.calls.get(f, ())

    def grant_of(self, call: Call) -> Grant | None:
        """The caller's latest grant of the token that it used, acknowledged before the call."""
        return self.own.latest(call, call.token if self.tokens else None)

    def earliest_above(self, moments: Iterable[tuple[int, float]]) -> list[float]:
        """For each level the earliest of the (level, time) above it, infinity if there is none."""
        first = [inf] * (self.levels + 1)
        for level, time_ns in moments:
            first[level] = min(first[level], time_ns)
        above = [inf] * (self.levels + 1)
        for level in range(self.levels - 1, -1, -1):
            above[level] = min(above[level + 1], first[level + 1])
        return above


@dataclass(frozen=True)
class Book:
    """The traces of all keys, why some key cannot be judged, and a count of other operations."""

    traces: tuple[Trace, ...]
    unknown: tuple[Unknown, ...]
    foreign: Mapping[str, int]


def read_traces(history: History, killed: Mapping[str, Sequence[int]] | None = None) -> Book:
    """Return the traces of a history; `killed` says when workers were killed.

    Raises MalformedHistoryError when it is not one.
    """
    keys: dict[str, dict[str, list[Call]]] = {}
    acquires: dict[str, list[Call]] = defaultdict(list)
    foreign: Counter[str] = Counter()
    strange: list[str] = []
    for call in history.calls:
        if call.f not in OPERATIONS:
            foreign[call.f] += 1
        elif call.key is None:
            strange.append(f"op {call.index}: {call.f} without a key")
        else:
            keys.setdefault(call.key, {}).setdefault(call.f, []).append(call)
            if call.f == "acquire":
                acquires[call.worker].append(call)
    next_try_ns = _next_tries(acquires)
    traces = []
    for key in sorted(keys):
        try:
            traces.append(_trace(key, keys[key], next_try_ns, killed or {}))
        except ShapeError as error:
            strange.append(f"{key}: {error}")
    unknown = tuple(Unknown(reason=Reason.MALFORMED, text=t) for t in strange[:_REASONS_MAX])
    return Book(tuple(traces), unknown, foreign)


def _next_tries(acquires: Mapping[str, Sequence[Call]]) -> dict[int, float]:
    """When the worker of each acquire (by index) next asked for a lock after its answer."""
    following: dict[int, float] = {}
    for mine in acquires.values():
        indexes = [call.index for call in mine]
        for call in mine:
            if call.ret_index is not None:
                place = bisect_left(indexes, call.ret_index)
                following[call.index] = mine[place].call_ns if place < len(mine) else inf
    return following


def _trace(
    key: str,
    calls: Mapping[str, Sequence[Call]],
    next_try_ns: Mapping[int, float],
    killed: Mapping[str, Sequence[int]],
) -> Trace:
    won = [call for call in calls.get("acquire", ()) if call.outcome == "ok"]
    written = calls.get("write", ())
    _check_shapes(calls)
    # Before any grant (a register alone) the writes say whether tokens are in use.
    granted = [call.result_token for call in won] or [call.token for call in written]
    tokens = bool(granted) and None not in granted
    rank = ranks_by_token(won, written) if tokens else ranks_by_time(won)
    grants = make_grants(won, rank, calls, next_try_ns, killed, tokens=tokens)
    own = Own.of(grants)
    writes = []
    for call in written:
        grant = own.latest(call, call.token if tokens else None)
        if tokens:
            if call.token is None:
                raise ShapeError(f"op {call.index} writes without a token, the grants have tokens")
            level = rank[call.token]
        elif grant is None and won:
            raise ShapeError(f"op {call.index} writes without any grant before it")
        else:
            level = 0 if grant is None else grant.level
        writes.append(Write(call, level, grant))
    levels = max((len(rank), 1))
    return Trace(key, tokens, levels, grants, tuple(writes), calls, own)


def _check_shapes(calls: Mapping[str, Sequence[Call]]) -> None:
    written: dict[Any, Call] = {}
    for call in calls.get("write", ()):
        if not isinstance(call.value, str | int):
            raise ShapeError(f"op {call.index} writes {show(call.value)}, which is no text")
        twin = written.setdefault(call.value, call)
        if twin is not call:
            raise ShapeError(
                f"ops {twin.index} and {call.index} both write {show(call.value)}, so a read of it"
                " does not say which of them it saw"
            )
    for call in calls.get("read", ()):
        if call.outcome == "ok" and call.result is None and call.result_token is not None:
            raise ShapeError(f"op {call.index} read a token without a value")

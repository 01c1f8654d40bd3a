"""The definition of linearizability, by brute force, for tiny histories.

Deliberately naive and independent of the checkers: a history is legal when the calls that certainly
took effect, and any choice of those of unknown outcome, can be put in an order that respects real
time (a call that ended strictly before another began comes first) and that the sequential object
explains.  An object is a function from a state and a call to the states that may follow.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from harness.history import Call

Step = Callable[[Any, Call], Iterable[Any]]
INF = float("inf")


def solid(value: Any) -> Hashable:
    """Return a hashable stand-in for a JSON value."""
    return tuple(solid(item) for item in value) if isinstance(value, list) else value


def legal(calls: Sequence[Call], step: Step, start: Any, *, expires: bool = False) -> bool:
    """Whether some order explains the calls; `expires`: a holder may lose the lock at any time."""
    count = len(calls)
    ret = [INF if c.ret_ns is None else c.ret_ns for c in calls]
    must = sum(1 << i for i in range(count) if ret[i] < INF)
    dead = set()

    def go(done: int, state: Any) -> bool:
        if done & must == must:
            return True
        if (done, state) in dead:
            return False
        limit = min(ret[i] for i in range(count) if not done >> i & 1)
        states = [state]
        if expires and state[0] is not None:
            states.append((None, *state[1:]))
        for before in states:
            for i in range(count):
                if done >> i & 1 or calls[i].call_ns > limit:
                    continue
                if any(go(done | 1 << i, after) for after in step(before, calls[i])):
                    return True
        dead.add((done, state))
        return False

    return go(0, start)


def register(*, cas_tells: bool = True) -> Step:
    """A register with compare-and-set; a failed write did not happen."""

    def step(state: Any, c: Call) -> Iterable[Any]:
        failed = c.outcome == "fail"
        if c.f == "read":
            return [state] if c.outcome != "ok" or state == c.result else []
        if c.f == "write":
            return [state] if failed else [c.value]
        old, new = c.value
        if not failed:
            return [new] if state == old else [state] if c.ret_ns is None else []
        if not cas_tells:
            return [state]
        told = c.result["saw"] if isinstance(c.result, dict) else state
        return [state] if state != old and told == state else []

    return step


def fenced(state: Any, c: Call) -> Iterable[Any]:
    """A fenced register; the state is (highest token, value)."""
    highest, value = state
    if c.f == "read":
        if c.outcome != "ok":
            return [state]
        token_only = c.result is None and c.result_token not in (None, 0)
        seen = (token_only or c.result == value) and c.result_token in (None, highest)
        return [state] if seen else []
    accepted = (c.token or 0) >= highest
    if c.outcome == "ok":
        return [(c.token or 0, c.value)] if accepted else []
    if c.outcome == "fail":
        if c.error != "fenced":
            return [state]
        return [state] if not accepted and c.result_token in (None, highest) else []
    return [(c.token or 0, c.value)] if accepted else [state]


def shared_fence(state: Any, c: Call) -> Iterable[Any]:
    """Keys with one fence; the state is (highest token, (key, value, token of its write), ...)."""
    highest, *written = state
    if c.f == "read":
        if c.outcome != "ok":
            return [state]
        if c.result is None and c.result_token not in (None, 0):
            return [state] if c.result_token == highest else []
        known = [entry[1:] for entry in written if entry[0] == c.key] or [(None, 0)]
        value, token = known[0]
        return [state] if c.result == value and c.result_token in (None, token) else []
    accepted = (c.token or 0) >= highest
    after: list[Any] = list(written)
    if c.f == "write":
        after = [entry for entry in written if entry[0] != c.key] + [(c.key, c.value, c.token or 0)]
    done = (c.token or 0, *sorted(after))
    if c.outcome == "fail":
        if c.error != "fenced":
            return [state]
        return [state] if not accepted and c.result_token in (None, highest) else []
    if not accepted:
        return [] if c.outcome == "ok" else [state]
    return [done]


def lock(highest_possible: int) -> Step:
    """A lock whose grants carry rising tokens; the state is (token of the holder, highest)."""

    def step(state: Any, c: Call) -> Iterable[Any]:
        held, highest = state
        if c.f == "acquire":
            if c.outcome == "fail":
                return [state] if held is not None else []
            if held is not None:
                return [state] if c.ret_ns is None else []
            if c.outcome == "ok":
                token = c.result_token
                return [(token, token)] if token is not None and token > highest else []
            return [(t, t) for t in range(highest + 1, highest_possible + 1)] + [state]
        mine = held == c.token
        if c.outcome == "fail":
            return [] if mine else [state]
        if c.f in ("renew", "check"):
            return [state] if mine or c.ret_ns is None else []
        return [(None, highest)] if mine else [state] if c.ret_ns is None else []

    return step


def growing_set(state: Any, c: Call) -> Iterable[Any]:
    """A set."""
    if c.f == "read":
        return [state] if c.outcome != "ok" or frozenset(c.result or ()) == state else []
    if c.outcome == "fail":
        return [state]
    return [state | {c.value}] if c.f == "add" else [state - {c.value}]


def queue(state: Any, c: Call) -> Iterable[Any]:
    """A first-in-first-out queue."""
    if c.outcome == "fail":
        return [state] if c.f == "enqueue" or c.error != "empty" or not state else []
    if c.f == "enqueue":
        return [(*state, c.value)]
    if c.outcome == "ok" and c.result is None:
        return [] if state else [state]
    if not state:
        return [] if c.outcome == "ok" else [state]
    return [state[1:]] if c.outcome != "ok" or c.result == state[0] else []


def appended(state: Any, c: Call) -> Iterable[Any]:
    """A text that grows."""
    if c.f == "get":
        return [state] if c.outcome != "ok" or (c.result or "") == state else []
    if c.outcome == "fail":
        return [state]
    return [c.value if c.f == "put" else state + c.value]


def consensus(state: Any, c: Call) -> Iterable[Any]:
    """One decision."""
    if c.f == "propose":
        if c.outcome == "fail":
            return [state]
        decided = c.value if state is None else state
        right = c.outcome != "ok" or c.result in (None, decided)
        return [decided] if right else []
    return [state] if c.outcome != "ok" or c.result == state else []


def mutex(*, owners: bool, depth: int) -> Step:
    """A mutex; the state is (owner, depth); with `owners` only the owner may release."""

    def step(state: Any, c: Call) -> Iterable[Any]:
        owner, held = state
        mine = held > 0 and (owner == c.process or not owners)
        again = held > 0 and owner == c.process and held < depth
        unknown = [state] if c.ret_ns is None else []
        if c.outcome == "fail":
            if c.error == "held":
                return [state] if held and not again else []
            return [state] if c.error != "not-holder" or not owners or not mine else []
        if c.f == "acquire":
            return [(c.process, held + 1)] if not held or again else unknown
        return [(owner if held > 1 else None, held - 1)] if mine else unknown

    return step


def semaphore(permits: int) -> Step:
    """A semaphore; the state is the number of free permits."""

    def step(free: Any, c: Call) -> Iterable[Any]:
        unknown = [free] if c.ret_ns is None else []
        if c.outcome == "fail":
            return [free] if c.error != "held" or not free else []
        if c.f == "acquire":
            return [free - 1] if free else unknown
        return [free + 1] if free < permits else unknown

    return step

"""Registers, key-value pairs, sets and queues, as models for the search.

Values come frozen (`values.frozen`); a list is `("list", items)`.  A call that certainly failed did
not happen, and says nothing, with two exceptions that tell something about the state: a write
refused for its token, and, where it is read so, a failed compare-and-set.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from harness.checking.model import IMPOSSIBLE, Request, SearchModel, Viable
from harness.checking.values import UNSAID


class RegisterModel(SearchModel):
    """A register: `read`, `write`, and `cas` [old, new]; `cas_tells`: a failed one saw another."""

    functions = ("read", "write", "cas")
    asks_who = False

    def __init__(self, *, cas_tells: bool = True) -> None:
        self._cas_tells = cas_tells

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was."""
        failed = request.outcome == "fail"
        if request.f == "read":
            return ("read", request.result) if request.outcome == "ok" else None
        if request.f == "write":
            return None if failed else ("write", request.value)
        if not failed:
            return ("cas", request.expected, request.value)
        return ("not", request.expected, request.result) if self._cas_tells else None

    def passive(self, kind: Any) -> bool:
        """Return whether it is a read or a failed compare-and-set."""
        return bool(kind[0] in ("read", "not"))

    def step(self, state: Any, kind: Any) -> Any:
        """Return the value afterwards."""
        f = kind[0]
        if f == "read":
            return state if state == kind[1] else IMPOSSIBLE
        if f == "write":
            return kind[1]
        if f == "cas":
            return kind[2] if state == kind[1] else IMPOSSIBLE
        told = kind[2]
        return state if state != kind[1] and told in (UNSAID, state) else IMPOSSIBLE

    def wants(self, kind: Any) -> tuple[Hashable, ...] | None:
        """Return the value that the operation needs."""
        f = kind[0]
        if f == "not":
            return None if kind[2] is UNSAID else (kind[2],)
        return () if f == "write" else (kind[1],)

    def gives(self, kind: Any) -> Hashable | None:
        """Return the value that the operation leaves."""
        if kind[0] == "write":
            return kind[1]  # type: ignore[no-any-return] # a frozen value
        return kind[2] if kind[0] == "cas" else None


class FencedModel(SearchModel):
    """A fenced register: a write with a lower token than the highest accepted one is refused.

    A `seal` raises the token and writes nothing.  The state is the highest token, the initial
    value, and for each object that was written its value and the token of that write.
    """

    functions = ("read", "write", "seal")
    asks_who = False

    def start(self, initial: Any) -> Hashable:
        """Return that nothing was written."""
        return (0, initial, ())

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was; a read that tells a token and no value tells the token."""
        about = request.expected
        if request.f == "read":
            if request.outcome != "ok":
                return None
            no_value = request.result is None and request.told not in (None, 0)
            return ("read", about, UNSAID if no_value else request.result, request.told)
        token = request.token or 0
        if request.outcome != "fail":
            return (request.f, about, token, request.value)
        return ("refused", about, token, request.told) if request.error == "fenced" else None

    def passive(self, kind: Any) -> bool:
        """Return whether it is a read or a refusal."""
        return kind[0] in ("read", "refused")

    def step(self, state: Any, kind: Any) -> Any:
        """Return the highest token and the values afterwards."""
        highest, initial, written = state
        f, about, token, told = kind
        if f == "read":
            if token is UNSAID:
                return state if told == highest else IMPOSSIBLE
            found = next((each[1:] for each in written if each[0] == about), (initial, 0))
            return state if token == found[0] and told in (None, found[1]) else IMPOSSIBLE
        if f == "refused":
            return state if token < highest and told in (None, highest) else IMPOSSIBLE
        if token < highest:
            return IMPOSSIBLE
        if f == "seal":
            return (token, initial, written)
        others = [each for each in written if each[0] != about]
        return (token, initial, tuple(sorted([*others, (about, told, token)], key=_by_name)))


def _by_name(entry: tuple[Any, ...]) -> str:
    return str(entry[0])


class AppendModel(SearchModel):
    """A key-value pair: `put`, `append`, `get`; text grows by text, a list by one element."""

    functions = ("put", "append", "get", "write", "read")
    asks_who = False

    def start(self, initial: Any) -> Hashable:
        """Return the value as a tuple of parts."""
        parts: Hashable = _parts(initial)
        return parts

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was."""
        if request.f in ("get", "read"):
            return ("get", _parts(request.result)) if request.outcome == "ok" else None
        if request.outcome == "fail":
            return None
        if request.f == "append":
            part = request.value
            return ("append", _parts(part) if isinstance(part, str) else (part,))
        return ("put", _parts(request.value))

    def passive(self, kind: Any) -> bool:
        """Return whether it is a get."""
        return bool(kind[0] == "get")

    def step(self, state: Any, kind: Any) -> Any:
        """Return the value afterwards."""
        f, parts = kind
        if f == "get":
            return state if state == parts else IMPOSSIBLE
        return parts if f == "put" else state + parts

    def wants(self, kind: Any) -> tuple[Hashable, ...] | None:
        """Return the value that a get needs."""
        if kind[0] == "append":
            return None
        return (kind[1],) if kind[0] == "get" else ()

    def gives(self, kind: Any) -> Hashable | None:
        """Return the value that a put leaves."""
        return kind[1] if kind[0] == "put" else None

    def look_ahead(self, actions: Sequence[Any]) -> Viable:
        """Return the test that a pending get extends the value, unless a put comes between."""
        return _PrefixAhead(actions)


def _parts(value: Any) -> Any:
    """Return text as text, a list as a tuple, nothing as the empty text."""
    if value is None or value == ("list", ()):
        return ""
    if isinstance(value, tuple) and value[0] == "list":
        return value[1]
    return value if isinstance(value, str) else (value,)


class _PrefixAhead:
    """Whether a pending get can still be reached.

    Its value starts with the state, or a put that can come before its return starts it anew.
    """

    def __init__(self, actions: Sequence[Any]) -> None:
        puts = [a for a in actions if a.kind[0] == "put"]
        self._puts = sorted((a.call, a.kind[1]) for a in puts if isinstance(a.kind[1], str))
        self._mixed = len(self._puts) != len(puts)
        self._lost = [a.kind[1] for a in puts if a.ret is None]
        self._by_bit: dict[int, list[int]] = defaultdict(list)
        for a in actions:
            if a.kind[0] == "get" and a.ret is not None:
                self._by_bit[a.bit].append(a.ret)
        for returns in self._by_bit.values():
            returns.sort()

    def __call__(self, state: Any, done: int, moment: Any) -> bool:
        if self._mixed:
            return True
        now = moment.action.ret
        for get in moment.passive:
            waits = not done & get.bit
            if waits and not self._reachable(state, done, moment, get.bit, get.kind[1], now):
                return False
        return True

    def _reachable(
        self, state: Any, done: int, moment: Any, bit: int, wanted: Any, now: int
    ) -> bool:
        if _starts(wanted, state):
            return True
        for other in moment.active:
            f, parts = other.kind
            if f == "put" and not done & other.bit and _starts(wanted, parts):
                return True
        returns = self._by_bit[bit]
        end = returns[bisect_left(returns, now)]
        from_now = bisect_left(self._puts, (now, ""))
        for call, start in self._puts[from_now:]:
            if call > end:
                break
            if _starts(wanted, start):
                return True
        return any(_starts(wanted, start) for start in self._lost)


def _starts(whole: Any, part: Any) -> bool:
    if part == "":
        return True
    return type(whole) is type(part) and whole[: len(part)] == part


class SetModel(SearchModel):
    """A set: `add` and `remove` an element, `read` them all."""

    functions = ("add", "remove", "read")
    asks_who = False

    def start(self, initial: Any) -> Hashable:
        """Return the elements."""
        return frozenset(initial[1]) if initial else frozenset()

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was."""
        if request.f == "read":
            elements = request.result[1] if request.result else ()
            return ("read", frozenset(elements)) if request.outcome == "ok" else None
        return None if request.outcome == "fail" else (request.f, request.value)

    def passive(self, kind: Any) -> bool:
        """Return whether it is a read."""
        return bool(kind[0] == "read")

    def step(self, state: Any, kind: Any) -> Any:
        """Return the elements afterwards."""
        if kind[0] == "read":
            return state if state == kind[1] else IMPOSSIBLE
        return state | {kind[1]} if kind[0] == "add" else state - {kind[1]}


class QueueModel(SearchModel):
    """A first-in-first-out queue: `enqueue`, and `dequeue` (null when it was empty)."""

    functions = ("enqueue", "dequeue")
    asks_who = False

    def start(self, initial: Any) -> Hashable:
        """Return the elements, the oldest first."""
        return tuple(initial[1]) if initial else ()

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was; a dequeue of unknown outcome took whatever was first."""
        if request.f == "enqueue":
            return None if request.outcome == "fail" else ("enqueue", request.value)
        if request.outcome == "fail":
            return ("dequeue", None) if request.error == "empty" else None
        return ("dequeue", request.result if request.outcome == "ok" else UNSAID)

    def passive(self, kind: Any) -> bool:
        """Return whether it found nothing."""
        return bool(kind == ("dequeue", None))

    def step(self, state: Any, kind: Any) -> Any:
        """Return the elements afterwards."""
        f, value = kind
        if f == "enqueue":
            return (*state, value)
        if value is None or not state:
            return state if not state and value is None else IMPOSSIBLE
        return state[1:] if value in (UNSAID, state[0]) else IMPOSSIBLE


class ConsensusModel(SearchModel):
    """One decision: `propose` a value and learn what was decided, `decide` only learns."""

    functions = ("propose", "decide", "read")
    asks_who = False

    def start(self, initial: Any) -> Hashable:
        """Return that nothing is decided."""
        return initial  # type: ignore[no-any-return] # a frozen value

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was."""
        if request.f != "propose":
            return ("learn", request.result) if request.outcome == "ok" else None
        if request.outcome == "fail":
            return None
        known = request.outcome == "ok" and request.result is not None
        return ("propose", request.value, request.result if known else UNSAID)

    def passive(self, kind: Any) -> bool:
        """Return whether it only learns."""
        return bool(kind[0] == "learn")

    def step(self, state: Any, kind: Any) -> Any:
        """Return what is decided afterwards."""
        if kind[0] == "learn":
            return state if state == kind[1] else IMPOSSIBLE
        decided = kind[1] if state is None else state
        return decided if kind[2] in (UNSAID, decided) else IMPOSSIBLE

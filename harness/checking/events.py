"""The events of a history as arrays that grow, until calls are made of them.

An event is a row of small numbers from the moment it was read; nothing else of it is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from harness.checking.codes import ABSENT, Codes
from harness.checking.columns import FAIL, INFO, NEVER, NO_TOKEN, OK, Columns
from harness.checking.values import NIL, NOT_TOLD, Ints, Names
from harness.op import OpType, Process

_TIME_MAX_NS = 1 << 60
_INVOKE = 3
_TYPES: dict[str, int] = {"invoke": _INVOKE, "ok": OK, "fail": FAIL, "info": INFO}


class Event(msgspec.Struct, gc=False, kw_only=True):
    """What a check needs of an op; the fields are in the order of the lines, which is quicker."""

    process: Process
    type: OpType
    f: str
    key: str
    value: Any = None
    token: int | None = None
    time_ns: int
    error: str | None = None


class UnusualError(Exception):
    """The history is not one that a run of ours writes."""


class _Numbered(dict[Any, int]):
    """Numbers of names, in the order of their first appearance."""

    def __missing__(self, name: Any) -> int:
        number = self[name] = len(self)
        return number

    def of(self, names: Sequence[Any]) -> Ints:
        """Return the numbers of many names, in few bytes each: nobody calculates with them."""
        return np.fromiter(map(self.__getitem__, names), np.int32, len(names))


@dataclass(slots=True)
class Events:
    """The events so far; a list of arrays, one a chunk, for each field."""

    parts: dict[str, list[Ints]] = field(default_factory=dict)
    processes: _Numbered = field(default_factory=_Numbered)
    kinds: _Numbered = field(default_factory=_Numbered)
    keys: _Numbered = field(default_factory=_Numbered)
    errors: _Numbered = field(default_factory=lambda: _Numbered({None: 0}))
    codes: Codes = field(default_factory=Codes)

    def add(self, events: Sequence[Event]) -> None:
        """Take the events of one chunk.  Raises UnusualError, OverflowError."""
        type_ = np.array([_TYPES[e.type] for e in events], np.int8)
        f = self.kinds.of([e.f for e in events])
        words = [e.error for e in events]
        if any(words):
            words = [word and word.split(":")[0] for word in words]
        value, expected = self._values([e.value for e in events], f, type_)
        made: dict[str, Any] = {
            "type": type_,
            "f": f,
            "process": self.processes.of([e.process for e in events]),
            "key": self.keys.of([e.key for e in events]),
            "time": np.array([e.time_ns for e in events], np.int64),
            "value": value,
            "expected": expected,
            "token": _tokens([e.token for e in events]),
            "error": self.errors.of(words),
        }
        for name, part in made.items():
            self.parts.setdefault(name, []).append(part)

    def _values(self, values: list[Any], f: Ints, type_: Any) -> tuple[Ints, Ints]:
        """Return the codes of what events wrote, or told, and of what they expect."""
        swaps = np.flatnonzero(f == self.kinds.get("cas", -1))
        expected = np.full(len(values), ABSENT, np.int64)
        if not len(swaps):
            return self.codes.of(values), expected
        invoked = type_[swaps] == _INVOKE
        begun, ended = swaps[invoked], swaps[~invoked]
        pairs = [values[at] for at in begun.tolist()]
        if not (set(map(type, pairs)) <= {list} and set(map(len, pairs)) <= {2}):
            raise UnusualError
        answers = [values[at] for at in ended.tolist()]
        told = [type(answer) is dict and "saw" in answer for answer in answers]
        others = np.flatnonzero(f != self.kinds["cas"])
        value = np.full(len(values), ABSENT, np.int64)
        value[others] = self.codes.of([values[at] for at in others.tolist()])
        value[begun] = self.codes.of([new for _, new in pairs])
        expected[begun] = self.codes.of([old for old, _ in pairs])
        value[ended[told]] = self.codes.of(
            [answer["saw"] for answer, says in zip(answers, told, strict=True) if says]
        )
        return value, expected

    def columns(self) -> Columns:
        """Return the columns of all events, which are used up.  Raises UnusualError."""
        if not self.parts:
            raise UnusualError
        type_, process, f, key, time = map(self._whole, ("type", "process", "f", "key", "time"))
        index, ret_index = _pairs(type_, process, f, key, time)
        open_ = ret_index < 0
        ret = np.where(open_, 0, ret_index)
        outcome = np.where(open_, INFO, type_[ret])
        begun: dict[str, Any] = {
            "index": index,
            "ret_index": ret_index,
            "call": time[index],
            "ret": np.where(outcome == INFO, NEVER, time[ret]),
            "process": process[index],
            "kind": f[index],
            "key": key[index].astype(np.int64),
            "outcome": outcome,
        }
        events = len(type_)
        del type_, process, f, key, time
        token, error = self._whole("token"), self._whole("error")
        begun["token"] = token[index]
        ended: dict[str, Any] = {
            "result_token": np.where(open_, NO_TOKEN, token[ret]),
            "error": np.where(open_, 0, error[ret]),
        }
        del token, error
        value, expected = self._whole("value"), self._whole("expected")
        codes = np.concatenate([value[index], expected[index], value[ret]])
        del value, expected
        values = self.codes.to_ids(codes)
        value, expected, result = codes.reshape(3, -1)
        swap = begun["kind"] == self.kinds.get("cas", -1)
        return Columns(
            **begun,
            **ended,
            value=np.where((value == NIL) & (expected == NOT_TOLD), NOT_TOLD, value),
            expected=expected,
            result=np.where(open_, np.where(swap, NOT_TOLD, NIL), result),
            processes=Names(list(self.processes)),
            kinds=Names(list(self.kinds)),
            keys=Names(list(self.keys)),
            errors=Names(list(self.errors)),
            values=values,
            events=events,
        )

    def _whole(self, name: str) -> Ints:
        return np.concatenate(self.parts.pop(name))


def _tokens(tokens: Sequence[int | None]) -> Ints:
    if tokens.count(None) == len(tokens):
        return np.full(len(tokens), NO_TOKEN, np.int64)
    return np.array([NO_TOKEN if token is None else token for token in tokens], np.int64)


def _pairs(kind: Ints, process: Ints, f: Ints, key: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return the invocations and the completion of each, -1 where there is none.

    Raises UnusualError where events do not pair, or time goes back.
    """
    order = np.argsort(process, kind="stable")
    invoked = kind[order] == _INVOKE
    first = np.ones(len(order), bool)
    first[1:] = process[order[1:]] != process[order[:-1]]
    after_info = np.zeros(len(order), bool)
    after_info[1:] = (kind[order[:-1]] == INFO) & ~first[1:]
    follows = np.zeros(len(order), bool)
    follows[1:] = invoked[:-1] & ~first[1:]
    ends = order[~invoked]
    begins = order[np.flatnonzero(~invoked) - 1]
    unpaired = (follows == invoked).any() or after_info.any()
    if unpaired or time.min() < 0 or time.max() >= _TIME_MAX_NS or (time[1:] < time[:-1]).any():
        raise UnusualError
    if (f[ends] != f[begins]).any() or (key[ends] != key[begins]).any():
        raise UnusualError
    done = np.full(len(kind), -1, np.int64)
    done[begins] = ends
    index = np.flatnonzero(kind == _INVOKE)
    return index, done[index]

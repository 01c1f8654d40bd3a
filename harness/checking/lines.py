"""JSON lines straight into columns, without an object an operation in memory.

This road is for what our own runs write: every line whole, times and keys in it, calls that pair.
Whatever is unusual makes it give up, and the history is read the slow way, which has the words for
what is wrong with it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from harness.checking.columns import (
    FAIL,
    INFO,
    NEVER,
    NO_TOKEN,
    OK,
    Columns,
    ColumnsDisagreeError,
    load,
    save,
)
from harness.checking.values import NIL, NOT_TOLD, Ints, Names, Values
from harness.op import OpType, Process

_CHUNK = 1 << 22
_TIME_MAX_NS = 1 << 60
_INVOKE = 3
_TYPES: dict[str, int] = {"invoke": _INVOKE, "ok": OK, "fail": FAIL, "info": INFO}
_PLAIN = {int, str, type(None)}


class _Event(msgspec.Struct, gc=False):
    """What a check needs of an op."""

    process: Process
    type: OpType
    f: str
    time_ns: int
    key: str
    value: Any = None
    token: int | None = None
    error: str | None = None


class _UnusualError(Exception):
    """The history is not one that a run of ours writes."""


def columns_of_lines(path: Path) -> Columns | None:
    """Return the columns of a file of JSON lines, None when it has to be read the slow way.

    Raises OSError.
    """
    events = _Events()
    try:
        with path.open("rb") as file:
            _read(file, events)
        return events.columns()
    except (_UnusualError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return None


def beside(lines: Path) -> Path:
    """Return where the columns of a history file are: `history.npz` beside `history.jsonl`."""
    return lines.with_suffix(".npz")


def write_beside(lines: Path) -> Path | None:
    """Write the columns of a history file beside it, whole or not at all; None when it has none.

    Raises OSError.
    """
    columns = columns_of_lines(lines)
    if columns is None:
        return None
    part = lines.with_name(f".{lines.stem}.part.npz")
    save(columns, part, lines)
    return part.replace(beside(lines))


def read_recorded(lines: Path) -> tuple[Columns | None, str | None]:
    """Return the columns of a history file, from beside it when they were made of it.

    The text says what is wrong with the columns beside it; they are then made of the lines.  None
    when the lines have to be read the slow way.  Raises OSError.
    """
    wrong = None
    if beside(lines).is_file():
        try:
            return load(beside(lines), lines), None
        except (ColumnsDisagreeError, OSError) as error:
            wrong = f"the columns beside the history are of no use: {error}"
    return columns_of_lines(lines), wrong


@dataclass(slots=True)
class _Events:
    """The events so far; a list of arrays, one a chunk, for each field."""

    parts: list[list[Ints]] = field(default_factory=list)
    processes: Names = field(default_factory=Names)
    kinds: Names = field(default_factory=Names)
    keys: Names = field(default_factory=Names)
    errors: Names = field(default_factory=lambda: Names([None]))
    values: Values = field(default_factory=Values)

    def add(self, events: list[_Event]) -> None:
        """Take the events of one chunk.  Raises _UnusualError."""
        value = self._values([e.value for e in events])
        expected = np.full(len(events), NOT_TOLD, np.int64)
        for at in [i for i, e in enumerate(events) if e.f == "cas"]:
            value[at], expected[at] = self._of_cas(events[at])
        words = [e.error for e in events]
        if any(words):
            words = [word and word.split(":")[0] for word in words]
        self.parts.append(
            [
                np.array([_TYPES[e.type] for e in events], np.int8),
                np.array(self.processes.ids([e.process for e in events]), np.int64),
                np.array(self.kinds.ids([e.f for e in events]), np.int32),
                np.array(self.keys.ids([e.key for e in events]), np.int32),
                np.array([e.time_ns for e in events], np.int64),
                value,
                expected,
                np.array([NO_TOKEN if e.token is None else e.token for e in events], np.int64),
                np.array(self.errors.ids(words), np.int32),
            ]
        )

    def _values(self, values: list[Any]) -> Ints:
        """Return the ids of values; most histories have only numbers, texts and nulls."""
        if set(map(type, values)) <= _PLAIN:
            return np.array(self.values.plain_ids(values), np.int64)
        return np.array(self.values.ids(values), np.int64)

    def _of_cas(self, event: _Event) -> tuple[int, int]:
        """Return what a compare-and-set writes (or saw) and what it expects."""
        value, number = event.value, self.values.id
        if event.type != "invoke":
            told = isinstance(value, dict) and "saw" in value
            return number(value["saw"]) if told else NOT_TOLD, NOT_TOLD
        if not isinstance(value, list) or len(value) != 2:
            raise _UnusualError
        return number(value[1]), number(value[0])

    def columns(self) -> Columns:
        """Return the columns of all events.  Raises _UnusualError."""
        if not self.parts:
            raise _UnusualError
        kind, process, f, key, time, value, expected, token, error = (
            np.concatenate(part) for part in zip(*self.parts, strict=True)
        )
        self.parts.clear()
        index, ret_index = _pairs(kind, process, f, key, time)
        open_ = ret_index < 0
        ret = np.where(open_, 0, ret_index)
        outcome = np.where(open_, INFO, kind[ret])
        asked = value[index]
        nothing = (asked == NIL) & (expected[index] == NOT_TOLD)
        no_cas = f[index] != self.kinds.find("cas")
        return Columns(
            index=index,
            ret_index=ret_index,
            call=time[index],
            ret=np.where(outcome == INFO, NEVER, time[ret]),
            process=process[index],
            kind=f[index].astype(np.int64),
            key=key[index].astype(np.int64),
            value=np.where(nothing, NOT_TOLD, asked),
            expected=expected[index],
            result=np.where(open_, np.where(no_cas, NIL, NOT_TOLD), value[ret]),
            token=token[index],
            result_token=np.where(open_, NO_TOKEN, token[ret]),
            outcome=outcome.astype(np.int64),
            error=np.where(open_, 0, error[ret]).astype(np.int64),
            processes=self.processes,
            kinds=self.kinds,
            keys=self.keys,
            errors=self.errors,
            values=self.values,
            events=len(kind),
        )


def _read(file: IO[bytes], events: _Events) -> None:
    decoder = msgspec.json.Decoder(_Event)
    while data := file.read(_CHUNK):
        data += file.readline(_CHUNK)
        found = decoder.decode_lines(data)
        if not data.endswith(b"\n") or len(found) != data.count(b"\n"):
            raise _UnusualError
        events.add(found)


def _pairs(kind: Ints, process: Ints, f: Ints, key: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return the invocations and the completion of each, -1 where there is none.

    Raises _UnusualError where events do not pair, or time goes back.
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
        raise _UnusualError
    if (f[ends] != f[begins]).any() or (key[ends] != key[begins]).any():
        raise _UnusualError
    done = np.full(len(kind), -1, np.int64)
    done[begins] = ends
    index = np.flatnonzero(kind == _INVOKE)
    return index, done[index]

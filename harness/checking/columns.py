"""A history as integer columns, one row a call, in the order of invocation.

The JSON lines stay the record for people.  The columns say the same in a form that is checked
without a single Python object an operation; they remember how many events they were made of and the
hash of the file, so that columns of another history are noticed.
"""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from harness.checking.values import NOT_TOLD, Flags, Ints, Names, PackedValues, Values
from harness.errors import MalformedHistoryError, WinkleError
from harness.history import History, completions
from harness.op import Op

OK, FAIL, INFO = 0, 1, 2
NO_TOKEN = -(1 << 62)
NEVER = 1 << 62
_OUTCOMES = {"ok": OK, "fail": FAIL, "info": INFO}
_FORMAT = 2
_SIZES = (np.int8, np.int16, np.int32, np.int64)


class ColumnsDisagreeError(WinkleError):
    """The columns were not made of this history file; delete them, they will be made again."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The calls of one history.

    `index`, `ret_index`: positions in the history (-1: no completion).  `call`, `ret`: nanoseconds;
    `ret` is NEVER for an unknown outcome.  `process`, `kind` (the op's `f`), `key`, `error` are ids
    of `names`.  `value` (the argument), `expected` (of a compare-and-set) and `result` are ids of
    `values`; -1 when there is none.  `token`, `result_token`: NO_TOKEN when there is none.
    `outcome`: OK, FAIL or INFO.  `digest` is the SHA-256 of the file, when there is one.
    """

    index: Ints
    ret_index: Ints
    call: Ints
    ret: Ints
    process: Ints
    kind: Ints
    key: Ints
    value: Ints
    expected: Ints
    result: Ints
    token: Ints
    result_token: Ints
    outcome: Ints
    error: Ints
    processes: Names
    kinds: Names
    keys: Names
    errors: Names
    values: Values
    events: int
    digest: str = ""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def end_ns(self) -> int:
        """The time of the last event, 0 when there is none."""
        ended = self.ret[self.ret < NEVER]
        return max(int(self.call.max(initial=0)), int(ended.max(initial=0)))

    def kinds_as(self, numbers: Mapping[str, int], other: int) -> Ints:
        """Return for each row the number that stands for its function."""
        table = np.array([numbers.get(f, other) for f in self.kinds.names], np.int64)
        return table[self.kind] if len(self) else self.kind

    def take(self, rows: Ints | Flags) -> Self:
        """Return the columns of some rows only."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ARRAYS})


ARRAYS = tuple(f.name for f in fields(Columns) if f.type is Ints)
NAMES = tuple(f.name for f in fields(Columns) if f.type is Names)
_ONLY_LOOKED_AT = frozenset({"index", "ret_index", "process", "kind", "outcome", "error"})
_NOTHING = Op(process=0, type="info", f="", time_ns=0)


def from_history(history: History) -> Columns:
    """Return the columns of a history.  Raises MalformedHistoryError."""
    return from_ops(history.ops)


def from_ops(ops: Sequence[Op]) -> Columns:
    """Return the columns of the ops of one history.  Raises MalformedHistoryError."""
    done = completions(ops)
    index = [i for i, op in enumerate(ops) if op.type == "invoke"]
    ret_index = [done.get(i, -1) for i in index]
    begun = [ops[i] for i in index]
    ended = [ops[i] if i >= 0 else _NOTHING for i in ret_index]
    values = Values()
    value, expected, result = _values(index, begun, ended, values)
    outcome = np.array([_OUTCOMES[op.type] for op in ended], np.int64)
    ret = np.array([op.time_ns for op in ended], np.int64)
    processes, kinds, keys, errors = Names(), Names(), Names(), Names()
    words = [None if op.error is None else op.error.split(":")[0] for op in ended]
    return Columns(
        index=np.array(index, np.int64),
        ret_index=np.array(ret_index, np.int64),
        call=np.array([op.time_ns for op in begun], np.int64),
        ret=np.where(outcome == INFO, NEVER, ret),
        process=np.array(processes.ids(op.process for op in begun), np.int64),
        kind=np.array(kinds.ids(op.f for op in begun), np.int64),
        key=np.array(keys.ids(op.key for op in begun), np.int64),
        value=value,
        expected=expected,
        result=result,
        token=_tokens(index, begun),
        result_token=_tokens(ret_index, ended),
        outcome=outcome,
        error=np.array(errors.ids(words), np.int64),
        processes=processes,
        kinds=kinds,
        keys=keys,
        errors=errors,
        values=values,
        events=len(ops),
    )


def _values(
    index: list[int], begun: list[Op], ended: list[Op], values: Values
) -> tuple[Ints, Ints, Ints]:
    """Return argument, expected value and result; a compare-and-set is split into its parts."""
    number = values.id
    value = [NOT_TOLD if (v := op.value) is None else number(v) for op in begun if op.f != "cas"]
    if len(value) == len(begun):
        result = [number(op.value) for op in ended]
        return (
            np.array(value, np.int64),
            np.full(len(begun), NOT_TOLD, np.int64),
            np.array(result, np.int64),
        )
    rows = []
    for at, op, end in zip(index, begun, ended, strict=True):
        if op.f != "cas":
            argument = NOT_TOLD if op.value is None else number(op.value)
            rows.append((argument, NOT_TOLD, number(end.value)))
            continue
        pair = op.value
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise MalformedHistoryError(at + 1, f"a cas needs [old, new], not {pair!r}")
        told = isinstance(end.value, dict) and "saw" in end.value
        saw = number(end.value["saw"]) if told else NOT_TOLD
        rows.append((number(pair[1]), number(pair[0]), saw))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def _tokens(index: list[int], ops: list[Op]) -> Ints:
    try:
        return np.array([NO_TOKEN if op.token is None else op.token for op in ops], np.int64)
    except OverflowError:
        wrong = next(i for i, op in zip(index, ops, strict=True) if abs(op.token or 0) >= NEVER)
        raise MalformedHistoryError(wrong + 1, "the token does not fit into 62 bits") from None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file.  Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save(columns: Columns, path: Path, lines: Path | None = None) -> None:
    """Write the columns; `lines` is the history file they were made of.  Raises OSError."""
    text, ends = columns.values.packed()
    head = {
        "format": _FORMAT,
        "calls": len(columns),
        "events": columns.events,
        "digest": digest_of(lines) if lines is not None else columns.digest,
        **{name: getattr(columns, name).names for name in NAMES},
    }
    arrays: dict[str, Any] = {name: _narrow(getattr(columns, name)) for name in ARRAYS}
    np.savez(
        path,
        head=np.frombuffer(msgspec.json.encode(head), np.uint8),
        text=np.frombuffer(text, np.uint8),
        ends=_narrow(ends),
        **arrays,
    )


def _narrow(column: Ints) -> Any:
    """Return the column in the smallest type that holds it, as one number where all are the same.

    So the file is read in half the time.
    """
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    size = next(s for s in _SIZES if np.iinfo(s).min <= low and high <= np.iinfo(s).max)
    same = len(column) > 1 and (column == column[0]).all()
    return column[:1].astype(size) if same else column.astype(size)


def _wide(name: str, column: Any, count: int) -> Ints:
    """Return a column that was read; what nobody calculates with stays small."""
    if len(column) < count:
        return np.broadcast_to(column.astype(np.int64), count)
    return column if name in _ONLY_LOOKED_AT else column.astype(np.int64, copy=False)  # type: ignore[no-any-return] # an array of a file


def load(path: Path, lines: Path | None = None) -> Columns:
    """Read columns; with `lines`, make sure that they were made of that file.

    Raises OSError, and ColumnsDisagreeError for columns of another file, of another version of
    this program, or for a damaged file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            head = msgspec.json.decode(file["head"].tobytes())
            if head["format"] != _FORMAT:
                raise ColumnsDisagreeError(f"{path}: format {head['format']}, not {_FORMAT}")
            arrays = {name: _wide(name, file[name], head["calls"]) for name in ARRAYS}
            values = PackedValues(file["text"].tobytes(), file["ends"])
    except (zipfile.BadZipFile, KeyError, ValueError, msgspec.DecodeError) as error:
        raise ColumnsDisagreeError(f"{path}: no columns: {error}") from error
    if lines is not None and head["digest"] != digest_of(lines):
        raise ColumnsDisagreeError(f"{path} was not made of {lines}")
    fields_read: dict[str, Any] = {name: Names(head[name]) for name in NAMES}
    fields_read |= arrays
    return Columns(**fields_read, values=values, events=head["events"], digest=head["digest"])

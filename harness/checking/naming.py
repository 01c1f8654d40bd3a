"""The name of what a search found: the operation that no order explains, in known words."""

from collections.abc import Mapping

import numpy as np

from harness.checking.columns import FAIL, OK, Columns
from harness.checking.finding import Finding
from harness.checking.requests import request_of
from harness.checking.values import NIL, Ints, frozen

_WRITES = {"write", "put", "append", "add", "enqueue", "cas", "propose"}
_BY_FUNCTION = {
    "acquire": ("duplicate-grant", "{0} was granted while somebody else must have held it"),
    "release": ("forged-token", "{0} was accepted although its caller cannot have been the owner"),
    "cas": ("lost-update", "{0} cannot have found the value that it expected"),
    "propose": ("two-values-chosen", "{0} learned of another decision than the one taken"),
    "decide": ("two-values-chosen", "{0} learned of another decision than the one taken"),
    "write": ("refused-newest", "no order of the operations explains {0}"),
}


def name_search(columns: Columns, rows: Ints, blamed: int, initial: object) -> Finding:
    """Return the finding for the operation at which a search ended without an order."""
    request = request_of(columns, blamed)
    f = request.f
    if columns.outcome[blamed] == FAIL:
        shown = _seen_later(columns, rows, blamed, initial) if f == "cas" else -1
        if shown >= 0:
            text = "the effect of a failed write was read: {0}, then {1}"
            return Finding("aborted-read", (blamed, shown), text)
        return _refused(f, blamed)
    if f in _BY_FUNCTION:
        name, text = _BY_FUNCTION[f]
        return Finding(name, (blamed,), text)
    written = _written(columns, rows, initial)
    seen = _elements(columns.values[int(columns.result[blamed])])
    if seen and _is_grown(seen[0], written):
        seen = []
    for element in seen:
        at = written.get(element, -2)
        if at == -2:
            text = "a value was read that nobody ever wrote: {0}"
            return Finding("phantom-read", (blamed,), text)
        if at >= 0 and columns.outcome[at] == FAIL:
            text = "the effect of a failed write was read: {0}, then {1}"
            return Finding("aborted-read", (at, blamed), text)
    return _missing(columns, rows, blamed, f)


def _refused(f: str, blamed: int) -> Finding:
    if f == "cas":
        return Finding("stale-read", (blamed,), "{0} although the value was the expected one")
    if f == "acquire":
        text = "{0} although nobody can have held it"
        return Finding("zombie-lease", (blamed,), text)
    return Finding("refused-newest", (blamed,), "no order of the operations explains {0}")


def _seen_later(columns: Columns, rows: Ints, failed: int, initial: object) -> int:
    """Return the first read of a value that only this failed call would have written, or -1."""
    value = frozen(columns.values[int(columns.value[failed])])
    if _written(columns, rows, initial).get(value) != failed:
        return -1
    reads = columns.kinds_as({"read": 1}, 0)[rows] == 1
    told = reads & (columns.outcome[rows] == OK) & (columns.result[rows] == columns.value[failed])
    return int(rows[told][0]) if told.any() else -1


def _is_grown(text: object, written: Mapping[object, int]) -> bool:
    """Whether a text can be cut into texts that were written: appends make it grow."""
    if not isinstance(text, str) or text in written:
        return False
    parts = [part for part in written if isinstance(part, str) and part]
    reached = {0}
    for at in range(len(text)):
        if at in reached:
            reached.update(at + len(part) for part in parts if text.startswith(part, at))
    return len(text) in reached


def _elements(value: object) -> list[object]:
    if value is None:
        return []
    return [frozen(item) for item in value] if isinstance(value, list) else [frozen(value)]


def _written(columns: Columns, rows: Ints, initial: object) -> dict[object, int]:
    """Return who wrote each element: a row, -1 for the initial state; failed writes come last."""
    written: dict[object, int] = dict.fromkeys(_elements(initial), -1)
    mine = [row for row in rows.tolist() if columns.kinds.names[columns.kind[row]] in _WRITES]
    for row in sorted(mine, key=lambda row: columns.outcome[row] == FAIL):
        value = columns.values[int(columns.value[row])] if columns.value[row] >= 0 else None
        written.setdefault(frozen(value), row)
        for element in _elements(value):
            written.setdefault(element, row)
    return written


def _missing(columns: Columns, rows: Ints, blamed: int, f: str) -> Finding:
    """Tell an older value from one in which something is missing."""
    seen = columns.values[int(columns.result[blamed])]
    if f == "dequeue":
        name = "lost-ack" if seen is None else "duplicate-effect"
        return Finding(name, (blamed,), "{0}, which no order of the queue's operations explains")
    known = columns.kind[rows] == columns.kind[blamed]
    before = rows[
        known & (columns.outcome[rows] == OK) & (columns.ret[rows] < columns.call[blamed])
    ]
    if columns.result[blamed] != NIL and len(before) and isinstance(seen, str | list):
        last = int(before[np.argmax(columns.ret[before])])
        earlier = columns.values[int(columns.result[last])]
        longer = isinstance(earlier, type(seen)) and len(earlier) >= len(seen) > 0
        if longer and earlier[: len(seen)] != seen:
            text = "{1} lacks what {0} had seen already"
            return Finding("lost-ack", (last, blamed), text)
    return Finding("stale-read", (blamed,), "{0} saw a value that cannot have been the latest one")

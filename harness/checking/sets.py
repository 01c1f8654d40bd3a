"""A set that only grows: every element is added once, reads return all elements.

Exact in time near-linear in the size of the answers.  What two reads saw must be contained one in
the other, so the reads form stages, and an element belongs to the first stage that has it.  The
stages are in a forced order, as token classes are: nothing of a stage may begin after something of
a later stage has ended.
"""

import numpy as np

from harness.checking.columns import FAIL, OK, Columns
from harness.checking.finding import Finding, RepeatedValuesError
from harness.checking.steps import dense
from harness.checking.values import Ints, frozen

_UNSEEN = 1 << 60


def judge_set(columns: Columns, initial: object) -> Finding | None:
    """Return what is wrong, None when some order explains everything.

    Raises RepeatedValuesError for a key on which an element was added twice or removed.
    """
    kind = columns.kinds_as({"add": 1, "read": 2, "remove": 3}, 0)
    keys = dense(columns.key)
    removed = np.unique(keys[(kind == 3) & (columns.outcome != FAIL)])
    if len(removed):
        raise RepeatedValuesError(removed.tolist(), "an element was removed")
    adds = np.flatnonzero((kind == 1) & (columns.outcome != FAIL))
    pairs = np.stack([keys[adds], columns.value[adds]])
    known, count = np.unique(pairs, axis=1, return_counts=True)
    if (count > 1).any():
        raise RepeatedValuesError(set(known[0, count > 1].tolist()), "an element was added twice")
    order = np.argsort(keys, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        found = _judge_key(columns, kind, rows, initial) if len(rows) else None
        if found:
            return found
    return None


def _judge_key(columns: Columns, kind: Ints, rows: Ints, initial: object) -> Finding | None:
    start = {frozen(item) for item in initial} if isinstance(initial, list) else set()
    value = {
        int(row): frozen(columns.values[int(columns.value[row])])
        if columns.value[row] >= 0
        else None
        for row in rows[kind[rows] == 1]
    }
    live = {v: row for row, v in value.items() if columns.outcome[row] != FAIL}
    failed = {v: row for row, v in value.items() if columns.outcome[row] == FAIL}
    if start & live.keys():
        raise RepeatedValuesError([int(dense(columns.key)[rows[0]])], "added although it was there")
    reads = [int(row) for row in rows[(kind[rows] == 2) & (columns.outcome[rows] == OK)]]
    seen = {row: _elements(columns, row) for row in reads}
    for row in reads:
        for element in seen[row] - start:
            wrong = _impossible(columns, live, failed, element, row)
            if wrong:
                return wrong
    stages = sorted(reads, key=lambda row: (len(seen[row]), int(columns.call[row])))
    stage_of, last = dict.fromkeys(start, 0), start
    stage: dict[int, int] = {}
    for number, row in enumerate(stages, start=1):
        missing = last - seen[row]
        if missing:
            earlier = stages[number - 2] if number > 1 else row
            return _lacks(columns, live.get(next(iter(missing)), -1), earlier, row)
        for element in seen[row] - last:
            stage_of[element] = number
        grown = len(seen[row]) > len(last) or number == 1
        stage[row] = number if grown else stage[stages[number - 2]]
        last = seen[row]
    for element, row in live.items():
        if element in stage_of or columns.outcome[row] == OK:
            stage[row] = stage_of.get(element, _UNSEEN)
    return _order(columns, stage)


def _elements(columns: Columns, row: int) -> set[object]:
    seen = columns.values[int(columns.result[row])]
    return {frozen(item) for item in seen} if isinstance(seen, list) else set()


def _impossible(
    columns: Columns, live: dict[object, int], failed: dict[object, int], element: object, row: int
) -> Finding | None:
    if element not in live:
        if element in failed:
            text = "{1} has an element whose add had failed: {0}"
            return Finding("aborted-read", (failed[element], row), text)
        return Finding("phantom-read", (row,), "{0} has an element that nobody ever added")
    if columns.ret[row] < columns.call[live[element]]:
        text = "{1} has an element before anybody added it: {0}"
        return Finding("phantom-read", (live[element], row), text)
    return None


def _lacks(columns: Columns, added: int, one: int, other: int) -> Finding:
    first, second = sorted((one, other), key=lambda row: int(columns.call[row]))
    rows = tuple(dict.fromkeys(row for row in (added, first, second) if row >= 0))
    text = f"{{{len(rows) - 2}}} and {{{len(rows) - 1}}} each lack an element that the other has"
    return Finding("lost-ack", rows, text)


def _order(columns: Columns, stage: dict[int, int]) -> Finding | None:
    """Find an operation that began after one of a later stage had ended."""
    rows = np.array(sorted(stage, key=lambda row: stage[row]), np.int64)
    level = np.array([stage[int(row)] for row in rows], np.int64)
    call, ret = columns.call[rows], columns.ret[rows]
    begun = np.maximum.accumulate(call)
    ended = np.minimum.accumulate(ret[::-1])[::-1]
    wrong = np.flatnonzero((level[1:] > level[:-1]) & (ended[1:] < begun[:-1]))
    if not len(wrong):
        return None
    cut = int(wrong[0]) + 1
    late = int(rows[:cut][np.argmax(call[:cut])])
    early = cut + int(np.argmin(ret[cut:]))
    name = "lost-ack" if level[early] == _UNSEEN else "stale-read"
    text = "{1} began after {0} had ended, and comes before it by what was read"
    return Finding(name, (int(rows[early]), late), text)

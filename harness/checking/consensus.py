"""One decision a key: `propose` learns what was decided, `decide` (or `read`) only learns.

Exact in O(n log n).  A history is legal when all answers of a key agree, somebody can have proposed
that value before the first answer was given, and whoever found nothing decided had asked by then.
"""

import numpy as np

from harness.checking.columns import FAIL, OK, Columns
from harness.checking.finding import Finding
from harness.checking.steps import dense
from harness.checking.values import NIL, Ints

PROPOSE, LEARN = 1, 2


def judge_consensus(columns: Columns, initial: object) -> Finding | None:
    """Return what is wrong, None when some order explains everything."""
    kind = columns.kinds_as({"propose": PROPOSE, "decide": LEARN, "read": LEARN}, 0)
    keys = dense(columns.key)
    order = np.flatnonzero(kind)[np.argsort(keys[kind > 0], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        found = _judge_key(columns, kind, rows, columns.values.id(initial)) if len(rows) else None
        if found:
            return found
    return None


def _judge_key(columns: Columns, kind: Ints, rows: Ints, initial: int) -> Finding | None:
    done = rows[columns.outcome[rows] == OK]
    told = done[columns.result[done] != NIL]
    silent = done[(columns.result[done] == NIL) & (kind[done] == PROPOSE)]
    nothing = done[(columns.result[done] == NIL) & (kind[done] == LEARN)]
    proposals = rows[(kind[rows] == PROPOSE) & (columns.outcome[rows] != FAIL)]
    other = told[columns.result[told] != columns.result[told[:1]]] if len(told) else told
    if len(other):
        text = "{0} and {1} learned of different decisions"
        return Finding("two-values-chosen", (int(told[0]), int(other[0])), text)
    if initial != NIL:
        wrong = np.concatenate([told[columns.result[told] != initial], nothing])
        text = "{0} learned of another decision than the one that stood from the start"
        return Finding("two-values-chosen", (int(wrong[0]),), text) if len(wrong) else None
    answers = np.concatenate([told, silent])
    if not len(answers):
        return None
    first = int(answers[np.argmin(columns.ret[answers])])
    if len(told):
        chosen = proposals[columns.value[proposals] == columns.result[told[0]]]
        if not len(chosen):
            return _never_proposed(columns, rows, kind, int(told[0]))
        if columns.call[chosen].min() > columns.ret[first]:
            proposal = int(chosen[np.argmin(columns.call[chosen])])
            text = "{1} was answered before anybody proposed what was decided: {0}"
            found = tuple(int(row) for row in told[:1] if row != first)
            if found:
                text = "{2} was answered before anybody proposed what {0} learned: {1}"
            return Finding("phantom-read", (*found, proposal, first), text)
    late = nothing[columns.call[nothing] > columns.ret[first]]
    if len(late):
        text = "{1} found nothing decided after {0} had been answered"
        return Finding("stale-read", (first, int(late[0])), text)
    return None


def _never_proposed(columns: Columns, rows: Ints, kind: Ints, told: int) -> Finding:
    failed = rows[(kind[rows] == PROPOSE) & (columns.value[rows] == columns.result[told])]
    if len(failed):
        text = "{1} learned of a decision for a proposal that had failed: {0}"
        return Finding("aborted-read", (int(failed[0]), told), text)
    return Finding("phantom-read", (told,), "{0} learned of a decision that nobody proposed")

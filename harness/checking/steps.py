"""The calls of a register, ready to be judged.

Times are small non-negative integers with the order of the originals, ties kept: 0 is before every
event, and `never`, the return of an unknown outcome, after every event.  Calls that can neither
break nor explain anything are marked GONE: reads without an answer, and writes that surely had no
effect.
"""

from dataclasses import dataclass

import numpy as np

from harness.checking.columns import FAIL, INFO, NEVER, NO_TOKEN, OK, Columns
from harness.checking.values import NIL, NOT_TOLD, Ints

READ, WRITE, CAS, OTHER = 0, 1, 2, 3
DONE, UNKNOWN, REFUSED, GONE = 0, 1, 2, 3
UNTOLD = -1
_COMPOSITE_MAX = 1 << 61


@dataclass(frozen=True, eq=False)
class Steps:
    """One row a call, as in the columns.

    `key` is dense.  `value`: what a write or cas writes; `expected`: what a cas expects; `seen`:
    what a read or a refused cas saw, NOT_TOLD when it does not say.  `token`: of a write; `told`:
    the highest token as a read or a refusal tells it, UNTOLD when it does not.  Tokens are ranks.
    """

    kind: Ints
    outcome: Ints
    key: Ints
    value: Ints
    expected: Ints
    seen: Ints
    token: Ints
    told: Ints
    call: Ints
    ret: Ints
    initial: int
    initial_token: int
    never: int

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return int(self.key.max(initial=-1)) + 1

    def rows(self, kind: int, *outcomes: int) -> Ints:
        """Return the rows of one kind with one of the outcomes."""
        chosen = self.outcome == outcomes[0]
        for outcome in outcomes[1:]:
            chosen |= self.outcome == outcome
        return np.flatnonzero(chosen & (self.kind == kind))


def steps_of(
    columns: Columns, initial: object, *, fenced: bool = False, cas_tells: bool = True
) -> Steps:
    """Return the steps of a register history.

    `fenced`: a write that failed as `fenced` was refused, which says that a higher token was there.
    `cas_tells`: a failed compare-and-set says that the value differed, not just that it failed.
    """
    kind = columns.kinds_as({"read": READ, "write": WRITE, "cas": CAS}, OTHER)
    outcome = _outcomes(columns, kind, fenced=fenced, cas_tells=cas_tells)
    call, ret, never = ranked_times(columns)
    token, told, initial_token = _tokens(columns, kind, outcome, fenced=fenced)
    seen = np.where((kind == READ) | (kind == CAS), columns.result, NOT_TOLD)
    if fenced:  # a read that tells a token and no value tells the token only
        no_value = (kind == READ) & (seen == NIL) & (told > UNTOLD)
        seen[no_value & ((told != initial_token) | (initial is not None))] = NOT_TOLD
    return Steps(
        kind=kind,
        outcome=outcome,
        key=dense(columns.key),
        value=np.maximum(columns.value, NIL),
        expected=columns.expected,
        seen=seen,
        token=token,
        told=told,
        call=call,
        ret=ret,
        initial=columns.values.id(initial),
        initial_token=initial_token,
        never=never,
    )


def _outcomes(columns: Columns, kind: Ints, *, fenced: bool, cas_tells: bool) -> Ints:
    outcome = np.full(len(columns), GONE, np.int64)
    outcome[columns.outcome == OK] = DONE
    outcome[(columns.outcome == INFO) & (kind != READ)] = UNKNOWN
    failed = columns.outcome == FAIL
    if cas_tells:
        outcome[failed & (kind == CAS)] = REFUSED
    if fenced:
        refused = failed & (columns.error == columns.errors.find("fenced"))
        outcome[refused & (kind == WRITE)] = REFUSED
    outcome[kind == OTHER] = GONE
    return outcome


def _tokens(columns: Columns, kind: Ints, outcome: Ints, *, fenced: bool) -> tuple[Ints, Ints, int]:
    """Return token, told token and initial token as ranks; ties kept."""
    if not fenced:
        nothing = np.zeros(len(columns), np.int64)
        return nothing, np.full(len(columns), UNTOLD, np.int64), 0
    own, told = columns.token, columns.result_token
    real = np.concatenate([own[own > NO_TOKEN], told[told > NO_TOKEN], np.zeros(1, np.int64)])
    low = int(real.min())
    if int(real.max()) - low < 4 * len(own) + 1024:
        own_rank, told_rank, first = own - low, told - low, -low
    else:
        known = np.unique(real)
        own_rank, told_rank = np.searchsorted(known, own), np.searchsorted(known, told)
        first = int(np.searchsorted(known, 0))
    own_rank = np.where(own > NO_TOKEN, own_rank, first)
    says = (told > NO_TOKEN) & (((kind == READ) & (outcome == DONE)) | (outcome == REFUSED))
    return own_rank, np.where(says, told_rank, UNTOLD), first


def ranked_times(columns: Columns) -> tuple[Ints, Ints, int]:
    """Return calls, returns and `never`, so small that a composite key cannot overflow."""
    unknown = columns.ret == NEVER
    call, ret = columns.call, np.where(unknown, columns.call, columns.ret)
    ret = np.maximum(ret, call) if len(ret) else ret
    low = int(call.min(initial=1 << 62)) if len(call) else 0
    high = int(ret.max(initial=low)) if len(ret) else 0
    if (high - low + 8) * (2 * len(call) + 8) >= _COMPOSITE_MAX:
        known, rank = np.unique(np.concatenate([call, ret]), return_inverse=True)
        call, ret = rank[: len(call)], rank[len(call) :]
        low, high = 0, len(known)
    never = high - low + 2
    return call - low + 1, np.where(unknown, never, ret - low + 1), never


def dense(column: Ints) -> Ints:
    """Return the column with its values numbered from zero, order kept."""
    if not len(column):
        return column
    low, high = int(column.min()), int(column.max())
    if high - low < 4 * len(column) + 1024:
        if low == high:
            return np.zeros(len(column), np.int64)
        present = np.zeros(high - low + 1, np.int64)
        present[column - low] = 1
        if present.all():
            return column - low
        return (np.cumsum(present) - 1)[column - low]
    return np.unique(column, return_inverse=True)[1].astype(np.int64)

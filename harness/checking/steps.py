"""The calls of a register, ready to be judged.

Times are small non-negative integers with the order of the originals, ties kept: 0 is before every
event, and `never`, the return of an unknown outcome, after every event.  Calls that can neither
break nor explain anything are marked GONE: reads without an answer, and writes that surely had no
effect.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.checking.columns import FAIL, NEVER, NO_TOKEN, Columns
from harness.checking.values import NIL, NOT_TOLD, Ints

READ, WRITE, CAS, OTHER = 0, 1, 2, 3
DONE, UNKNOWN, REFUSED, GONE = 0, 1, 2, 3
UNTOLD = -1
Codes = npt.NDArray[np.int8]
_COMPOSITE_MAX = 1 << 60
_SPARSE = 4
_KINDS = {"read": READ, "write": WRITE, "cas": CAS}
# By kind: what ok, fail and info say; the last one is a cas that tells something when it fails.
# A failed write is looked at again when it is fenced.
_OUTCOMES = (
    bytes((DONE, GONE, GONE)),
    bytes((DONE, GONE, UNKNOWN)),
    bytes((DONE, GONE, UNKNOWN)),
    bytes((GONE, GONE, GONE)),
    bytes((DONE, REFUSED, UNKNOWN)),
)


@dataclass(frozen=True, eq=False)
class Steps:
    """One row a call, as in the columns.

    `key` is dense, `keys` how many there are.  `value`: what a write or cas writes; `expected`:
    what a cas expects; `seen`: what a read or a refused cas saw, NOT_TOLD when it does not say;
    all below `values`.  `token`: of a write; `told`: the highest token as a read or a refusal tells
    it, UNTOLD when it does not.  Tokens are ranks below `tokens`.
    """

    kind: Codes
    outcome: Codes
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
    keys: int
    values: int
    tokens: int

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
    kind, outcome = _kinds_and_outcomes(columns, fenced=fenced, cas_tells=cas_tells)
    call, ret, never = ranked_times(columns)
    token, told, initial_token, tokens = _tokens(columns, kind, outcome, fenced=fenced)
    seen = np.where(kind & 1, NOT_TOLD, columns.result)  # of a read or a cas
    if fenced:  # a read that tells a token and no value tells the token only
        no_value = (kind == READ) & (seen == NIL) & (told > UNTOLD)
        if initial is None:
            no_value &= told != initial_token
        np.putmask(seen, no_value, NOT_TOLD)
    key, keys = _dense_keys(columns)
    first = columns.values.id(initial)
    return Steps(
        kind=kind,
        outcome=outcome,
        key=key,
        value=np.maximum(columns.value, NIL),
        expected=columns.expected,
        seen=seen,
        token=token,
        told=told,
        call=call,
        ret=ret,
        initial=first,
        initial_token=initial_token,
        never=never,
        keys=keys,
        values=_value_bound(columns, first),
        tokens=tokens,
    )


def _kinds_and_outcomes(columns: Columns, *, fenced: bool, cas_tells: bool) -> tuple[Codes, Codes]:
    """Return what each call is and what its outcome says, each by one look into a table."""
    known = [_KINDS.get(f, OTHER) for f in columns.kinds.names] or [OTHER]
    said = b"".join(_OUTCOMES[-1 if cas_tells and f == CAS else f] for f in known)
    kind = np.frombuffer(bytes(known), np.int8).take(columns.kind)
    place = np.multiply(columns.kind, 3, dtype=np.int64) + columns.outcome
    outcome = np.frombuffer(said, np.int8).take(place)
    reason = columns.errors.find("fenced")
    if fenced and reason >= 0:
        refused = columns.error == reason
        refused &= (columns.outcome == FAIL) & (kind == WRITE)
        np.putmask(outcome, refused, REFUSED)
    return kind, outcome


def _tokens(
    columns: Columns, kind: Codes, outcome: Codes, *, fenced: bool
) -> tuple[Ints, Ints, int, int]:
    """Return token, told token and initial token as ranks, ties kept, and how many ranks."""
    count = len(columns)
    if not fenced or not count:
        return np.zeros(count, np.int64), np.full(count, UNTOLD, np.int64), 0, 1
    # A token that is not there stands for that of the beginning, which is 0.
    own = columns.token * (columns.token > NO_TOKEN)
    says = columns.result_token > NO_TOKEN
    says &= ((kind == READ) & (outcome == DONE)) | (outcome == REFUSED)
    told = columns.result_token * says
    low, high = min(_least(own), _least(told), 0), max(_greatest(own), _greatest(told), 0)
    if high - low < _SPARSE * count + 1024:
        if low:
            own, told = own - low, told - low
        return own, np.where(says, told, UNTOLD), -low, high - low + 1
    known = np.unique(np.concatenate((own, told, np.zeros(1, np.int64))))
    told = np.where(says, np.searchsorted(known, told), UNTOLD)
    return np.searchsorted(known, own), told, int(np.searchsorted(known, 0)), len(known)


def ranked_times(columns: Columns) -> tuple[Ints, Ints, int]:
    """Return calls, returns and `never`, so small that a composite key cannot overflow."""
    call, unknown = columns.call, columns.ret == NEVER
    if not len(call):
        return call, columns.ret, 2
    ret = np.maximum(np.where(unknown, call, columns.ret), call)
    low, high = _least(call), _greatest(ret)
    if (high - low + 8) * (2 * len(call) + 8) >= _COMPOSITE_MAX:
        known, rank = np.unique(np.concatenate([call, ret]), return_inverse=True)
        call, ret = rank[: len(call)], rank[len(call) :]
        low, high = 0, len(known)
    never = high - low + 2
    return call - (low - 1), np.where(unknown, never, ret - (low - 1)), never


def _least(numbers: Ints) -> int:
    """Return the least; for a short history this takes a quarter of the time of `min`."""
    return int(numbers[numbers.argmin()])


def _greatest(numbers: Ints) -> int:
    return int(numbers[numbers.argmax()])


def _dense_keys(columns: Columns) -> tuple[Ints, int]:
    """Return the keys numbered from zero, and how many there are."""
    count, names = len(columns), len(columns.keys.names)
    if names == 1:
        return np.zeros(count, np.int64), min(count, 1)
    if names > _SPARSE * count + 1024:
        known, key = np.unique(columns.key, return_inverse=True)
        return key, len(known)
    present = np.bincount(columns.key, minlength=names) > 0
    if present.all():
        return columns.key, names
    number = present.cumsum()
    return (number - 1)[columns.key], int(number[-1])


def _value_bound(columns: Columns, initial: int) -> int:
    """Return a number above all ids of values; not the least one, unless that is far below."""
    bound = len(columns.values)
    if bound < _SPARSE * len(columns) + 1024:
        return bound
    ids = (columns.value, columns.expected, columns.result)
    return max(int(each.max(initial=initial)) for each in ids) + 1


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

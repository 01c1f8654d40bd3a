"""The calls of a lock history, ready to be judged: what each was, and what its answer proves.

A call on a hold that names no token is on the latest grant of the process that makes it: many
locks have no tokens in their releases.
"""

from dataclasses import dataclass, replace

import numpy as np

from harness.checking.columns import FAIL, INFO, NO_TOKEN, OK, Columns
from harness.checking.steps import dense, ranked_times
from harness.checking.values import Flags, Ints
from harness.errors import MalformedHistoryError

_KINDS = {"acquire": 0, "renew": 1, "check": 1, "release": 2}
ACQUIRE, HOLD, RELEASE, OTHER = 0, 1, 2, 3
DONE, UNKNOWN, REFUSED, GONE = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class LockCalls:
    """One row a call: what it was, how it ended, the token it is about."""

    kind: Ints
    outcome: Ints
    key: Ints
    token: Ints
    call: Ints
    ret: Ints
    never: int

    def rows(self, kind: int, outcome: int) -> Ints:
        """Return the rows of one kind with one outcome."""
        return np.flatnonzero((self.kind == kind) & (self.outcome == outcome))


def with_tokens(columns: Columns) -> Columns:
    """Return the columns with a token in each call on a hold.

    Raises MalformedHistoryError for a grant without a token, whose place in the order of the grants
    nobody knows, and for a call without one by a process that was granted nothing, unless it was
    refused, which then says nothing.
    """
    kind = columns.kinds_as(_KINDS, OTHER)
    granted = (kind == ACQUIRE) & (columns.outcome == OK)
    lacking = np.flatnonzero(granted & (columns.result_token == NO_TOKEN))
    if len(lacking):
        text = "a grant without a token: mutex and lease-promise are the models that need none"
        raise MalformedHistoryError(int(columns.index[lacking[0]]) + 1, text)
    named = _named(columns, granted)
    nobody = (kind == RELEASE) & (named.token == NO_TOKEN) & (columns.outcome != FAIL)
    lost = np.flatnonzero(nobody)
    if len(lost):
        text = "a release without a token, by a process to which nothing was granted"
        raise MalformedHistoryError(int(columns.index[lost[0]]) + 1, text)
    return named


def with_own_tokens(columns: Columns) -> Columns:
    """Return the columns with a token in each grant, its own where it has none, and in each call.

    Tokens made up so are in no order; a call of a process that was granted nothing keeps none.
    """
    granted = (columns.kinds_as(_KINDS, OTHER) == ACQUIRE) & (columns.outcome == OK)
    lacking = granted & (columns.result_token == NO_TOKEN)
    made_up = NO_TOKEN + 1 + np.arange(len(columns))
    tokens = np.where(lacking, made_up, columns.result_token)
    return _named(replace(columns, result_token=tokens), granted)


def _named(columns: Columns, granted: Flags) -> Columns:
    """Return the columns with the token of the grant that a call without one is about."""
    kind = columns.kinds_as(_KINDS, OTHER)
    silent = ((kind == HOLD) | (kind == RELEASE)) & (columns.token == NO_TOKEN)
    if not silent.any():
        return columns
    grant = _latest_grants(columns, granted)
    token = columns.token.copy()
    found = np.flatnonzero(silent & (grant >= 0))
    token[found] = columns.result_token[grant[found]]
    return replace(columns, token=token)


def _latest_grants(columns: Columns, granted: Flags) -> Ints:
    """Return for each row the latest grant of its process on its key before it, -1 without one."""
    order = np.lexsort((columns.call, columns.key, columns.process))
    place = np.maximum.accumulate(np.where(granted[order], np.arange(len(order)), -1))
    latest = order[np.maximum(place, 0)]
    mine = (place >= 0) & (columns.key[latest] == columns.key[order])
    mine &= columns.process[latest] == columns.process[order]
    out = np.full(len(order), -1, np.int64)
    out[order[mine]] = latest[mine]
    return out


def lock_calls(columns: Columns) -> LockCalls:
    """Return the calls of a lock history."""
    kind = columns.kinds_as(_KINDS, OTHER)
    outcome = np.full(len(columns), GONE, np.int64)
    outcome[columns.outcome == OK] = DONE
    outcome[(columns.outcome == INFO) & (kind != HOLD)] = UNKNOWN
    failed = columns.outcome == FAIL
    outcome[failed & (kind == ACQUIRE) & (columns.error == columns.errors.find("held"))] = REFUSED
    refused = failed & (columns.error == columns.errors.find("not-holder"))
    outcome[refused & ((kind == HOLD) | (kind == RELEASE))] = REFUSED
    _answers_of_checks(columns, outcome)
    outcome[kind == OTHER] = GONE
    token = np.where(kind == ACQUIRE, columns.result_token, columns.token)
    outcome[(token == NO_TOKEN) & ((kind != ACQUIRE) | (outcome == DONE))] = GONE
    call, ret, never = ranked_times(columns)
    return LockCalls(kind, outcome, dense(columns.key), token, call, ret, never)


def _answers_of_checks(columns: Columns, outcome: Ints) -> None:
    """A check that answered "not yours" is a refusal, one that did not ask says nothing."""
    checks = columns.kinds_as({"check": 1}, 0) == 1
    for number in np.unique(columns.result[checks & (columns.outcome == OK)]).tolist():
        answer = columns.values[number]
        held = answer.get("held", True) if isinstance(answer, dict) else True
        if held is not True:
            mine = checks & (columns.outcome == OK) & (columns.result == number)
            outcome[mine] = REFUSED if held is False else GONE

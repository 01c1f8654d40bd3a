"""The calls of a lock history, ready to be judged: what each was, and what its answer proves."""

from dataclasses import dataclass

import numpy as np

from harness.checking.columns import FAIL, INFO, NO_TOKEN, OK, Columns
from harness.checking.steps import dense, ranked_times
from harness.checking.values import Ints

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


def lock_calls(columns: Columns) -> LockCalls:
    """Return the calls of a lock history."""
    numbers = {"acquire": ACQUIRE, "renew": HOLD, "check": HOLD, "release": RELEASE}
    kind = columns.kinds_as(numbers, OTHER)
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

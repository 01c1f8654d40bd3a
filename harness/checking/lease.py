"""The promise of a lease: until its time has passed, nobody else gets the lock.

A hold is certain from the answer of its acquire until the earliest of the call of its release and
the call of its last acknowledged renewal (or acquire) plus the time to live: the service granted it
after that call, so it cannot have ended sooner.  Certain holds of two grants of one lock must not
overlap, and within a certain hold the service must not refuse the holder.  This needs one clock for
all calls, and no order is inferred from completions.  Tokens are not needed: a call without one is
on the latest grant of its process, and a release by somebody who was granted nothing may have ended
whatever was held.
"""

from dataclasses import dataclass

import numpy as np

from harness.checking.columns import FAIL, NO_TOKEN, Columns
from harness.checking.finding import Finding
from harness.checking.lockcalls import (
    ACQUIRE,
    DONE,
    HOLD,
    REFUSED,
    RELEASE,
    lock_calls,
    with_own_tokens,
)

_NS = 1_000_000_000


@dataclass(slots=True)
class _Hold:
    grant: int
    token: int
    start: int
    until: int
    ttl: int
    renewal: int = -1


def judge_lease_promise(columns: Columns) -> Finding | None:
    """Return the first broken promise, None when every certain hold was respected.

    The time to live is `ttl_s` in the value of the acquire's answer or call; a grant without one
    promises nothing.
    """
    calls = lock_calls(with_own_tokens(columns))
    held: dict[tuple[int, int], _Hold] = {}
    holds: list[_Hold] = []
    order = np.lexsort((columns.call, columns.key)).tolist()
    for row in order:
        kind, outcome = int(calls.kind[row]), int(calls.outcome[row])
        at = (int(columns.key[row]), int(calls.token[row]))
        if kind == ACQUIRE and outcome == DONE:
            ttl = _ttl(columns, row)
            if ttl is not None:
                call, ret = int(columns.call[row]), int(columns.ret[row])
                hold = _Hold(row, int(calls.token[row]), ret, call + ttl, ttl)
                held[at] = hold
                holds.append(hold)
            continue
        call = int(columns.call[row])
        if kind == RELEASE and at[1] == NO_TOKEN and columns.outcome[row] != FAIL:
            for key_token in [each for each in held if each[0] == at[0]]:
                ended = held.pop(key_token)
                ended.until = min(ended.until, call)
            continue
        mine = held.get(at)
        if mine is None:
            continue
        refused = kind in (HOLD, RELEASE) and outcome == REFUSED
        if refused and int(columns.ret[row]) < mine.until:
            rows = tuple(r for r in (mine.grant, mine.renewal, row) if r >= 0)
            text = f"{{{len(rows) - 1}}} was refused within the lease of {{{len(rows) - 2}}}"
            return Finding("premature-expiry", rows, text)
        if kind == RELEASE:
            mine.until = min(mine.until, call)
            del held[at]
        renewed = columns.kinds.names[columns.kind[row]] == "renew" and outcome == DONE
        if renewed and call < mine.until:
            mine.until, mine.renewal = call + mine.ttl, row
    return _overlap(columns, holds)


def _ttl(columns: Columns, row: int) -> int | None:
    for number in (int(columns.result[row]), int(columns.value[row])):
        value = columns.values[number] if number >= 0 else None
        ttl_s = value.get("ttl_s") if isinstance(value, dict) else None
        if isinstance(ttl_s, int | float):
            return round(float(ttl_s) * _NS)
    return None


def _overlap(columns: Columns, holds: list[_Hold]) -> Finding | None:
    """Find two certain holds of one lock that overlap."""
    longest: dict[int, _Hold] = {}
    for hold in sorted(holds, key=lambda h: h.start):
        key = int(columns.key[hold.grant])
        before = longest.get(key)
        if before is not None and hold.start < before.until and hold.start < hold.until:
            rows = tuple(r for r in (before.grant, before.renewal, hold.grant) if r >= 0)
            name = "premature-expiry" if before.renewal >= 0 else "duplicate-grant"
            last = len(rows) - 1
            text = f"{{{last}}} was granted within the lease of {{{last - 1}}}"
            return Finding(name, rows, text)
        if before is None or hold.until > before.until:
            longest[key] = hold
    return None

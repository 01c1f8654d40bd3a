"""A lock service whose grants carry rising tokens: acquire, renew, check, release.

Exact in O(n log n), with expiry (the service may end a hold by itself) and without.  Grants are in
the order of their tokens, so an operation on a lower token must not begin after one on a higher
token has ended.  A refused renewal or release says that the token is not the current one, a refused
acquire that somebody held the lock.  A client learns its token from the answer of its acquire, so
what it does with the token comes after that answer; an acquire of unknown outcome only explains why
others found the lock held.  Tokens are integers.
"""

import numpy as np

from harness.checking.finding import Finding
from harness.checking.lockcalls import ACQUIRE, DONE, REFUSED, UNKNOWN, LockCalls
from harness.checking.locktimes import Holds, gaps, holds_of
from harness.checking.values import Flags, Ints


def judge_lock(calls: LockCalls, *, expires: bool) -> Finding | None:
    """Return what is wrong, None when some order explains everything."""
    if not len(calls.call):
        return None
    grants = calls.rows(ACQUIRE, DONE)
    order = grants[np.lexsort((calls.call[grants], calls.token[grants], calls.key[grants]))]
    twice = np.flatnonzero(
        (calls.token[order[1:]] == calls.token[order[:-1]])
        & (calls.key[order[1:]] == calls.key[order[:-1]])
    )
    if len(twice):
        rows = (int(order[twice[0]]), int(order[twice[0] + 1]))
        return Finding("fence-collision", rows, "two grants share a token: {0} and {1}")
    holds = holds_of(calls, order)
    return (
        holds
        if isinstance(holds, Finding)
        else (_each_hold(holds, expires=expires) or _busy(holds, expires=expires))
    )


def _each_hold(holds: Holds, *, expires: bool) -> Finding | None:
    never = holds.calls.never
    late = holds.last_call
    wrong = np.flatnonzero(holds.release_ret < late)
    if len(wrong):
        g = int(wrong[0])
        rows = (int(holds.release[g]), holds.row_called(g, int(late[g])))
        return Finding("zombie-lease", rows, "{1} succeeded after its release had: {0}")
    follows = np.zeros(len(late), bool)
    follows[:-1] = holds.key[1:] == holds.key[:-1]
    ended = follows | (holds.refused_ret < never)
    if not expires:
        lacking = ended & (holds.release < 0)
        wrong = np.flatnonzero(lacking & (holds.maybe_call >= never))
        if len(wrong):
            return _no_release(holds, int(wrong[0]))
        late = np.where(lacking, np.maximum(late, holds.maybe_call), late)
    wrong = np.flatnonzero(holds.refused_ret < late)
    if len(wrong):
        g = int(wrong[0])
        rows = (holds.row_refused(g), holds.row_called(g, int(late[g])))
        text = "{0} said that the token was no longer valid, and {1} that it still was"
        return Finding("premature-expiry", rows, text)
    base = holds.key * (never + 2)
    reach = np.maximum.accumulate(base + late) - base
    wrong = np.flatnonzero(follows[:-1] & (holds.first_ret[1:] < reach[:-1]))
    holds.late[:] = reach
    if len(wrong):
        return _token_went_back(holds, int(wrong[0]) + 1, int(reach[wrong[0]]))
    return None


def _no_release(holds: Holds, g: int) -> Finding:
    mine = int(holds.grant[g])
    if holds.refused_ret[g] < holds.calls.never:
        text = "{1} although nobody had released the lock granted by {0}"
        return Finding("premature-expiry", (mine, holds.row_refused(g)), text)
    text = "{1} although nobody had released the lock granted by {0}"
    return Finding("duplicate-grant", (mine, int(holds.grant[g + 1])), text)


def _token_went_back(holds: Holds, newer: int, when: int) -> Finding:
    calls = holds.calls
    key = int(holds.key[newer])
    older = np.flatnonzero((holds.key == key) & (np.arange(len(holds.key)) < newer))
    mine = np.isin(holds.of_row, older) & (calls.call == when)
    late = int(np.flatnonzero(mine)[0])
    first = holds.row_returned(newer, int(holds.first_ret[newer]))
    rows = dict.fromkeys([int(holds.grant[newer]), first, late])
    found = tuple(rows)
    text = f"{{{len(found) - 1}}} succeeded after a higher token had been in use: {{0}}"
    if calls.kind[late] == ACQUIRE:
        text = f"a later grant has a lower token: {{0}}, then {{{len(found) - 1}}}"
        return Finding("fence-regression", found, text)
    return Finding("duplicate-grant", found, text)


def _busy(holds: Holds, *, expires: bool) -> Finding | None:
    """Find an acquire that was refused while the lock was surely free.

    A lost grant may have held it: one a gap, called in time, with an integer between the tokens.
    """
    calls = holds.calls
    busy = calls.rows(ACQUIRE, REFUSED)
    if not len(busy):
        return None
    gap, inside, room, last = gaps(holds, busy)
    possible = room & (last | expires)
    wrong = busy[inside & ~possible]
    text = "{0} although the lock was surely free then"
    if len(wrong):
        return Finding("zombie-lease", (int(wrong[0]),), text)
    needy, gap = busy[inside], gap[inside]
    order = np.lexsort((calls.ret[needy], gap))
    needy, gap = needy[order], gap[order]
    needy = needy[np.concatenate([[True], gap[1:] != gap[:-1]])[: len(needy)]]
    needy = needy[np.lexsort((calls.ret[needy], calls.key[needy]))]
    lost = calls.rows(ACQUIRE, UNKNOWN)
    lost = lost[np.lexsort((calls.call[lost], calls.key[lost]))]
    late = _too_late(calls, needy, lost)
    wrong = needy[late]
    return Finding("zombie-lease", (int(wrong[0]),), text) if len(wrong) else None


def _too_late(calls: LockCalls, needy: Ints, lost: Ints) -> Flags:
    """Return for which refusals no lost grant is left that was called by then, greedily."""
    need_key, lost_key = calls.key[needy], calls.key[lost]
    rank = np.arange(len(needy)) - np.searchsorted(need_key, need_key, side="left")
    at = np.searchsorted(lost_key, need_key, side="left") + rank
    late = at >= np.searchsorted(lost_key, need_key, side="right")
    there = np.flatnonzero(~late)
    late[there] = calls.call[lost[at[there]]] > calls.ret[needy[there]]
    return late

"""The holds of a lock, one a grant: when each surely lasted, and the gaps between them."""

from dataclasses import dataclass

import numpy as np

from harness.checking.finding import Finding
from harness.checking.lockcalls import DONE, HOLD, REFUSED, RELEASE, UNKNOWN, LockCalls
from harness.checking.values import Flags, Ints


@dataclass(frozen=True, eq=False)
class Holds:
    """One row a grant, in the order of (key, token).

    `of_row`: the hold of each call that succeeded or may have.

    `first_ret`, `last_call`: of what succeeded with the token; `release`: the row, -1 without one;
    `refused_ret`: when a refusal first said that the token was over; `maybe_call`: of the release
    of unknown outcome that was called first.  `never` stands for "not at all".  `late` is filled in
    by the check: the latest call on this token or a lower one.
    """

    calls: LockCalls
    grant: Ints
    key: Ints
    token: Ints
    of_row: Ints
    refused: Ints
    first_ret: Ints
    last_call: Ints
    release: Ints
    release_ret: Ints
    refused_ret: Ints
    maybe_call: Ints
    late: Ints

    def row_called(self, hold: int, when: int) -> int:
        """Return a call of the hold by its time."""
        mine = (self.of_row == hold) & (self.calls.call == when)
        return int(np.flatnonzero(mine)[0])

    def row_returned(self, hold: int, when: int) -> int:
        """Return a succeeding call of the hold by the time of its return."""
        return int(np.flatnonzero((self.of_row == hold) & (self.calls.ret == when))[0])

    def row_refused(self, hold: int) -> int:
        """Return the refusal that was answered first."""
        mine = (self.refused == hold) & (self.calls.ret == self.refused_ret[hold])
        return int(np.flatnonzero(mine)[0])


def holds_of(calls: LockCalls, grants: Ints) -> Holds | Finding:
    """Return the holds of the grants, or a success with a token that nobody had been given."""
    count, never = len(grants), calls.never
    tokens, ranks = np.unique(calls.token[grants], return_inverse=True)
    key = calls.key[grants]
    codes = key * (len(tokens) + 1) + ranks
    about = np.full(len(calls.call), -1, np.int64)
    about[grants] = np.arange(count)
    users = np.flatnonzero((calls.kind == HOLD) | (calls.kind == RELEASE))
    rank = np.minimum(np.searchsorted(tokens, calls.token[users]), max(len(tokens) - 1, 0))
    code = calls.key[users] * (len(tokens) + 1) + rank
    at = np.minimum(np.searchsorted(codes, code), max(count - 1, 0))
    known = np.zeros(len(users), bool)
    if count:
        known = (codes[at] == code) & (tokens[rank] == calls.token[users])
        known[known] = calls.ret[users[known]] >= calls.call[grants[at[known]]]
    about[users[known]] = at[known]
    done = calls.outcome == DONE
    forged = users[~known & done[users]]
    if len(forged):
        text = "{0} succeeded with a token that had not been granted"
        return Finding("forged-token", (int(forged[0]),), text)
    mine = np.flatnonzero(done & (about >= 0))
    first = np.full(count, never, np.int64)
    last = np.zeros(count, np.int64)
    np.minimum.at(first, about[mine], calls.ret[mine])
    np.maximum.at(last, about[mine], calls.call[mine])
    released = mine[calls.kind[mine] == RELEASE]
    release = np.full(count, -1, np.int64)
    release[about[released]] = released
    if (release[about[released]] != released).any():
        return _released_twice(about, released)
    refusals = np.where((calls.outcome == REFUSED) & (about >= 0), about, -1)
    maybe = np.flatnonzero((calls.kind == RELEASE) & (calls.outcome == UNKNOWN) & (about >= 0))
    return Holds(
        calls=calls,
        grant=grants,
        key=key,
        token=calls.token[grants],
        of_row=np.where(done | (calls.outcome == UNKNOWN), about, -1),
        refused=refusals,
        first_ret=first,
        last_call=last,
        release=release,
        release_ret=np.where(release >= 0, calls.ret[release], never) if count else first,
        refused_ret=_least(calls.ret, np.flatnonzero(refusals >= 0), about, count, never),
        maybe_call=_least(calls.call, maybe, about, count, never),
        late=last.copy(),
    )


def _least(times: Ints, rows: Ints, about: Ints, count: int, never: int) -> Ints:
    out = np.full(count, never, np.int64)
    np.minimum.at(out, about[rows], times[rows])
    return out


def _released_twice(about: Ints, released: Ints) -> Finding:
    order = released[np.argsort(about[released], kind="stable")]
    again = np.flatnonzero(about[order[1:]] == about[order[:-1]])[0]
    rows = (int(order[again]), int(order[again + 1]))
    return Finding("duplicate-effect", rows, "one grant was released twice: {0} and {1}")


def gaps(holds: Holds, busy: Ints) -> tuple[Ints, Flags, Flags, Flags]:
    """Return for each refused acquire its gap, and what holds of it.

    That is: whether it lies inside the gap, whether an integer lies between the tokens around it,
    and whether it is the last gap of its key.  The gap before a hold starts at the earliest sure
    end of the hold before it, and ends at the earliest time when the hold may have begun.
    """
    calls, count, span = holds.calls, len(holds.grant), holds.calls.never + 2
    same = np.zeros(count, bool)
    same[1:] = holds.key[1:] == holds.key[:-1]
    before = np.where(same, np.roll(holds.late, 1), 0)
    begins = np.maximum(calls.call[holds.grant], before)
    stops = np.minimum(holds.release_ret, holds.refused_ret)
    key = calls.key[busy]
    follower = np.searchsorted(holds.key * span + begins, key * span + calls.ret[busy], "right")
    leader = follower - 1
    has_next = follower < count
    has_next[has_next] = holds.key[follower[has_next]] == key[has_next]
    has_prev = leader >= 0
    has_prev[has_prev] = holds.key[leader[has_prev]] == key[has_prev]
    base = min(0, int(holds.token.min(initial=1)) - 1)
    stop = np.full(len(busy), -1, np.int64)
    low = np.full(len(busy), base, np.int64)
    stop[has_prev] = stops[leader[has_prev]]
    low[has_prev] = holds.token[leader[has_prev]]
    room = np.ones(len(busy), bool)
    room[has_next] = holds.token[follower[has_next]] > low[has_next] + 1
    return follower + key, calls.call[busy] > stop, room, ~has_next

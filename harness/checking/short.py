"""The search for a register whose values repeat: the same search, on bare numbers.

Most such histories are decided within about as many states as they have calls, so what costs time
is to make objects.  Here an operation is a tuple of numbers, and one loop visits the states.  What
that does not decide is left to the search that looks ahead and learns from dead ends.
"""

from collections.abc import Callable, Iterator

import numpy as np

from harness.checking.columns import FAIL, INFO, Columns
from harness.checking.search import Outcome
from harness.checking.timeline import Action
from harness.checking.values import NIL, NOT_TOLD, Ints

AT_ONCE = 400
"""States that it visits, beside two for a call, before it leaves a key to the other search."""
_LOOK_EVERY = 1024
_COUNT_BITS = 24
_COUNT = (1 << _COUNT_BITS) - 1
_NOTHING, _ANYTHING = -2, -3
_READ, _WRITE, _CAS = range(3)
_NAMES = {"read": _READ, "write": _WRITE, "cas": _CAS}

# What can change the state: its bit, the value that it needs (NOT_TOLD: any), the one it makes.
_Change = tuple[int, int, int]
# What cannot: its bit, a value, and whether the state must differ from that value.
_Look = tuple[int, int, bool]
# A return: the bit of its operation, the operation, whether it is a change, what was pending then,
# how many of unknown outcome had been called, and the row.
_Moment = tuple[int, _Change | _Look, bool, list[_Change], list[_Look], int, int]
# A kind of unknown outcome.
_Kind = tuple[int, int, list[int]]
# A configuration: the moment, the state, the pending operations that were applied, how often each
# kind of unknown outcome was, and whether only such are still to be tried.
_Node = tuple[int, int, int, int, bool]


def judge_short(
    columns: Columns, rows: Ints, initial: object, *, cas_tells: bool, late: Callable[[], bool]
) -> Outcome | None:
    """Return what a search of some rows of one key finds, None when that takes too long.

    `cas_tells`: a failed compare-and-set says that the value differed.  `late`: the time is over.
    """
    lost = _Lost()
    search = _Search(_walk(columns, rows, lost, cas_tells=cas_tells), lost)
    legal = search.run(columns.values.id(initial), AT_ONCE + 2 * len(rows), late)
    if legal is None:
        return None
    if legal:
        return Outcome(legal=True, steps=len(search.seen))
    at = search.farthest
    row = int(rows[search.moments[at][-1]])
    blamed = Action(None, passive=False, call=0, ret=int(columns.ret[row]), row=row)
    return Outcome(False, blamed, at, len(search.seen))


class _Lost:
    """The operations of unknown outcome that have been called so far, by kind.

    `by_needs`: the kinds by the value that they need: where in a number the count of those that
    were taken is, the value that they make, and when, among all of them, each was called.
    """

    def __init__(self) -> None:
        self.by_needs: dict[int, list[_Kind]] = {}
        self.called = 0
        self._known: dict[tuple[int, int], list[int]] = {}

    def add(self, needs: int, makes: int) -> None:
        """Take in one that is called now."""
        places = self._known.get((needs, makes))
        if places is None:
            shift = len(self._known) * _COUNT_BITS
            places = self._known[needs, makes] = []
            self.by_needs.setdefault(needs, []).append((shift, makes, places))
        places.append(self.called)
        self.called += 1


def _walk(columns: Columns, rows: Ints, lost: _Lost, *, cas_tells: bool) -> Iterator[_Moment]:
    """Yield the returns in order; what was of unknown outcome goes to `lost` when it is called."""
    whole = len(rows) == len(columns)
    names = [_NAMES.get(f, -1) for f in columns.kinds.names]
    taken = (
        columns.call,
        columns.ret,
        columns.kind,
        columns.outcome,
        columns.value,
        columns.expected,
        columns.result,
    )
    call, ret, *rest = taken if whole else (each[rows] for each in taken)
    kind, outcome, value, expected, result = (each.tolist() for each in rest)
    count, top = len(kind), 0
    free: list[int] = []
    active: list[_Change] = []
    passive: list[_Look] = []
    begun: list[_Change | _Look | None] = [None] * count
    # Calls come before returns of the same time.
    for event in np.concatenate((call, ret)).argsort(kind="stable").tolist():
        if event >= count:
            op = begun[event - count]
            if op is not None:
                changes = op in active
                yield op[0], op, changes, active[:], passive[:], lost.called, event - count
                (active if changes else passive).remove(op)
                free.append(op[0])
            continue
        code, ended = names[kind[event]], outcome[event]
        if code < 0 or (ended == FAIL and not (code == _CAS and cas_tells)):
            continue
        if ended == INFO:
            if code != _READ:  # a write without a value writes null
                lost.add(NOT_TOLD if code == _WRITE else expected[event], max(value[event], NIL))
            continue
        if free:
            bit = free.pop()
        else:
            bit, top = 1 << top, top + 1
        if code == _READ:
            begun[event] = look = (bit, result[event], False)
            passive.append(look)
        elif ended == FAIL:
            begun[event] = look = _differing(bit, expected[event], result[event])
            passive.append(look)
        else:
            needs = NOT_TOLD if code == _WRITE else expected[event]
            begun[event] = change = (bit, needs, max(value[event], NIL))
            active.append(change)


def _differing(bit: int, expected: int, saw: int) -> _Look:
    """Return what a refused compare-and-set says; one that saw what it expected is impossible."""
    if saw == NOT_TOLD:
        return bit, expected, True
    return bit, saw if saw != expected else _NOTHING, False


class _Search:
    def __init__(self, walk: Iterator[_Moment], lost: _Lost) -> None:
        self.moments: list[_Moment] = []
        self.seen: set[tuple[int, int, int, int]] = set()
        self.farthest = 0
        self._walk, self._lost = walk, lost

    def run(self, start: int, most: int, late: Callable[[], bool]) -> bool | None:
        """Whether an end can be reached, None when that takes too many states or too long.

        A configuration that comes again leads nowhere: all that follows it was tried before.
        """
        moments, walk, seen = self.moments, self._walk, self.seen
        stack: list[_Node] = []
        at, state, done, used, count, farthest = 0, start, 0, 0, 0, -1
        while True:
            while True:
                if at == count:
                    found = next(walk, None)
                    if found is None:
                        return True
                    moments.append(found)
                    count += 1
                    if count % _LOOK_EVERY == 0 and late():
                        return None
                mine, op, changes, active, passive, called, _ = moments[at]
                for bit, value, differs in passive:
                    if (state == value) != differs and not done & bit:
                        done |= bit
                if not done & mine:
                    break
                done ^= mine
                at += 1
            key = (at, state, done, used)
            if key not in seen:
                seen.add(key)
                if len(seen) > most or (len(seen) % _LOOK_EVERY == 0 and late()):
                    return None
                if at > farthest:
                    self.farthest = farthest = at
                if called:
                    stack.append((at, state, done, used, True))
                # The likeliest is tried first: itself, or what makes what it needs.
                wanted = _NOTHING if changes or op[2] else op[1]
                first = None
                for bit, needs, makes in active:
                    if done & bit or (needs != state and needs >= 0) or bit == mine:
                        continue
                    if makes == wanted and first is None:
                        first = (makes, done | bit)
                    else:
                        stack.append((at, makes, done | bit, used, False))
                if first is not None:
                    state, done = first
                    continue
                if changes and (op[1] < 0 or op[1] == state):
                    state = op[2]
                    done |= mine
                    continue
                if called and wanted >= 0:
                    self._push_lost(stack, at, state, done, used, wanted)
            only_lost = True
            while only_lost:
                if not stack:
                    return False
                at, state, done, used, only_lost = stack.pop()
                if only_lost:
                    self._push_lost(stack, at, state, done, used)

    def _push_lost(
        self,
        stack: list[_Node],
        at: int,
        state: int,
        done: int,
        used: int,
        wanted: int | None = None,
    ) -> None:
        """Add those of unknown outcome that make the wanted value, or any that something needs."""
        _, _, _, active, passive, called, _ = self.moments[at]
        by_needs = self._lost.by_needs
        for needs in (NOT_TOLD, state):
            for shift, makes, places in by_needs.get(needs, ()):
                if makes == state or (wanted is not None and makes != wanted):
                    continue
                count = used >> shift & _COUNT
                if count == len(places) or places[count] >= called:
                    continue
                if wanted is not None or self._is_needed(makes, active, passive, done):
                    stack.append((at, makes, done, used + (1 << shift), False))

    def _is_needed(self, made: int, active: list[_Change], passive: list[_Look], done: int) -> bool:
        """Whether something that is pending or of unknown outcome can do with a value."""
        if made in self._lost.by_needs:
            return True
        for bit, value, differs in passive:
            if (value == made or differs) and not done & bit:
                return True
        return any(needs == made and not done & bit for bit, needs, _ in active)

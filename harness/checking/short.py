"""The search for short histories of a register with few values: the same search, on bare numbers.

Most such histories are decided within a few dozen states, so what costs time is to make an object
for each operation.  Here an operation is a tuple of numbers, and a visit is a call.  What is not
decided within a few hundred states is left to the search that learns from dead ends.
"""

from collections.abc import Iterator

from harness.checking.columns import FAIL, INFO, OK, Columns
from harness.checking.search import Outcome
from harness.checking.timeline import Action
from harness.checking.values import NIL, NOT_TOLD, Ints

ROWS_MAX = 200
_STEPS_MAX = 400
_READ, _WRITE, _CAS, _NOT = range(4)
_NAMES = {"read": _READ, "write": _WRITE, "cas": _CAS}

# An operation: its bit, what it is, the value that it needs, the value that it makes.
_Op = tuple[int, int, int, int]
# A return: the row, the operation, what was pending then, how many were lost by then.
_Moment = tuple[int, _Op, list[_Op], list[_Op], int]


class _TooLongError(Exception):
    """There are too many states for this search."""


def judge_short(
    columns: Columns, rows: Ints, initial: object, *, cas_tells: bool
) -> Outcome | None:
    """Return what a search of some rows of one key finds, None when that takes too long.

    `cas_tells`: a failed compare-and-set says that the value differed.
    """
    lost: list[tuple[int, int]] = []
    search = _Search(_walk(columns, rows, lost, cas_tells=cas_tells), lost)
    try:
        legal = search.visit(0, columns.values.id(initial), 0, 0)
    except _TooLongError:
        return None
    if legal:
        return Outcome(legal=True, steps=search.steps)
    at = search.farthest
    row = int(rows[search.moments[at][0]])
    blamed = Action(None, passive=False, call=0, ret=int(columns.ret[row]), row=row)
    return Outcome(False, blamed, at, search.steps)


def _walk(
    columns: Columns, rows: Ints, lost: list[tuple[int, int]], *, cas_tells: bool
) -> Iterator[_Moment]:
    """Yield the returns in order; what was of unknown outcome goes to `lost` when it is called."""
    whole = len(rows) == len(columns)
    codes = [_NAMES.get(f, -1) for f in columns.kinds.names]
    kind, outcome, value, expected, result, call, ret = (
        (each if whole else each[rows]).tolist()
        for each in (
            columns.kind,
            columns.outcome,
            columns.value,
            columns.expected,
            columns.result,
            columns.call,
            columns.ret,
        )
    )
    count, top = len(kind), 0
    times = [2 * time for time in call] + [2 * time + 1 for time in ret]
    free: list[int] = []
    active: list[_Op] = []
    passive: list[_Op] = []
    begun: list[_Op | None] = [None] * count
    for event in sorted(range(2 * count), key=times.__getitem__):
        row = event if event < count else event - count
        if event >= count:
            op = begun[row]
            if op is not None:
                yield row, op, active[:], passive[:], len(lost)
                (active if op[1] in (_WRITE, _CAS) else passive).remove(op)
                free.append(op[0])
            continue
        code, ended = codes[kind[row]], outcome[row]
        needs, makes = expected[row], value[row]
        if code == _READ:
            needs = result[row]
        elif makes < NIL:  # a write without a value
            makes = NIL
        if code == _CAS and ended == FAIL and cas_tells:
            code, makes, ended = _NOT, result[row], OK
        if code < 0 or ended == FAIL:
            continue
        if ended == INFO:
            if code != _READ:
                lost.append((needs, makes))
            continue
        if free:
            bit = free.pop()
        else:
            bit, top = 1 << top, top + 1
        begun[row] = op = (bit, code, needs, makes)
        (active if code in (_WRITE, _CAS) else passive).append(op)


class _Search:
    def __init__(self, walk: Iterator[_Moment], lost: list[tuple[int, int]]) -> None:
        self.moments: list[_Moment] = []
        self.steps = self.farthest = 0
        self._walk, self._lost = walk, lost
        self._dead: set[tuple[int, int, int, int]] = set()

    def visit(self, at: int, state: int, done: int, used: int) -> bool:
        """Whether an end can be reached; `used` are the lost operations that were taken."""
        moments = self.moments
        while True:
            if at == len(moments):
                found = next(self._walk, None)
                if found is None:
                    return True
                moments.append(found)
            _, op, active, passive, called = moments[at]
            for bit, code, needs, told in passive:
                if not done & bit and (
                    state == needs if code == _READ else state != needs and told in (state, -1)
                ):
                    done |= bit
            if not done & op[0]:
                break
            done ^= op[0]
            at += 1
        key = (at, state, done, used)
        if key in self._dead:
            return False
        self.steps += 1
        if self.steps > _STEPS_MAX:
            raise _TooLongError
        self.farthest = max(self.farthest, at)
        for bit, made in _ordered(op, active, state, done):
            if self.visit(at, made, done | bit, used):
                return True
        for bit, made in self._useful(active, passive, called, state, done, used):
            if self.visit(at, made, done, used | bit):
                return True
        self._dead.add(key)
        return False

    def _useful(
        self,
        active: list[_Op],
        passive: list[_Op],
        called: int,
        state: int,
        done: int,
        used: int,
    ) -> Iterator[tuple[int, int]]:
        """Yield lost operations that make a value that something needs at once."""
        lost = self._lost[:called]
        if not lost:
            return
        wanted = {needs for needs, _ in lost}
        wanted.update(needs for bit, code, needs, _ in active if code == _CAS and not done & bit)
        wanted.discard(NOT_TOLD)  # a write needs nothing
        for bit, code, needs, told in passive:
            if not done & bit:
                wanted.add(needs if code == _READ else told)
        tried = set()
        for number, one in enumerate(lost):
            needs, made = one
            if used >> number & 1 or one in tried or made == state:
                continue
            tried.add(one)
            if needs in (state, NOT_TOLD) and (made in wanted or NOT_TOLD in wanted):
                yield 1 << number, made


def _ordered(op: _Op, active: list[_Op], state: int, done: int) -> list[tuple[int, int]]:
    """Return what may be applied, the likeliest first: the operation itself, or what it needs."""
    bit, code, needs, makes = op
    first = []
    later: list[tuple[int, int]] = []
    if code == _WRITE or (code == _CAS and needs == state):
        first.append((bit, makes))
    for other, how, old, new in active:
        if done & other or other == bit or (how == _CAS and old != state):
            continue
        (first if new == needs and code == _READ else later).append((other, new))
    return first + later

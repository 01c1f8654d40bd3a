"""Exact search for an order that explains a history, for every model without a faster check.

Wing and Gong's search in Lowe's just-in-time form: operations are applied only when a return
forces it.  Five reductions keep it small and exact.  An operation that cannot change the state is
applied as soon as it can be.  Of identical pending operations only the one that returns first is
tried.  One of unknown outcome is tried only if somebody wants the state that it makes.  A dead end
remembers which unknown operations had run out, and is dead for every visit with no more of those
left.  A model may say that a state can no longer lead to what a pending operation has returned.

A search that does not get through at once looks at the whole history first, as if unknown
operations never ran out (`foresight`), and then goes only where that has an end.

The search has a budget of time and memory; when it is exhausted nothing is known.
"""

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.checking.foresight import Foresight, foresee
from harness.checking.model import IMPOSSIBLE, SearchModel, Viable
from harness.checking.timeline import Action, Calls, Moment, Timeline

_LOOK_EVERY = 512
_ENTRY_BYTES = 320
AT_ONCE = 1000
"""States that a search visits, beside one for two calls, before it looks ahead."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long and how much a search may work; `clock` returns seconds, `steps` are states."""

    until: float
    memory_bytes: int
    clock: Callable[[], float]
    steps: int = 1 << 62


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found: `legal` is None when the budget ended first.

    `action` is the operation whose return no order explains (or explained last), `at` the number of
    returns before it, `steps` the visited states; `paused`: only `budget.steps` ended it.
    `ended`: how the process ended that should have searched, when it was another one.
    """

    legal: bool | None
    action: Action | None = None
    at: int = 0
    steps: int = 0
    paused: bool = False
    ended: str = ""


_Move = tuple[Any, int, Hashable]
_Nogood = tuple[tuple[Hashable, int], ...]


@dataclass(slots=True, eq=False)
class _Frame:
    key: tuple[int, Any, int]
    moves: Iterator[_Move]
    blame: set[Hashable]
    spent: Hashable


class Search:
    """One search over the operations of one key."""

    def __init__(self, model: SearchModel, calls: Calls, start: Hashable) -> None:
        self._model = model
        self._start = start
        self._makers: dict[Hashable, list[Hashable]] = defaultdict(list)
        self._line = Timeline(calls, lambda kind: self._makers[model.gives(kind)].append(kind))
        self._used: dict[Hashable, int] = defaultdict(int)
        self._next: dict[Hashable, dict[Any, Any]] = defaultdict(dict)
        self._dead: dict[tuple[int, Any, int], list[_Nogood]] = {}
        self._bytes = 0
        self._at_once = len(calls.call) // 2 + AT_ONCE
        self._viable: Viable | None = None
        if type(model).look_ahead is not SearchModel.look_ahead:
            len(self._line)
            self._viable = model.look_ahead(self._line.actions)

    def run(self, budget: Budget) -> Outcome:
        """Search until an order is found, none is left, or the budget ends."""
        most = min(self._at_once, budget.steps)
        found = self._descend(replace(budget, steps=most))
        if not found.paused or most == budget.steps:
            return found
        seen = foresee(self._line, self._start, self._succeed, budget)
        if seen is None:
            return self._descend(budget)
        return self._guided(seen, budget)

    def _guided(self, seen: Foresight, budget: Budget) -> Outcome:
        """Search only where the foresight sees an end; it is exact when nothing was lost."""
        moments, end = self._line.moments, seen.end
        if end < len(moments):
            return Outcome(False, moments[end].action, end)
        if seen.fits:
            return Outcome(legal=True)
        before = self._viable
        if before is None:
            self._viable = seen
        else:
            self._viable = lambda *at: seen(*at) and before(*at)
        return self._descend(budget)

    def _descend(self, budget: Budget) -> Outcome:
        line, used, stack = self._line, self._used, list[_Frame]()
        used.clear()
        if not line.reach(0):
            return Outcome(legal=True)
        farthest = steps = 0
        node: tuple[int, Any, int, Hashable] = (0, self._start, 0, None)
        while True:
            at, state, done, spent = node
            if spent is not None:
                used[spent] += 1
            at, done = self._advance(at, state, done)
            if not line.reach(at):
                return Outcome(legal=True, steps=steps)
            farthest = max(farthest, at)
            steps += 1
            blamed = line.moments[farthest].action
            if steps % _LOOK_EVERY == 0 and self._exhausted(budget):
                return Outcome(None, blamed, farthest, steps)
            if steps > budget.steps:
                return Outcome(None, blamed, farthest, steps, paused=True)
            failed = self._known_dead((at, state, done)) if self._dead else None
            if failed is None:
                blame: set[Hashable] = set()
                moves = self._moves(at, state, done, blame)
                stack.append(_Frame((at, state, done), moves, blame, spent))
            else:
                if spent is not None:
                    used[spent] -= 1
                if stack:
                    stack[-1].blame |= failed
            following = self._backtrack(stack)
            if following is None:
                return Outcome(False, line.moments[farthest].action, farthest, steps)
            node = following

    def _backtrack(self, stack: list[_Frame]) -> tuple[int, Any, int, Hashable] | None:
        """Return the next node of the deepest frame that still has one; bury the exhausted ones."""
        used = self._used
        while stack:
            frame = stack[-1]
            move = next(frame.moves, None)
            if move is not None:
                return (frame.key[0], *move)
            stack.pop()
            nogood = tuple((kind, used[kind]) for kind in frame.blame)
            self._dead.setdefault(frame.key, []).append(nogood)
            self._bytes += _ENTRY_BYTES + sys.getsizeof(frame.key[1])
            if frame.spent is not None:
                used[frame.spent] -= 1
            if stack:
                stack[-1].blame |= frame.blame
        return None

    def _exhausted(self, budget: Budget) -> bool:
        return self._bytes > budget.memory_bytes or budget.clock() > budget.until

    def _advance(self, at: int, state: Any, done: int) -> tuple[int, int]:
        """Apply what cannot change the state, and pass the returns of what has been applied."""
        line, succeed = self._line, self._succeed
        moments = line.moments
        while True:
            moment = moments[at]
            for sight in moment.passive:
                if not done & sight.bit and succeed(state, sight.kind) is not IMPOSSIBLE:
                    done |= sight.bit
            bit = moment.action.bit
            if not done & bit:
                return at, done
            done ^= bit
            at += 1
            if at == len(moments) and not line.reach(at):
                return at, done

    def _succeed(self, state: Any, kind: Hashable) -> Any:
        known = self._next[kind]
        try:
            return known[state]
        except KeyError:
            known[state] = found = self._model.step(state, kind)
            self._bytes += 100
            return found

    def _known_dead(self, key: tuple[int, Any, int]) -> set[Hashable] | None:
        used = self._used
        for nogood in self._dead.get(key, ()):
            if all(used[kind] >= count for kind, count in nogood):
                return {kind for kind, _ in nogood}
        return None

    def _moves(self, at: int, state: Any, done: int, blame: set[Hashable]) -> Iterator[_Move]:
        """Yield (new state, new done, unknown operation spent or None), the likeliest first."""
        moment = self._line.moments[at]
        wanted, succeed, viable = moment.action, self._succeed, self._viable
        later: list[_Move] = []
        tried = set()
        if not wanted.passive:
            tried.add(wanted.kind)
            made = succeed(state, wanted.kind)
            after = done | wanted.bit
            if made is not IMPOSSIBLE and (viable is None or viable(made, after, moment)):
                yield made, after, None
        for action in moment.active:
            bit, kind = action.bit, action.kind
            if done & bit or kind in tried:
                continue
            tried.add(kind)
            made = succeed(state, kind)
            if made is IMPOSSIBLE or not (viable is None or viable(made, done | bit, moment)):
                continue
            if wanted.passive and succeed(made, wanted.kind) is not IMPOSSIBLE:
                yield made, done | bit, None
            else:
                later.append((made, done | bit, None))
        if not self._makers:
            yield from later
            return
        direct = self._wanted_makers(wanted) if wanted.passive else []
        yield from self._lost_moves(direct, moment, state, done, blame)
        yield from later
        rest = [kind for kind in self._useful(moment, done) if kind not in set(direct)]
        yield from self._lost_moves(rest, moment, state, done, blame)

    def _wanted_makers(self, action: Action) -> list[Hashable]:
        wants = self._model.wants(action.kind)
        return [kind for state in wants or () for kind in self._makers.get(state, ())]

    def _lost_moves(
        self,
        kinds: Sequence[Hashable],
        moment: Moment,
        state: Any,
        done: int,
        blame: set[Hashable],
    ) -> Iterator[_Move]:
        for kind in kinds:
            made = self._succeed(state, kind)
            if made is IMPOSSIBLE or made == state:
                continue
            if self._used[kind] >= bisect_left(self._line.lost[kind], moment.when):
                blame.add(kind)
            elif self._viable is None or self._viable(made, done, moment):
                yield made, done, kind

    def _useful(self, moment: Moment, done: int) -> list[Hashable]:
        """Return the unknown operations that lead to a state that a pending operation wants."""
        goals: list[Hashable] = []
        for action in (*moment.active, *moment.passive):
            if not done & action.bit:
                wants = self._model.wants(action.kind)
                if wants is None:
                    return list(self._line.lost)
                goals += wants
        useful: list[Hashable] = []
        seen = set(goals)
        goals = [None, *seen]  # None: those whose state cannot be told beforehand
        while goals:
            for kind in self._makers.get(goals.pop(), ()):
                wants = self._model.wants(kind)
                if wants is None:
                    return list(self._line.lost)
                useful.append(kind)
                new = [state for state in wants if state not in seen]
                seen.update(new)
                goals += new
        return useful

"""What a search can see of the whole history when unknown operations never run out.

A configuration at a return is a state and the set of pending operations that have been applied.
For each state all sets are one integer: its bit m stands for the set m, so to apply an operation to
all of them is a shift.  Forward, the configurations that can be reached; if there is none after
some return, no order exists, and else one does if nothing was of unknown outcome.  Backward, those
from which an end can be reached, and how many unknown operations that takes at least.  An order
that takes the fewest is an explanation if each time there is an operation of its own for it; if
not, the search goes on, but visits nothing from where no end can be reached.

This takes time in proportion to the length of the history, but 2 to the power of how many
operations were pending at once, so it gives up when that or the number of states is large.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.checking.model import IMPOSSIBLE
from harness.checking.timeline import Action, Moment, Timeline

_BITS_MAX = 12
_STATES_MAX = 64
_LAYERS_MAX = 5
_LOOK_EVERY = 256

Sets = dict[Any, int]
Leap = tuple[int, Any, Any]
"""An unknown operation that an order takes: before which position, from which state to which."""
Step = Callable[[Any, Hashable], Any]


class Time(Protocol):
    """How long to work."""

    @property
    def until(self) -> float:
        """A time of the clock, in seconds."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """What was seen: `end` is the first return that nothing can pass, even so.

    `fits`: an order was found, with an unknown operation for each time that it takes one.
    `sets`: at each return the applied sets from which the end can be reached, by state.
    """

    end: int
    fits: bool = False
    sets: Sequence[Sets] = ()

    def __call__(self, state: Any, done: int, moment: Moment) -> bool:
        """Whether an end can be reached from a configuration at a return."""
        return bool(self.sets[moment.number].get(state, 0) >> done & 1)


def foresee(line: Timeline, start: Hashable, step: Step, time: Time) -> Foresight | None:
    """Look at the whole history; None when it is too wide, or when the time is over."""
    count = len(line)
    if line.bits > _BITS_MAX:
        return None
    view = _View(line, step)
    end = view.forward(start, count, time)
    if end is None:
        return None
    if end < count or not line.lost:
        return Foresight(end, fits=end == count)
    layers = view.backward(count, time)
    if layers is None:
        return None
    leaps = view.walk(start, layers)
    fits = leaps is not None and have_enough(leaps, line.lost, step)
    return Foresight(end, fits, [each[-1] for each in layers])


@dataclass(slots=True)
class _View:
    line: Timeline
    step: Step
    states: dict[Any, None] = field(default_factory=dict)
    _clear: dict[int, int] = field(default_factory=dict)
    _leaps: dict[tuple[int, Any], list[Any]] = field(default_factory=dict)
    _lost: list[Hashable] = field(default_factory=list)
    _since: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        every = (1 << (1 << self.line.bits)) - 1
        for number in range(self.line.bits):
            bit = 1 << number
            self._clear[bit] = every // ((1 << 2 * bit) - 1) * ((1 << bit) - 1)
        self._lost = list(self.line.lost)
        self._since = [at[0] for at in self.line.lost.values()]

    def forward(self, start: Hashable, count: int, time: Time) -> int | None:
        """Return the first moment that nothing can pass, `count` when there is none."""
        sets: Sets = {start: 1}
        for number, moment in enumerate(self.line.moments):
            if number % _LOOK_EVERY == 0 and time.clock() > time.until:
                return None
            self._spread(sets, moment)
            self.states.update(dict.fromkeys(sets))
            if len(self.states) > _STATES_MAX:
                return None
            bit = moment.action.bit
            clear = self._clear[bit]
            passed = ((state, masks >> bit & clear) for state, masks in sets.items())
            sets = {state: masks for state, masks in passed if masks}
            if not sets:
                return number
        return count

    def backward(self, count: int, time: Time) -> list[list[Sets]] | None:
        """Return for each moment from where an end can be reached, in layers.

        The first layer is what needs the fewest unknown operations, each further one allows one
        more, and contains the one before.
        """
        out: list[list[Sets]] = [[]] * count
        after: list[Sets] = [dict.fromkeys(self.states, 1)]
        for number in range(count - 1, -1, -1):
            if number % _LOOK_EVERY == 0 and time.clock() > time.until:
                return None
            moment = self.line.moments[number]
            bit = moment.action.bit
            known = self._only((*moment.active, *moment.passive)) & self._clear[bit]
            layers: list[Sets] = []
            while len(layers) < _LAYERS_MAX:
                below = layers[-1] if layers else {}
                sets = dict(below)
                for state, masks in after[min(len(layers), len(after) - 1)].items():
                    if masks & known:
                        sets[state] = sets.get(state, 0) | (masks & known) << bit
                for state in self.states if below else ():
                    for made in self._leaps_from(state, moment):
                        if made in below:
                            _add(sets, state, below[made])
                if sets == below and len(layers) >= len(after):
                    break
                self._gather(sets, moment)
                layers.append(sets)
            while len(layers) > 1 and not layers[0]:
                del layers[0]
            out[number] = after = layers
        return out

    def walk(self, start: Hashable, layers: Sequence[Sequence[Sets]]) -> list[Leap] | None:
        """Return the leaps of an order with the fewest of them, None when the layers end before."""
        leaps: list[Leap] = []
        state, done = start, 0
        for moment in self.line.moments:
            here = layers[moment.number]
            while True:
                for sight in moment.passive:
                    if not done & sight.bit and self.step(state, sight.kind) is not IMPOSSIBLE:
                        done |= sight.bit
                if done & moment.action.bit:
                    break
                depth = _depth(here, state, done)
                found = self._next_step(moment, here, depth, state, done)
                if found is None:
                    return None
                if found[1] == done:
                    leaps.append((moment.when, state, found[0]))
                state, done = found
            done ^= moment.action.bit
        return leaps

    def _next_step(
        self, moment: Moment, here: Sequence[Sets], depth: int, state: Any, done: int
    ) -> tuple[Any, int] | None:
        for action in (moment.action, *moment.active):
            after = done | action.bit
            if action.passive or after == done:
                continue
            made = self.step(state, action.kind)
            if made is not IMPOSSIBLE and _depth(here, made, after) <= depth < len(here):
                return made, after
        for made in self._leaps_from(state, moment):
            if _depth(here, made, done) < depth < len(here):
                return made, done
        return None

    def _only(self, pending: Sequence[Action]) -> int:
        """Return the sets of nothing but these operations."""
        inside = {action.bit for action in pending}
        known = (1 << (1 << self.line.bits)) - 1
        for bit, clear in self._clear.items():
            if bit not in inside:
                known &= clear
        return known

    def _leaps_from(self, state: Any, moment: Moment) -> list[Any]:
        """Return the states that an unknown operation may lead to by then."""
        count = bisect_left(self._since, moment.when)
        known = self._leaps.get((count, state))
        if known is None:
            made = dict.fromkeys(self.step(state, kind) for kind in self._lost[:count])
            known = [other for other in made if other is not IMPOSSIBLE and other != state]
            self._leaps[count, state] = known
        return known

    def _spread(self, sets: Sets, moment: Moment) -> None:
        """Add what pending and unknown operations lead to, until there are too many states."""
        step, clear = self.step, self._clear
        changed = True
        while changed and len(sets) <= _STATES_MAX:
            changed = False
            for action in (*moment.passive, *moment.active):
                bit, kind = action.bit, action.kind
                for state in list(sets):
                    masks = (sets[state] & clear[bit]) << bit
                    if masks and (made := step(state, kind)) is not IMPOSSIBLE:
                        changed |= _add(sets, made, masks)
            for state in list(sets) if self._lost else ():
                for made in self._leaps_from(state, moment):
                    changed |= _add(sets, made, sets[state])

    def _gather(self, sets: Sets, moment: Moment) -> None:
        """Add from where pending operations lead to these."""
        step, clear = self.step, self._clear
        changed = True
        while changed:
            changed = False
            for action in (*moment.passive, *moment.active):
                bit, kind = action.bit, action.kind
                for state in self.states:
                    made = step(state, kind)
                    if made in sets:
                        changed |= _add(sets, state, sets[made] >> bit & clear[bit])


def _depth(layers: Sequence[Sets], state: Any, done: int) -> int:
    """Return the number of the first layer with a configuration, their count when none has it."""
    for depth, sets in enumerate(layers):
        if sets.get(state, 0) >> done & 1:
            return depth
    return len(layers)


def have_enough(leaps: Sequence[Leap], lost: Mapping[Hashable, Sequence[int]], step: Step) -> bool:
    """Whether each leap can have an unknown operation of its own that was called by then."""
    kinds = {(was, made): [k for k in lost if step(was, k) == made] for _, was, made in leaps}
    taken: dict[tuple[Hashable, int], int] = {}
    for leap in range(len(leaps)):
        came: dict[tuple[Hashable, int], int] = {}
        todo = [leap]
        free = None
        while todo and free is None:
            mine = todo.pop()
            when, was, made = leaps[mine]
            for kind in kinds[was, made]:
                for place in reversed(lost[kind][: bisect_left(lost[kind], when)]):
                    one = (kind, place)
                    if one in came:
                        continue
                    came[one] = mine
                    if one not in taken:
                        free = one
                        break
                    todo.append(taken[one])
                if free is not None:
                    break
        if free is None:
            return False
        while free is not None:  # each gives up what it had for what it came to
            mine = came[free]
            had = next((one for one, who in taken.items() if who == mine), None)
            taken[free] = mine
            free = None if mine == leap else had
    return True


def _add(sets: Sets, state: Any, masks: int) -> bool:
    """Add sets to those of a state; return whether any is new."""
    before = sets.get(state, 0)
    if not masks & ~before:
        return False
    sets[state] = before | masks
    return True

"""The calls of one object in the order of their events, made as far as somebody looks.

A search asks what was pending at each return.  Most illegal histories are found out early, so what
comes after that point is never made.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, eq=False)
class Action:
    """One operation: what it is, when it was called, when it returned (None: nobody knows).

    `bit` stands for it in sets of operations while it is pending.
    """

    kind: Hashable
    passive: bool
    call: int
    ret: int | None
    row: int = -1
    bit: int = 0


@dataclass(slots=True, eq=False)
class Moment:
    """The return of one operation, and what was pending then, itself included."""

    action: Action
    number: int
    when: int
    active: list[Action]
    passive: list[Action]


class Calls(Protocol):
    """Calls by number: their times, and the operations that they are."""

    @property
    def call(self) -> Sequence[int]:
        """When each was called."""

    @property
    def ret(self) -> Sequence[int]:
        """When each returned."""

    def action(self, number: int) -> Action | None:
        """Return the operation, None when the call says and does nothing."""


class Timeline:
    """The moments of some calls; calls come before returns of the same time.

    `lost`: the positions of the calls of unknown outcome by kind; `bits`: how many operations were
    pending at once, at most.  All grow as the moments are made; `found` hears of a new lost kind.
    """

    def __init__(self, calls: Calls, found: Callable[[Hashable], None]) -> None:
        self.moments: list[Moment] = []
        self.actions: list[Action] = []
        self.lost: dict[Hashable, list[int]] = defaultdict(list)
        self.bits = 0
        self._walk = self._walking(calls, found)

    def reach(self, number: int) -> bool:
        """Whether there is a moment of that number."""
        while len(self.moments) <= number:
            if next(self._walk, None) is None:
                return False
        return True

    def __len__(self) -> int:
        for _ in self._walk:
            pass
        return len(self.moments)

    def _walking(self, calls: Calls, found: Callable[[Hashable], None]) -> Iterator[bool]:
        count, make, moments = len(calls.call), calls.action, self.moments
        times = [2 * time for time in calls.call] + [2 * time + 1 for time in calls.ret]
        begun: dict[int, Action] = {}
        free: list[int] = []
        active: list[Action] = []
        passive: list[Action] = []
        for position, event in enumerate(sorted(range(2 * count), key=times.__getitem__)):
            if event >= count:
                ended = begun.pop(event - count, None)
                if ended is None:
                    continue
                moments.append(Moment(ended, len(moments), position, active[:], passive[:]))
                (passive if ended.passive else active).remove(ended)
                free.append(ended.bit)
                yield True
                continue
            action = make(event)
            if action is None or (action.ret is None and action.passive):
                continue
            self.actions.append(action)
            if action.ret is None:
                if action.kind not in self.lost:
                    found(action.kind)
                self.lost[action.kind].append(position)
                continue
            if not free:
                free.append(1 << self.bits)
                self.bits += 1
            action.bit = free.pop()
            begun[event] = action
            _insert(passive if action.passive else active, action)


def _insert(pending: list[Action], action: Action) -> None:
    """Keep what is pending in the order of the returns."""
    ret, at = action.ret, len(pending)
    while at and pending[at - 1].ret > ret:  # type: ignore[operator] # all of these return
        at -= 1
    pending.insert(at, action)

"""The keys of a history in turns: which is searched next, for how long, and in which process.

A hard key must not keep an easy one from being judged, so all keys get a few states first, and
those that need more get more in the next turn.  What is found comes in the order of the keys,
whether they are searched one after the other or side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Protocol, Self

from harness.checking.search import Outcome
from harness.checking.sidebyside import Answer, Crew, cores
from harness.checking.timeline import Action

PAYS_S = 2.0
"""Seconds of work ahead from which processes of their own pay: each takes 0.4 s to start."""
_LOOK_EVERY_S = 0.1
_FIRST_STEPS = 20_000
_MORE_STEPS = 16
_NO_LIMIT = 1 << 62


class Keys(Protocol):
    """The keys of a history, by number."""

    @property
    def sizes(self) -> Sequence[int]:
        """How many calls each has."""

    @property
    def until(self) -> float:
        """When the time is over, in seconds of `clock`."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock."""

    def run(self, number: int, steps: int) -> Outcome:
        """Search one key, with so many states at most."""

    def job(self, count: int) -> Any | None:
        """Return what one of `count` processes needs to do the same, None if it cannot be sent."""


class Turns:
    """Used as a context, which leaves no process."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._took: dict[int, float] = {}
        self._spent = self._looked = 0.0
        self._searched = 0
        self._crew: Crew | None = None
        self._alone = len(keys.sizes) < 2 or cores() < 2
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def __iter__(self) -> Iterator[tuple[int, Outcome]]:
        """Yield each key with what is found of it, when that is known."""
        waiting = list(range(len(self._keys.sizes)))
        steps = _FIRST_STEPS if len(waiting) > 1 else _NO_LIMIT
        while waiting:
            later = []
            for number, found in self._turn(waiting, steps):
                if found.paused:
                    later.append(number)
                else:
                    yield number, found
            waiting, steps = later, steps * _MORE_STEPS

    def _turn(self, waiting: Sequence[int], steps: int) -> Iterator[tuple[int, Outcome]]:
        for place, number in enumerate(waiting):
            if self._crew is None and not self._alone and self._pays(waiting[place:]):
                self._start(len(waiting) - place)
            if self._crew is not None:
                yield from self._side_by_side(self._crew, waiting[place:], steps)
                return
            began = self._keys.clock()
            found = self._keys.run(number, steps)
            self._took[number] = self._keys.clock() - began
            self._spent += self._took[number]
            self._searched += self._keys.sizes[number]
            yield number, found

    def _pays(self, ahead: Sequence[int]) -> bool:
        """Whether these keys will take long: as long as the last time, or as keys of their size."""
        if self._spent < PAYS_S / 2 or len(ahead) < 2 or self._spent < self._looked:
            return False
        self._looked = self._spent + _LOOK_EVERY_S
        each_s = self._spent / max(1, self._searched)
        sizes = self._keys.sizes
        ahead_s = (self._took.get(number, each_s * sizes[number]) for number in ahead)
        return sum(ahead_s) > PAYS_S

    def _start(self, most: int) -> None:
        count = min(cores(), most)
        self._alone = True
        job = self._keys.job(count)
        if job is not None:
            left_s = self._keys.until - self._keys.clock()
            with suppress(OSError):  # where none can be started, there is still this one
                self._crew = self._exit.enter_context(Crew(job, count, left_s))

    def _side_by_side(
        self, crew: Crew, numbers: Sequence[int], steps: int
    ) -> Iterator[tuple[int, Outcome]]:
        for number, answer in crew.answers(numbers, steps):
            late = self._keys.clock() > self._keys.until
            undecided = answer.legal is None and not answer.paused and not answer.ended
            if answer.failed or (undecided and not late):  # here it has all of the memory
                yield number, self._keys.run(number, steps)
            else:
                yield number, outcome_of(answer)


def answer_of(found: Outcome) -> Answer:
    """Return an outcome as numbers."""
    action = found.action
    row, ret = (-1, None) if action is None else (action.row, action.ret)
    return Answer(found.legal, row, ret, found.at, found.steps, found.paused)


def outcome_of(answer: Answer) -> Outcome:
    """Return the outcome that an answer tells; its operation is known by row and return only."""
    action = None
    if answer.row >= 0:
        action = Action(None, passive=False, call=0, ret=answer.ret, row=answer.row)
    return Outcome(answer.legal, action, answer.at, answer.steps, answer.paused, ended=answer.ended)

"""The judgement of a history: one model, all keys, with evidence.

Keys are independent (Herlihy and Wing's locality): one sort of the fast check does them all, and
the search takes those keys that need it one by one.  What cannot be decided within the budget is
unknown, never a pass.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from harness.checking.columns import Columns
from harness.checking.finding import Finding, Named, RepeatedValuesError
from harness.checking.models import MODELS, Model, Options
from harness.checking.naming import name_search
from harness.checking.requests import Requests
from harness.checking.search import Budget, Outcome, Search
from harness.checking.short import judge_short
from harness.checking.sidebyside import Answer
from harness.checking.turns import Turns, answer_of
from harness.checking.values import Ints, frozen

Clock = Callable[[], float]
_NO_LIMIT = 1 << 62
_SHORT = 1_000
_SAMPLE = 100


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether something is wrong, and how to name it; `limits`: for which keys the budget ended.

    `searched` counts keys that the search took; `earliest_ns` is the time of the return after which
    no order exists, when the search found it.
    """

    name: Callable[[], Finding] | None = None
    limits: tuple[str, ...] = ()
    searched: int = 0
    earliest_ns: int | None = None

    @property
    def illegal(self) -> bool:
        """Whether no order explains the history."""
        return self.name is not None

    @property
    def finding(self) -> Finding | None:
        """What is wrong, None when nothing is."""
        return None if self.name is None else self.name()


@dataclass(frozen=True, slots=True)
class Judge:
    """A model with its options and a budget; `until` is a time of `clock` in seconds."""

    model: Model
    options: Options
    until: float
    memory_bytes: int = 2 << 30
    clock: Clock = time.monotonic

    @property
    def late(self) -> bool:
        """Whether its time is over."""
        return self.clock() > self.until

    def judge(self, columns: Columns) -> Judgement:
        """Judge a history of any number of keys."""
        fast = self.model.fast
        if fast is None or (self.model.is_register and _has_few_values(columns)):
            return self._search_all(columns, np.arange(len(columns)))
        try:
            return _found(fast(columns, self.options))
        except RepeatedValuesError as error:
            present = np.unique(columns.key)
            repeated = np.isin(columns.key, present[sorted(error.keys)])
        rest = columns.take(~repeated)
        judged = self.judge(rest) if len(rest) else Judgement()
        if judged.finding is not None:
            back = np.flatnonzero(~repeated)
            rows = tuple(int(back[row]) for row in judged.finding.rows)
            return _found(replace(judged.finding, rows=rows))
        more = self._search_all(columns, np.flatnonzero(repeated))
        return Judgement(
            more.name,
            judged.limits + more.limits,
            judged.searched + more.searched,
            more.earliest_ns,
        )

    def _search_all(self, columns: Columns, rows: Ints) -> Judgement:
        """Search key by key; the first finding ends it."""
        groups = _by_key(columns, rows)
        if len(groups) == 1:
            return replace(self.search(columns, groups[0]), searched=1)
        limits: list[str] = []
        with Turns(_Groups(self, columns, groups)) as turns:
            for number, found in turns:
                judged = self._judgement(columns, groups[number], found)
                limits += judged.limits
                if judged.illegal:
                    return replace(judged, limits=tuple(limits), searched=len(groups))
        return Judgement(None, tuple(limits), len(groups))

    def search(self, columns: Columns, rows: Ints) -> Judgement:
        """Search for an order of some rows of one key."""
        if self.model.search is None:
            return Judgement()
        return self._judgement(columns, rows, self.run(columns, rows, _NO_LIMIT))

    def run(self, columns: Columns, rows: Ints, steps: int) -> Outcome:
        """Search some rows of one key, with so many states at most."""
        assert self.model.search is not None
        if self.model.is_register:
            initial, tells = self.options.initial, self.options.cas_tells
            found = judge_short(columns, rows, initial, cas_tells=tells, late=lambda: self.late)
            if found is not None:
                return found
        model = self.model.search(self.options)
        calls = Requests(columns, model, rows)
        start = model.start(frozen(self.options.initial))
        budget = Budget(self.until, self.memory_bytes, self.clock, steps)
        return Search(model, calls, start).run(budget)

    def _judgement(self, columns: Columns, rows: Ints, found: Outcome) -> Judgement:
        if found.legal:
            return Judgement()
        if found.legal is None:
            name = columns.keys.names[columns.key[rows[0]]]
            gave_up = f"gave up after {found.steps} states at return {found.at}"
            return Judgement(None, (f"key {name!r}: {found.ended or gave_up}",))
        assert found.action is not None
        blamed, initial = found.action.row, self.options.initial
        return Judgement(
            lambda: name_search(columns, rows, blamed, initial), (), 1, found.action.ret
        )


@dataclass(frozen=True, slots=True)
class _Groups:
    """The rows of each key, as something that takes turns."""

    judge: Judge
    columns: Columns
    groups: list[Ints]

    @property
    def sizes(self) -> list[int]:
        return [len(group) for group in self.groups]

    @property
    def until(self) -> float:
        return self.judge.until

    @property
    def clock(self) -> Clock:
        return self.judge.clock

    def run(self, number: int, steps: int) -> Outcome:
        return self.judge.run(self.columns, self.groups[number], steps)

    def job(self, count: int) -> "_Job | None":
        judge = self.judge
        name = next((name for name, model in MODELS.items() if model is judge.model), None)
        if name is None:  # a model of one's own, which another process does not know
            return None
        seconds, part = judge.until - judge.clock(), judge.memory_bytes // count
        until = time.monotonic() + seconds
        return _Job(name, judge.options, until, part, self.columns, self.groups)


@dataclass(frozen=True, slots=True)
class _Job:
    """What another process needs to search a key by its number."""

    model: str
    options: Options
    until: float
    memory_bytes: int
    columns: Columns
    groups: list[Ints]

    def __call__(self, number: int, steps: int) -> Answer:
        judge = Judge(MODELS[self.model], self.options, self.until, self.memory_bytes)
        return answer_of(judge.run(self.columns, self.groups[number], steps))


def _by_key(columns: Columns, rows: Ints) -> list[Ints]:
    key = columns.key[rows]
    if len(columns.keys.names) == 1 or not len(key):
        return [rows] if len(key) else []
    order = rows[np.argsort(key, kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(columns.key[order])) + 1)


def _found(found: Named | None) -> Judgement:
    if isinstance(found, Finding):
        return Judgement(lambda: found)
    return Judgement(found)


def _has_few_values(columns: Columns) -> bool:
    """Whether a short history writes the same values again and again, so that it needs the search.

    It is only faster to see that here than to let the fast check find out.
    """
    if len(columns) > _SHORT:
        return False
    written = [number for number in columns.value[:_SAMPLE].tolist() if number >= 0]
    return 2 * len(set(written)) < len(written)

"""The judgement of a history: one model, all keys, with evidence.

Keys are independent (Herlihy and Wing's locality): one sort of the fast check does them all, and
the search takes those keys that need it one by one.  What cannot be decided within the budget is
unknown, never a pass.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from harness.checking.columns import Columns
from harness.checking.finding import Finding, RepeatedValuesError
from harness.checking.models import Model, Options
from harness.checking.naming import name_search
from harness.checking.requests import Requests
from harness.checking.search import Budget, Outcome, Search
from harness.checking.short import ROWS_MAX, judge_short
from harness.checking.values import Ints, frozen

Clock = Callable[[], float]
_FIRST_STEPS = 20_000
_MORE_STEPS = 16
_NO_LIMIT = 1 << 62
_SHORT = 1_000


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

    def within(self, seconds: float) -> Self:
        """Return the judge with so much time from now on."""
        return replace(self, until=self.clock() + seconds)

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
        """Search key by key; the first finding ends it.

        A hard key must not keep an easy one from being judged, so all keys get a few states first,
        and those that need more get more in the next round.
        """
        groups = _by_key(columns, rows)
        limits: list[str] = []
        waiting, steps = groups, _FIRST_STEPS if len(groups) > 1 else _NO_LIMIT
        while waiting:
            later = []
            for group in waiting:
                found = self._run(columns, group, steps)
                if found.paused:
                    later.append(group)
                    continue
                judged = self._judgement(columns, group, found)
                limits += judged.limits
                if judged.illegal:
                    searched = len(groups)
                    return Judgement(judged.name, tuple(limits), searched, judged.earliest_ns)
            waiting, steps = later, steps * _MORE_STEPS
        return Judgement(None, tuple(limits), len(groups))

    def search(self, columns: Columns, rows: Ints) -> Judgement:
        """Search for an order of some rows of one key."""
        if self.model.search is None:
            return Judgement()
        return self._judgement(columns, rows, self._run(columns, rows, _NO_LIMIT))

    def _run(self, columns: Columns, rows: Ints, steps: int) -> Outcome:
        assert self.model.search is not None
        if self.model.is_register and len(rows) <= ROWS_MAX:
            tells = self.options.cas_tells
            found = judge_short(columns, rows, self.options.initial, cas_tells=tells)
            if found is not None:
                return found
        model = self.model.search(self.options)
        calls = Requests(columns, model, rows)
        start = model.start(frozen(self.options.initial))
        budget = Budget(self.until, self.memory_bytes, self.clock, steps)
        return Search(model, calls, start).run(budget)

    def _judgement(self, columns: Columns, rows: Ints, found: Outcome) -> Judgement:
        if found.legal or found.action is None:
            return Judgement()
        if found.legal is None:
            name = columns.keys.names[columns.key[rows[0]]]
            text = f"key {name!r}: gave up after {found.steps} states at return {found.at}"
            return Judgement(None, (text,))
        blamed, initial = found.action.row, self.options.initial
        return Judgement(
            lambda: name_search(columns, rows, blamed, initial), (), 1, found.action.ret
        )


def _by_key(columns: Columns, rows: Ints) -> list[Ints]:
    key = columns.key[rows]
    if len(columns.keys.names) == 1 or not len(key):
        return [rows] if len(key) else []
    order = rows[np.argsort(key, kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(columns.key[order])) + 1)


def _found(finding: Finding | None) -> Judgement:
    return Judgement() if finding is None else Judgement(lambda: finding)


def _has_few_values(columns: Columns) -> bool:
    """Whether a short history writes the same values again and again, so that it needs the search.

    It is only faster to see that here than to let the fast check find out.
    """
    if len(columns) > _SHORT:
        return False
    written = [number for number in columns.value.tolist() if number >= 0]
    return 2 * len(set(written)) < len(written)

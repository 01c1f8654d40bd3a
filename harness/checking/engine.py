"""The judgement of a history: one model, all keys, with evidence.

Keys are independent (Herlihy and Wing's locality): one sort of the fast check does them all, and
the search takes those keys that need it one by one.  What cannot be decided within the budget is
unknown, never a pass.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.checking.columns import Columns
from harness.checking.finding import Finding, RepeatedValuesError
from harness.checking.models import Model, Options
from harness.checking.naming import name_search
from harness.checking.requests import actions_of
from harness.checking.search import Budget, Outcome, Search
from harness.checking.values import Ints, frozen

Clock = Callable[[], float]
_FIRST_STEPS = 20_000
_MORE_STEPS = 16
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is wrong, if anything; `limits` say for which keys the budget was exhausted.

    `searched` counts keys that the search took; `earliest_ns` is the time of the return after which
    no order exists, when the search found it.
    """

    finding: Finding | None
    limits: tuple[str, ...] = ()
    searched: int = 0
    earliest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Judge:
    """A model with its options and a budget; `until` is a time of `clock` in seconds."""

    model: Model
    options: Options
    until: float
    memory_bytes: int = 2 << 30
    clock: Clock = time.monotonic

    def judge(self, columns: Columns) -> Judgement:
        """Judge a history of any number of keys."""
        if self.model.fast is None:
            return self._search_all(columns, np.arange(len(columns)))
        try:
            return Judgement(self.model.fast(columns, self.options))
        except RepeatedValuesError as error:
            present = np.unique(columns.key)
            repeated = np.isin(columns.key, present[sorted(error.keys)])
        rest = columns.take(~repeated)
        judged = self.judge(rest) if len(rest) else Judgement(None)
        if judged.finding is not None:
            back = np.flatnonzero(~repeated)
            rows = tuple(int(back[row]) for row in judged.finding.rows)
            found = judged.finding
            return Judgement(Finding(found.name, rows, found.template, found.certain))
        more = self._search_all(columns, np.flatnonzero(repeated))
        return Judgement(
            more.finding,
            judged.limits + more.limits,
            judged.searched + more.searched,
            more.earliest_ns,
        )

    def _search_all(self, columns: Columns, rows: Ints) -> Judgement:
        """Search key by key; the first finding ends it.

        A hard key must not keep an easy one from being judged, so all keys get a few states first,
        and those that need more get more in the next round.
        """
        order = rows[np.argsort(columns.key[rows], kind="stable")]
        cuts = np.flatnonzero(np.diff(columns.key[order])) + 1
        groups = [group for group in np.split(order, cuts) if len(group)]
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
                if judged.finding is not None:
                    searched = len(groups)
                    return Judgement(judged.finding, tuple(limits), searched, judged.earliest_ns)
            waiting, steps = later, steps * _MORE_STEPS
        return Judgement(None, tuple(limits), len(groups))

    def search(self, columns: Columns, rows: Ints) -> Judgement:
        """Search for an order of some rows of one key."""
        if self.model.search is None:
            return Judgement(None)
        return self._judgement(columns, rows, self._run(columns, rows, _NO_LIMIT))

    def _run(self, columns: Columns, rows: Ints, steps: int) -> Outcome:
        assert self.model.search is not None
        model = self.model.search(self.options)
        actions = actions_of(columns, model, rows)
        start = model.start(frozen(self.options.initial))
        budget = Budget(self.until, self.memory_bytes, self.clock, steps)
        return Search(model, actions, start).run(budget)

    def _judgement(self, columns: Columns, rows: Ints, found: Outcome) -> Judgement:
        if found.legal or found.action is None:
            return Judgement(None)
        if found.legal is None:
            name = columns.keys.names[columns.key[rows[0]]]
            text = f"key {name!r}: gave up after {found.steps} states at return {found.at}"
            return Judgement(None, (text,))
        finding = name_search(columns, rows, found.action.row, self.options.initial)
        return Judgement(finding, (), 1, found.action.ret)

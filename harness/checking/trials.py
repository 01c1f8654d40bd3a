"""Judgements whose number is bounded by what they do, not by how long they take.

What a clock ends depends on what else the machine does, and the same history would get another
report each time.  So each judgement has a price in about microseconds of a common machine, paid by
its rows and by the states of its search.  A clock only guards against what the prices do not know.
"""

from dataclasses import replace
from math import inf

from harness.checking.columns import Columns
from harness.checking.engine import Judge, Judgement
from harness.checking.models import Model, Options
from harness.checking.values import Ints

_JUDGEMENT, _ROW, _SEARCHED_ROW = 300.0, 0.3, 10.0
_LOOK = 1000.0
"""What a search does between two looks at its clock."""


class Trials:
    """A judge that may do `most` so much; `guard_s` is what it may take at the very most."""

    def __init__(self, judge: Judge, most: float, guard_s: float) -> None:
        self._clock = judge.clock
        self._until = judge.clock() + guard_s
        self._most = most
        self._done = 0.0
        self._judge = replace(judge, until=most, clock=self._look)

    @property
    def model(self) -> Model:
        """The model that judges."""
        return self._judge.model

    @property
    def options(self) -> Options:
        """Its options."""
        return self._judge.options

    @property
    def late(self) -> bool:
        """Whether nothing is left to do."""
        return self._done > self._most or self._clock() > self._until

    def judge(self, columns: Columns) -> Judgement:
        """Judge a history."""
        searched = self.model.fast is None
        self._done += _JUDGEMENT + (_SEARCHED_ROW if searched else _ROW) * len(columns)
        return self._judge.judge(columns)

    def search(self, columns: Columns, rows: Ints) -> Judgement:
        """Search for an order of some rows of one key."""
        self._done += _JUDGEMENT + _SEARCHED_ROW * len(rows)
        return self._judge.search(columns, rows)

    def _look(self) -> float:
        self._done += _LOOK
        return inf if self._clock() > self._until else self._done

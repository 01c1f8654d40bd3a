"""From columns to the operations of a search."""

from collections.abc import Hashable
from typing import Any, Literal

from harness.checking.columns import NEVER, NO_TOKEN, Columns
from harness.checking.model import Request, SearchModel
from harness.checking.timeline import Action
from harness.checking.values import NOT_TOLD, UNSAID, Ints, frozen

_OUTCOMES: tuple[Literal["ok", "fail", "info"], ...] = ("ok", "fail", "info")
_FIELDS = ("kind", "outcome", "value", "expected", "result", "error", "token", "result_token")
_Fields = tuple[int, ...]


class Requests:
    """The calls of some rows of one object, as a timeline wants them.

    Calls that ask and answer the same are the same kind of operation, which the model is asked for
    once.
    """

    def __init__(self, columns: Columns, model: SearchModel, rows: Ints) -> None:
        self.call: list[int] = columns.call[rows].tolist()
        self.ret: list[int] = columns.ret[rows].tolist()
        self._columns, self._model = columns, model
        self._rows: list[int] = rows.tolist()
        names = (*_FIELDS, "process") if model.asks_who else _FIELDS
        self._fields = list(zip(*(getattr(columns, n)[rows].tolist() for n in names), strict=True))
        self._known: dict[_Fields, tuple[Hashable, bool]] = {}

    def action(self, number: int) -> Action | None:
        """Return the operation, None when the call says and does nothing."""
        fields = self._fields[number]
        known = self._known.get(fields)
        if known is None:
            known = self._known[fields] = self._kind(fields, self._rows[number])
        kind, passive = known
        if kind is None:
            return None
        ret = self.ret[number]
        done = None if ret == NEVER else ret
        return Action(kind, passive, self.call[number], done, self._rows[number])

    def actions(self) -> list[Action]:
        """Return all operations in the order of the rows."""
        made = (self.action(number) for number in range(len(self._rows)))
        return [action for action in made if action is not None]

    def _kind(self, fields: _Fields, row: int) -> tuple[Hashable, bool]:
        model = self._model
        if self._columns.kinds.names[fields[0]] not in model.functions:
            return None, False
        kind = model.kind(_request(self._columns, fields, int(self._columns.process[row])))
        return kind, kind is not None and model.passive(kind)


def request_of(columns: Columns, row: int) -> Request:
    """Return one call as a model sees it."""
    fields = tuple(int(getattr(columns, name)[row]) for name in _FIELDS)
    return _request(columns, fields, int(columns.process[row]))


def _request(columns: Columns, fields: _Fields, process: int) -> Request:
    kind, outcome, value, expected, result, error, token, told = fields[:8]
    return Request(
        f=columns.kinds.names[kind],
        value=_value(columns, value, None),
        expected=_value(columns, expected, None),
        result=_value(columns, result, UNSAID),
        token=token if token > NO_TOKEN else None,
        told=told if told > NO_TOKEN else None,
        process=columns.processes.names[process],
        outcome=_OUTCOMES[outcome],
        error=columns.errors.names[error],
    )


def _value(columns: Columns, number: int, untold: Any) -> Any:
    return untold if number == NOT_TOLD else frozen(columns.values[number])

"""From columns to the operations of a search."""

from collections.abc import Hashable
from typing import Any, Literal

from harness.checking.columns import NEVER, NO_TOKEN, Columns
from harness.checking.model import Request, SearchModel
from harness.checking.search import Action
from harness.checking.values import NOT_TOLD, UNSAID, Ints, frozen

_OUTCOMES: tuple[Literal["ok", "fail", "info"], ...] = ("ok", "fail", "info")


def request_of(columns: Columns, row: int) -> Request:
    """Return one call as a model sees it."""
    token, told = int(columns.token[row]), int(columns.result_token[row])
    return Request(
        f=columns.kinds.names[columns.kind[row]],
        value=_value(columns, int(columns.value[row]), None),
        expected=_value(columns, int(columns.expected[row]), None),
        result=_value(columns, int(columns.result[row]), UNSAID),
        token=token if token > NO_TOKEN else None,
        told=told if told > NO_TOKEN else None,
        process=columns.processes.names[columns.process[row]],
        outcome=_OUTCOMES[columns.outcome[row]],
        error=columns.errors.names[columns.error[row]],
    )


def _value(columns: Columns, number: int, untold: Any) -> Any:
    return untold if number == NOT_TOLD else frozen(columns.values[number])


def actions_of(columns: Columns, model: SearchModel, rows: Ints) -> list[Action]:
    """Return the operations of some rows, without those that say and do nothing."""
    actions = []
    for row in rows.tolist():
        request = request_of(columns, row)
        if request.f not in model.functions:
            continue
        kind: Hashable | None = model.kind(request)
        if kind is None:
            continue
        ret = int(columns.ret[row])
        done = None if ret == NEVER else ret
        actions.append(Action(kind, model.passive(kind), int(columns.call[row]), done, row))
    return actions

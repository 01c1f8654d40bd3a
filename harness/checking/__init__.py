"""Exact checks of histories: registers, fenced registers, locks, sets, queues, decisions.

`check` judges a history, `check_columns` the same history as integer columns; `MODELS` says what
there is.  Importing this package imports numpy, so the command line does it when it is needed.
"""

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from harness.checking.columns import Columns, from_history
from harness.checking.engine import Judge, Judgement
from harness.checking.evidence import support
from harness.checking.finding import sentence
from harness.checking.models import MODELS, Model, Options
from harness.errors import MalformedHistoryError, UsageError
from harness.history import History
from harness.mistakes import unknown as unknown_name
from harness.verdict import Anomaly, Property, Reason, Unknown, Verdict, decide

__all__ = ["MODELS", "CasFail", "Columns", "Model", "check", "check_columns"]

CasFail = Literal["differed", "did-not-happen"]


def check(
    history: History,
    model: str,
    *,
    initial: object = None,
    budget_s: float = 60.0,
    memory_bytes: int = 2 << 30,
    cas_fail: CasFail = "differed",
) -> Verdict:
    """Judge a history by a model.

    `initial` is the value of every key before the first operation.  `cas_fail` says what a failed
    compare-and-set means: that the value differed, or only that it did not happen.  The budget
    bounds the search; what it does not decide is `unknown: checker-limit`.  What goes with a
    finding gets a second or two more, and is coarse where that was not enough.  A history that
    breaks the rules is `unknown: malformed`.  Raises UsageError for a model that does not exist.
    """
    spec = _find(model)
    try:
        columns = from_history(history)
    except MalformedHistoryError as error:
        return _undecided(Reason.MALFORMED, str(error))
    return check_columns(
        columns,
        spec,
        initial=initial,
        budget_s=budget_s,
        memory_bytes=memory_bytes,
        cas_fail=cas_fail,
    )


def check_columns(
    columns: Columns,
    model: str | Model,
    *,
    initial: object = None,
    budget_s: float = 60.0,
    memory_bytes: int = 2 << 30,
    cas_fail: CasFail = "differed",
    clock: Callable[[], float] = time.monotonic,
) -> Verdict:
    """Judge columns as `check` does; `model` may be a model of one's own."""
    spec = _find(model) if isinstance(model, str) else model
    used = columns.kinds_as(dict.fromkeys(spec.ops, 1), 0).astype(bool)
    if not used.any():
        found = ", ".join(sorted(str(f) for f in columns.kinds.names)) or "nothing"
        text = f"the model knows {', '.join(spec.ops)}; the history has {found}"
        return _undecided(Reason.MALFORMED, text)
    if not (columns.outcome[used] == 0).any():
        return _undecided(Reason.VACUOUS, f"none of {int(used.sum())} operations succeeded")
    options = Options(initial, cas_tells=cas_fail == "differed")
    judge = Judge(spec, options, clock() + budget_s, memory_bytes, clock)
    try:
        columns = spec.prepare(columns)
        judged = judge.judge(columns)
    except MalformedHistoryError as error:
        return _undecided(Reason.MALFORMED, str(error))
    anomalies = _anomalies(judge, columns, judged)
    unknown = tuple(Unknown(reason=Reason.CHECKER_LIMIT, text=text) for text in judged.limits)
    outcome = decide(anomalies, unknown)
    return Verdict(
        verdict=outcome,
        headline=_headline(outcome, anomalies, unknown, int(used.sum())),
        anomalies=anomalies,
        unknown=unknown,
        properties=(
            Property(
                name="order",
                verdict=outcome,
                checked=int(used.sum()),
                broken=len(anomalies),
                note=spec.doc,
            ),
        ),
        stats={
            "operations": int(used.sum()),
            "keys": len(np.unique(columns.key)),
            "keys_searched": judged.searched,
        },
        notes=_notes(int((~used).sum()), anomalies),
    )


def _notes(ignored: int, anomalies: tuple[Anomaly, ...]) -> tuple[str, ...]:
    left_out = f"{ignored} operations are not of this model and were left out"
    coarse = "the evidence is coarse: to make it smaller would have taken too long"
    late = any(anomaly.details["coarse"] for anomaly in anomalies)
    return (left_out,) * (ignored > 0) + (coarse,) * late


def _find(name: str) -> Model:
    if name not in MODELS:
        raise UsageError(unknown_name("model", name, MODELS))
    return MODELS[name]


def _undecided(reason: Reason, text: str) -> Verdict:
    unknown = (Unknown(reason=reason, text=text),)
    return Verdict(verdict="unknown", headline=f"{reason}: {text}", unknown=unknown)


def _anomalies(judge: Judge, columns: Columns, judged: Judgement) -> tuple[Anomaly, ...]:
    finding = judged.finding
    if finding is None:
        return ()
    found = support(judge, columns, finding, judged.earliest_ns)
    rows = np.array(found.finding.rows, np.int64)
    details: dict[str, Any] = {
        "robust": found.robust,
        "earliest_ns": found.earliest_ns,
        "coarse": found.coarse,
        "completions": [int(i) for i in columns.ret_index[rows]],
    }
    return (
        Anomaly(
            name=found.finding.name,
            sentence=sentence(columns, found.finding),
            ops=tuple(int(i) for i in columns.index[rows]),
            time_ns=found.earliest_ns,
            key=columns.keys.names[columns.key[rows[-1]]],
            certain=found.finding.certain,
            details=details,
        ),
    )


def _headline(
    outcome: str, anomalies: tuple[Anomaly, ...], unknown: tuple[Unknown, ...], count: int
) -> str:
    if anomalies:
        return f"{anomalies[0].name}: {anomalies[0].sentence}"
    if unknown:
        return f"{unknown[0].reason}: {unknown[0].text}"
    return f"{outcome}: some order explains all {count} operations"

"""A history of any format judged by a model, without the run that it came from.

The verdict says what it rests on: the format, the model and its initial value, what a failed
compare-and-set and a read of nil were taken for, and what was left out.  Findings name the lines of
the file.
"""

import shlex
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.errors import MalformedHistoryError, UsageError
from harness.importing import Format, Imported, load
from harness.importing.porcupine import KV, KV_INITIAL
from harness.importing.readings import CasFail, NilRead
from harness.judge import first_finding_s
from harness.results import Results
from harness.text import shorten
from harness.verdict import Reason, Unknown, Verdict

if TYPE_CHECKING:
    from harness.checking import Columns

# What a lock does leaves a register alone, and the other way round: a run has both.
_LOCK = frozenset({"acquire", "keep", "renew", "release", "check"})
_STORE = frozenset({"read", "write"})
# The model for the operations that occur, the first that knows them all.
_GUESSES = (
    ("register", frozenset({"read", "write"})),
    ("cas", frozenset({"read", "write", "cas"})),
    ("kv", frozenset({"get", "put", "append"})),
    ("mutex", frozenset({"acquire", "release"})),
)
FROM_FORMAT: Any = object()
"""The initial value that the format has, when nobody names one."""
_TOLD = {
    "differed": "proof that the value differed",
    "did-not-happen": "an operation that did not happen",
}


@dataclass(frozen=True)
class Asked:
    """What the user said about a history; None: what its format says.

    `names` maps the file's names of operations to ours, `budget_s` bounds a search in seconds.
    """

    format: Format | None = None
    model: str | None = None
    initial: Any = FROM_FORMAT
    cas_fail: CasFail | None = None
    nil_read: NilRead | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    budget_s: float = 60.0


def judge_file(path: Path, asked: Asked) -> Results:
    """Judge a history file by a model.  Raises OSError, UsageError."""
    end_ns = 0
    try:
        columns, remark = _recorded(path, asked)
        if columns is not None:
            end_ns = columns.end_ns
            verdict = _judge_columns(columns, asked, remark)
        else:
            loaded = load(path, asked.format, asked.names)
            end_ns = loaded.history.end_ns
            verdict = judge(loaded, asked)
    except MalformedHistoryError as error:
        verdict = _unjudged(Reason.MALFORMED, f"{path.name}, {error}")
    return Results(
        run=path.name,
        command=command(path, asked),
        began="",
        duration_s=round(end_ns / 1e9, 3),
        verdict=verdict,
        first_finding_s=first_finding_s(verdict.anomalies),
    )


def _recorded(path: Path, asked: Asked) -> tuple["Columns | None", str | None]:
    """Return the columns of a record of ours that is read as it stands, and a remark on them."""
    from harness.checking.lines import read_recorded

    as_it_stands = (
        asked.format in (None, "jsonl")
        and not asked.names
        and asked.cas_fail in (None, "did-not-happen")
        and asked.nil_read in (None, "value")
    )
    return read_recorded(path) if as_it_stands else (None, None)


def command(path: Path, asked: Asked) -> str:
    """Return the command line that judges the history so."""
    words = ["winkle", "check", str(path)]
    for flag in ("model", "format", "cas_fail", "nil_read"):
        if (value := getattr(asked, flag)) is not None:
            words += [f"--{flag.replace('_', '-')}", value]
    if asked.initial is not FROM_FORMAT:
        words += ["--initial", msgspec.json.encode(asked.initial).decode()]
    for theirs, ours in asked.names.items():
        words += [f"--{ours}", theirs]
    return shlex.join([*words, "--budget", f"{asked.budget_s:g}s"])


def judge(loaded: Imported, asked: Asked) -> Verdict:
    """Judge a history that was read.  Raises UsageError, MalformedHistoryError of the file."""
    from harness.checking.columns import from_history

    if not loaded.history.ops:
        return _unjudged(Reason.VACUOUS, "there is no operation in it")
    model = _model(loaded.names, asked)
    _check_shapes(loaded)
    initial = loaded.initial if asked.initial is FROM_FORMAT else asked.initial
    cas_fail = asked.cas_fail or loaded.cas_fail
    nil_read = asked.nil_read or loaded.nil_read(initial)
    silent = loaded.read_as(cas_fail, nil_read)
    columns = from_history(loaded.history)
    notes = _notes(loaded.format, model, initial, {**loaded.skipped, **silent})
    if loaded.history.cut:
        notes.append("the file ends in the middle of a line: judged up to there")
    notes += _readings(columns, cas_fail, nil_read, silent)
    _refuse_unfit(columns, model, loaded.lines)
    verdict = _checked(columns, model, initial, cas_fail, asked)
    if asked.initial is FROM_FORMAT and loaded.format != "porcupine":
        verdict = _undeclared(verdict, columns, model, cas_fail, asked)
    return _told(verdict, loaded.lines, notes)


def _judge_columns(columns: "Columns", asked: Asked, remark: str | None) -> Verdict:
    """Judge a record of ours, of which each op is a line."""
    names = frozenset(columns.kinds.names)
    model = _model(names, asked)
    usual = KV_INITIAL if names <= KV else None
    initial = usual if asked.initial is FROM_FORMAT else asked.initial
    lines = range(1, columns.events + 1)
    _refuse_unfit(columns, model, lines)
    verdict = _checked(columns, model, initial, "did-not-happen", asked)
    if asked.initial is FROM_FORMAT:
        verdict = _undeclared(verdict, columns, model, "did-not-happen", asked)
    notes = _notes("jsonl", model, initial, {}) + ([remark] if remark else [])
    notes += _readings(columns, "did-not-happen", "value", {})
    return _told(verdict, lines, notes)


def _model(names: frozenset[str], asked: Asked) -> str:
    """Return the model to judge by.  Raises UsageError."""
    from harness import checking

    model = asked.model or _guess(names)
    if model not in checking.MODELS:
        known = ", ".join(sorted(checking.MODELS))
        raise UsageError(f"--model: found {model!r}; allowed: {known}")
    _refuse_unknown(names, model, frozenset(checking.MODELS[model].ops))
    return model


def _checked(
    columns: "Columns", model: str, initial: Any, cas_fail: CasFail, asked: Asked
) -> Verdict:
    from harness import checking

    try:
        return checking.check_columns(
            columns, model, initial=initial, budget_s=asked.budget_s, cas_fail=cas_fail
        )
    except Exception:  # noqa: BLE001 - whatever a checker raises is a reason not to judge
        last = traceback.format_exc().strip().splitlines()
        text = "the checker crashed: " + " | ".join(last[-3:])
        return _unjudged(Reason.HARNESS_ERROR, text)


def _undeclared(
    verdict: Verdict, columns: "Columns", model: str, cas_fail: CasFail, asked: Asked
) -> Verdict:
    """Return unknown where a value from nowhere may be the initial one, which nobody told."""
    if [anomaly.name for anomaly in verdict.anomalies] not in (["phantom-read"], ["lost-update"]):
        return verdict
    row = int((columns.index == verdict.anomalies[0].ops[-1]).argmax())
    number = max(int(columns.expected[row]), int(columns.result[row]))
    if number <= 0:
        return verdict
    value = columns.values[number]
    if _checked(columns, model, value, cas_fail, asked).verdict != "pass":
        return verdict
    text = f"say with --initial what it was; if not {value!r}, {verdict.anomalies[0].sentence}"
    return _unjudged(Reason.MALFORMED, f"the initial value is not declared: {text}")


def _guess(names: frozenset[str]) -> str:
    for model, functions in _GUESSES:
        if names <= functions:
            return model
    found = ", ".join(sorted(names))
    raise UsageError(
        f"--model: needed, since no model is the usual one for the operations {found}"
        " (names are mapped with --acquire, --read and so on)"
    )


def _refuse_unknown(names: frozenset[str], model: str, functions: frozenset[str]) -> None:
    """Refuse a history with operations that the model would silently leave out."""
    beside = _STORE if functions & _LOCK else _LOCK
    unknown = names - functions - beside
    if unknown:
        raise UsageError(
            f"--model: {model} knows {', '.join(sorted(functions))}, and the history has"
            f" {', '.join(sorted(unknown))}; map names with --acquire, --read and so on,"
            " or name another model"
        )


def _check_shapes(loaded: Imported) -> None:
    """Refuse a compare-and-set without its two values, by its line."""
    for i, op in enumerate(loaded.history.ops):
        pair = op.value
        if (
            op.f == "cas"
            and op.type == "invoke"
            and not (isinstance(pair, list) and len(pair) == 2)
        ):
            raise MalformedHistoryError(_line(loaded.lines, i), "a cas needs [old, new]")


def _refuse_unfit(columns: "Columns", model: str, lines: Sequence[int]) -> None:
    """Refuse what the model cannot judge, by its line.  Raises MalformedHistoryError."""
    from harness import checking

    try:
        checking.MODELS[model].prepare(columns)
    except MalformedHistoryError as error:
        raise MalformedHistoryError(_line(lines, error.line - 1), error.reason) from None


def _line(lines: Sequence[int], index: int) -> int:
    return lines[index] if 0 <= index < len(lines) else index + 1


def _notes(read_as: Format, model: str, initial: Any, skipped: Mapping[str, int]) -> list[str]:
    value = msgspec.json.encode(initial).decode()
    notes = [f"read as {read_as}, judged as {model} with initial value {value}"]
    return notes + [f"left out: {count} {what}" for what, count in skipped.items()]


def _readings(
    columns: "Columns", cas_fail: CasFail, nil_read: NilRead, silent: Mapping[str, int]
) -> list[str]:
    """Say the readings, where the history has something that they are about."""
    from harness.checking.columns import FAIL, OK
    from harness.checking.values import NIL

    notes = []
    failed = (columns.kinds_as({"cas": 1}, 0) == 1) & (columns.outcome == FAIL)
    if failed.any() or silent:
        notes.append(f"a failed cas was taken for {_TOLD[cas_fail]} (--cas-fail {cas_fail})")
    reads = (columns.kinds_as({"read": 1}, 0) == 1) & (columns.outcome == OK)
    if silent or (reads & (columns.result == NIL)).any():
        what = "matches anything" if nil_read == "anything" else "is a read of the value nil"
        notes.append(f"a read of nil {what} (--nil-read {nil_read})")
    return notes


def _told(verdict: Verdict, lines: Sequence[int], notes: Sequence[str]) -> Verdict:
    """Return the verdict with what it rests on, and the lines of the file in its findings."""
    anomalies, places = [], []
    for anomaly in verdict.anomalies:
        mine = [_line(lines, index) for index in anomaly.ops]
        details = {**anomaly.details, "lines": mine}
        anomalies.append(msgspec.structs.replace(anomaly, details=details))
        shown = ", ".join(str(line) for line in mine)
        places.append(f"{anomaly.name}: see line{'s'[: len(mine) > 1]} {shown} of the file")
    return msgspec.structs.replace(
        verdict, anomalies=tuple(anomalies), notes=(*places, *notes, *verdict.notes)
    )


def _unjudged(reason: Reason, text: str) -> Verdict:
    return Verdict(
        verdict="unknown",
        headline=f"This history cannot be judged: {shorten(text)}",
        unknown=(Unknown(reason=reason, text=text),),
    )

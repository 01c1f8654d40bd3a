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
from typing import Any

import msgspec

from harness.errors import MalformedHistoryError, UsageError
from harness.history import History
from harness.importing import Format, Imported, load
from harness.importing.readings import CasFail, NilRead
from harness.judge import first_finding_s
from harness.results import Results
from harness.text import shorten
from harness.verdict import Reason, Unknown, Verdict

# What a lock does leaves a register alone, and the other way round: a run has both.
_LOCK = frozenset({"acquire", "renew", "release", "check"})
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
    from harness import checking

    if not loaded.history.ops:
        return _unjudged(Reason.VACUOUS, "there is no operation in it")
    model = asked.model or _guess(loaded)
    if model not in checking.MODELS:
        known = ", ".join(sorted(checking.MODELS))
        raise UsageError(f"--model: found {model!r}; allowed: {known}")
    functions = frozenset(checking.MODELS[model].ops)
    _refuse_unknown(loaded, model, functions)
    _check_shapes(loaded)
    initial = loaded.initial if asked.initial is FROM_FORMAT else asked.initial
    cas_fail = asked.cas_fail or loaded.cas_fail
    nil_read = asked.nil_read or loaded.nil_read(initial)
    silent = loaded.read_as(cas_fail, nil_read)
    try:
        verdict = checking.check(
            loaded.history, model, initial=initial, budget_s=asked.budget_s, cas_fail=cas_fail
        )
    except Exception:  # noqa: BLE001 - whatever a checker raises is a reason not to judge
        last = traceback.format_exc().strip().splitlines()
        text = "the checker crashed: " + " | ".join(last[-3:])
        return _unjudged(Reason.HARNESS_ERROR, text)
    notes = _notes(loaded, model, initial, {**loaded.skipped, **silent})
    notes += _readings(loaded.history, cas_fail, nil_read, silent)
    return _told(verdict, loaded, notes)


def _guess(loaded: Imported) -> str:
    names = loaded.names
    for model, functions in _GUESSES:
        if names <= functions:
            return model
    found = ", ".join(sorted(names))
    raise UsageError(
        f"--model: needed, since no model is the usual one for the operations {found}"
        " (names are mapped with --acquire, --read and so on)"
    )


def _refuse_unknown(loaded: Imported, model: str, functions: frozenset[str]) -> None:
    """Refuse a history with operations that the model would silently leave out."""
    beside = _STORE if functions & _LOCK else _LOCK
    unknown = loaded.names - functions - beside
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
            raise MalformedHistoryError(_line(loaded, i), "a cas needs [old, new]")


def _line(loaded: Imported, index: int) -> int:
    return loaded.lines[index] if 0 <= index < len(loaded.lines) else index + 1


def _notes(loaded: Imported, model: str, initial: Any, skipped: Mapping[str, int]) -> list[str]:
    value = msgspec.json.encode(initial).decode()
    notes = [f"read as {loaded.format}, judged as {model} with initial value {value}"]
    notes += [f"left out: {count} {what}" for what, count in skipped.items()]
    if loaded.history.cut:
        notes.append("the file ends in the middle of a line: judged up to there")
    return notes


def _readings(
    history: History, cas_fail: CasFail, nil_read: NilRead, silent: Mapping[str, int]
) -> list[str]:
    """Say the readings, where the history has something that they are about."""
    notes = []
    if any(op.f == "cas" and op.type == "fail" for op in history.ops) or silent:
        notes.append(f"a failed cas was taken for {_TOLD[cas_fail]} (--cas-fail {cas_fail})")
    if silent or any(op.f == "read" and op.type == "ok" and op.value is None for op in history.ops):
        what = "matches anything" if nil_read == "anything" else "is a read of the value nil"
        notes.append(f"a read of nil {what} (--nil-read {nil_read})")
    return notes


def _told(verdict: Verdict, loaded: Imported, notes: Sequence[str]) -> Verdict:
    """Return the verdict with what it rests on, and the lines of the file in its findings."""
    anomalies, places = [], []
    for anomaly in verdict.anomalies:
        lines = [_line(loaded, index) for index in anomaly.ops]
        details = {**anomaly.details, "lines": lines}
        anomalies.append(msgspec.structs.replace(anomaly, details=details))
        shown = ", ".join(str(line) for line in lines)
        places.append(f"{anomaly.name}: see line{'s'[: len(lines) > 1]} {shown} of the file")
    return msgspec.structs.replace(
        verdict, anomalies=tuple(anomalies), notes=(*places, *notes, *verdict.notes)
    )


def _unjudged(reason: Reason, text: str) -> Verdict:
    return Verdict(
        verdict="unknown",
        headline=f"This history cannot be judged: {shorten(text)}",
        unknown=(Unknown(reason=reason, text=text),),
    )

"""From a run folder to its verdict, and from a verdict to an exit code.

The workload judges the history; here is added what concerns any run: faults that had no effect,
things that broke in the harness, a record that was cut.  A checker that crashes makes the run
unknown.
"""

import contextlib
import traceback
from collections.abc import Iterable
from pathlib import Path

import msgspec

from harness.errors import MalformedHistoryError, UsageError
from harness.evidence import Evidence
from harness.folder import RunFolder, facts_of
from harness.history import History
from harness.importing import load
from harness.note import LEFTOVER
from harness.plugins import entries, make
from harness.results import Results
from harness.spec import FaultSpec
from harness.text import shorten
from harness.verdict import Anomaly, Reason, Unknown, Verdict, decide
from harness.workload import Workload

EXIT = {"pass": 0, "fail": 1, "unknown": 2}
HARNESS_ERROR, INTERRUPTED = 255, 130


def check_folder(path: Path) -> Results:
    """Judge a run folder and write `results.json`.  Raises UsageError, OSError."""
    folder = RunFolder(path)
    results = judge(folder)
    folder.write_results(results)
    return results


def check_history(path: Path, workload: str) -> Results:
    """Judge a bare history file.  Raises UsageError, OSError."""
    checker: Workload = make("workloads", workload, {})
    end_ns = 0
    try:
        history = load(path, "jsonl").history
    except MalformedHistoryError as error:
        verdict = _unjudged(Reason.MALFORMED, f"{path.name}, {error}")
    else:
        end_ns = history.end_ns
        verdict = check_safely(checker, Evidence(history))
    return Results(
        run=path.name,
        command=f"winkle check {path}",
        began="",
        duration_s=round(end_ns / 1e9, 3),
        verdict=verdict,
        first_finding_s=first_finding_s(verdict.anomalies),
    )


def finish(folder: RunFolder) -> Results:
    """Judge a run that ended, and render its reports; the reports cannot change the verdict.

    The columns of the history are written beside it, where the disk still takes them: they say
    nothing that the history does not.
    """
    from harness.checking.lines import write_beside

    results = judge(folder)
    folder.write_results(results)
    with contextlib.suppress(OSError):
        write_beside(folder.history)
    try:
        render_folder(folder.path)
    except Exception:  # noqa: BLE001 - said beside the verdict, which is on disk already
        folder.write("report-error.txt", traceback.format_exc().encode())
    return results


def judge(folder: RunFolder) -> Results:
    """Return the results of a run folder as it lies there.  Raises UsageError, OSError."""
    spec, recorded = folder.spec()
    error = _error(folder)
    marks: dict[str, int] = {}
    leftover: list[str] = []
    duration_s = 0.0
    try:
        marks = folder.marks()
        evidence = folder.evidence()
    except MalformedHistoryError as malformed:
        verdict = _unjudged(Reason.MALFORMED, str(malformed))
    else:
        duration_s = evidence.history.end_ns / 1e9
        leftover = [
            p.text.removeprefix(LEFTOVER) for p in evidence.problems if p.text.startswith(LEFTOVER)
        ]
        if error is not None and not evidence.history.ops:
            verdict = _unjudged(Reason.HARNESS_ERROR, error, "This run never began")
        else:
            checker: Workload = make("workloads", spec.workload, spec.options)
            verdict = with_unknown(
                check_safely(checker, evidence),
                [
                    *of_faults(evidence, spec.faults, stopped=_stopped(marks)),
                    *of_run(evidence, marks, error),
                ],
            )
    return Results(
        run=folder.path.name,
        command=str(recorded.get("command", f"winkle run {folder.run_file}")),
        began=str(recorded.get("began", "")),
        duration_s=round(duration_s, 3),
        verdict=verdict,
        leftover=tuple(leftover),
        error=error,
        interrupted="interrupted" in marks,
        first_finding_s=first_finding_s(verdict.anomalies),
        facts=facts_of(recorded),
    )


def check_safely(checker: Workload, evidence: Evidence) -> Verdict:
    """Run a checker; a malformed history and a crash are reasons for unknown, never a pass."""
    try:
        return checker.check(evidence)
    except MalformedHistoryError as error:
        return _unjudged(Reason.MALFORMED, str(error))
    except Exception:  # noqa: BLE001 - whatever a checker raises is a reason not to judge
        last = traceback.format_exc().strip().splitlines()
        return _unjudged(Reason.HARNESS_ERROR, "the checker crashed: " + " | ".join(last[-3:]))


def _unjudged(reason: Reason, text: str, why: str = "This run cannot be judged") -> Verdict:
    first, _, _ = text.partition("\n")
    return Verdict(
        verdict="unknown",
        headline=f"{why}: {shorten(first)}",
        unknown=(Unknown(reason=reason, text=text),),
    )


def with_unknown(verdict: Verdict, more: Iterable[Unknown]) -> Verdict:
    """Return the verdict with further reasons for unknown; a fail stays a fail."""
    added = tuple(more)
    if not added:
        return verdict
    unknown = (*verdict.unknown, *added)
    headline = verdict.headline
    if verdict.verdict == "pass":
        headline = f"This run cannot be judged: {shorten(added[0].text)}"
    outcome = decide(verdict.anomalies, unknown)
    return msgspec.structs.replace(verdict, verdict=outcome, headline=headline, unknown=unknown)


def of_faults(
    evidence: Evidence, specs: tuple[FaultSpec, ...], *, stopped: bool = False
) -> list[Unknown]:
    """Return a reason for each fault that was asked for and never proven to be in force.

    A run that was `stopped` at its first finding owes nobody the faults that had not come yet.
    """
    came = {window.spec for window in evidence.windows}
    proven = {window.spec for window in evidence.windows if window.grade == "installed"}
    said = {window.spec: window.text for window in evidence.windows if window.text}
    return [
        Unknown(
            reason=Reason.FAULT_NOT_EFFECTIVE,
            text=f"{spec} was never proven to be in force" + _because(said.get(i)),
        )
        for i, spec in enumerate(specs)
        if i not in proven and (i in came or not stopped)
    ]


def _stopped(marks: Iterable[str]) -> bool:
    """Whether the main phase ended at a finding."""
    return any(step.startswith("stopped by ") for step in marks)


def _because(text: str | None) -> str:
    return f": {text}" if text else ""


def of_run(evidence: Evidence, marks: dict[str, int], error: str | None) -> list[Unknown]:
    """Return the reasons that lie in the harness: what broke, and a record that was cut."""
    found = []
    if error is not None:
        found.append(Unknown(reason=Reason.HARNESS_ERROR, text=error))
    elif "end" not in marks and "interrupted" in marks:
        text = "the run was interrupted before its end, and was judged up to there"
        found.append(Unknown(reason=Reason.HARNESS_ERROR, text=text))
    elif "end" not in marks:
        at_s = evidence.history.end_ns / 1e9
        text = f"the harness died: the record ends after {at_s:.3f} s and was judged up to there"
        found.append(Unknown(reason=Reason.HARNESS_ERROR, text=text))
    found.extend(
        Unknown(reason=Reason.HARNESS_ERROR, text=problem.text)
        for problem in evidence.problems
        if not problem.text.startswith(LEFTOVER)
    )
    return found


def _error(folder: RunFolder) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        return (folder.path / "error.txt").read_text("utf-8", "replace")
    return None


def first_finding_s(anomalies: Iterable[Anomaly]) -> float | None:
    """Return the time of the earliest finding in seconds from the start of the run."""
    times = [anomaly.time_ns for anomaly in anomalies]
    return round(min(times) / 1e9, 3) if times else None


def exit_code(results: Results) -> int:
    """Return the exit code that a run's results stand for.

    A leftover never changes the verdict, but a run that left something is no success.
    """
    if results.interrupted:
        return INTERRUPTED
    if results.error is not None and results.verdict.verdict != "fail":
        return HARNESS_ERROR
    if results.leftover and results.verdict.verdict == "pass":
        return HARNESS_ERROR
    return EXIT[results.verdict.verdict]


def render_folder(path: Path) -> list[Path]:
    """Write every report of a run folder; return their paths.  Raises UsageError, OSError."""
    folder = RunFolder(path)
    try:
        results = folder.read_results()
    except FileNotFoundError:
        results = check_folder(path)
    except msgspec.DecodeError as error:
        raise UsageError(f"{folder.results}: not ours, or damaged: {error}") from error
    try:
        evidence = folder.evidence()
    except MalformedHistoryError:
        spec, recorded = folder.spec()
        evidence = Evidence(History([]), spec=spec, fence=recorded.get("fence"))
    return [
        folder.write(name, entry.load()(evidence, results))
        for name, entry in entries("reports").items()
    ]

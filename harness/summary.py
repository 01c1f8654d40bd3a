"""The few lines that a person reads first: the verdict, why, and where the report is.

The lines are made from the results alone and are the same on every terminal; colour is added where
they are shown.  Text that came from a target is shown harmless (`harness.terminal.printable`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from harness.history import split_lines
from harness.results import Results
from harness.terminal import printable
from harness.verdict import Anomaly, Unknown
from harness.window import Window

FINDINGS_MAX = 5
REPORT = "report.html"
_WINDOWS = msgspec.json.Decoder(Window)


def lines(results: Results, folder: Path | None = None) -> list[str]:
    """Return the summary of a judged run; with its folder also its faults and its report."""
    verdict = results.verdict
    found = [f"{verdict.verdict.upper()}: {verdict.headline}"]
    found += _findings(verdict.anomalies)
    found += [f"  unknown because {item.reason}{_more(item, results)}" for item in verdict.unknown]
    if results.interrupted:
        found.append("  interrupted: judged up to there")
    if folder is not None and (counts := proven_faults(folder)) is not None:
        found.append(f"  faults proven in force: {counts[0]} of {counts[1]}")
    found += [f"  left over after the run: {item}" for item in results.leftover]
    if folder is not None:
        report = folder / REPORT
        found.append(
            f"  {'report' if report.is_file() else 'run'}: {report if report.is_file() else folder}"
        )
    return [printable(line) for line in found]


def proven_faults(folder: Path) -> tuple[int, int] | None:
    """Return how many of the faults of a run were proven in force; None when it has no record."""
    try:
        complete, _ = split_lines((folder / "faults.jsonl").read_bytes())
        windows = [_WINDOWS.decode(line) for line in complete]
    except (OSError, msgspec.DecodeError):
        return None
    return sum(window.grade == "installed" for window in windows), len(windows)


def _more(reason: Unknown, results: Results) -> str:
    """What the line of a reason adds to the headline; the error of a harness is said apart."""
    said = reason.text in results.verdict.headline or reason.text == results.error
    return "" if said else f": {reason.text}"


def _findings(anomalies: Sequence[Anomaly]) -> Iterable[str]:
    counts = Counter(anomaly.name for anomaly in anomalies)
    for name, count in list(counts.items())[:FINDINGS_MAX]:
        mine = [anomaly for anomaly in anomalies if anomaly.name == name]
        first = min(mine, key=lambda anomaly: anomaly.time_ns)
        times = "once" if count == 1 else f"{count} times, first"
        yield f"  {name}: {times} at {first.time_ns / 1e9:.3f} s"
    if len(counts) > FINDINGS_MAX:
        yield f"  and {len(counts) - FINDINGS_MAX} more kinds of findings"

"""Runs under faults, and what they left: folder, results, windows, notes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.api import execute
from harness.history import Call, read_history
from harness.ledger import ledger_folder
from harness.op import Op
from harness.results import Results
from harness.runfile import from_values
from tests.live import NOOP

FRAIL = str(Path(__file__).resolve().parent / "support_frail.py") + ":Frail"
IDLE = {
    "lock": f"{NOOP}:Noop",
    "store": f"{NOOP}:Noop",
    "workload": f"{NOOP}:Hold[think_ms=10]",
    "workers": 3,
    "readers": 0,
    "ttl": "200ms",
    "time": "2s",
    "op_timeout": "100ms",
}
"""A run of three workers that hold a lock and do nothing with it."""


@dataclass(frozen=True)
class Faulted:
    """One run: where it lies, how it was judged, its faults as executed."""

    folder: Path
    exit_code: int
    results: Results
    windows: list[dict[str, Any]]

    @property
    def names(self) -> set[str]:
        """The names of the anomalies that were found."""
        return {anomaly.name for anomaly in self.results.verdict.anomalies}

    @property
    def reasons(self) -> set[str]:
        """The reasons for unknown."""
        return {unknown.reason.value for unknown in self.results.verdict.unknown}

    def ops(self) -> Sequence[Op]:
        """The history."""
        return read_history(self.folder / "history.jsonl").ops

    def calls(self) -> Sequence[Call]:
        """The history as calls."""
        return read_history(self.folder / "history.jsonl").calls

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """The notes of a kind."""
        lines = (self.folder / "notes.jsonl").read_text().splitlines()
        return [note for note in map(json.loads, lines) if note["kind"] == kind]

    def log(self, name: str) -> str:
        """What a process printed."""
        return (self.folder / "logs" / f"{name}.log").read_text()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The windows of a kind, in the order of their requests."""
        mine = [window for window in self.windows if window["kind"] == kind]
        return sorted(mine, key=lambda window: int(window["requested_ns"]))

    def by_spec(self, spec: int) -> list[dict[str, Any]]:
        """The windows of the fault that was given as number `spec`, in the order of their ends."""
        return [window for window in self.windows if window["spec"] == spec]


def _run(folder: Path, faults: Sequence[str], keys: dict[str, object]) -> Faulted:
    spec = from_values({"faults": list(faults), "seed": 1, **keys})
    result = execute(spec, folder / "runs", quiet=True)
    assert result.folder is not None, result.error
    assert result.results is not None
    lines = (result.folder / "faults.jsonl").read_text().splitlines()
    windows = [json.loads(line) for line in lines]
    return Faulted(result.folder, result.exit_code, result.results, windows)


def lived(folder: Path, *faults: str, **keys: object) -> Faulted:
    """Run with these faults and the keys of a run file; it must go well and leave nothing."""
    run = _run(folder, faults, keys)
    assert run.results.error is None
    assert run.results.leftover == ()
    assert not list(ledger_folder().glob("*"))
    return run


def faulted(folder: Path, *faults: str, **keys: object) -> Faulted:
    """Run with these faults and the keys of a run file; every window must be proven."""
    run = _run(folder, faults, keys)
    assert all(window["grade"] == "installed" for window in run.windows), run.windows
    return run

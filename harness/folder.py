"""The run folder: everything that a run leaves, and all that a judgement needs.

::

    run.yaml        everything needed to repeat the run, versions included
    history.jsonl   the ops, append-only
    history.npz     the same as columns of numbers, written when the run has ended
    notes.jsonl     phases, beliefs, marks and problems, append-only
    faults.jsonl    the schedule as executed, with the evidence
    store.jsonl     the resource's own log, where it has one
    logs/           one file a process
    results.json, report.html, junit.xml

A folder whose run was killed half-way is read up to the cut.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.errors import HarnessError, MalformedHistoryError, UsageError
from harness.evidence import Evidence, Problem
from harness.history import History, HistoryWriter, read_history, split_lines
from harness.note import Note
from harness.results import Results, decode, encode
from harness.spec import RunSpec
from harness.target import Accept
from harness.window import Window

_encoder = msgspec.json.Encoder()
T = TypeVar("T")


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run folder, and reading and writing of what is in it."""

    path: Path

    @property
    def run_file(self) -> Path:
        """`run.yaml`."""
        return self.path / "run.yaml"

    @property
    def history(self) -> Path:
        """`history.jsonl`."""
        return self.path / "history.jsonl"

    @property
    def notes(self) -> Path:
        """`notes.jsonl`."""
        return self.path / "notes.jsonl"

    @property
    def faults(self) -> Path:
        """`faults.jsonl`."""
        return self.path / "faults.jsonl"

    @property
    def store_log(self) -> Path:
        """`store.jsonl`."""
        return self.path / "store.jsonl"

    @property
    def results(self) -> Path:
        """`results.json`."""
        return self.path / "results.json"

    def log(self, name: str) -> Path:
        """The log of one process."""
        return self.path / "logs" / f"{name}.log"

    def write(self, name: str, data: bytes) -> Path:
        """Write a file whole or not at all.  Raises OSError."""
        path = self.path / name
        part = path.with_name(f".{name}.part")
        part.write_bytes(data)
        part.replace(path)
        return path

    def write_store_log(self, log: Iterable[Accept]) -> None:
        """Write the resource's own log.  Raises OSError."""
        self.write("store.jsonl", b"".join(_encoder.encode(line) + b"\n" for line in log))

    def write_results(self, results: Results) -> None:
        """Write `results.json`.  Raises OSError."""
        self.write("results.json", encode(results))

    def read_results(self) -> Results:
        """Read `results.json`.  Raises OSError, `msgspec.DecodeError`."""
        return decode(self.results.read_bytes())

    def spec(self) -> tuple[RunSpec, dict[str, Any]]:
        """Return the run and what was recorded with it.  Raises UsageError."""
        from harness.runfile import read_recorded

        if not self.run_file.is_file():
            raise UsageError(f"{self.path}: no run folder (it has no run.yaml)")
        return read_recorded(self.run_file)

    def evidence(self) -> Evidence:
        """Return all that was recorded.  Raises UsageError, MalformedHistoryError."""
        spec, recorded = self.spec()
        notes = _lines(self.notes, Note)
        marks = {note.why: note.time_ns for note in notes if note.kind == "mark"}
        return Evidence(
            history=read_history(self.history) if self.history.exists() else History([]),
            spec=spec,
            notes=[note for note in notes if note.kind in ("phase", "belief")],
            windows=self.windows(),
            store_log=_lines(self.store_log, Accept) if self.store_log.exists() else None,
            problems=[
                Problem(note.why or "", note.worker, note.time_ns)
                for note in notes
                if note.kind == "problem"
            ]
            + (self._torn() if "end" in marks else []),
            fence=fence if isinstance(fence := recorded.get("fence"), str) else None,
            final_ns=marks.get("final"),
            facts=facts_of(recorded),
            servers=dict(recorded.get("servers", {})),
            end_ns=marks.get("end"),
        )

    def _torn(self) -> list[Problem]:
        """Return the records of a run that ended which do not end with a whole line.

        A run that was killed may tear its last line; one that ended wrote whole lines, so something
        was cut off since, and what is left is not all that the verdict must rest on.
        """
        files = (self.history, self.notes, self.faults, self.store_log)
        return [
            Problem(f"{path.name} ends in the middle of a line: a part of the record is gone")
            for path in files
            if path.exists() and split_lines(path.read_bytes())[1]
        ]

    def windows(self) -> list[Window]:
        """Return the faults as executed.  Raises MalformedHistoryError."""
        return _lines(self.faults, Window)

    def marks(self) -> dict[str, int]:
        """Return the steps that the run reached, with their times in nanoseconds."""
        notes = _lines(self.notes, Note)
        return {note.why or "": note.time_ns for note in notes if note.kind == "mark"}


def _lines(path: Path, kind: type[T]) -> list[T]:
    """Read an append-only file of JSON lines up to its torn tail, if it has one."""
    if not path.exists():
        return []
    lines, _ = split_lines(path.read_bytes())
    decoder = msgspec.json.Decoder(kind)
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise MalformedHistoryError(number, f"{path.name}: {error}") from error
    return found


def create(out: Path, spec: RunSpec, now_s: float) -> RunFolder:
    """Make the folder of a new run and point `latest` to it.  Raises HarnessError."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    names = (spec.lock.name, spec.store.name, spec.workload)
    parts = (stamp, *(_short(name) for name in names), str(spec.seed))
    base = "-".join(parts)
    try:
        out.mkdir(parents=True, exist_ok=True)
        path = _fresh(out, base)
        (path / "logs").mkdir()
        _point_latest(out, path.name)
    except OSError as error:
        raise HarnessError(f"the run folder cannot be made: {error}") from error
    return RunFolder(path.resolve())


def _short(name: str) -> str:
    """A target's name as part of a folder's name: `./my/lock.py:NAME` becomes `NAME`."""
    last = name.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    return "".join(c if c.isalnum() else "_" for c in last) or "target"


def _fresh(out: Path, base: str) -> Path:
    for n in range(1000):
        path = out / (base if n == 0 else f"{base}.{n}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise HarnessError(f"{out}: a thousand runs named {base}")


def _point_latest(out: Path, name: str) -> None:
    part = out / f".latest.{os.getpid()}"
    part.unlink(missing_ok=True)
    part.symlink_to(name)
    part.replace(out / "latest")


def facts_of(recorded: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that a run recorded; a file that somebody edited may hold anything."""
    facts = recorded.get("facts")
    return {str(k): str(v) for k, v in facts.items()} if isinstance(facts, dict) else {}


def encode_note(note: Note) -> bytes:
    """Return a note as one line of `notes.jsonl`."""
    return _encoder.encode(note) + b"\n"


class Record:
    """The append-only files of a live run."""

    def __init__(self, folder: RunFolder) -> None:
        try:
            self.history = HistoryWriter(folder.history)
            self._notes = HistoryWriter(folder.notes)
            self._faults = HistoryWriter(folder.faults)
        except OSError as error:
            raise HarnessError(f"the run cannot be recorded: {error}") from error

    def note(self, note: Note) -> None:
        """Append a note.  Raises OSError."""
        self._notes.write(encode_note(note))

    def window(self, window: Window) -> None:
        """Append a fault as executed.  Raises OSError."""
        self._faults.write(_encoder.encode(window) + b"\n")

    def mark(self, time_ns: int, step: str) -> None:
        """Append a mark.  Raises OSError."""
        self.note(Note(time_ns=time_ns, kind="mark", why=step))

    def close(self) -> None:
        """Close the files."""
        for file in (self.history, self._notes, self._faults):
            file.close()

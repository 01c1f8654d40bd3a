"""`winkle run`: one run, or the same run with many seeds."""

import dataclasses
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.runfile import Flags, from_flags, read_file
from harness.runmodel import SEED_MAX
from harness.spec import RunSpec
from harness.summary import REPORT, lines
from harness.terminal import Colour, err, out, paint, printable, table

if TYPE_CHECKING:
    from harness.api import RunResult

# Which of several runs decides the exit code: what broke hides what else they would have said.
_GRAVITY = (0, 2, 1, 254, 255, 130)
_COLOURS: dict[str, Colour] = {"PASS": "green", "FAIL": "red", "UNKNOWN": "yellow"}


def run(
    run_file: Path | None, flags: Flags, *, repeat: int, folder: Path, as_json: bool, quiet: bool
) -> int:
    """Run as the file and the flags say; return the exit code.  Raises UsageError."""
    seed = random_seed()
    if run_file is None:
        spec = from_flags(flags, default_seed=seed)
    else:
        spec = read_file(run_file, flags, default_seed=seed)
    return _repeat(spec, repeat=repeat, folder=folder, as_json=as_json, quiet=quiet)


def replay(run_dir: Path, *, folder: Path, as_json: bool, quiet: bool) -> int:
    """Run the schedule of a run again; return the exit code.  Raises UsageError."""
    from harness.replay import replayed

    return _repeat(replayed(run_dir), repeat=1, folder=folder, as_json=as_json, quiet=quiet)


def _repeat(spec: RunSpec, *, repeat: int, folder: Path, as_json: bool, quiet: bool) -> int:
    """Run with one seed after the other, and tell how each ended."""
    from harness import api

    done: list[tuple[int, RunResult]] = []
    for i in range(repeat):
        seeded = dataclasses.replace(spec, seed=(spec.seed + i) % (SEED_MAX + 1))
        result = api.execute(seeded, folder, json_output=as_json, quiet=quiet)
        done.append((seeded.seed, result))
        if as_json:
            out(msgspec.json.encode({"seed": seeded.seed, **record(result)}).decode())
        else:
            show(result)
        if result.exit_code == 130:
            break
    if repeat > 1 and not as_json:
        for line in _table(done):
            out(line)
    return gravest(result.exit_code for _, result in done)


def random_seed() -> int:
    """Return a seed for a run that names none; short enough to be read aloud."""
    return secrets.randbelow(1_000_000_000)


def gravest(codes: Iterable[int]) -> int:
    """Return the exit code of several runs: a crash before a fail before unknown before pass."""
    known = [code if code in _GRAVITY else 255 for code in codes]
    return max(known, key=_GRAVITY.index, default=255)


def show(result: "RunResult") -> None:
    """Print the summary of a run."""
    if result.results is None:
        err(f"winkle: {printable(result.error or 'the run came to no verdict')}")
        if result.folder is not None:
            out(f"  run: {result.folder}")
        return
    if result.results.error is not None:
        err(f"winkle: {printable(result.results.error)}")
    head, *rest = lines(result.results, result.folder)
    word, colon, headline = head.partition(":")
    out(f"{paint(word, _COLOURS.get(word, 'bold'))}{colon}{headline}")
    for line in rest:
        out(line)


def record(result: "RunResult") -> dict[str, Any]:
    """Return what a program may read about a run."""
    return {
        "exit_code": result.exit_code,
        "folder": None if result.folder is None else str(result.folder),
        "error": result.error,
        "results": None if result.results is None else msgspec.to_builtins(result.results),
    }


def verdict_word(result: "RunResult") -> str:
    """Return the verdict of a run, or `error` when it came to none."""
    return "error" if result.results is None else result.results.verdict.verdict


def finding_after(seconds: float | None) -> str:
    """Return the time to the first finding as a table shows it."""
    return "-" if seconds is None else f"{seconds:.1f} s"


def report_path(folder: Path | None) -> str:
    """Return the report of a run, its folder where there is none."""
    if folder is None:
        return "-"
    path = folder / REPORT if (folder / REPORT).is_file() else folder
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _table(done: Iterable[tuple[int, "RunResult"]]) -> list[str]:
    rows = []
    for seed, result in done:
        first = result.results.first_finding_s if result.results else None
        row = (str(seed), verdict_word(result), finding_after(first), report_path(result.folder))
        rows.append(row)
    return ["", *table(("seed", "verdict", "first finding after", "report"), rows)]

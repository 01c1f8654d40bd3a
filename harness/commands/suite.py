"""`winkle suite`: many runs, one table, and whether each is what was expected."""

from pathlib import Path
from typing import Any

import msgspec

from harness.commands.run import finding_after, random_seed, report_path
from harness.errors import SandboxError, WinkleError
from harness.results import Results
from harness.runfile import Flags
from harness.spec import RunSpec
from harness.suite import Row, carry_out, exit_code, locate, read_suite
from harness.terminal import err, out, paint, printable, table, wrapped

# The last two columns are the widest; with these the table fits into 80 columns.
_HEADER = ("run", "verdict", "expected", "after", "found")
_NAME_COLUMNS, _FOUND_COLUMNS = 27, 23


def suite(name: str, given: Flags, *, folder: Path, as_json: bool, quiet: bool) -> int:
    """Run a suite by name or path; return the exit code.  `given` overrides each of its runs.

    Raises UsageError, and HarnessError when no run of it can live here, which is told once.
    """
    from harness import api

    planned = read_suite(locate(name), flags=given, default_seed=random_seed())
    api.require({plan.spec.backend for plan in planned})
    rows: list[Row] = []

    def run(spec: RunSpec) -> tuple[int, Path | None, Results | None, str]:
        number = len(rows) + 1
        if not quiet:
            err(f"[{number}/{len(planned)}] {printable(planned[number - 1].name)}")
        return _run(spec, folder, quiet=quiet or as_json, first=not rows)

    for row in carry_out(planned, run):
        rows.append(row)
        if not quiet:
            err(f"  {row.verdict}, {_judgement(row)}: {report_path(row.folder)}")
    code = exit_code(rows)
    if as_json:
        record = {"suite": name, "exit_code": code, "runs": [_record(row) for row in rows]}
        out(msgspec.json.format(msgspec.json.encode(record), indent=2).decode())
    else:
        _print(rows, len(planned))
    return code


def _run(
    spec: RunSpec, folder: Path, *, quiet: bool, first: bool
) -> tuple[int, Path | None, Results | None, str]:
    """Carry out one run; whatever breaks in it is that run's result, so that the others go on.

    Raises SandboxError for the first run only: the machine forbids all of them.
    """
    from harness import api

    try:
        result = api.execute(spec, folder, json_output=quiet, quiet=quiet)
    except KeyboardInterrupt:
        return 130, None, None, "interrupted"
    except WinkleError as error:
        if first and isinstance(error, SandboxError):
            raise
        return 255, None, None, str(error)
    except Exception as error:  # noqa: BLE001 - the run is reported as broken and the suite goes on
        return 255, None, None, f"{type(error).__name__}: {error}"
    return result.exit_code, result.folder, result.results, result.error or ""


def _judgement(row: Row) -> str:
    return "as expected" if row.as_expected else f"NOT as expected ({printable(row.why_not)})"


def _print(rows: list[Row], planned: int) -> None:
    cells = [
        (
            wrapped(printable(row.planned.name), _NAME_COLUMNS),
            row.verdict,
            "yes" if row.as_expected else "NO",
            finding_after(row.first_finding_s),
            wrapped(", ".join(row.found), _FOUND_COLUMNS) or "-",
        )
        for row in rows
    ]
    header, *lines = table(_HEADER, cells)
    out(paint(header, "bold"))
    for row, line in zip(rows, lines, strict=True):
        out(line if row.as_expected else paint(line, "red"))
    for row in rows:
        if row.folder is not None:
            out(report_path(row.folder))
    for row in rows:
        if not row.as_expected:
            out(f"{printable(row.planned.name)}: {printable(row.why_not)}")
    good = sum(row.as_expected for row in rows)
    out(f"{good} of {planned} runs as expected")


def _record(row: Row) -> dict[str, Any]:
    return {
        "name": row.planned.name,
        "verdict": row.verdict,
        "expected": row.planned.expect,
        "as_expected": row.as_expected,
        "why_not": row.why_not,
        "anomalies": list(row.found),
        "first_finding_s": row.first_finding_s,
        "seed": row.planned.spec.seed,
        "exit_code": row.exit_code,
        "folder": None if row.folder is None else str(row.folder),
        "report": None if row.folder is None else report_path(row.folder),
    }

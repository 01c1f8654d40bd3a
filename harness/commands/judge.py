"""`winkle check` and `winkle report`: judge and render what lies on disk, without a target."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import MalformedHistoryError, UsageError
from harness.results import Results, encode
from harness.summary import lines
from harness.terminal import out, printable

if TYPE_CHECKING:
    from harness.offline import Asked

_EXIT = {"pass": 0, "fail": 1, "unknown": 2}
_WORKLOAD = "fencing"
_OPERATIONS = ("read", "write", "cas", "acquire", "release", "get", "put", "append", "add")
_FOR_MODELS = ("initial", "cas_fail", "nil_read", *_OPERATIONS)


def check(path: Path, given: Mapping[str, Any], *, as_json: bool) -> int:
    """Judge a run folder or a history again; return the exit code.  Raises UsageError.

    `given` are the flags by their names, as text, None where one was not given.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such run folder or history file")
    folder = path.is_dir()
    foreign = given["model"] is not None or not (folder or _ours(path, given["format"]))
    if foreign:
        results = _by_model(path / "history.jsonl" if folder else path, given)
    else:
        results = _by_workload(path, given)
    if as_json:
        out(encode(results).decode().rstrip("\n"))
    else:
        for line in lines(results, path if folder and not foreign else None):
            out(line)
        for note in results.verdict.notes if foreign else ():
            out(printable(f"  {note}"))
    return _EXIT[results.verdict.verdict]


def _ours(path: Path, wanted: str) -> bool:
    """Whether a file holds our own records, which the checkers of a workload understand."""
    from harness.importing import recognise

    if wanted not in ("auto", "jsonl"):
        return False
    try:  # of a run that was killed at once there may be nothing
        return path.stat().st_size == 0 or recognise(path) == "jsonl"
    except MalformedHistoryError:
        return False  # said with the verdict, once it is read


def _by_workload(path: Path, given: Mapping[str, Any]) -> Results:
    from harness import judge

    workload = given["workload"]
    if flags := [name for name in _FOR_MODELS if given[name] is not None]:
        spelled = ", ".join(f"--{name.replace('_', '-')}" for name in flags)
        raise UsageError(f"{spelled}: found without --model, which it is for")
    if not path.is_dir():
        return judge.check_history(path, workload or _WORKLOAD)
    if workload is not None:
        raise UsageError(
            f"--workload: found {workload!r}, but {path} is a run folder, which names its own"
        )
    return judge.check_folder(path)


def _by_model(path: Path, given: Mapping[str, Any]) -> Results:
    from harness.offline import judge_file

    if given["workload"] is not None:
        raise UsageError("--workload: its checkers judge records of our own runs, without --model")
    if not path.is_file():
        raise UsageError(f"{path}: no history file")
    return judge_file(path, _asked(given))


def _asked(given: Mapping[str, Any]) -> "Asked":
    from harness.importing import FORMATS
    from harness.importing.readings import CAS_FAILS, NIL_READS
    from harness.offline import FROM_FORMAT, Asked
    from harness.units import parse_seconds

    try:
        budget_s = parse_seconds(given["budget"])
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from error
    wanted = _one_of("--format", given["format"], ("auto", *FORMATS))
    return Asked(
        format=None if wanted == "auto" else wanted,
        model=given["model"],
        initial=FROM_FORMAT if given["initial"] is None else initial_value(given["initial"]),
        cas_fail=_one_of("--cas-fail", given["cas_fail"], CAS_FAILS),
        nil_read=_one_of("--nil-read", given["nil_read"], NIL_READS),
        names={given[name]: name for name in _OPERATIONS if given[name] is not None},
        budget_s=budget_s,
    )


def initial_value(text: str) -> Any:
    """Return the value that a user writes: JSON, `nil`, or else the text itself."""
    if text == "nil":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _one_of(flag: str, found: str | None, allowed: Sequence[str]) -> Any:
    if found is not None and found not in allowed:
        raise UsageError(f"{flag}: found {found!r}; allowed: {', '.join(allowed)}")
    return found


def report(path: Path) -> int:
    """Render every report of a run folder again, and print their paths.  Raises UsageError."""
    from harness import judge

    if not path.is_dir():
        raise UsageError(f"{path}: no such run folder")
    for written in judge.render_folder(path):
        out(str(written))
    return 0

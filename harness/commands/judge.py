"""`winkle check` and `winkle report`: judge and render what lies on disk, without a target."""

from pathlib import Path

from harness.errors import UsageError
from harness.results import encode
from harness.summary import lines
from harness.terminal import out

_EXIT = {"pass": 0, "fail": 1, "unknown": 2}
_WORKLOAD = "fencing"


def check(path: Path, *, workload: str | None, as_json: bool) -> int:
    """Judge a run folder or a bare history again; return the exit code.  Raises UsageError."""
    from harness import judge

    if path.is_dir():
        if workload is not None:
            raise UsageError(
                f"--workload: found {workload!r}, but {path} is a run folder, which names its own"
            )
        results = judge.check_folder(path)
    elif path.is_file():
        results = judge.check_history(path, workload or _WORKLOAD)
    else:
        raise UsageError(f"{path}: no such run folder or history file")
    if as_json:
        out(encode(results).decode().rstrip("\n"))
    else:
        for line in lines(results, path if path.is_dir() else None):
            out(line)
    return _EXIT[results.verdict.verdict]


def report(path: Path) -> int:
    """Render every report of a run folder again, and print their paths.  Raises UsageError."""
    from harness import judge

    if not path.is_dir():
        raise UsageError(f"{path}: no such run folder")
    for written in judge.render_folder(path):
        out(str(written))
    return 0

"""One run, from Python or from the command line: `harness.run(...)` and `execute(...)`."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from harness.backend import backend
from harness.errors import HarnessError, SandboxError, WinkleError
from harness.folder import RunFolder, create
from harness.heal import heal
from harness.judge import HARNESS_ERROR, exit_code, finish
from harness.repeat import command
from harness.results import Results
from harness.spec import RunSpec
from harness.verdict import Anomaly


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    `exit_code` as on the command line (0 pass, 1 fail, 2 unknown, 130 interrupted, 255 error);
    `results` is None when the run came to nothing that can be judged, `error` then says why.
    """

    exit_code: int
    folder: Path | None
    results: Results | None
    error: str | None = None

    @property
    def verdict(self) -> str:
        """`pass`, `fail` or `unknown`."""
        return self.results.verdict.verdict if self.results else "unknown"

    @property
    def findings(self) -> tuple[Anomaly, ...]:
        """The anomalies, gravest first."""
        return self.results.verdict.anomalies if self.results else ()


def require(backends: Collection[str]) -> None:
    """Stop where one of these backends cannot work at all.  Raises HarnessError."""
    for name in sorted(backends):
        backend(name).require()


def execute(
    spec: RunSpec, out: Path, *, json_output: bool = False, quiet: bool = False
) -> RunResult:
    """Run, judge and report; never raises for what a run may meet.

    Raises UsageError, and HarnessError where no run can live: the machine forbids sandboxes, or no
    engine answers.  Blocks for the length of the run.  The run lives in a sandbox of its own: this
    process starts no thread, holds no server, and survives whatever happens there.
    """
    require({spec.backend})
    heal()
    try:
        folder = create(out, spec, time.time())
        _write_run_file(folder, spec, quiet=quiet or json_output)
    except (HarnessError, OSError) as error:
        return RunResult(HARNESS_ERROR, None, None, str(error))
    left = backend(spec.backend).launch(folder.path)
    if left.never_began is not None:
        raise SandboxError(left.never_began)
    try:
        judged = folder.results.exists()
        results = folder.read_results() if judged else finish(folder)
    except (WinkleError, OSError) as error:
        return RunResult(HARNESS_ERROR, folder.path, None, f"the run cannot be judged: {error}")
    code = exit_code(results) if judged else HARNESS_ERROR
    return RunResult(code, folder.path, results, results.error)


def _write_run_file(folder: RunFolder, spec: RunSpec, *, quiet: bool) -> None:
    from harness.runfile import to_yaml

    recorded = {
        "command": command(spec),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quiet": quiet,
    }
    folder.write("run.yaml", to_yaml(spec, recorded).encode())


def run(
    run_file: str | Path | None = None, *, out: str | Path = "runs", **flags: object
) -> RunResult:
    """Run as `winkle run` does: `run(lock="etcd", store="valkey", faults=["pause:..."])`.

    `flags` are the keys of a run file (`workers=3`, `ttl="2s"`, ...).  Raises as `execute`.
    """
    from harness.runfile import from_values, read_file

    if run_file is None:
        spec = from_values(flags)
    else:
        spec = read_file(Path(run_file), {(key,): value for key, value in flags.items()})
    return execute(spec, Path(out), quiet=True)

"""`winkle`: the command line.

Exit codes: 0 pass (in a suite: all as expected), 1 fail, 2 unknown, 254 wrong usage or run file,
255 the harness failed, 130 interrupted.  Results go to standard output, everything else to standard
error.  A mistake is one clear line and never a traceback; `--debug` shows one.  What a command
needs is imported when it runs, so that help is quick.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness import flags
from harness._version import __version__
from harness.errors import MalformedHistoryError, UsageError, WinkleError
from harness.terminal import err, out, printable

PASS, UNKNOWN, INTERRUPTED, USAGE, ERROR = 0, 2, 130, 254, 255
_DEBUG = "--debug"
# typer brings its own copy of click, older ones the package: both derive this one from their base.
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="winkle",
    help="Freeze a lock holder, and prove what it does to the data.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        out(f"vanwinkle {__version__}")
        raise typer.Exit(PASS)


@app.callback()
def root(
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
    debug: Annotated[  # noqa: ARG001 - `main` takes it away; it is here for the help
        bool, typer.Option(_DEBUG, help="Show the traceback of an internal error.")
    ] = False,
) -> None:
    """Freeze a lock holder, and prove what it does to the data."""
    from harness.plugins import guard_origin

    guard_origin()


@app.command()
def run(
    run_file: flags.RunFile = None,
    *,
    lock: flags.Lock = None,
    store: flags.Store = None,
    workload: flags.Workload = None,
    fault: flags.Faults = None,
    backend: flags.Backend = None,
    inventory: flags.Inventory = None,
    compose: flags.Compose = None,
    servers: flags.Servers = None,
    workers: flags.Workers = None,
    readers: flags.Readers = None,
    ttl: flags.Ttl = None,
    time: flags.Time = None,
    op_timeout: flags.OpTimeout = None,
    seed: flags.Seed = None,
    keys: flags.Keys = None,
    think: flags.Think = None,
    rate: flags.Rate = None,
    check: flags.Check = None,
    stop_on_failure: flags.StopOnFailure = False,
    repeat: flags.Repeat = 1,
    folder: flags.Out = Path("runs"),
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> int:
    """Run once, judge and report."""
    given = flags.values(locals())
    from harness.commands import run as command

    return command.run(run_file, given, repeat=repeat, folder=folder, as_json=as_json, quiet=quiet)


@app.command()
def replay(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")],
    folder: flags.Out = Path("runs"),
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> int:
    """Run again with the faults at the times, nodes and phases at which they came."""
    from harness.commands import run as command

    return command.replay(run_dir, folder=folder, as_json=as_json, quiet=quiet)


@app.command()
def suite(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A shipped suite, or a suite file.")
    ] = "quick",
    backend: flags.Backend = None,
    inventory: flags.Inventory = None,
    folder: flags.Out = Path("runs"),
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> int:
    """Run many runs, and compare each with what is expected of it."""
    from harness.commands import suite as command

    given = flags.values({"backend": backend, "inventory": inventory, "fault": None})
    return command.suite(name, given, folder=folder, as_json=as_json, quiet=quiet)


@app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run folder, or a history.")],
    *,
    workload: flags.Checkers = None,
    model: flags.Model = None,
    format_: flags.Format = "auto",
    initial: flags.Initial = None,
    cas_fail: flags.CasFail = None,
    nil_read: flags.NilRead = None,
    read: flags.Named = None,
    write: flags.Named = None,
    cas: flags.Named = None,
    acquire: flags.Named = None,
    release: flags.Named = None,
    get: flags.Named = None,
    put: flags.Named = None,
    append: flags.Named = None,
    add: flags.Named = None,
    budget: flags.Budget = "60s",
    as_json: flags.Json = False,
) -> int:
    """Judge again what lies on disk, or another tool's history; needs no target."""
    given = {name.rstrip("_"): value for name, value in locals().items()}
    from harness.commands import judge

    return judge.check(path, given, as_json=as_json)


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")],
) -> int:
    """Write the reports of a run again."""
    from harness.commands import judge

    return judge.report(run_dir)


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="targets|faults|workloads|suites|anomalies")
    ],
    as_json: flags.Json = False,
) -> int:
    """List what there is."""
    from harness.commands import catalogue

    return catalogue.show(what, as_json=as_json)


@app.command()
def explain(
    anomaly: Annotated[str, typer.Argument(metavar="ANOMALY", help="A name of the catalogue.")],
) -> int:
    """Explain an anomaly: what it says, how it comes about, how to fix it."""
    from harness.commands import catalogue

    return catalogue.explain(anomaly)


@app.command()
def get(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME@VERSION]...", help="Like etcd@3.7.1.")
    ] = None,
    as_json: flags.Json = False,
) -> int:
    """Build released versions of products into the cache; list them when none is named."""
    from harness.commands import get as command

    return command.get(wanted or (), as_json=as_json)


@app.command()
def doctor(as_json: flags.Json = False) -> int:
    """Try what works on this machine, and say how to fix what does not."""
    from harness.commands import machine

    return machine.doctor(as_json=as_json)


@app.command()
def heal() -> int:
    """Undo everything that a dead run left, and only that."""
    from harness.commands import machine

    return machine.heal()


def _open_standard_streams() -> None:
    """Give what the caller closed somewhere to go: a new file must not become standard output."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `winkle` and return its exit code; raises nothing."""
    _open_standard_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Accepted anywhere: people add it to the end of the command that failed.
    debug = _DEBUG in given
    words = [word for word in given if word != _DEBUG]
    try:
        code = typer.main.get_command(app).main(
            args=words, prog_name="winkle", standalone_mode=False
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the last resort of a command line
        if debug:
            import traceback

            traceback.print_exc()
        return _explain(error)
    # The verdict stands: another Ctrl-C while the interpreter winds down must not change the code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code if isinstance(code, int) else PASS


def _explain(error: BaseException) -> int:
    """Say in one line what went wrong, and return the exit code for it."""
    if isinstance(error, _CLICK_ERROR):
        where = getattr(error, "ctx", None)
        path = where.command_path if where is not None else "winkle"
        err(f"winkle: {printable(error.format_message())} (see `{path} --help`)")
        return USAGE
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if isinstance(error, UsageError):
        err("\n".join(f"winkle: {line}" for line in printable(str(error)).split("\n")))
        return USAGE
    if isinstance(error, MalformedHistoryError):
        err(f"winkle: UNKNOWN (malformed): {printable(str(error))}")
        return UNKNOWN
    if isinstance(error, WinkleError):
        err(f"winkle: {printable(str(error))}")
        return ERROR
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        err(f"winkle: {printable(name + error.strerror)}")
        return ERROR
    text = printable(str(error)).replace("\n", " ")
    err(f"winkle: internal error: {type(error).__name__}: {text} (run again with {_DEBUG})")
    return ERROR


if __name__ == "__main__":
    sys.exit(main())

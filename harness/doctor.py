"""`winkle doctor`: what works on this machine, by real attempts, and the fix for what does not."""

import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from harness.docker.engine import EngineError, connect
from harness.errors import SandboxError, UsageError
from harness.ledger import ledger_folder
from harness.local import advice, sandbox
from harness.plugins import describe, make

OPTIONAL = "(optional)"
PROBE_S = 60.0


_NOT_NEEDED = "nothing to do, unless you want this target"  # what to do is said in its text


@dataclass(frozen=True)
class Finding:
    """One thing that was tried; `fix` is empty when it works."""

    name: str
    ok: bool
    text: str
    fix: str = ""

    @property
    def required(self) -> bool:
        """Whether runs are impossible or wrong without it."""
        return not self.name.endswith(OPTIONAL)


def examine() -> list[Finding]:
    """Try everything; takes about a second."""
    return [*_platform(), *_sandbox(), *_docker(), *_ledger(), *_targets()]


def _platform() -> Iterator[Finding]:
    version = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Finding("python", not old, version, "use Python 3.11 or newer" if old else "")


def _sandbox() -> Iterator[Finding]:
    try:
        advice.require_linux()
    except SandboxError as error:
        yield Finding("sandbox", ok=False, text=str(error), fix=advice.DOCKER)
        return
    with tempfile.TemporaryFile() as said:
        left = sandbox.launch("harness.local.probe", stdout=said.fileno(), bound_s=PROBE_S)
        said.seek(0)
        lines = [json.loads(line) for line in said.read().splitlines()]
    trying = [line["trying"] for line in lines if "trying" in line]
    records = [line for line in lines if "trying" not in line]
    if left.failed is not None:
        text = f"{left.failed.step}: {left.failed.text}"
        yield Finding("sandbox", ok=False, text=text, fix=advice.way_out(left.failed))
        return
    whole = left.code == 0
    text = "its own namespaces and mounts"
    if not whole:
        where = f" while it tried: {trying[-1]}" if len(trying) > len(records) else ""
        text = f"the probe ended with {left.code}{where}"
    yield Finding("sandbox", whole, text, "" if whole else "please report this")
    for record in records:
        fix = "" if record["ok"] else "please report this with the output of `winkle doctor --json`"
        if not record["ok"] and record["name"].endswith(OPTIONAL):
            fix = "nothing to do: runs work without it"
        yield Finding(record["name"], record["ok"], record["text"], fix)


def _docker() -> Iterator[Finding]:
    name = f"docker {OPTIONAL}"
    try:
        api = connect()
    except EngineError as error:
        fix = "nothing to do: only --backend docker needs an engine"
        yield Finding(name, ok=False, text=str(error), fix=fix)
        return
    try:
        yield Finding(name, ok=True, text=f"engine {api.version()['Version']}")
    finally:
        api.close()


def _ledger() -> Iterator[Finding]:
    folder = ledger_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        fix = "set XDG_STATE_HOME to a folder that can be written"
        yield Finding("undo ledger", ok=False, text=str(error), fix=fix)
    else:
        yield Finding("undo ledger", ok=True, text=str(folder))


def _targets() -> Iterator[Finding]:
    for found in describe("targets"):
        name = f"target {found.name} {OPTIONAL}"
        if found.trouble is not None:
            yield Finding(name, ok=False, text=found.trouble, fix=_NOT_NEEDED)
            continue
        try:
            servers = make("targets", found.name, {}).servers()
        except UsageError as error:
            yield Finding(name, ok=False, text=str(error), fix=_NOT_NEEDED)
            continue
        yield Finding(name, ok=True, text=f"{len(servers)} server(s): {servers[0].argv[0]}")

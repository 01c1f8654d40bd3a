"""The undo ledger: what must be undone is on disk before it is done.

One file a run, outside of the run folder, so that `winkle heal` finds it whatever became of that
folder.  The harness holds a lock on it while it lives: a ledger that can be locked belongs to a
run that is dead.  Processes are named by pid, start time and pid namespace, so that nothing else
is ever touched.  When all is undone the file goes.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from harness import procfs
from harness.errors import HarnessError


def ledger_folder() -> Path:
    """Return where ledgers are kept: `$XDG_STATE_HOME/vanwinkle/ledgers`."""
    return state_home() / "vanwinkle" / "ledgers"


def state_home() -> Path:
    """Return `$XDG_STATE_HOME`, or where it is when nothing is said."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


class Ledger:
    """The ledger of a live run."""

    def __init__(self, path: Path, run: Path, backend: str) -> None:
        self.path = path
        self._next = 0
        self._open: set[int] = set()
        head = {
            "run": str(run),
            "backend": backend,
            "boot": procfs.boot_id(),
            "pid_namespace": procfs.namespace_inode(os.getpid(), "pid"),
            "init_start": procfs.start_ticks(1),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Under another name until it is locked and whole: `heal` must never see it free.
            part = path.with_suffix(".part")
            self._fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            self._write(head)
            part.rename(path)
        except OSError as error:
            raise HarnessError(
                f"the undo ledger cannot be written ({error}): "
                "set XDG_STATE_HOME to a folder that can"
            ) from error

    def _write(self, record: dict[str, Any]) -> None:
        os.write(self._fd, json.dumps(record).encode() + b"\n")

    def add(self, fault: str, node: str, undo: dict[str, Any]) -> int:
        """Write down how to undo a fault, before it is applied; return the entry's number."""
        number = self._next
        self._next += 1
        self._open.add(number)
        self._write({"entry": number, "fault": fault, "node": node, "undo": undo})
        return number

    def done(self, number: int) -> None:
        """Write down that an entry was undone."""
        if number in self._open:
            self._open.remove(number)
            self._write({"undone": number})

    def close(self) -> list[int]:
        """Remove the file when all is undone; return the entries that are not."""
        left = sorted(self._open)
        if not left:
            self.path.unlink(missing_ok=True)
        os.close(self._fd)
        return left


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the head of a ledger and the entries that were not undone; a torn tail is ignored."""
    head: dict[str, Any] = {}
    entries: dict[int, dict[str, Any]] = {}
    for line in path.read_bytes().split(b"\n")[:-1]:
        record = json.loads(line)
        if "entry" in record:
            entries[record["entry"]] = record
        elif "undone" in record:
            entries.pop(record["undone"], None)
        else:
            head = record
    return head, list(entries.values())

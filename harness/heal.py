"""`winkle heal`: undo what dead runs left, and only that.

A run is dead when its ledger is not locked.  A process is touched only if boot, pid namespace, pid
in that namespace and start time are those that the ledger names.  On the local backend the sandbox
dies with its harness, so there is usually nothing to do but to close the ledger; if a sandbox did
survive, ending its first process removes all of it.
"""

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from harness import procfs
from harness.ledger import ledger_folder, read


def heal(folder: Path | None = None) -> list[str]:
    """Undo everything that dead runs left; return one line for each thing done or found."""
    said: list[str] = []
    place = folder or ledger_folder()
    for path in sorted(place.glob("*.jsonl")) if place.is_dir() else []:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                said.append(f"{path.stem}: still running, left alone")
                continue
            said.extend(f"{path.stem}: {line}" for line in _heal_one(path))
            path.unlink(missing_ok=True)
    return said


def _heal_one(path: Path) -> Iterator[str]:
    try:
        head, entries = read(path)
    except (ValueError, KeyError) as error:
        yield f"its ledger cannot be read ({error}); nothing was touched"
        return
    if not head:
        yield "it never began"
        return
    if head["boot"] != procfs.boot_id():
        yield "from before the last boot: nothing can be left"
        return
    inode = head["pid_namespace"]
    touched = False
    for entry in entries:
        for pid, start in entry["undo"].get("processes", []):
            for process in _find(inode, pid, start):
                os.kill(process, signal.SIGCONT)
                touched = True
                yield f"continued process {process} of {entry['node']} ({entry['fault']})"
    if inode != procfs.namespace_inode(os.getpid(), "pid"):
        for process in _find(inode, 1, head["init_start"]):
            os.kill(process, signal.SIGKILL)
            touched = True
            yield "ended its sandbox, with all that was in it"
    if not touched:
        yield "nothing is left of it"


def _find(namespace: int, inner: int, start: int) -> Iterator[int]:
    """Yield the pid, as seen from here, of the process that the ledger names, if it still lives."""
    for pid in procfs.pids():
        if procfs.start_ticks(pid) != start or procfs.namespace_inode(pid, "pid") != namespace:
            continue
        with contextlib.suppress(OSError):
            if procfs.inner_pid(pid) == inner:
                yield pid

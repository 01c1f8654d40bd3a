"""`winkle heal`: undo what dead runs left, and only that.

A run is dead when its ledger is not locked.  A process is touched only if boot, pid namespace, pid
in that namespace and start time are those that the ledger names.  On the local backend the sandbox
dies with its harness, so there is usually nothing to do but to close the ledger; if a sandbox did
survive, ending its first process removes all of it.  Hosts heal themselves, and containers are
found by their label.
"""

import contextlib
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

from harness import procfs
from harness.ledger import ledger_folder, read
from harness.node import ProcessId

_ELSEWHERE = {
    "ssh": "its hosts end by themselves what it left there, in seconds: nothing to do from here",
    "docker": "its containers are found by their label, and removed as soon as the engine answers",
}


def heal(folder: Path | None = None) -> list[str]:
    """Undo everything that dead runs left; return one line for each thing done or found."""
    said: list[str] = []
    place = folder or ledger_folder()
    for path in sorted(place.glob("*.jsonl")) if place.is_dir() else []:
        said.extend(f"{path.stem}: {line}" for line in _heal_file(path))
    return said


def _heal_file(path: Path) -> Iterator[str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        yield f"cannot be opened ({error.strerror}); nothing was touched"
        return
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            yield "is no file; nothing was touched"
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield from _heal_dead(path)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        yield "still running, left alone"
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        yield f"is no ledger of ours, or damaged ({error}); nothing was touched, and it stays"
    except OSError as error:
        yield f"could not be healed: {error}"
    finally:
        os.close(fd)


def _heal_dead(path: Path) -> Iterator[str]:
    head, entries = read(path)
    if not head:
        yield "it never began"
        return
    if head["boot"] != procfs.boot_id():
        yield "from before the last boot: nothing can be left"
        return
    if head["backend"] != "local":  # the pids that its ledger names are not those of this machine
        yield _ELSEWHERE[head["backend"]]
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
        if (
            not procfs.alive(ProcessId(pid, start))
            or procfs.namespace_inode(pid, "pid") != namespace
        ):
            continue
        with contextlib.suppress(OSError):
            if procfs.inner_pid(pid) == inner:
                yield pid

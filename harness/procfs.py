"""What the kernel says about processes, read from /proc.

This is the independent probe of the process faults: it looks at every thread's state and does not
use the signals that it checks.  A process is named by pid and start time, so that a pid that was
given out again is never mistaken for the one that was recorded.
"""

import os
import signal
from pathlib import Path

from harness.process import ProcessId

STOPPED = "T"
_SIGSTOP_BIT = 1 << (signal.SIGSTOP - 1)
GONE = frozenset("ZX")


def read(path: str) -> bytes | None:
    """Return what a file of /proc holds, None when it or its process is gone.

    Faults must be in force within milliseconds and look at every thread, so this is the short way.
    Raises PermissionError.
    """
    data = b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while chunk := os.read(fd, 65536):
                data += chunk
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return data


def _stat_fields(path: str) -> list[str] | None:
    data = read(path)
    if data is None:
        return None
    text = data.decode("ascii", "replace")
    # The command name may hold spaces and parentheses; the fields begin after the last ")".
    return text[text.rindex(")") + 2 :].split()


def start_ticks(pid: int, proc: str = "/proc") -> int | None:
    """Return the start time of a process in clock ticks since boot, None when it is gone."""
    fields = _stat_fields(f"{proc}/{pid}/stat")
    return None if fields is None else int(fields[19])


def alive(process: ProcessId, proc: str = "/proc") -> bool:
    """Whether exactly this process still exists and is not just waiting to be reaped."""
    fields = _stat_fields(f"{proc}/{process.pid}/stat")
    return fields is not None and int(fields[19]) == process.start and fields[0] not in GONE


def pids(proc: str = "/proc") -> list[int]:
    """Return all pids of a /proc."""
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def in_network_namespace(inode: int) -> list[ProcessId]:
    """Return all processes whose network namespace has this inode, whoever started them.

    Process groups and parents do not do: PostgreSQL's processes are ten process groups.
    """
    found = []
    for pid in pids():
        try:
            here = os.stat(f"/proc/{pid}/ns/net").st_ino
        except OSError:
            continue
        start = start_ticks(pid) if here == inode else None
        if start is not None:
            found.append(ProcessId(pid, start))
    return found


def thread_states(pid: int) -> dict[int, str]:
    """Return the state letter of each thread of a process; empty when it is gone."""
    states: dict[int, str] = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return states
    for thread in threads:
        fields = _stat_fields(f"/proc/{pid}/task/{thread}/stat")
        if fields is not None and fields[0] not in GONE:
            states[int(thread)] = fields[0]
    return states


def still_threads(pid: int) -> list[bool]:
    """Return of each thread of a process whether it is stopped or looks frozen; empty when gone.

    The freezer of control groups shows frozen threads in state D (version 1), or as waiting in
    `do_freezer_trap` (version 2).  A thread that waits for a disk is in state D as well.
    """
    return [
        state in ("D", STOPPED) or read(f"/proc/{pid}/task/{thread}/wchan") == b"do_freezer_trap"
        for thread, state in thread_states(pid).items()
    ]


def stop_pending(pid: int) -> bool:
    """Whether a SIGSTOP waits to be taken by a process that is stopped already.

    The first SIGSTOP is used up by stopping; one that is still there was sent by somebody else.
    """
    for thread in thread_states(pid):
        lines = (read(f"/proc/{pid}/task/{thread}/status") or b"").splitlines()
        pending = [line for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:"))]
        if any(int(line.split()[1], 16) & _SIGSTOP_BIT for line in pending):
            return True
    return False


def namespace_inode(pid: int, kind: str) -> int | None:
    """Return the inode of a process's namespace (`pid`, `net`), None when it cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
    except OSError:
        return None


def inner_pid(pid: int) -> int | None:
    """Return the pid that a process has in its own, innermost pid namespace; None when gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None


def boot_id() -> str:
    """Return the identity of this boot; pids and start times mean nothing beyond it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()

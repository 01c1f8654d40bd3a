"""What the kernel says about processes on this host beside what `harness.procfs` tells."""

import os
from pathlib import Path

from harness import procfs
from harness.process import ProcessId


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone."""
    start = procfs.start_ticks(pid)
    return start if start is not None and procfs.alive(ProcessId(pid, start)) else None


def namespace(pid: int) -> int:
    """Return the inode of a process's pid namespace, 0 when it cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def has_mark(pid: int, mark: str) -> bool:
    """Whether an entry of the environment that a process was started with begins with `mark`."""
    try:
        return b"\0" + mark.encode() in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False

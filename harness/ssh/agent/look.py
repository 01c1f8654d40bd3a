"""What the kernel says about processes on this host, read from /proc."""

import os
from pathlib import Path

GONE = frozenset("ZX")


def pids() -> list[int]:
    """Return all pids that are seen from here."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _fields(path: str) -> list[str]:
    """Return the fields of a `stat` after the command's name, none when the process is gone."""
    try:
        text = Path(path).read_text("ascii", "replace")
    except OSError:
        return []
    # The command name may hold spaces and parentheses; the fields begin after the last ")".
    return text[text.rindex(")") + 2 :].split()


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone."""
    fields = _fields(f"/proc/{pid}/stat")
    return int(fields[19]) if fields and fields[0] not in GONE else None


def thread_states(pid: int) -> list[str]:
    """Return the state letter of each thread of a process; none when it is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    each = [_fields(f"/proc/{pid}/task/{thread}/stat") for thread in threads]
    return [fields[0] for fields in each if fields and fields[0] not in GONE]


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

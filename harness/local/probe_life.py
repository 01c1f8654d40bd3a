"""The steps of the probe that end processes and change their data."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.local.lab import Lab, LocalNode

_BOUND_S = 5.0


def kill(lab: Lab) -> str:
    """Kill a process, and look whether anything lives on."""
    node = lab["b"]
    argv = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    node.spawn(argv, log=Path("/dev/shm/probe/log"))
    if not node.processes():
        raise OSError("a started process is not seen")
    began = time.monotonic()
    node.kill()
    _wait(lambda: not node.processes(), "a killed process lives on")
    return f"a process was killed in {(time.monotonic() - began) * 1000:.1f} ms, proven by /proc"


def disk(lab: Lab) -> str:
    """Take room and writing from a disk, give both back, and try to write each time."""
    node = lab["b"]
    seen = []
    for order in (node.fill, node.forbid_writes):
        order("probe")
        seen.append(node.try_to_write() or "a write went through")
        node.make_whole("probe")
    after = node.try_to_write()
    if seen != ["ENOSPC", "EROFS"] or after:
        raise OSError(f"full: {seen[0]}, read-only: {seen[1]}, whole again: {after or 'written'}")
    return "a disk of its own for each node: ENOSPC when full, EROFS when read-only"


def amnesia(lab: Lab) -> str:
    """Give a node an older copy of its data back."""
    node = lab["b"]
    _write(node, "older")
    node.keep("probe")
    _write(node, "newer")
    changed = node.digest() != node.digest("probe")
    node.put_back("probe")
    if not changed or node.digest() != node.digest("probe"):
        raise OSError("a data folder is not what was put back")
    return "a data folder was copied and put back, compared by SHA-256"


def _write(node: LocalNode, text: str) -> None:
    (node.data / "file").write_text(text)


def _wait(reached: Callable[[], bool], else_: str) -> None:
    deadline = time.monotonic() + _BOUND_S
    while not reached():
        if time.monotonic() > deadline:
            raise OSError(else_)
        time.sleep(0.0005)

"""The doctor's try at a clock fault: a live process is lied to, asked, and told the truth again."""

import asyncio
import os
import select
import signal
import sys
import time
from pathlib import Path

from harness.clocks import Lie, Skew
from harness.local.lab import Lab

_HOUR = Lie(3600.0)
_WITHIN_S = 60.0
_BOUND_S = 5.0
_PROGRAM = "import sys, time\nfor _ in sys.stdin: print(time.time(), flush=True)"


def clock(lab: Lab) -> str:
    """Put the wall clock of a process an hour ahead, and back.  Raises OSError."""
    node = lab["b"]
    if reason := node.clocks.unavailable():
        raise OSError(reason)
    argv = [sys.executable, "-S", "-c", _PROGRAM]
    spawned = node.spawn(argv, log=Path("/dev/shm/probe/log"), pipes=True)
    try:
        _off_s(spawned.stdin, spawned.stdout)  # it runs
        return asyncio.run(_try(lab, spawned.stdin, spawned.stdout))
    finally:
        node.signal(signal.SIGKILL)
        os.close(spawned.stdin)
        os.close(spawned.stdout)


async def _try(lab: Lab, ask: int, answer: int) -> str:
    clocks = lab["b"].clocks
    since = await clocks.skew("probe", Skew(wall=_HOUR))
    took_ms = max((one.took_ms for one in clocks.applied("probe")), default=0.0)
    for read in (await clocks.read_clocks()).values():
        if read.trouble:
            raise OSError(read.trouble)
        if read.wall is None or not read.wall.fits(_HOUR, since.wall_ns, within_ns=10_000):
            raise OSError(f"the code of the process did not lie: {read}")
    if abs(_off_s(ask, answer) - _HOUR.offset_s) > _WITHIN_S:
        raise OSError("the process itself did not read the lie")
    await clocks.true_clocks("probe")
    if abs(_off_s(ask, answer)) > _WITHIN_S:
        raise OSError("the process did not read the true time again")
    return f"a process was lied to in {took_ms:.1f} ms, proven by its code and by its answer"


def _off_s(ask: int, answer: int) -> float:
    """Ask the program what time it has; return how far it is off, in seconds."""
    os.write(ask, b"\n")
    said = b""
    while not said.endswith(b"\n"):  # a line may come in pieces
        if not select.select([answer], [], [], _BOUND_S)[0]:
            raise OSError(f"the process did not answer within {_BOUND_S:g} s")
        if not (more := os.read(answer, 100)):
            raise OSError("the process ended before it answered")
        said += more
    return float(said) - time.time()

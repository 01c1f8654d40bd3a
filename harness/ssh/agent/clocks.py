"""Lying to the processes of one node about the time, on this host: by the harness's own code.

Whether it can be done here is found by doing it, to a process that is started for that: whoever may
not write into the memory of others (Yama, a policy of the host, an ordinary user beside a program
of root) is told by the kernel, and the run is told why before it begins.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from harness import procfs
from harness.clocks import Lie, Moment, Skew
from harness.process import ProcessId
from harness.vdso.clocks import VdsoClocks
from harness.vdso.halt import FreeReins, Reins

_TRIED = Skew(wall=Lie(offset_s=1000.0))


class Clocks:
    """The clocks of the processes of one node."""

    def __init__(self, processes: Callable[[], list[ProcessId]], reins: Reins) -> None:
        self._clocks = VdsoClocks(processes, reins)

    async def do(self, method: str, arguments: dict[str, Any]) -> Any:
        """Carry out an order and return its answer as JSON has it."""
        if method == "skew":
            lies = {clock: Lie(**lie) for clock, lie in arguments["skew"].items() if lie}
            since = await self._clocks.skew(arguments["owner"], Skew(**lies))
            return {"since": asdict(since), "applied": self._applied()}
        if method == "true_clocks":
            applied = self._applied()
            await self._clocks.true_clocks(arguments["owner"])
            return {"applied": applied}
        if method == "read":
            found = await self._clocks.read_clocks()
            readings = {str(pid): asdict(read) for pid, read in found.items()}
            return {"readings": readings, "applied": self._applied()}
        raise OSError(f"no such order about clocks: {method}")

    def _applied(self) -> dict[str, list[Any]]:
        """Return for each owner of a lie the processes that it was told to."""
        return {
            owner: [asdict(one) for one in self._clocks.applied(owner)]
            for owner in self._clocks.owners()
        }


def now() -> dict[str, int]:
    """Return this moment by the host's clocks."""
    return asdict(Moment.now())


async def unavailable() -> str | None:
    """Return why no clock can be set here, None when one was."""
    argv = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else may happen between fork and exec
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        start = procfs.start_ticks(process.pid)
        assert start is not None, "nobody has waited for it"
        tried = ProcessId(process.pid, start)
        clocks = VdsoClocks(lambda: [tried], FreeReins())
        reason = clocks.unavailable()
        if reason is None:
            await clocks.skew("try", _TRIED)
            reason = (await clocks.read_clocks())[process.pid].trouble
            await clocks.true_clocks("try")
        process.kill()
    return reason or None

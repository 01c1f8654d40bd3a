"""An agent on this machine, for tests of what it does: the same as on a host, but for the sshd."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from harness import procfs
from harness.ssh import node as nodes
from harness.ssh.inventory import Host
from harness.ssh.node import SshNode
from harness.ssh.station import LEASE_S, Station

BOUND_S = 30.0


@contextmanager
def agent(lease_s: float = LEASE_S, data: Path | None = None) -> Iterator[Station]:
    """Start an agent, and end it with all that it started."""
    here = Host(name="here", local=True, data=data)
    station = Station(here, f"test-{os.getpid()}", lease_s)
    try:
        yield station
    finally:
        station.close()


@dataclass
class Started:
    """A process that was started on a node, and what became of it."""

    node: SshNode
    argv: Sequence[str]
    log: Path
    pipes: bool = False
    ends: list[str] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self.ended = asyncio.Event()
        self.child = self.node.spawn(self.argv, log=self.log, pipes=self.pipes)
        self.child.watch(asyncio.get_running_loop(), self._end)
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def _end(self, how: str) -> None:
        self.ends.append(how)
        self.ended.set()

    async def end(self) -> str:
        await asyncio.wait_for(self.ended.wait(), BOUND_S)
        return self.ends[0]


def place(station: Station, name: str = "a") -> SshNode:
    return nodes.make(station, name)


def sleeping(seconds: int) -> int:
    """How many processes are this very sleep; two of a daemon that stands, which then has four.

    Before that there are others on the way, and sometimes four of them.
    """
    line = f"sleep\0{seconds}\0".encode()
    return sum(procfs.read(f"/proc/{pid}/cmdline") == line for pid in procfs.pids())


def living(words: str) -> list[int]:
    """Return the pids, seen from here, of processes whose command line holds these words."""
    found = []
    for pid in procfs.pids():
        line = procfs.read(f"/proc/{pid}/cmdline") or b""
        if words.encode() in line.replace(b"\0", b" ") and pid != os.getpid():
            found.append(pid)
    return found

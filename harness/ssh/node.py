"""A node over SSH: a server or a worker on a host, with all processes that come of it.

Its address is the host's.  Several nodes may share a host; each is stopped and killed by itself.

Every look is a question to the agent, a round trip of the network, and a frozen host answers none.
So whoever runs in the event loop looks with `await node.look()` first: what is seen then is what
`processes` and `threads` return a moment later.  Without it they ask by themselves, and wait.
Orders are given and not waited for; the agent carries them out before it looks.
"""

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.node import ProcessId, Threads
from harness.ssh.child import RemoteChild
from harness.ssh.clocks import RemoteClocks
from harness.ssh.folder import RemoteDisk, RemoteFolder
from harness.ssh.station import Station

# The first word of a worker's command: each host has a Python of its own.
PYTHON = "{python}"
_STOPPED = "T"
_FRESH_S = 0.1


class SshNode:
    """See `harness.node`: Node, Pausable, Killable, Distant; and `harness.site`: ClockSettable."""

    def __init__(self, station: Station, name: str, data: str) -> None:
        self.name = name
        self.address = station.host.known_as
        self.data = Path(data)
        self.station = station
        self.clocks = RemoteClocks(station, name)
        self._owners: set[str] = set()
        self._seen: tuple[float, dict[str, Any]] | None = None
        self._orders = 0

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        pipes: bool = False,
        cwd: Path | None = None,
    ) -> RemoteChild:
        """Order a process to be started here; its output comes back to `log`.  Raises OSError."""
        words = [self._python() if argv[0] == PYTHON else argv[0], *argv[1:]]
        where = None if cwd is None else str(cwd)
        return self.station.spawn(self.name, words, env or {}, where, log, pipes=pipes)

    def _python(self) -> str:
        import sys

        host = self.station.host
        return host.python or (sys.executable if host.local else "python3")

    async def look(self) -> None:
        """Ask what lives here and in which states, after all orders until now.  Raises OSError."""
        while True:
            orders = self._orders
            seen = await asyncio.wrap_future(self.station.link.tell("seen", room=self.name))
            if orders == self._orders:
                self._seen = (time.monotonic(), seen)
                return

    def _now(self) -> dict[str, Any]:
        """Return what was seen just now, or ask.  Raises OSError."""
        if self._seen is not None and time.monotonic() - self._seen[0] < _FRESH_S:
            return self._seen[1]
        found: dict[str, Any] = self.station.link.ask("seen", room=self.name)
        return found

    def processes(self) -> list[ProcessId]:
        """All processes that live here now, by their pids in the agent's own namespace."""
        return [ProcessId(pid, start) for pid, start in self._now()["processes"]]

    def threads(self) -> Threads:
        """Look at the kernel's state of every thread here."""
        states = self._now()["states"]
        return Threads(len(states), states.count(_STOPPED))

    def signal(self, number: signal.Signals) -> None:
        """Order a signal to every process that lives here."""
        self._order("signal", number=int(number))

    def kill(self, *, kindly: bool = False) -> None:
        """Order every process to end."""
        self.signal(signal.SIGTERM if kindly else signal.SIGKILL)

    def stop(self, owner: str) -> None:
        """Order every process to stop."""
        self._owners.add(owner)
        self._order("stop", owner=owner)

    def resume(self, owner: str) -> None:
        """Order every process to go on, unless another owner still stops the node."""
        self._owners.discard(owner)
        self._order("resume", owner=owner)

    def _order(self, do: str, **what: Any) -> None:
        """Give an order; what was seen before it counts no more.  Raises HostLostError."""
        self._seen = None
        self._orders += 1
        answer = self.station.link.tell(do, room=self.name, **what)
        if answer.done():
            answer.result()

    def held(self) -> bool:
        """Whether any owner stops the node now."""
        return bool(self._owners)


class FolderNode(SshNode, RemoteFolder):
    """A node whose data folder lies on a disk of the host."""

    def __init__(self, station: Station, name: str, data: str) -> None:
        SshNode.__init__(self, station, name, data)
        RemoteFolder.__init__(self, station, name)


class DiskNode(SshNode, RemoteDisk):
    """A node whose data folder lies in memory, on a file system of its own."""

    def __init__(self, station: Station, name: str, data: str) -> None:
        SshNode.__init__(self, station, name, data)
        RemoteDisk.__init__(self, station, name)


def make(station: Station, name: str) -> SshNode:
    """Make the place of a node on a host.  Raises HarnessError."""
    try:
        data = station.link.ask("room", name=name)
    except OSError as error:
        raise HarnessError(f"node {name} cannot be made: {error}") from error
    return (DiskNode if station.own_disks else FolderNode)(station, name, data)

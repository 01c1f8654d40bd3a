"""A node over SSH: a server or a worker on a host, with all processes that come of it.

Its address is the host's.  Several nodes may share a host; each is stopped and killed by itself.
Every look is a question to the agent, a round trip of the network.
"""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import HarnessError
from harness.node import ProcessId, Threads
from harness.ssh.child import RemoteChild
from harness.ssh.folder import RemoteDisk, RemoteFolder
from harness.ssh.station import Station

# The first word of a worker's command: each host has a Python of its own.
PYTHON = "{python}"
_STOPPED = "T"


class SshNode:
    """See `harness.node`: Node, Pausable, Killable."""

    def __init__(self, station: Station, name: str, data: str) -> None:
        self.name = name
        self.address = station.host.known_as
        self.data = Path(data)
        self.station = station
        self._owners: set[str] = set()

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

    def processes(self) -> list[ProcessId]:
        """All processes that live here now, by their pids in the agent's own namespace."""
        found = self.station.link.ask("members", room=self.name)
        return [ProcessId(pid, start) for pid, start in found]

    def threads(self) -> Threads:
        """Look at the kernel's state of every thread here."""
        states = self.station.link.ask("threads", room=self.name)
        return Threads(len(states), sum(state == _STOPPED for state in states))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process that lives here."""
        self.station.link.ask("signal", room=self.name, number=int(number))

    def kill(self, *, kindly: bool = False) -> None:
        """Order every process to end."""
        self.signal(signal.SIGTERM if kindly else signal.SIGKILL)

    def stop(self, owner: str) -> None:
        """Order every process to stop."""
        self._owners.add(owner)
        self.signal(signal.SIGSTOP)

    def resume(self, owner: str) -> None:
        """Order every process to go on, unless another owner still stops the node."""
        self._owners.discard(owner)
        if not self._owners:
            self.signal(signal.SIGCONT)

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

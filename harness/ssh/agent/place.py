"""One node on this host: where its processes live, who stops them, and what they are lied to."""

from typing import Any

from harness import procfs
from harness.local.orders import Orders
from harness.process import ProcessId
from harness.ssh.agent import rooms
from harness.ssh.agent.clocks import Clocks


class Place:
    """A room, with the orders to its processes and their clocks."""

    def __init__(self, room: rooms.AnyRoom) -> None:
        self.room = room
        self.orders = Orders(self.processes)
        self.clocks = Clocks(self.processes, self.orders)

    def processes(self) -> list[ProcessId]:
        """Return all that lives here now."""
        return [ProcessId(pid, start) for pid, start in rooms.members(self.room)]

    def seen(self) -> dict[str, Any]:
        """Return pid and start time of each process, and the state letter of each thread."""
        here = self.processes()
        states = (state for p in here for state in procfs.thread_states(p.pid).values())
        return {"processes": [[p.pid, p.start] for p in here], "states": "".join(states)}

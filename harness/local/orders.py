"""Orders to the processes of a node to stop and to go on, given by several sides.

Whoever stops the whole node is an owner, and it goes on when the last owner lets it.  Besides,
single processes are held for some milliseconds while their clocks are changed.  Neither may undo
the other's work: an order to go on that comes while a process is held is carried out when it is let
go, and a process that somebody else wants stopped stays stopped.
"""

import contextlib
import os
import signal
from collections.abc import Callable

from harness import procfs
from harness.process import ProcessId
from harness.vdso.halt import all_stopped, send


class Orders:
    """The orders for one node; implements `harness.vdso.halt.Reins`.

    `frozen` is set while somebody else froze all processes, so that none takes a signal.
    """

    def __init__(self, processes: Callable[[], list[ProcessId]]) -> None:
        self.frozen = False
        self._processes = processes
        self._owners: set[str] = set()
        self._held: dict[ProcessId, bool] = {}  # and whether an order to go on came meanwhile

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process."""
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def stop(self, owner: str) -> None:
        """Order every process to stop."""
        self._owners.add(owner)
        self.signal(signal.SIGSTOP)

    def resume(self, owner: str) -> None:
        """Order every process to go on, unless another owner still stops the node."""
        self._owners.discard(owner)
        if self._owners:
            return
        for process in self._processes():
            if process in self._held:
                self._held[process] = True
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    def resume_all(self) -> None:
        """Order every process to go on, whoever stopped the node."""
        self._owners.clear()
        self.resume("")

    def stopped(self) -> bool:
        """Whether any owner stops the node now."""
        return bool(self._owners)

    def hold(self, process: ProcessId) -> None:
        """Order one process to stop for a moment."""
        self._held[process] = False
        send(process, signal.SIGSTOP)

    def stands(self, process: ProcessId) -> bool:
        """Whether every thread is stopped, or frozen together with all others.

        What is thawed takes the order to stop before it runs an instruction.
        """
        if self.frozen and all(procfs.still_threads(process.pid)):
            return True
        return all_stopped(process)

    def holding(self) -> bool:
        """Whether any process is held."""
        return bool(self._held)

    def let_go(self, process: ProcessId) -> bool:
        """Order it to go on unless an owner stops the node, or it had stopped itself."""
        asked = self._held.pop(process)
        if self._owners or not (asked or not procfs.stop_pending(process.pid)):
            return False
        send(process, signal.SIGCONT)
        return True

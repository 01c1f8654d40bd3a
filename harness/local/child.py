"""A process that this one started: its pipes, and its end as the kernel tells it.

A pidfd becomes readable when the process ends, so nobody waits in a thread, no signal handler is
needed, and a pid that is used again is never mistaken for the child.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Child:
    """A child by pid; see `harness.node.Spawned`."""

    pid: int
    stdin: int = -1
    stdout: int = -1

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[str], None]) -> None:
        """Call `ended(how)` once it has ended, and reap it."""
        fd = os.pidfd_open(self.pid)

        def reap() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            _, status = os.waitpid(self.pid, 0)
            ended(how_ended(status))

        loop.add_reader(fd, reap)

    def kill(self) -> None:
        """Order its end; it must not have been reaped yet."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def how_ended(status: int) -> str:
    """Return the end that a wait status tells, in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

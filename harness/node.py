"""Nodes: the places where the processes of a run live, and what can be done to them there.

A backend says *how* (a network namespace, a container, a host); a fault says *what* must be true.
The processes of a node are all processes that live in it, whoever started them: a database forks
and calls setsid, and must still be stopped whole.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from harness.process import ProcessId

__all__ = [
    "Distant",
    "Freezable",
    "Killable",
    "Node",
    "Pausable",
    "ProcessId",
    "Spawned",
    "Threads",
    "look_afresh",
    "on_this_machine",
]


@dataclass(frozen=True)
class Threads:
    """How many threads live on a node, and how many of them do not run because they are stopped.

    `seen` completes "3 of 3 threads ..." for a person.
    """

    total: int
    stopped: int
    seen: str = "in state T (/proc)"


class Spawned(Protocol):
    """A process that was started, or is about to be.

    `stdin` and `stdout` are file descriptors, -1 when not asked for; whoever asked closes them.
    """

    @property
    def stdin(self) -> int:
        """Where its input is written."""
        ...

    @property
    def stdout(self) -> int:
        """Where its output is read."""
        ...

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[str], None]) -> None:
        """Call `ended(how)` in the loop once it has ended: `exit code 1`, `signal SIGKILL`.

        Must be called once.  A start that failed is an end, too; the log then says why.
        """
        ...

    def kill(self) -> None:
        """Order its end (SIGKILL); not after `ended` was called."""
        ...


class Node(Protocol):
    """A place with an address of its own."""

    name: str
    address: str
    data: Path

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        pipes: bool = False,
        cwd: Path | None = None,
    ) -> Spawned:
        """Start a process here; its output goes to `log`, with `pipes` only its stderr does.

        Returns at once: a backend that needs time for a start takes it in a thread of its own.
        Raises OSError.
        """
        ...

    def processes(self) -> list[ProcessId]:
        """All processes that live here now."""
        ...


@runtime_checkable
class Pausable(Protocol):
    """Ability of a node: stop and continue everything that runs there."""

    def processes(self) -> list[ProcessId]:
        """All processes that live here now."""
        ...

    def stop(self, owner: str) -> None:
        """Order every process to stop; asynchronous, so look before you believe.

        By SIGSTOP, or all at once by a freezer where the node has one (`Freezable`).
        """
        ...

    def resume(self, owner: str) -> None:
        """Order every process to go on, unless another owner still stops the node.

        An owner that never stopped it may ask as well.
        """
        ...

    def held(self) -> bool:
        """Whether any owner stops the node now."""
        ...

    def threads(self) -> Threads:
        """Look at every thread here, by other means than those that stop them."""
        ...


@runtime_checkable
class Freezable(Protocol):
    """Ability of a node: `stop` freezes all that runs there at once; signals are the other way."""

    def stop_by_signal(self, owner: str) -> None:
        """Order every process to stop by SIGSTOP instead; `resume` ends either.

        What several owners want in different ways stays until the last of them lets it go.
        """
        ...


@runtime_checkable
class Killable(Protocol):
    """Ability of a node: end everything that runs there."""

    def kill(self, *, kindly: bool = False) -> None:
        """Order every process to end (SIGKILL; `kindly`: SIGTERM); asynchronous, as a stop is."""
        ...


@runtime_checkable
class Distant(Protocol):
    """Ability of a node: another machine or an engine runs it, so orders there take a while.

    Looks that nobody waited for with `look_afresh` may see what was before an order, or wait
    themselves and hold the whole run.
    """

    async def look(self) -> None:
        """Look now, after all orders that were given; the next looks return what was seen.

        Raises OSError.
        """
        ...


async def look_afresh(nodes: Iterable[object]) -> None:
    """Look at those nodes that are distant, all at once: to be awaited before any look at them.

    Raises OSError.
    """
    await asyncio.gather(*(node.look() for node in nodes if isinstance(node, Distant)))


def on_this_machine(nodes: Iterable[Node]) -> list[ProcessId]:
    """Return the processes of the nodes as far as they can be undone from this machine."""
    return [p for node in nodes if not isinstance(node, Distant) for p in node.processes()]

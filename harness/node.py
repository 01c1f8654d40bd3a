"""Nodes: the places where the processes of a run live, and what can be done to them there.

A backend says *how* (a network namespace, a container, a host); a fault says *what* must be true.
The processes of a node are all processes that live in it, whoever started them: a database forks
and calls setsid, and must still be stopped whole.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec


class ProcessId(msgspec.Struct, frozen=True):
    """A process by pid and start time (clock ticks since boot), never mistaken for a later one."""

    pid: int
    start: int


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
        """Order every process to stop (SIGSTOP); asynchronous, so look before you believe."""
        ...

    def resume(self, owner: str) -> None:
        """Order every process to go on (SIGCONT), unless another owner still stops the node.

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
class Killable(Protocol):
    """Ability of a node: end everything that runs there."""

    def kill(self, *, kindly: bool = False) -> None:
        """Order every process to end (SIGKILL; `kindly`: SIGTERM); asynchronous, as a stop is."""
        ...

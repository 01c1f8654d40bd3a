"""Holding a process still, outside of its clock functions.

Code and parameters are rewritten only while every thread of the process is stopped and none of
them is inside, or will return into, what is rewritten.  That also makes the change of a lie
atomic: a thread that was half-way through reading the parameters is inside, and is waited for.

A thread is inside when its program counter is, or when a signal handler interrupted it there: then
the address to return to lies on the stack that the handler runs on (Go interrupts its threads like
that many times a second).  So the stack is searched for such an address.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from harness import procfs
from harness.node import ProcessId
from harness.vdso.image import UnreachableError, Vdso
from harness.vdso.memory import GoneError, Memory

_BOUND_S = 2.0
_STACK_BYTES = 1 << 16
_QUICK_LOOKS = 20
_LOOK_S = 0.0005


class Reins(Protocol):
    """The say over single processes, which others may want stopped as well."""

    def hold(self, process: ProcessId) -> None:
        """Order a process to stop (SIGSTOP); others' orders to go on wait until `let_go`."""
        ...

    def let_go(self, process: ProcessId) -> bool:
        """Order it to go on unless somebody else wants it stopped; return whether it goes on."""
        ...


class FreeReins:
    """The say over processes that nobody but themselves stops."""

    def hold(self, process: ProcessId) -> None:
        """Order a process to stop."""
        send(process, signal.SIGSTOP)

    def let_go(self, process: ProcessId) -> bool:
        """Order it to go on unless it had stopped itself."""
        if procfs.stop_pending(process.pid):
            return False
        send(process, signal.SIGCONT)
        return True


def send(process: ProcessId, number: signal.Signals) -> None:
    """Signal exactly this process.  Raises GoneError, UnreachableError."""
    if not procfs.alive(process):
        raise GoneError
    try:
        os.kill(process.pid, number)
    except ProcessLookupError as error:
        raise GoneError from error
    except PermissionError as error:
        raise UnreachableError(f"process {process.pid} cannot be stopped: {error}") from error


@asynccontextmanager
async def still(
    process: ProcessId, memory: Memory, vdso: Vdso, reins: Reins
) -> AsyncIterator[None]:
    """Hold a process still, bounded in time.  Raises GoneError, UnreachableError."""
    deadline = time.monotonic() + _BOUND_S
    holding = False
    try:
        while True:
            holding = True
            reins.hold(process)
            if not await _moves_or_is_inside(process, memory, vdso, deadline):
                break
            holding = False
            if not reins.let_go(process):
                raise UnreachableError(
                    f"process {process.pid} was stopped by others while it read a clock"
                )
            await asyncio.sleep(0)
        yield
    finally:
        if holding:
            reins.let_go(process)


async def _moves_or_is_inside(
    process: ProcessId, memory: Memory, vdso: Vdso, deadline: float
) -> bool:
    """Wait until every thread is stopped; return whether one is inside.  Raises when too late."""
    looks = 0
    while moving := [t for t, s in _states(process).items() if s != procfs.STOPPED]:
        if time.monotonic() > deadline:
            states = ", ".join(f"{t}: {s}" for t, s in _states(process).items())
            raise UnreachableError(
                f"process {process.pid} did not stop within {_BOUND_S:g} s, because "
                f"{len(moving)} of its threads cannot (threads: {states})"
            )
        looks += 1
        await asyncio.sleep(0 if looks < _QUICK_LOOKS else _LOOK_S)
    if not any(_inside(process.pid, thread, memory, vdso) for thread in _states(process)):
        return False
    if time.monotonic() > deadline:
        raise UnreachableError(
            f"process {process.pid} was found inside of its clock functions for {_BOUND_S:g} s"
        )
    return True


def _states(process: ProcessId) -> dict[int, str]:
    states = procfs.thread_states(process.pid)
    if not states:
        raise GoneError
    return states


def _inside(pid: int, thread: int, memory: Memory, vdso: Vdso) -> bool:
    """Whether a stopped thread is in the vDSO, or will return into what is rewritten."""
    try:
        words = Path(f"/proc/{pid}/task/{thread}/syscall").read_text("ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return False  # the thread has ended
    except OSError as error:
        raise UnreachableError(
            f"the threads of process {pid} cannot be looked at: {error}"
        ) from error
    if len(words) < 2:
        return True  # "running": it is not off its processor yet
    stack, counter = int(words[-2], 16), int(words[-1], 16)
    if memory.base <= counter < memory.base + len(vdso.true):
        return True
    return returns_into(memory.read(stack, _STACK_BYTES), stack, memory.base, vdso)


def returns_into(data: bytes, address: int, base: int, vdso: Vdso) -> bool:
    """Whether a stack that begins at `address` holds an address inside of what is rewritten."""
    for high in {base >> 16, (base + len(vdso.true) - 1) >> 16}:
        # The upper six bytes of such an address are known, so the search is one of bytes.
        wanted = high.to_bytes(6, "little")
        at = data.find(wanted, 2)
        while at != -1:
            low = int.from_bytes(data[at - 2 : at], "little")
            if (address + at - 2) % 8 == 0 and vdso.rewritten((high << 16) + low - base):
                return True
            at = data.find(wanted, at + 1)
    return False

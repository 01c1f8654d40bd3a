"""Holding a process still where its clock functions can be changed under it.

Code is rewritten only while every thread of the process is stopped and none of them is in it, or
will return into it.  Parameters of code that lies already are rewritten only while no thread has
read some of them and not yet all: so a reading is wholly of the old lie or wholly of the new one,
and a thread that does nothing but read clocks is no obstacle.

A thread is there when its program counter is, or when a signal handler interrupted it there: then
the address to return to lies in a signal frame on the stack that the handler runs on (Go interrupts
its threads like that many times a second).  So the stack is searched for such an address; what only
looks like one, left by an earlier call, has no frame around it.
"""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness import procfs
from harness.process import ProcessId
from harness.vdso.image import UnreachableError, own
from harness.vdso.memory import GoneError, Memory

_BOUND_S = 2.0
_POLISH_S = 0.3
_STACK_BYTES = 1 << 15
_QUICK_LOOKS = 20
_LONG_LOOKS = 8
_LOOK_S = 0.0005


class Reins(Protocol):
    """The say over single processes, which others may want stopped as well."""

    def hold(self, process: ProcessId) -> None:
        """Order a process to stop (SIGSTOP); others' orders to go on wait until `let_go`."""
        ...

    def stands(self, process: ProcessId) -> bool:
        """Whether every thread of a process that is held stands still.  Raises GoneError."""
        ...

    def let_go(self, process: ProcessId) -> bool:
        """Order it to go on unless somebody else wants it stopped; return whether it goes on."""
        ...


class FreeReins:
    """The say over processes that nobody but themselves stops."""

    def hold(self, process: ProcessId) -> None:
        """Order a process to stop."""
        send(process, signal.SIGSTOP)

    def stands(self, process: ProcessId) -> bool:
        """Whether every thread is stopped."""
        return all_stopped(process)

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


def all_stopped(process: ProcessId, letters: str = procfs.STOPPED) -> bool:
    """Whether the kernel shows one of these letters for every thread.  Raises GoneError."""
    return all(state in letters for state in thread_states(process).values())


@dataclass(frozen=True)
class Step:
    """A vDSO that a process may be given while no thread is at an offset that is `inside`."""

    image: bytes
    inside: Callable[[int], bool]


async def change(
    process: ProcessId, memory: Memory, now: bytes, steps: Sequence[Step], reins: Reins
) -> None:
    """Turn a process's vDSO from `now` into the first of `steps`, by way of another if need be.

    The process is held still for some milliseconds, several times if its threads are in the way.
    Once another step is reached, the first is tried for no more than 0.3 s, else for 2 s.  Raises
    UnreachableError when none was reached, GoneError.
    """
    deadline = time.monotonic() + _BOUND_S
    best, reached = steps[0].image, False
    if now == best:
        return
    for tries in itertools.count():
        reins.hold(process)
        try:
            await _until_stopped(process, reins)
            step = _possible(process, memory, steps)
            if step is not None and step.image != now:
                memory.rewrite(now, step.image)
                now, reached = step.image, True
                deadline = min(deadline, time.monotonic() + _POLISH_S)
        finally:
            goes_on = reins.let_go(process)
        if now == best:
            return
        if not goes_on or time.monotonic() > deadline:
            if reached:
                return
            why = "all the time" if goes_on else "when others stopped it"
            raise UnreachableError(f"process {process.pid} was inside of its clock functions {why}")
        # On a busy machine it has not run since, and would be found where it stood.
        await asyncio.sleep(_LOOK_S * min(tries, _LONG_LOOKS))


def _possible(process: ProcessId, memory: Memory, steps: Sequence[Step]) -> Step | None:
    """Return the first step that no thread of a stopped process stands in the way of."""
    places: set[int] = set()
    for thread in thread_states(process):
        found = _places(process.pid, thread, memory)
        if found is None:
            return None
        places |= found
    return next((step for step in steps if not any(map(step.inside, places))), None)


async def _until_stopped(process: ProcessId, reins: Reins) -> None:
    deadline = time.monotonic() + _BOUND_S
    looks = 0
    while not reins.stands(process):
        if time.monotonic() > deadline:
            states = ", ".join(f"{thread}: {s}" for thread, s in thread_states(process).items())
            raise UnreachableError(
                f"process {process.pid} did not stop in {_BOUND_S:g} s (its threads: {states})"
            )
        looks += 1
        await asyncio.sleep(0 if looks < _QUICK_LOOKS else _LOOK_S)


def thread_states(process: ProcessId) -> dict[int, str]:
    """Return the state of each thread.  Raises GoneError."""
    states = procfs.thread_states(process.pid)
    if not states:
        raise GoneError
    return states


def _places(pid: int, thread: int, memory: Memory) -> set[int] | None:
    """Return the offsets of the vDSO at which a stopped thread is, or to which it may return.

    None when it is not off its processor yet.
    """
    try:
        said = procfs.read(f"/proc/{pid}/task/{thread}/syscall")
    except OSError as error:
        raise UnreachableError(
            f"the threads of process {pid} cannot be looked at: {error}"
        ) from error
    if said is None:
        return set()  # the thread has ended
    words = said.split()
    if len(words) < 2:
        return None
    stack, counter = int(words[-2], 16), int(words[-1], 16)
    data = memory.read(stack, _STACK_BYTES)
    interrupted = own().machine.interrupted
    return {counter - memory.base} | {
        address - memory.base
        for address, behind in pointers(data, stack, memory.base, memory.length)
        if interrupted(behind)
    }


def pointers(data: bytes, at_address: int, base: int, length: int) -> Iterator[tuple[int, bytes]]:
    """Yield the words of a stack that point into `length` bytes at `base`, and the 16 behind each.

    The stack was read from `at_address`.
    """
    for high in {base >> 16, (base + length - 1) >> 16}:
        # Known is all of such an address but its last two bytes, so the search is one of bytes;
        # its first two are zero, and searching for zeros on a stack is slow.
        wanted = (high & 0xFFFFFFFF).to_bytes(4, "little")
        at = data.find(wanted, 2)
        while at != -1:
            word, behind = int.from_bytes(data[at - 2 : at + 6], "little"), data[at + 6 : at + 22]
            if (at_address + at - 2) % 8 == 0 and 0 <= word - base < length and len(behind) == 16:
                yield word, behind
            at = data.find(wanted, at + 1)

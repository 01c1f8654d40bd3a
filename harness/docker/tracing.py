"""Holding a process of somebody else's container still, by tracing its threads.

The first process of a process space takes no SIGSTOP from within that space; that is how a sidecar
sees a server.  A debugger may hold it all the same, with the right SYS_PTRACE: every thread is
seized and interrupted, and let go again some hundred microseconds later.  A signal that came to a
thread meanwhile is handed on to it.  When the tracer dies, the kernel lets everything go.
"""

import asyncio
import ctypes
import errno
import os
import time
from functools import cache
from typing import Any

from harness import procfs
from harness.process import ProcessId
from harness.vdso.halt import thread_states
from harness.vdso.image import UnreachableError

_DETACH, _SEIZE, _INTERRUPT = 17, 0x4206, 0x4207
_ALL_KINDS = 0x40000000  # __WALL: threads as well
_OF_TRACING = 128  # PTRACE_EVENT_STOP: a stop by us, or one that is no delivery of a signal
_TRACED = "t"
_TRY_S = 1.0
_AGAIN_S = 0.01
_POLL_S = 0.0005


@cache
def _ptrace() -> Any:
    found = ctypes.CDLL(None, use_errno=True).ptrace
    found.restype = ctypes.c_long
    found.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return found


class Tracing:
    """The say over processes by tracing; implements `harness.vdso.halt.Reins`.

    All calls come from one thread, as the kernel wants it.  `frozen` is set while the engine froze
    all processes: then they stand still already.
    """

    def __init__(self) -> None:
        self.frozen = False
        self._held: dict[ProcessId, bool] = {}  # and whether it was stopped before
        self._seized: set[int] = set()
        self._late: set[int] = set()

    def unavailable(self, process: ProcessId) -> str | None:
        """Return why processes cannot be held here, by holding one; None when they can."""
        try:
            self.hold(process)
            deadline = time.monotonic() + _TRY_S
            while not self.stands(process):
                if time.monotonic() > deadline:
                    return f"process {process.pid} does not stand still when it is traced"
                time.sleep(_POLL_S)
        except UnreachableError as error:
            return str(error)
        finally:
            if process in self._held:
                self.let_go(process)
        return None

    def hold(self, process: ProcessId) -> None:
        """Order a process to stand still.  Raises GoneError, UnreachableError."""
        states = thread_states(process)
        try:
            if not self.frozen:
                self._seize(states)
        except UnreachableError:
            self._release()
            raise
        self._held[process] = procfs.STOPPED in states.values()

    def stands(self, process: ProcessId) -> bool:
        """Whether every thread stands still; those that came meanwhile are held as well."""
        if self.frozen and all(procfs.still_threads(process.pid)):
            return True
        states = thread_states(process)
        new = {thread: state for thread, state in states.items() if thread not in self._seized}
        self._seize(new)
        return not new and all(state == _TRACED for state in states.values())

    def holding(self) -> bool:
        """Whether any process is held."""
        return bool(self._held)

    def let_go(self, process: ProcessId) -> bool:
        """Let it go on as it was; return whether it goes on."""
        was_stopped = self._held.pop(process)
        self._release()
        return not was_stopped

    def _release(self) -> None:
        for thread in list(self._seized):
            self._detach(thread)

    # ------------------------------------------------------------------ threads

    def _seize(self, threads: "dict[int, str]") -> None:
        for thread in threads:
            if thread in self._late:  # traced already, by an earlier hold
                self._late.discard(thread)
                self._seized.add(thread)
            elif self._ask(_SEIZE, thread):
                self._seized.add(thread)
            if thread in self._seized:
                self._ask(_INTERRUPT, thread)

    def _detach(self, thread: int) -> None:
        """Let one thread go; one that is no longer there, or cannot take it yet, is not waited for.

        What sleeps in the kernel, or is frozen, stops before it goes on, and is let go then.
        """
        self._seized.discard(thread)
        owed = 0
        try:
            found, status = os.waitpid(thread, os.WNOHANG | _ALL_KINDS)
        except ChildProcessError:
            return
        if found and not os.WIFSTOPPED(status):
            return  # it ended
        if found and status >> 16 != _OF_TRACING:
            owed = os.WSTOPSIG(status)
        if not self._ask(_DETACH, thread, owed):
            self._late.add(thread)
            asyncio.get_running_loop().call_later(_AGAIN_S, self._detach_late, thread)

    def _detach_late(self, thread: int) -> None:
        if thread in self._late:
            self._late.discard(thread)
            self._detach(thread)

    def _ask(self, request: int, thread: int, data: int = 0) -> bool:
        """Make a request of the kernel; return False where the thread is gone or not stopped."""
        if _ptrace()(request, thread, None, data) == 0:
            return True
        number = ctypes.get_errno()
        # The kernel refuses what has begun to end before it calls it gone.
        if number == errno.ESRCH or (number == errno.EPERM and _ends(thread)):
            return False
        raise UnreachableError(f"thread {thread} cannot be traced: {os.strerror(number)}")


def _ends(thread: int) -> bool:
    return thread not in procfs.thread_states(thread)

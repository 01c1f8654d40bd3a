"""Processes that the agent started: what goes in, what comes out, and how they end.

Nothing here ever blocks: a frozen process neither reads nor writes, and must not stop the others.
What a process wrote before its end is sent before the end is told.
"""

import contextlib
import os
import selectors
import subprocess
from collections.abc import Callable
from typing import Any

from harness.ssh.agent.rooms import AnyRoom

_READ_BYTES = 1 << 16


class Child:
    """One process, by the name that the controller gave it."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", *, pipes: bool) -> None:
        self.name = name
        self.pid = process.pid
        self.input = _take(process.stdin) if pipes else -1
        self.outputs = {_take(process.stderr if pipes else process.stdout): "log"}
        if pipes:
            self.outputs[_take(process.stdout)] = "out"
        self.unsent = bytearray()
        self.input_ends = False
        # The agent reaps all that ends; the Popen object must not complain that nobody waited.
        process.returncode = 0


def _take(stream: Any) -> int:
    """Return a non-blocking descriptor of our own, and close the stream."""
    fd = os.dup(stream.fileno())
    stream.close()
    os.set_blocking(fd, False)
    return fd


class Children:
    """All processes; `event(kind, child, ...)` tells the controller what happens to them."""

    def __init__(self, selector: selectors.BaseSelector, event: Callable[..., None]) -> None:
        self._selector = selector
        self._event = event
        self._by_name: dict[str, Child] = {}
        self._quiet = False

    def spawn(
        self,
        room: AnyRoom,
        name: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str | None,
        *,
        pipes: bool,
    ) -> None:
        """Start a process in a room.  Raises OSError."""
        process = room.spawn(
            argv,
            env=dict(os.environ, **env),
            cwd=cwd,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
        )
        child = self._by_name[name] = Child(name, process, pipes=pipes)
        if not self._quiet:
            self._listen(child)

    def _listen(self, child: Child) -> None:
        for fd in child.outputs:
            self._selector.register(fd, selectors.EVENT_READ, lambda fd=fd: self._read(child, fd))

    def _read(self, child: Child, fd: int) -> bool:
        """Send on what a process wrote; return whether there may be more."""
        if fd not in child.outputs:
            return False  # it ended while this was about to be read
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._event(child.outputs[fd], child.name, data=data.decode("latin-1"))
            return True
        if not self._quiet:
            self._selector.unregister(fd)
        del child.outputs[fd]
        os.close(fd)
        return False

    def quiet(self, *, wanted: bool) -> None:
        """Read no output for now, while the way to the controller is full."""
        if wanted == self._quiet:
            return
        for child in self._by_name.values():
            if wanted:
                for fd in child.outputs:
                    self._selector.unregister(fd)
            else:
                self._listen(child)
        self._quiet = wanted

    # -------------------------------------------------------------------- input

    def write(self, name: str, data: bytes) -> None:
        """Give a process input; what it does not read yet waits here."""
        child = self._by_name.get(name)
        if child is None or child.input < 0:
            return
        waiting = bool(child.unsent)
        child.unsent += data
        if not waiting:
            self._flush(child)

    def _flush(self, child: Child) -> None:
        if child.input < 0:
            return
        registered = child.input in self._selector.get_map()
        try:
            while child.unsent:
                del child.unsent[: os.write(child.input, child.unsent)]
        except BlockingIOError:
            if not registered:
                self._selector.register(
                    child.input, selectors.EVENT_WRITE, lambda: self._flush(child)
                )
            return
        except OSError:
            child.unsent.clear()  # it has closed its input; its end is told by the kernel
        if registered:
            self._selector.unregister(child.input)
        if child.input_ends:
            self._shut(child)

    def close_input(self, name: str) -> None:
        """End the input of a process, when it has taken all of it."""
        child = self._by_name.get(name)
        if child is None:
            return
        child.input_ends = True
        if not child.unsent:
            self._shut(child)

    def _shut(self, child: Child) -> None:
        if child.input < 0:
            return
        if child.input in self._selector.get_map():
            self._selector.unregister(child.input)
        os.close(child.input)
        child.input = -1

    # --------------------------------------------------------------------- ends

    def kill(self, name: str, number: int) -> None:
        """Signal the process itself, unless it has ended."""
        child = self._by_name.get(name)
        if child is not None and child.pid >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)

    def reap(self) -> None:
        """Take note of those that have ended; nobody else's child is waited for."""
        for child in list(self._by_name.values()):
            if child.pid >= 0:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self._ended(child, status)

    def _ended(self, child: Child, status: int) -> None:
        for fd in list(child.outputs):
            while fd in child.outputs and self._read(child, fd):
                pass
        self._shut(child)
        killed = os.WIFSIGNALED(status)
        code = os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
        self._event("ended", child.name, signal=killed, code=code)
        if child.outputs:  # something that it started goes on and writes to the same place
            child.pid = -1
        else:
            del self._by_name[child.name]

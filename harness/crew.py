"""The controller's ends of its workers: pipes, lines, and the deaths of processes.

Reading and writing never block: a frozen worker neither reads nor writes, and must not stop the
others.  A worker that sends a line which is no message is ended: nothing that it says after that
can be trusted.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from harness.node import Node, Spawned
from harness.protocol import (
    LINE_BYTES_MAX,
    FromWorker,
    ToWorker,
    decode_from_worker,
    encode,
)
from harness.text import shorten

_READ_BYTES = 1 << 18


class Listener(Protocol):
    """Who is told what a worker says and when it ends."""

    def heard(self, worker: "Worker", message: FromWorker) -> None:
        """A message arrived."""
        ...

    def ended(self, worker: "Worker", why: str) -> None:
        """The worker's process ended, or was ended; comes once."""
        ...


class Worker:
    """One worker process, seen from the controller."""

    def __init__(self, name: str, node: Node, log: Path, listener: Listener) -> None:
        self.name = name
        self.node = node
        self.log = log
        self.abilities: frozenset[str] = frozenset()
        self.alive = False
        self.pid = -1
        self._listener = listener
        self._spawned = Spawned(-1)
        self._input = b""
        self._output = bytearray()

    def start(self, argv: list[str], loop: asyncio.AbstractEventLoop) -> None:
        """Start the process in its node and listen to it.  Raises OSError."""
        self._loop = loop
        self._spawned = self.node.spawn(argv, log=self.log, pipes=True)
        self.pid = self._spawned.pid
        self.alive = True
        os.set_blocking(self._spawned.stdin, False)
        os.set_blocking(self._spawned.stdout, False)
        loop.add_reader(self._spawned.stdout, self._read)
        watch_exit(loop, self.pid, self._exited)

    def send(self, message: ToWorker) -> None:
        """Queue a message; it leaves at once unless the worker does not read."""
        if not self.alive:
            return
        self._output += encode(message)
        if len(self._output) > LINE_BYTES_MAX * 4:
            self._end("it does not read what it is sent")
            return
        self._flush()

    def dismiss(self) -> None:
        """Stop listening; the end of its input ends the worker."""
        if self.alive:
            self.alive = False
            self._hang_up()

    def _flush(self) -> None:
        fd = self._spawned.stdin
        try:
            while self._output:
                del self._output[: os.write(fd, self._output)]
        except BlockingIOError:
            self._loop.add_writer(fd, self._flush)
            return
        except OSError:
            self._output.clear()  # its end is reported by the pidfd
        self._loop.remove_writer(fd)

    def _read(self) -> None:
        try:
            data = os.read(self._spawned.stdout, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._spawned.stdout)
            return
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            if not self._take(line):
                return
        if len(self._input) > LINE_BYTES_MAX:
            self._end(f"it sent a line of more than {LINE_BYTES_MAX:,} bytes")

    def _take(self, line: bytes) -> bool:
        try:
            message = decode_from_worker(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            shown = shorten(line.decode("utf-8", "backslashreplace"))
            self._end(f"it sent a line that is no message: {shown!r} ({error})")
            return False
        self._listener.heard(self, message)
        return self.alive

    def _exited(self, status: int) -> None:
        if not self.alive:
            return
        self._drain()
        self._gone(f"it ended with {how_ended(status)}")

    def _drain(self) -> None:
        """Take what the process said before it died: answers count."""
        with contextlib.suppress(OSError):
            while self.alive and (data := os.read(self._spawned.stdout, _READ_BYTES)):
                *lines, self._input = (self._input + data).split(b"\n")
                for line in lines:
                    if not self._take(line):
                        return

    def _end(self, why: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._gone(why)

    def _gone(self, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self._hang_up()
        self._listener.ended(self, why)

    def _hang_up(self) -> None:
        for fd in (self._spawned.stdin, self._spawned.stdout):
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
            os.close(fd)


def watch_exit(loop: asyncio.AbstractEventLoop, pid: int, callback: Callable[[int], None]) -> None:
    """Call `callback(status)` once the child `pid` has ended, and reap it."""
    fd = os.pidfd_open(pid)

    def exited() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        _, status = os.waitpid(pid, 0)
        callback(status)

    loop.add_reader(fd, exited)


def how_ended(status: int) -> str:
    """Return the end that a wait status tells, in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

"""The controller's ends of its workers: pipes, lines, and the deaths of processes.

Reading and writing never block: a frozen worker neither reads nor writes, and must not stop the
others.  A worker that sends a line which is no message is ended: nothing that it says after that
can be trusted.
"""

import asyncio
import contextlib
import os
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

    _stdin: int
    _stdout: int

    def __init__(self, name: str, node: Node, log: Path, listener: Listener) -> None:
        self.name = name
        self.node = node
        self.log = log
        self.abilities: frozenset[str] = frozenset()
        self.alive = False
        self._listener = listener
        self._spawned: Spawned | None = None
        self._input = b""
        self._output = bytearray()

    def start(self, argv: list[str], loop: asyncio.AbstractEventLoop) -> None:
        """Start the process in its node and listen to it.  Raises OSError."""
        self._loop = loop
        spawned = self._spawned = self.node.spawn(argv, log=self.log, pipes=True)
        self._stdin, self._stdout = spawned.stdin, spawned.stdout
        self.alive = True
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        loop.add_reader(self._stdout, self._read)
        spawned.watch(loop, self._exited)

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
        fd = self._stdin
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
            data = os.read(self._stdout, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._stdout)
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

    def _exited(self, how: str) -> None:
        if not self.alive:
            return
        self._drain()
        self._gone(f"it ended with {how}")

    def _drain(self) -> None:
        """Take what the process said before it died: answers count."""
        with contextlib.suppress(OSError):
            while self.alive and (data := os.read(self._stdout, _READ_BYTES)):
                *lines, self._input = (self._input + data).split(b"\n")
                for line in lines:
                    if not self._take(line):
                        return

    def _end(self, why: str) -> None:
        assert self._spawned is not None
        self._spawned.kill()
        self._gone(why)

    def _gone(self, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self._hang_up()
        self._listener.ended(self, why)

    def _hang_up(self) -> None:
        for fd in (self._stdin, self._stdout):
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
            os.close(fd)

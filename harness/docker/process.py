"""A process that runs as a container which joined a holder.

The engine takes 0.1 to 0.3 s to start one, so threads of ours do it and carry its streams, and the
event loop gets pipes at once.  A start that failed is an end like any other: the log says why.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.docker.engine import EngineError, engine_does
from harness.docker.project import Project
from harness.docker.streams import OUT, Streams

_READ_BYTES = 1 << 16
_END_S = 30
_SIGNALLED = 128


@dataclass
class _Pipes:
    """Our ends and the other side's; -1 where there is none."""

    stdin: int = -1
    stdout: int = -1
    from_them: int = -1
    to_them: int = -1

    @classmethod
    def made(cls) -> "_Pipes":
        from_them, stdin = os.pipe2(os.O_CLOEXEC)
        stdout, to_them = os.pipe2(os.O_CLOEXEC)
        return cls(stdin, stdout, from_them, to_them)


class ContainerProcess:
    """One life of a container; see `harness.node.Spawned`."""

    def __init__(
        self,
        project: Project,
        make: Callable[[], str],
        end: Callable[[], None],
        log: Path,
        *,
        pipes: bool,
        began: Callable[[str], None],
        ended: Callable[[str], None],
    ) -> None:
        """`make` returns a container to start, `end` ends all that runs there.

        `began` (right before its start) and `ended` are told which container it is, in a thread.
        """
        self._api = project.api
        self._end = end
        self._began = began
        self._ended = ended
        self._pipes = _Pipes.made() if pipes else _Pipes()
        self.stdin, self.stdout = self._pipes.stdin, self._pipes.stdout
        self._telling = threading.Lock()
        self._tell: Callable[[str], None] | None = None
        self._how: str | None = None
        file = log.open("ab")
        project.go(lambda: self._live(make, file), "container")

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[str], None]) -> None:
        """Call `ended(how)` in the loop once it has ended."""

        def tell(how: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
                loop.call_soon_threadsafe(ended, how)

        with self._telling:
            self._tell = tell
            how = self._how
        if how is not None:
            tell(how)

    def kill(self) -> None:
        """Order its end."""
        self._end()

    def _live(self, make: Callable[[], str], log: BinaryIO) -> None:
        with log:
            try:
                how = self._run(make, log)
            except EngineError as error:
                log.write(f"winkle: {error}\n".encode())
                how = "no start at all"
        # Before the end is told: what it said last must be there to be read.
        if self._pipes.to_them >= 0:
            os.close(self._pipes.to_them)
        with self._telling:
            self._how = how
            tell = self._tell
        if tell is not None:
            tell(how)

    def _run(self, make: Callable[[], str], log: BinaryIO) -> str:
        container = make()
        streams = Streams(self._api, container)
        try:
            self._began(container)
            with engine_does("the container cannot be started"):
                self._api.start(container)
            if self._pipes.from_them >= 0:
                threading.Thread(
                    target=_carry, args=(self._pipes.from_them, streams), daemon=True
                ).start()
            for stream, data in streams.frames():
                if stream == OUT and self._pipes.to_them >= 0:
                    _write(self._pipes.to_them, data)
                else:
                    log.write(data)
                    log.flush()
            with engine_does("the end of the container cannot be told"):
                code = int(self._api.wait(container, timeout=_END_S)["StatusCode"])
        finally:
            self._ended(container)
            streams.close()
        return how_ended(code)


def _carry(source: int, streams: Streams) -> None:
    """Carry what is written to a pipe into a container, until the pipe ends."""
    with contextlib.suppress(OSError):
        while data := os.read(source, _READ_BYTES):
            streams.send(data)
        streams.end_input()
    os.close(source)


def _write(fd: int, data: bytes) -> None:
    """Write all of it; nobody may be there to read any more."""
    view = memoryview(data)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(fd, view) :]


def how_ended(code: int) -> str:
    """Return the end that a container's exit code tells, in words.

    An engine has one number for both: what a signal ended has 128 more than its number.
    """
    with contextlib.suppress(ValueError):
        if code > _SIGNALLED:
            return f"signal {signal.Signals(code - _SIGNALLED).name}"
    return f"exit code {code}"

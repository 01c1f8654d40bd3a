"""A process on a host, seen from the controller: its pipes, its log, and its end.

A start is ordered and not waited for.  If it fails, or if its host is lost, that is an end like any
other, with its reason in the log.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from harness.ssh.link import Link

_PIPE_BYTES = 1 << 20


class RemoteChild:
    """See `harness.node.Spawned`.  `heard`, `flush` and `end` are called in the link's thread."""

    def __init__(self, name: str, link: Link, log: Path, *, pipes: bool) -> None:
        self.name = name
        self.stdin = self.stdout = -1
        self._link = link
        self._log = log.open("ab", buffering=0)
        self._outlet = -1
        self._unread = bytearray()
        self._how: str | None = None
        self._told = False
        self._watcher: tuple[asyncio.AbstractEventLoop, Callable[[str], None]] | None = None
        self._guard = threading.Lock()
        if pipes:
            self.stdout, self._outlet = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._outlet, False)
            with contextlib.suppress(OSError):  # more than root allows for all pipes of a user
                fcntl.fcntl(self._outlet, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            inlet, self.stdin = os.pipe2(os.O_CLOEXEC)
            link.feed(name, inlet)

    def started(self, answer: "Future[Any]") -> None:
        """Take the answer to the order that starts it; a refusal is its end."""
        if error := answer.exception():
            self.end(f"a failed start: {error}")

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[str], None]) -> None:
        """Call `ended(how)` in the loop once it has ended."""
        with self._guard:
            self._watcher = (loop, ended)
        self._tell()

    def kill(self) -> None:
        """Order its end."""
        self._link.tell("kill", child=self.name)

    # ----------------------------------------------------------- from the host

    def heard(self, record: dict[str, Any]) -> None:
        """Take what the agent says of it; after its end, what it left behind says nothing more."""
        if self._how is not None:
            return
        if record["event"] == "ended":
            self.end(_how(signalled=record["signal"], code=record["code"]))
            return
        data = record["data"].encode("latin-1")
        if record["event"] == "log":
            self._log.write(data)
        else:
            self._unread += data
            self.flush()

    def flush(self) -> bool:
        """Pass on what was not taken yet; return whether all is over."""
        try:
            while self._unread and self._outlet >= 0:
                del self._unread[: os.write(self._outlet, self._unread)]
        except BlockingIOError:
            return False
        except OSError:
            self._unread.clear()  # nobody reads it any more
        if self._how is None:
            return False
        self._finish()
        return True

    def end(self, how: str) -> None:
        """It has ended; told when all of its output was taken."""
        if self._how is not None:
            return
        if not how.startswith(("exit ", "signal ")):
            self._log.write(f"{how}\n".encode())
        self._how = how
        self.flush()

    def _finish(self) -> None:
        if self._outlet >= 0:
            os.close(self._outlet)
            self._outlet = -1
        self._log.close()
        self._tell()

    def _tell(self) -> None:
        with self._guard:
            if self._told or self._watcher is None or self._how is None or self._outlet >= 0:
                return
            self._told = True
            loop, ended = self._watcher
        with contextlib.suppress(RuntimeError):  # the run is over, and its loop with it
            loop.call_soon_threadsafe(ended, self._how)


def _how(*, signalled: bool, code: int) -> str:
    if not signalled:
        return f"exit code {code}"
    known = {number.value for number in signal.Signals}  # of those for real time two have names
    return f"signal {signal.Signals(code).name if code in known else code}"

"""What carries bytes between the controller and an agent."""

import contextlib
import os
import select
import subprocess
import threading
from collections.abc import Sequence
from typing import Protocol

_READ_BYTES = 1 << 18
END_S = 5.0
LAST_S = 0.5


class Carrier(Protocol):
    """The two directions of a connection to an agent; used by one reading and one writing thread.

    Both raise OSError when the connection is broken.
    """

    def send(self, data: bytes) -> None:
        """Send all of it; may block while the other side does not take it."""
        ...

    def receive(self, wait_s: float) -> bytes:
        """Return what has come, empty at the end.  Raises TimeoutError after `wait_s`."""
        ...

    def complaints(self) -> str:
        """Return what the agent, or what should have started it, wrote as errors so far."""
        ...

    def await_end(self) -> None:
        """Wait until what was started has cleared up and ended, bounded; not for a lost host."""
        ...

    def close(self) -> None:
        """Close it, whatever state it is in; may come twice."""
        ...


class PipeCarrier:
    """An agent on the controller's own machine, as a child process."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Start it.  Raises OSError."""
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the controller, which ends the agent
        )
        self._said = b""
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := self._process.stderr.read(_READ_BYTES):
            self._said += data

    def send(self, data: bytes) -> None:
        """Send all of it."""
        assert self._process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._process.stdin.fileno(), view) :]
        except BrokenPipeError:
            self._ended = True
            raise

    def receive(self, wait_s: float) -> bytes:
        """Return what has come."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        if not select.select([fd], [], [], wait_s)[0]:
            raise TimeoutError
        data = os.read(fd, _READ_BYTES)
        self._ended = not data
        return data

    def complaints(self) -> str:
        """Return what it wrote to its standard error; all of it when its output has ended."""
        if self._ended:
            self._listener.join(LAST_S)
        return self._said.decode("utf-8", "replace").strip()

    def await_end(self) -> None:
        """Wait until it has ended, or 5 s are over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)

    def close(self) -> None:
        """End its input, which ends it; kill it when it does not end."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

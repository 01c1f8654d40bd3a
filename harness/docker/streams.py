"""The standard streams of a container, over one connection that the engine gave up to them.

It must stand before the container starts, or what is printed first is lost.  Output comes in frames
that name their stream; the end of it comes when the last process that has it ends.
"""

import contextlib
import io
import socket
import struct
from collections.abc import Iterator
from typing import Any

from harness.docker.engine import engine_does

OUT, ERR = 1, 2
_HEAD = struct.Struct(">BxxxI")
_BUFFER_BYTES = 1 << 17


class Streams:
    """Attached to a container that was created, and was not started yet."""

    def __init__(self, api: Any, container: str) -> None:
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        with engine_does("a container's streams cannot be attached"):
            self._raw: Any = api.attach_socket(container, params=params)
        # A client over TCP has the socket itself, one over a Unix socket a file around it.
        self._socket: socket.socket = getattr(self._raw, "_sock", self._raw)
        self._socket.settimeout(None)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield stream number and data until the end, or until `close`."""
        reader = io.BufferedReader(_Incoming(self._socket), _BUFFER_BYTES)
        with contextlib.suppress(OSError):
            while len(head := reader.read(_HEAD.size)) == _HEAD.size:
                stream, size = _HEAD.unpack(head)
                yield stream, reader.read(size)

    def send(self, data: bytes) -> None:
        """Write to standard input.  Raises OSError."""
        self._socket.sendall(data)

    def end_input(self) -> None:
        """Tell it that no more comes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """End `frames` in whatever thread it runs; may come twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; nothing may read from it any more."""
        # From the outside in: a response cannot be closed any more once what it reads from is.
        for part in (getattr(self._raw, "_response", None), self._raw, self._socket):
            if part is not None:
                with contextlib.suppress(OSError, ValueError):
                    part.close()


class _Incoming(io.RawIOBase):
    """What a socket receives, as a file."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.recv_into(buffer)

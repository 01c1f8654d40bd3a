"""Netlink messages as bytes: what is the same for all of the kernel's families of them.

They are packed here and not by a library, because the time from an order to its effect is part of
the measurement, and because a container or a host then needs none.  The format is the kernel's
stable interface (linux/netlink.h).
"""

import os
import socket
import struct
from collections.abc import Iterator

ACK, DUMP, CREATE, APPEND, EXCLUSIVE = 0x4, 0x300, 0x400, 0x800, 0x200
ERROR, DONE = 2, 3
NESTED = 0x8000
_REQUEST = 0x1
_TIMEOUT_S = 5.0
_ANSWER_BYTES = 1 << 18

Message = bytes


def attribute(kind: int, payload: bytes) -> bytes:
    """Return an attribute, padded."""
    size = 4 + len(payload)
    return struct.pack("=HH", size, kind) + payload + b"\0" * (-size % 4)


def nest(kind: int, *parts: bytes) -> bytes:
    """Return an attribute of attributes."""
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, content: str) -> bytes:
    """Return an attribute that is a string."""
    return attribute(kind, content.encode() + b"\0")


def message(kind: int, flags: int, body: bytes) -> Message:
    """Return a request."""
    return struct.pack("=IHHII", 16 + len(body), kind, flags | _REQUEST, 0, 0) + body


def parse(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and payload of attributes."""
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        yield kind & ~NESTED, data[4:size]
        data = data[-(-size // 4) * 4 :]


class Netlink:
    """A netlink socket in the network namespace of the thread that makes it."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
        self._socket.bind((0, 0))
        self._socket.settimeout(_TIMEOUT_S)

    def send(self, data: bytes) -> None:
        """Send one message, or several at once.  Raises OSError."""
        self._socket.send(data)

    def receive(self) -> Iterator[tuple[int, bytes]]:
        """Wait for what the kernel answers next, and yield kind and body of each message."""
        data = self._socket.recv(_ANSWER_BYTES)
        while len(data) >= 16:
            size, kind = struct.unpack_from("=IH", data)
            yield kind, data[16:size]
            data = data[-(-size // 4) * 4 :]

    def ask(self, request: Message) -> None:
        """Carry out one request that is acknowledged.  Raises OSError."""
        self.send(request)
        for kind, body in self.receive():
            if kind == ERROR and (code := -struct.unpack_from("=i", body)[0]):
                raise OSError(code, os.strerror(code))

    def drain(self) -> None:
        """Throw away further answers; the kernel sends all of them at once."""
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(_ANSWER_BYTES)
        except BlockingIOError:
            return
        finally:
            self._socket.settimeout(_TIMEOUT_S)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

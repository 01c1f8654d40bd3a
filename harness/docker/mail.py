"""A node's end of the probes: what is sent over a pair of nodes, and what arrives.

A probe travels as the traffic of the system under test does, from one node's own network to
another's.  A look numbers what it sends; a datagram carries the number of the look and its own, and
whoever receives it tells both.  Connections that a cut is to be tried with are opened before it and
named by a number that both ends know.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from harness.local.post import ready_to_use

_DATAGRAM = struct.Struct("=QI")
_NAME = struct.Struct("=Q")
_BACKLOG = 256
_BUFFER_BYTES = 1 << 20


class Mail:
    """Sockets of this network namespace; `tell(event)` is told what arrives."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind(("", 0))
        self._datagrams.setblocking(False)
        self._datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._listener = socket.create_server(("", 0), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._named: dict[int, socket.socket] = {}
        self._asking: set[socket.socket] = set()
        self._loop.add_reader(self._datagrams, self._receive)
        self._loop.add_reader(self._listener, self._accept)

    def ports(self) -> dict[str, int]:
        """Return where datagrams and connections are taken."""
        return {
            "datagrams": self._datagrams.getsockname()[1],
            "connections": self._listener.getsockname()[1],
        }

    # ------------------------------------------------------------------ sending

    def send(self, number: int, tries: Sequence[Sequence[Any]]) -> None:
        """Send what the look `number` needs from here: `[index, kind, ...]` each.

        `datagram` and `new` with address and port, `old` with the number of a connection.
        """
        for stream in self._asking:  # of an earlier look, which is over
            self._forget(stream)
        self._asking.clear()
        for index, kind, *where in tries:
            if kind == "datagram":
                with contextlib.suppress(OSError):
                    self._datagrams.sendto(_DATAGRAM.pack(number, index), tuple(where))
            elif kind == "new":
                self._ask(number, index, tuple(where))
            else:
                self._byte(*where)

    def _ask(self, number: int, index: int, address: tuple[str, int]) -> None:
        stream = _stream()
        self._asking.add(stream)
        stream.connect_ex(address)
        self._loop.add_writer(stream, partial(self._answered, number, index, stream))

    def _answered(self, number: int, index: int, stream: socket.socket) -> None:
        failed = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._asking.discard(stream)
        self._forget(stream)
        self._tell({"event": "refused" if failed else "connected", "at": [number, index]})

    def _byte(self, name: int) -> None:
        stream = self._named.get(name)
        if stream is None:
            return
        try:
            stream.send(b".")
        except BlockingIOError:
            return
        except OSError:
            self._reset(name)

    def open(self, links: Sequence[Sequence[Any]]) -> None:
        """Open a connection for each `[name, address, port]`; both ends tell when it stands."""
        for name, *where in links:
            stream = self._named[name] = _stream()
            stream.connect_ex(tuple(where))
            self._loop.add_writer(stream, partial(self._opened, name, stream))

    def _opened(self, name: int, stream: socket.socket) -> None:
        self._loop.remove_writer(stream)
        try:
            stream.send(_NAME.pack(name))
        except OSError:
            self.close([name])
            return
        self._loop.add_reader(stream, partial(self._bytes, name, stream))

    def close(self, names: Sequence[int]) -> None:
        """Close connections; some may be gone."""
        for name in names:
            if (stream := self._named.pop(name, None)) is not None:
                self._forget(stream)

    # ---------------------------------------------------------------- receiving

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self._datagrams.recv(64)
                if len(data) == _DATAGRAM.size:
                    self._tell({"event": "datagram", "at": list(_DATAGRAM.unpack(data))})

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                stream, _ = self._listener.accept()
                ready_to_use(stream)
                self._loop.add_reader(stream, partial(self._named_by_peer, stream))

    def _named_by_peer(self, stream: socket.socket) -> None:
        """Take the name of a connection; one that ends without a name was all there was to it."""
        try:
            data = stream.recv(_NAME.size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if len(data) < _NAME.size:
            self._forget(stream)
            return
        (name,) = _NAME.unpack(data)
        self._named[name] = stream
        self._loop.add_reader(stream, partial(self._bytes, name, stream))
        self._tell({"event": "joined", "connection": name})

    def _bytes(self, name: int, stream: socket.socket) -> None:
        try:
            data = stream.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._tell({"event": "byte", "connection": name})
        else:
            self._reset(name)

    def _reset(self, name: int) -> None:
        self.close([name])
        self._tell({"event": "reset", "connection": name})

    def _forget(self, stream: socket.socket) -> None:
        self._loop.remove_reader(stream)
        self._loop.remove_writer(stream)
        stream.close()


def _stream() -> socket.socket:
    stream = socket.socket()
    ready_to_use(stream)
    return stream

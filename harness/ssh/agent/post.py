"""What really gets through between hosts: datagrams, old connections, and new ones.

A rule that is in the kernel proves nothing, so things are sent: from a socket of one agent to a
socket of another, over the same addresses as the traffic of the system under test.  The controller
says what to send and asks what arrived; an agent that answers has read what had come until then, so
a host that was stalled for a moment is not mistaken for a cut.

A connection that was used during a cut comes back only with TCP's next retransmission, so it has a
name, and the controller decides which one to use when.
"""

import asyncio
import contextlib
import json
import selectors
import socket
import struct
import time
from typing import Any

_LINGER_RESET = struct.pack("ii", 1, 0)
_BACKLOG = 256
_RECEIVE_BUFFER_BYTES = 1 << 20
_DATAGRAM_BYTES = 2048
_STAMP = struct.Struct("=4sQIId")
_MARK = b"wkb1"
_HEADER_BYTES = 28  # of UDP and IPv4


class Post:
    """The agent's sockets for looks; `selector` is readable when something happens at them."""

    def __init__(self, address: str) -> None:
        """Listen on an address of this host, on ports that the kernel chooses.  Raises OSError."""
        self.selector = selectors.DefaultSelector()
        self._family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._datagrams = socket.socket(self._family, socket.SOCK_DGRAM)
        self._listener = socket.socket(self._family)
        for made in (self._datagrams, self._listener):
            made.bind((address, 0))
            made.setblocking(False)
        self._datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        self._listener.listen(_BACKLOG)
        self.ports = [self._datagrams.getsockname()[1], self._listener.getsockname()[1]]
        self._links: dict[str, socket.socket] = {}
        self._bytes: dict[str, int] = {}
        self._asked: dict[int, socket.socket] = {}
        self._round = -1
        self._heard: list[int] = []
        self._connected: list[int] = []
        self._burst = -1
        self._arrived: list[tuple[int, int, float, float]] = []
        self._watch(self._datagrams, self._datagram)
        self._watch(self._listener, self._accept)

    def _watch(self, made: socket.socket, call: Any, *, write: bool = False) -> None:
        kind = selectors.EVENT_WRITE if write else selectors.EVENT_READ
        self.selector.register(made, kind, call)

    def step(self) -> None:
        """Take all that has come."""
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()

    def _datagram(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                data = self._datagrams.recv(_DATAGRAM_BYTES)
                if data[:4] == _MARK:
                    self._took(data, time.monotonic())
                    continue
                number, key = json.loads(data)
                if number == self._round:
                    self._heard.append(key)

    # ------------------------------------------------------------------- bursts

    async def burst(
        self, number: int, to: list[tuple[int, str, int]], count: int, size_bytes: int, gap_s: float
    ) -> None:
        """Send `count` numbered datagrams to each of several posts, `gap_s` apart."""
        padding = b"\0" * max(0, size_bytes - _STAMP.size - _HEADER_BYTES)
        began = time.monotonic()
        for i in range(count):
            for key, address, port in to:
                data = _STAMP.pack(_MARK, number, key, i, time.monotonic()) + padding
                with contextlib.suppress(OSError):
                    self._datagrams.sendto(data, (address, port))
            await asyncio.sleep(max(0.0, began + (i + 1) * gap_s - time.monotonic()))

    def expect(self, number: int) -> None:
        """From now on, only what is of this burst counts."""
        self._burst, self._arrived = number, []

    def _took(self, data: bytes, now: float) -> None:
        _, number, key, i, sent = _STAMP.unpack_from(data)
        if number == self._burst:
            self._arrived.append((key, i, sent, now))

    def arrived(self, *, whole: bool) -> Any:
        """Return how many datagrams of the burst came; `whole`, also which and when."""
        self.step()
        return self._arrived if whole else len(self._arrived)

    # -------------------------------------------------------------- connections

    def link(self, name: str, to: list[Any]) -> None:
        """Ask for a connection that is to be used later."""
        stream = self._stream()
        stream.connect_ex(tuple(to))
        self._watch(stream, lambda: self._linked(name, stream), write=True)

    def _stream(self) -> socket.socket:
        stream = socket.socket(self._family)
        _ready_to_use(stream)
        return stream

    def _linked(self, name: str, stream: socket.socket) -> None:
        self.selector.unregister(stream)
        if stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            stream.close()
            return
        stream.send(name.encode() + b"\n")
        self._keep(name, stream)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            stream = self._listener.accept()[0]
            _ready_to_use(stream)
            self._watch(stream, lambda: self._introduced(stream))

    def _introduced(self, stream: socket.socket) -> None:
        """Read the name of a connection; one that was only asked for to see ends before."""
        self.selector.unregister(stream)
        try:
            name = stream.recv(200)
        except OSError:
            name = b""
        if name.endswith(b"\n"):
            self._keep(name[:-1].decode(), stream)
        else:
            stream.close()

    def _keep(self, name: str, stream: socket.socket) -> None:
        self._links[name] = stream
        self._bytes[name] = 0
        self._watch(stream, lambda: self._came(name))

    def _came(self, name: str) -> None:
        try:
            data = self._links[name].recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._bytes[name] += len(data)
        if not data:
            self._drop(name)

    def _drop(self, name: str) -> None:
        stream = self._links.pop(name)
        self.selector.unregister(stream)
        stream.close()

    def drop(self, names: list[str]) -> None:
        """Give up connections."""
        for name in names:
            if name in self._links:
                self._drop(name)
            self._bytes.pop(name, None)

    # -------------------------------------------------------------------- looks

    def begin(self, number: int) -> None:
        """A look begins: what is of another one no longer counts."""
        self._round, self._heard, self._connected = number, [], []
        for stream in self._asked.values():
            self.selector.unregister(stream)
            stream.close()
        self._asked = {}

    def send(
        self,
        datagrams: list[tuple[int, str, int]],
        connects: list[tuple[int, str, int]],
        links: list[str],
    ) -> None:
        """Send numbered datagrams, ask for new connections, and send a byte over old ones."""
        for key, address, port in datagrams:
            with contextlib.suppress(OSError):  # what the kernel will not take is as good as lost
                self._datagrams.sendto(json.dumps([self._round, key]).encode(), (address, port))
        for key, address, port in connects:
            self._ask(key, address, port)
        for name in links:
            if name in self._links:
                with contextlib.suppress(OSError):
                    self._links[name].send(b".")

    def _ask(self, key: int, address: str, port: int) -> None:
        stream = self._asked[key] = self._stream()
        stream.connect_ex((address, port))
        self._watch(stream, lambda: self._answered(key, stream), write=True)

    def _answered(self, key: int, stream: socket.socket) -> None:
        self.selector.unregister(stream)
        del self._asked[key]
        if not stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._connected.append(key)
        stream.close()

    def seen(self) -> dict[str, Any]:
        """Return what has come until now, and which connections stand here with how many bytes."""
        self.step()
        return {
            "datagrams": self._heard,
            "connected": self._connected,
            "links": {name: self._bytes[name] for name in self._links},
        }


def _ready_to_use(stream: socket.socket) -> None:
    """Let a stream send at once, never block, and leave nothing behind when it is closed."""
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)

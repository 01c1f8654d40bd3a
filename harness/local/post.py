"""The harness's own sockets in the nodes' networks.

A probe must travel as the traffic of the system under test does: from a socket in one node's
namespace to a socket in another's, over the same ports of the bridge.  A socket belongs for ever to
the namespace in which it was made, so the harness can use it from its own.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

from harness.local.lab import LocalNode

_LINGER_RESET = struct.pack("ii", 1, 0)
RECEIVE_BUFFER_BYTES = 1 << 20
_BACKLOG = 256


class Post:
    """A node's end: a socket for datagrams and a listener, on ports that the kernel chose."""

    def __init__(self, node: LocalNode) -> None:
        with node.inside():
            self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.listener = socket.socket()
        self.node = node
        self.datagrams.bind((node.address, 0))
        self.datagrams.setblocking(False)
        self.datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.listener.bind((node.address, 0))
        self.listener.listen(_BACKLOG)
        self.listener.setblocking(False)
        self.datagram_address: tuple[str, int] = self.datagrams.getsockname()
        self.listen_address: tuple[str, int] = self.listener.getsockname()

    def streams(self, count: int) -> list[socket.socket]:
        """Return unconnected stream sockets of this node."""
        with self.node.inside():
            made = [socket.socket() for _ in range(count)]
        for stream in made:
            ready_to_use(stream)
        return made

    def send(self, data: bytes, to: "Post") -> None:
        """Send a datagram; one that the kernel will not take is as good as lost."""
        with contextlib.suppress(OSError):
            self.datagrams.sendto(data, to.datagram_address)


def ready_to_use(stream: socket.socket) -> None:
    """Let a stream send at once, never block, and leave nothing behind when it is closed."""
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)


class Watch:
    """Sockets with what to do when something happens at them, in the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._happened = asyncio.Event()
        self._reading: set[int] = set()
        self._writing: set[int] = set()

    def on_read(self, watched: socket.socket, call: Callable[[], None]) -> None:
        """Call when there is something to read, or an end, or an error."""
        fd = watched.fileno()  # a socket that is not known yet would be printed at great length
        self._reading.add(fd)
        self._loop.add_reader(fd, self._do, call)

    def on_write(self, watched: socket.socket, call: Callable[[], None]) -> None:
        """Call when it can be written, or has failed."""
        fd = watched.fileno()
        self._writing.add(fd)
        self._loop.add_writer(fd, self._do, call)

    def off(self, watched: socket.socket) -> None:
        """Stop watching a socket; it must still be open."""
        fd = watched.fileno()
        if fd in self._reading:
            self._reading.remove(fd)
            self._loop.remove_reader(fd)
        if fd in self._writing:
            self._writing.remove(fd)
            self._loop.remove_writer(fd)

    def close(self) -> None:
        """Stop watching all; they must still be open."""
        for fd in self._reading:
            self._loop.remove_reader(fd)
        for fd in self._writing:
            self._loop.remove_writer(fd)
        self._reading, self._writing = set(), set()

    def _do(self, call: Callable[[], None]) -> None:
        call()
        self._happened.set()

    async def run(self, done: Callable[[], bool], until_s: float) -> bool:
        """Wait until it is done or the monotonic clock shows `until_s`; return whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                while not done():
                    self._happened.clear()
                    await self._happened.wait()
        return done()

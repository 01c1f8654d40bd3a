"""The harness's own sockets in the nodes' networks, and waiting for what arrives at them.

A probe must travel as the traffic of the system under test does: from a socket in one node's
namespace to a socket in another's, over the same ports of the bridge.  A socket belongs for ever to
the namespace in which it was made, so the harness can use it from its own.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable

from harness.local.lab import LocalNode

_LINGER_RESET = struct.pack("ii", 1, 0)
_RECEIVE_BUFFER_BYTES = 1 << 20
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
        self.datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
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

    def close(self) -> None:
        """Close both sockets."""
        self.datagrams.close()
        self.listener.close()


def ready_to_use(stream: socket.socket) -> None:
    """Let a stream send at once, never block, and leave nothing behind when it is closed."""
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)


class Watch:
    """Sockets with what to do when something happens at them."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._calls: dict[int, Callable[[], None]] = {}

    def on(self, watched: socket.socket, call: Callable[[], None], *, write: bool = False) -> None:
        """Call when there is something to read, or with `write` when it can be written."""
        self._calls[watched.fileno()] = call
        self._poll.register(watched, select.POLLOUT if write else select.POLLIN)

    def off(self, watched: socket.socket) -> None:
        """Stop watching; the socket is still open."""
        if self._calls.pop(watched.fileno(), None) is not None:
            self._poll.unregister(watched)

    def run(self, done: Callable[[], bool], until_s: float) -> bool:
        """Wait until it is done or the monotonic clock shows `until_s`; return whether it is."""
        while not done():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            for fd, _ in self._poll.poll(left_s * 1000):
                if fd in self._calls:
                    self._calls[fd]()
        return True

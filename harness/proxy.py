"""A TCP proxy between workers and servers that can be told to play tricks on messages.

Otherwise it is transparent: bytes, ends and resets of one connection go over to the other as they
come, slow readers slow their senders, and nothing is known of the protocol.  Two things it cannot
hide: a worker's connection stands before the server's does, and a refusal arrives as a reset.

What was delivered and what came back is read from the kernel's counts on the two sockets (TCP_INFO)
and not from what the proxy believes that it did.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from harness.trick import Hit, Part, Trick

_WINDOW_BYTES = 4096
_SETTLE_S = 0.02  # a reply may come in several pieces
_TCP_INFO_BYTES = 136
_BYTES_ACKED_AT = 120
_ESTABLISHED = 1
_RESET = struct.pack("ii", 1, 0)

Ending = Literal["no more", "closed", "reset"]


class End(asyncio.Protocol):
    """One of the two connections that make one: what comes in, what goes out, and its end."""

    def __init__(self, take: Callable[[bytes], None], gone: Callable[[Ending], None]) -> None:
        self._take = take
        self._gone = gone
        self._other: End | None = None
        self._transport: asyncio.Transport | None = None
        self._opening_bytes = 0
        self._gauged = (0, 0)
        self.read = 0
        self.written = 0
        self.ended = False
        self.made = asyncio.Event()

    def join(self, other: "End") -> None:
        """Slow down the other connection when this one does not take more."""
        self._other = other

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that nobody has begun to close."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._option(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        info = self._tcp_info()
        if info is not None:  # the kernel may count the handshake as a byte
            (self._opening_bytes,) = struct.unpack_from("=Q", info, _BYTES_ACKED_AT)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        """Hand over what came."""
        self.read += len(data)
        self._take(data)

    def eof_received(self) -> bool:
        """Hand over that no more will come; the other direction may go on."""
        self.ended = True
        self._gone("no more")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand over the end."""
        self.gauge()
        self.ended = True
        self._gone("closed" if exc is None else "reset")

    def pause_writing(self) -> None:
        """Let the other side wait."""
        if self._other is not None:
            self._other.hold_back(hold=True)

    def resume_writing(self) -> None:
        """Let the other side go on."""
        if self._other is not None:
            self._other.hold_back(hold=False)

    def hold_back(self, *, hold: bool) -> None:
        """Take no more for now, or go on."""
        if self.is_open:
            assert self._transport is not None
            (self._transport.pause_reading if hold else self._transport.resume_reading)()

    def write(self, data: bytes) -> None:
        """Send, as long as there is a connection."""
        if self.is_open:
            assert self._transport is not None
            self.written += len(data)
            self._transport.write(data)

    def end(self, how: Ending) -> None:
        """Pass an end on to the peer."""
        if not self.is_open:
            return
        assert self._transport is not None
        self.gauge()
        if how == "no more":
            with contextlib.suppress(OSError):
                self._transport.write_eof()
        elif how == "closed":
            self._transport.close()
        else:
            self._option(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def gauge(self) -> tuple[int, int]:
        """Return how many bytes the peer's machine acknowledged, and how many came from it."""
        if (info := self._tcp_info()) is not None:
            acked, came = struct.unpack_from("=QQ", info, _BYTES_ACKED_AT)
            # An end that was acknowledged counts as a byte, too.
            self._gauged = (min(acked - self._opening_bytes, self.written), came)
        return self._gauged

    def stands(self) -> bool:
        """Whether the kernel calls the connection established."""
        info = self._tcp_info()
        return info is not None and info[0] == _ESTABLISHED

    def _tcp_info(self) -> bytes | None:
        if self._transport is None:
            return None
        stream = self._transport.get_extra_info("socket")
        try:
            info: bytes = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return None  # it is closed
        return info

    def _option(self, level: int, option: int, value: int | bytes) -> None:
        assert self._transport is not None
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(level, option, value)


@dataclass
class _Order:
    """A trick that an owner wants played on the messages of some nodes."""

    trick: Trick
    nodes: Collection[str]
    left: int
    hit: "list[Through]" = field(default_factory=list)


class Tricks:
    """What is to happen to messages, by owner."""

    def __init__(self) -> None:
        self._orders: dict[str, _Order] = {}

    def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        """Play a trick on the next messages between workers and servers one of which is named."""
        self._orders[owner] = _Order(trick, nodes, trick.count)

    def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt; may come twice."""
        if order := self._orders.get(owner):
            order.left = 0
            for through in order.hit:
                through.stop()

    def hits(self, owner: str) -> list[Hit]:
        """Return what happened so far to the messages that an owner meant."""
        order = self._orders.get(owner)
        return [through.told() for through in order.hit] if order else []

    def strike(self, through: "Through", seen: bytes, data: bytes) -> Trick | None:
        """Return the trick that a message falls for; `seen` came before it."""
        for order in self._orders.values():
            named = through.worker in order.nodes or through.server in order.nodes
            wanted = order.left and named and order.trick.part == through.part
            if wanted and _found(order.trick, seen, data):
                order.left -= 1
                order.hit.append(through)
                return order.trick
        return None


def _found(trick: Trick, seen: bytes, data: bytes) -> bool:
    if trick.match is None:
        return True
    # What ends in the old bytes was passed on already.
    return any(found.end() > len(seen) for found in trick.match.finditer(seen + data))


class Through:
    """A connection of a worker to a server, made of two: `near` to the worker, `far` to it."""

    def __init__(
        self,
        tricks: Tricks,
        worker: str,
        server: str,
        part: Part,
        dial: Callable[[], Awaitable[socket.socket]],
    ) -> None:
        """`dial` connects to the server from the worker's place.  Needs a running loop."""
        self.worker = worker
        self.server = server
        self.part = part
        self._tricks = tricks
        self.near = End(self._request, self._near_gone)
        self._far = End(self._reply, self._far_gone)
        self.near.join(self._far)
        self._far.join(self.near)
        self._trick: Trick | None = None
        self._seen = b""
        self._early = b""
        self._before = (0, 0, 0)
        self._said_farewell = False
        self._was_reset = False
        self._connecting = asyncio.ensure_future(self._connect(dial))

    async def _connect(self, dial: Callable[[], Awaitable[socket.socket]]) -> None:
        await self.near.made.wait()
        try:
            stream = await dial()
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self._far, sock=stream)
        except OSError:
            self.near.end("reset")
            return
        early, self._early = self._early, b""
        if early:
            self._request(early)
        if self.near.ended:
            self._near_gone("no more")
        self.near.hold_back(hold=False)

    def _request(self, data: bytes) -> None:
        if not self._connecting.done() and not self._far.is_open:
            self._early += data
            self.near.hold_back(hold=True)
            return
        if self._trick is None:
            self._trick = self._tricks.strike(self, self._seen, data)
            self._seen = (self._seen + data)[-_WINDOW_BYTES:]
            if self._trick is not None:
                self._before = (self._far.written, self._far.read, self.near.written)
                if self._trick.what == "half-open":
                    self._far.end("closed")
        if self._said_farewell:
            self.near.end("reset")  # as a machine does that has forgotten the connection
        elif self._requests_pass:
            self._far.write(data)

    @property
    def _requests_pass(self) -> bool:
        return self._trick is None or self._trick.what not in ("lose-request", "half-open")

    @property
    def _replies_pass(self) -> bool:
        return self._trick is None or self._trick.what in ("lose-request", "slow-close")

    def _reply(self, data: bytes) -> None:
        self._seen = b""  # an answer ends the message before it
        if self._replies_pass:
            self.near.write(data)
        if self._trick is not None and self._trick.what in ("reset-after-delivery", "slow-close"):
            asyncio.get_running_loop().call_later(_SETTLE_S, self._after_reply)

    def _after_reply(self) -> None:
        """End the worker's side, after a reply came."""
        assert self._trick is not None
        if self._trick.what == "slow-close":
            self._said_farewell = True
            self.near.end("no more")
        elif self.near.is_open:
            self._was_reset = True
            self.near.end("reset")
            self._far.end("closed")

    def _near_gone(self, how: Ending) -> None:
        if how != "no more":
            self._connecting.cancel()
        told = self._requests_pass and (self._trick is None or self._trick.what != "slow-close")
        if told:
            self._pass_on(self._far, how)

    def _far_gone(self, how: Ending) -> None:
        if self._replies_pass:
            self._pass_on(self.near, how)

    def _pass_on(self, to: End, how: Ending) -> None:
        to.end(how)
        if self.near.ended and self._far.ended:
            self.near.end("closed")
            self._far.end("closed")

    def stop(self) -> None:
        """End both sides of a connection that was spoilt."""
        self._connecting.cancel()
        self.near.end("reset")
        self._far.end("reset")

    def told(self) -> Hit:
        """Return what happened to the message that was hit, by the kernel's counts."""
        written, read, returned = self._before
        acked, came = self._far.gauge()
        return Hit(
            worker=self.worker,
            server=self.server,
            delivered=max(0, acked - written),
            answered=max(0, came - read),
            returned=max(0, self.near.gauge()[0] - returned),
            worker_open=self.near.stands(),
            server_open=self._far.stands(),
            reset=self._was_reset,
        )

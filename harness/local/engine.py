"""`python -m harness.local.engine SEED PORT...`: the packet engine, which makes links bad.

The kernel at hand may have no netem, so packets of chosen pairs are taken where they leave an
interface, held, dropped, doubled or swapped here, and put on that interface again.  In a sandbox
that is the receiver's port of the bridge: behind the bridge a cut is decided before, so a bad link
does not bypass it.  In a container it is the sender's own interface, and the receiver cuts.  All
other traffic stays in the kernel.  Large frames stay whole: they carry their virtio header.

One JSON line in, one out: `{"lines": [[from, to, shape], ...]}` says what is bad from now on, by
address; `{"forget": [[from, to], ...]}` loses what is on the way over these pairs.  The answer is
`{}` or `{"error": "..."}`.  What is held when a pair becomes good again arrives at once.
"""

import contextlib
import heapq
import itertools
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from harness.local.line import Line
from harness.local.redirect import OUT_OF, Key, Redirect
from harness.shape import Shape

_VNET_HEADER, _QDISC_BYPASS = 15, 20
_SOL_PACKET = 263
_IPV4 = 0x0800
_OUTGOING = 4
# Where the two IPv4 addresses lie in a frame: virtio header, Ethernet header, then 12 bytes.
_ADDRESSES = slice(10 + 14 + 12, 10 + 14 + 20)
_FRAME_BYTES_MAX = 1 << 17
_BUFFER_BYTES = 16 << 20
_AT_ONCE = 64  # then others get their turn
_ALL = 1 << 20


def key(source: str, destination: str) -> Key:
    """Return the key of a directed pair of addresses."""
    return socket.inet_aton(source) + socket.inet_aton(destination)


class Tap:
    """The kernel's part: which packets come to us, and where they go out again."""

    def __init__(self, ports: Iterable[str], port_of: Callable[[bytes], str]) -> None:
        """`port_of` says which of `ports` leads to a receiver's address.  Raises OSError."""
        listed = list(ports)
        self._redirect = Redirect(listed)
        self._port_of = port_of
        self.frames = _packet_socket(OUT_OF, _IPV4)
        self.frames.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._ports = {port: _packet_socket(port, 0) for port in listed}
        for outlet in self._ports.values():
            # Not through the egress filter again: it would come back here for ever.
            outlet.setsockopt(_SOL_PACKET, _QDISC_BYPASS, 1)
        self._outlets: dict[Key, socket.socket] = {}

    def take(self, pair: Key) -> None:
        """Take the packets of a pair from now on.  Raises OSError."""
        port = self._port_of(pair[4:])
        self._outlets[pair] = self._ports[port]
        self._redirect.take(pair, port)

    def leave(self, pair: Key) -> None:
        """Leave the packets of a pair to the kernel.  Raises OSError."""
        self._redirect.leave(pair)

    def close(self) -> None:
        """Leave all packets to the kernel.  Raises OSError."""
        self._redirect.close()
        for opened in (self.frames, *self._ports.values()):
            opened.close()

    def deliver(self, frame: bytes) -> None:
        """Put a frame on its receiver's port; a full port loses it, as a network does."""
        with contextlib.suppress(OSError):
            self._outlets[frame[_ADDRESSES]].send(frame)

    def receive(self, most: int) -> Iterable[bytes]:
        """Yield the frames that are waiting."""
        for _ in range(most):
            try:
                frame, address = self.frames.recvfrom(_FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            if address[2] != _OUTGOING and frame[_ADDRESSES] in self._outlets:
                yield frame


def _packet_socket(port: str, protocol: int) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    made.bind((port, protocol))
    made.setblocking(False)
    return made


class Engine:
    """Holds packets until they are due."""

    def __init__(self, tap: Tap, seed: str) -> None:
        self._tap = tap
        self._seed = seed
        self._lines: dict[Key, Line] = {}
        self._held: list[tuple[float, int, bytes]] = []
        self._count = itertools.count()

    def obey(self, order: Mapping[str, Any]) -> None:
        """Carry out one order.  Raises OSError."""
        if "forget" in order:
            lost = {key(*pair) for pair in order["forget"]}
            self._collect(_ALL)
            self._held = [entry for entry in self._held if entry[2][_ADDRESSES] not in lost]
            heapq.heapify(self._held)
            return
        shapes = {key(a, b): msgspec.convert(shape, Shape) for a, b, shape in order["lines"]}
        for pair in self._lines.keys() - shapes.keys():
            self._tap.leave(pair)
        self._release(self._lines.keys() - shapes.keys())
        taken = dict(self._lines)
        self._lines = {
            pair: taken[pair]
            if pair in taken and taken[pair].shape == shape
            else Line(shape, f"{self._seed} {pair.hex()}")
            for pair, shape in shapes.items()
        }
        for pair in shapes.keys() - taken.keys():
            self._tap.take(pair)

    def _release(self, pairs: Iterable[Key]) -> None:
        """Deliver at once what is held of pairs that are good again."""
        self._collect(_ALL)
        good = set(pairs)
        for _, _, frame in sorted(entry for entry in self._held if entry[2][_ADDRESSES] in good):
            self._tap.deliver(frame)
        self._held = [entry for entry in self._held if entry[2][_ADDRESSES] not in good]
        heapq.heapify(self._held)

    def _collect(self, most: int) -> None:
        for frame in self._tap.receive(most):
            now = time.monotonic()  # not before it was read: it may have come in between
            line = self._lines.get(frame[_ADDRESSES])
            due = [now] if line is None else line.due(len(frame) - 10, now)
            for at in due:
                heapq.heappush(self._held, (at, next(self._count), frame))

    def step(self, orders: int) -> bool:
        """Deliver what is due and wait for more; return whether an order has come."""
        while self._held and self._held[0][0] <= time.monotonic():
            self._tap.deliver(heapq.heappop(self._held)[2])
        wait_s = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
        frames = self._tap.frames.fileno()
        ready, _, _ = select.select([frames, orders], [], [], wait_s)
        if frames in ready:
            self._collect(_AT_ONCE)
        return orders in ready


def serve(tap: Tap, seed: str, orders: int, answer: Callable[[Mapping[str, str]], None]) -> None:
    """Obey what comes as lines from a file descriptor, until it ends; then leave all packets."""
    engine = Engine(tap, seed)
    try:
        _obey(engine, orders, answer)
        engine.obey({"lines": []})
    finally:
        tap.close()


def _obey(engine: Engine, orders: int, answer: Callable[[Mapping[str, str]], None]) -> None:
    said = b""
    while True:
        if not engine.step(orders):
            continue
        data = os.read(orders, 1 << 16)
        if not data:
            return
        *lines, said = (said + data).split(b"\n")
        for line in lines:
            try:
                engine.obey(json.loads(line))
                answer({})
            except OSError as error:
                answer({"error": str(error)})


def tried(ports: Iterable[str], port_of: Callable[[bytes], str], receiver: bytes) -> Tap:
    """Return a tap that has been tried once.  Raises OSError where this kernel cannot."""
    tap = Tap(ports, port_of)
    probe = receiver * 2
    tap.take(probe)
    tap.leave(probe)
    return tap


def main(seed: str, ports: Mapping[bytes, str]) -> int:
    """Say whether this kernel can do it, then obey until standard input ends."""
    try:
        tap = tried(ports.values(), ports.__getitem__, next(iter(ports)))
    except OSError as error:
        _answer({"error": str(error)})
        return 1
    _answer({})
    serve(tap, seed, 0, _answer)
    return 0


def _answer(record: Mapping[str, str]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = [word.split("=") for word in sys.argv[2:]]
    sys.exit(main(sys.argv[1], {socket.inet_aton(address): port for address, port in given}))

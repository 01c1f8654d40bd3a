"""Packets of chosen pairs are taken where they leave an interface, and come out of another.

A filter on the way out (u32, by the two IPv4 addresses) redirects them into a spare pair of virtual
interfaces.  All of it belongs to the network namespace of the thread that makes it; taking it away
leaves every packet to the kernel again.  The numbers are those of linux/rtnetlink.h, pkt_sched.h
and pkt_cls.h.
"""

import errno
import itertools
import socket
import struct
from collections.abc import Iterable, Iterator

from harness.local.netlink import ACK, CREATE, EXCLUSIVE, Netlink, attribute, message, nest, text

INTO, OUT_OF = "winkle-in", "winkle-out"
_ROUTE = 0
_NEW_LINK, _DELETE_LINK = 16, 17
_NEW_QDISC, _DELETE_QDISC = 36, 37
_NEW_FILTER, _DELETE_FILTER = 44, 45
_MAKE = ACK | CREATE | EXCLUSIVE
_UP, _NO_ARP = 0x1, 0x80
_KIND, _OPTIONS = 1, 2
_CLSACT, _CLSACT_HANDLE, _EGRESS = 0xFFFFFFF1, 0xFFFF0000, 0xFFFFFFF3
_IPV4 = 0x0800
_SOURCE_AT, _DESTINATION_AT = 12, 16
_STOLEN, _REDIRECT = 4, 1

Key = bytes  # source and destination address of a packet


class Redirect:
    """What is taken from some interfaces; needs NET_ADMIN."""

    def __init__(self, ports: Iterable[str]) -> None:
        """Prepare to take packets that leave any of these interfaces.  Raises OSError."""
        self._kernel = Netlink(_ROUTE)
        self._ports = {port: socket.if_nametoindex(port) for port in ports}
        self._taken: dict[Key, tuple[int, int]] = {}
        self._remove()  # what somebody left who was killed
        for request in _spare_pair():
            self._kernel.ask(request)
        self._into = socket.if_nametoindex(INTO)
        for index in self._ports.values():
            self._kernel.ask(_qdisc(_NEW_QDISC, _MAKE, index))

    def take(self, pair: Key, port: str) -> None:
        """Take the packets of a pair that leave an interface, from now on.  Raises OSError."""
        index = self._ports[port]
        # One priority each, because deleting takes all filters of a priority.
        used = {priority for of, priority in self._taken.values() if of == index}
        priority = next(number for number in itertools.count(1) if number not in used)
        redirected = _redirected(pair, self._into)
        self._kernel.ask(_filter(_NEW_FILTER, _MAKE, index, priority, redirected))
        self._taken[pair] = (index, priority)

    def leave(self, pair: Key) -> None:
        """Leave the packets of a pair to the kernel.  Raises OSError."""
        self._kernel.ask(_filter(_DELETE_FILTER, ACK, *self._taken.pop(pair)))

    def close(self) -> None:
        """Leave all packets to the kernel."""
        self._remove()
        self._kernel.close()

    def _remove(self) -> None:
        for index in self._ports.values():
            self._ask_if_there(_qdisc(_DELETE_QDISC, ACK, index))
        self._ask_if_there(message(_DELETE_LINK, ACK, _link(INTO)))

    def _ask_if_there(self, request: bytes) -> None:
        try:
            self._kernel.ask(request)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ENODEV):
                raise


def _link(name: str, flags: int = 0) -> bytes:
    return struct.pack("=BxHiII", 0, 0, 0, flags, flags) + text(3, name)


def _spare_pair() -> Iterator[bytes]:
    """Two interfaces, both up: what goes into one comes out of the other."""
    about = nest(18, text(1, "veth"), nest(2, attribute(1, _link(OUT_OF))))
    yield message(_NEW_LINK, _MAKE, _link(INTO) + about)
    for name in (INTO, OUT_OF):
        yield message(_NEW_LINK, ACK, _link(name, _UP | _NO_ARP))


def _traffic(index: int, handle: int, parent: int, info: int) -> bytes:
    return struct.pack("=BxxxiIII", 0, index, handle, parent, info)


def _qdisc(kind: int, flags: int, index: int) -> bytes:
    body = _traffic(index, _CLSACT_HANDLE, _CLSACT, 0) + text(_KIND, "clsact")
    return message(kind, flags, body)


def _filter(kind: int, flags: int, index: int, priority: int, *options: bytes) -> bytes:
    info = priority << 16 | socket.htons(_IPV4)
    body = _traffic(index, 0, _EGRESS, info) + text(_KIND, "u32")
    return message(kind, flags, body + b"".join(options))


def _redirected(pair: Key, into: int) -> bytes:
    """What a filter matches, and what becomes of it."""
    ends = ((pair[:4], _SOURCE_AT), (pair[4:], _DESTINATION_AT))
    keys = [b"\xff" * 4 + address + struct.pack("=ii", at, 0) for address, at in ends]
    terminal = 1
    selector = struct.pack("=BBBxHHhhI", terminal, 0, len(keys), 0, 0, 0, 0, 0) + b"".join(keys)
    mirred = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _REDIRECT, into)
    action = nest(1, text(1, "mirred"), nest(2, attribute(2, mirred)))
    return nest(_OPTIONS, attribute(5, selector), nest(7, action))

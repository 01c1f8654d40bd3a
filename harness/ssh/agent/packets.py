"""Packets that leave this host for some others, handed to us by the kernel before they leave.

One rule of nft sends them to a queue (NFQUEUE) that this process reads.  The rule says `bypass`:
when nobody reads the queue any more, whatever became of the agent, packets pass by themselves.  A
packet is taken away from its sender at once and sent on later as a copy, by a raw socket: a sender
whose packets are held would slow down by itself, as it does not when a network holds them.
"""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from harness.local.netlink import ACK, ERROR, attribute, message, nest, parse, text

# Copies bear this mark, and the rule lets them by.
MARK = 0x77696E6B
_NETLINK_NETFILTER, _QUEUE = 12, 3 << 8
_PACKET, _VERDICT, _CONFIG = 0, 1, 2
_DROP, _ACCEPT = 0, 1
_FIRST_NUMBER, _NUMBERS = 20537, 100
_RCVBUFFORCE, _SNDBUFFORCE, _SO_MARK = 33, 32, 36
_SOL_NETLINK, _NO_ENOBUFS = 270, 5
_BUFFER_BYTES = 16 << 20
_WAITING_MAX = 1 << 16
_MESSAGE_BYTES = 1 << 17
_SIOCGIFMTU = 0x8921


class Packet(NamedTuple):
    """One packet: its number in the queue, the interface that it leaves by, and its bytes."""

    number: int
    interface: int
    data: bytes

    @property
    def destination(self) -> str:
        """The IPv4 address that it goes to."""
        return socket.inet_ntoa(self.data[16:20])


class Queue:
    """A queue of the kernel, bound to this process until `close`."""

    def __init__(self) -> None:
        """Take a queue that nobody has.  Raises OSError."""
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._copies = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        try:
            self.socket.bind((0, 0))
            self.socket.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER_BYTES)
            self.socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
            self._copies.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, _BUFFER_BYTES)
            self._copies.setsockopt(socket.SOL_SOCKET, _SO_MARK, MARK)
            self._copies.setblocking(False)
            self.number = self._bound()
            self._configure(
                attribute(2, struct.pack(">IB", 0xFFFF, 2)),  # whole packets
                attribute(3, struct.pack(">I", _WAITING_MAX)),
                attribute(4, struct.pack(">I", 1)),
                attribute(5, struct.pack(">I", 1)),  # what has no room passes
            )
            self.socket.setblocking(False)
        except OSError:
            self.close()
            raise

    def _bound(self) -> int:
        for number in range(_FIRST_NUMBER, _FIRST_NUMBER + _NUMBERS):
            self.number = number
            try:
                self._configure(attribute(1, struct.pack(">BBH", 1, 0, socket.AF_INET)))
            except PermissionError:  # what the kernel says when somebody has it
                continue
            return number
        raise OSError("no queue of packets is free")

    def _configure(self, *attributes: bytes) -> None:
        self.socket.send(self._message(_CONFIG, ACK, *attributes))
        data = self.socket.recv(_MESSAGE_BYTES)
        kind, code = struct.unpack_from("=4xH10xi", data)
        if kind == ERROR and code:
            raise OSError(-code, f"no queue of packets: {os.strerror(-code)}")

    def _message(self, kind: int, flags: int, *attributes: bytes) -> bytes:
        head = struct.pack(">BBH", socket.AF_INET, 0, self.number)
        return message(_QUEUE | kind, flags, head + b"".join(attributes))

    def expressions(self) -> list[bytes]:
        """Return what sends a packet here, as a rule's expression: in the ways kernels know."""
        own = nest(
            2, *(attribute(i + 1, struct.pack(">H", n)) for i, n in enumerate((self.number, 1, 1)))
        )
        old = nest(
            2,
            text(1, "NFQUEUE"),
            attribute(2, struct.pack(">I", 2)),
            attribute(3, struct.pack("=HHHxx", self.number, 1, 1)),
        )
        return [nest(1, text(1, "queue"), own), nest(1, text(1, "target"), old)]

    # ------------------------------------------------------------------ packets

    def packets(self) -> Iterator[Packet]:
        """Yield what waits."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.socket.recv(_MESSAGE_BYTES)
                size, kind = struct.unpack_from("=IH", data)
                if kind != _QUEUE | _PACKET:
                    continue
                parts = dict(parse(data[20:size]))
                (number,) = struct.unpack_from(">I", parts[1])
                (interface,) = struct.unpack(">I", parts.get(6, b"\0\0\0\0"))
                yield Packet(number, interface, parts[10])

    def pass_on(self, packet: Packet) -> None:
        """Let a packet go as it is."""
        self._decide(packet, _ACCEPT)

    def take_away(self, packet: Packet) -> None:
        """Let a packet vanish; its sender is told nothing."""
        self._decide(packet, _DROP)

    def _decide(self, packet: Packet, verdict: int) -> None:
        with contextlib.suppress(OSError):  # it is gone with the socket that it was of
            decided = attribute(2, struct.pack(">II", verdict, packet.number))
            self.socket.send(self._message(_VERDICT, 0, decided))

    def can_copy(self, packet: Packet) -> bool:
        """Whether a copy fits into one frame: what must be cut into several cannot be copied."""
        try:
            name = socket.if_indextoname(packet.interface)
            asked = struct.pack("16si12x", name.encode(), 0)
            answered = fcntl.ioctl(self._copies.fileno(), _SIOCGIFMTU, asked)
        except OSError:
            return False
        return len(packet.data) <= int(struct.unpack("16si12x", answered)[1])

    def send_copy(self, packet: Packet) -> None:
        """Send a copy; what the kernel will not take is as good as lost."""
        with contextlib.suppress(OSError):
            self._copies.sendto(packet.data, (packet.destination, 0))

    def close(self) -> None:
        """Give the queue back."""
        self.socket.close()
        self._copies.close()

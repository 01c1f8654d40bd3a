"""nftables over netlink, as bytes: the few messages that cutting packets off needs.

A batch is one transaction of the kernel: all of its messages take effect at once, or none does.
The messages are packed here and not by a library, because the time from the order to the effect is
part of the measurement: a change of ninety pairs takes well under a millisecond this way, and a
plain socket may be used beside a running event loop.  The format is the kernel's stable interface
(linux/netfilter/nf_tables.h).
"""

import os
import struct
from collections.abc import Iterable, Sequence

from harness.local import netlink
from harness.local.netlink import (
    ACK,
    APPEND,
    CREATE,
    DONE,
    DUMP,
    ERROR,
    Message,
    Netlink,
    attribute,
    nest,
    parse,
    text,
)

BRIDGE, NETDEV = 7, 5
IPV4 = b"\x08\x00"
ARP = b"\x08\x06"
TCP = b"\x06"
EQUAL, DIFFERENT = 0, 1

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 10 << 8
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE, _GET_RULE, _NEW_SET = 0, 2, 3, 6, 7, 9
_NEW_ELEMENTS, _DELETE_ELEMENTS = 12, 14
_DROP, _ACCEPT = 0, 1
_PROTOCOL, _IN_PORT, _OUT_PORT, _L4_PROTOCOL = 1, 4, 5, 16
# The first register of sixteen bytes; the two of four bytes that a key of eight is built in.
_REGISTER, _KEY_FIRST, _KEY_SECOND = 1, 8, 9
_NETWORK_HEADER, _SOURCE_AT, _DESTINATION_AT = 1, 12, 16
_PORT_UNREACHABLE = 3
_ELEMENTS_MAX = 1000  # in one message: the length of a list is a 16-bit number of bytes

Expression = bytes


def _number(kind: int, number: int) -> bytes:
    return attribute(kind, struct.pack(">I", number))


def _message(kind: int, flags: int, family: int, body: bytes, resource: int = 0) -> Message:
    return netlink.message(kind, flags, struct.pack(">BBH", family, 0, resource) + body)


def _make(kind: int, family: int, *parts: bytes) -> Message:
    return _message(_SUBSYSTEM | kind, ACK | CREATE | APPEND, family, b"".join(parts))


def table(family: int, name: str) -> Message:
    """Make a table."""
    return _make(_NEW_TABLE, family, text(1, name))


def no_table(family: int, name: str) -> Message:
    """Remove a table with all that is in it."""
    return _make(_DELETE_TABLE, family, text(1, name))


def pair_set(family: int, of_table: str, name: str) -> Message:
    """Make a set whose elements are pairs of two four-byte values."""
    return _set(family, of_table, name, 8)


def address_set(family: int, of_table: str, name: str) -> Message:
    """Make a set whose elements are IPv4 addresses."""
    return _set(family, of_table, name, 4)


def _set(family: int, of_table: str, name: str, key_bytes: int) -> Message:
    return _make(
        _NEW_SET,
        family,
        text(1, of_table),
        text(2, name),
        _number(3, 0),
        _number(4, 0),
        _number(5, key_bytes),
        _number(10, 1),
    )


def chain(family: int, of_table: str, name: str, hook: int, ports: Sequence[str] = ()) -> Message:
    """Make a chain that lets everything pass; `ports` are the devices of a netdev chain."""
    devices = [nest(4, *(text(1, port) for port in ports))] if ports else []
    where = nest(4, _number(1, hook), _number(2, 0), *devices)
    parts = (text(1, of_table), text(3, name), where, _number(5, _ACCEPT), text(7, "filter"))
    return _make(_NEW_CHAIN, family, *parts)


def rule(family: int, of_table: str, of_chain: str, *expressions: Expression) -> Message:
    """Append a rule to a chain."""
    return _make(_NEW_RULE, family, text(1, of_table), text(2, of_chain), nest(4, *expressions))


def add_elements(family: int, of_table: str, to_set: str, keys: Iterable[bytes]) -> list[Message]:
    """Put pairs into a set."""
    return _elements(_NEW_ELEMENTS, family, of_table, to_set, keys)


def delete_elements(
    family: int, of_table: str, of_set: str, keys: Iterable[bytes]
) -> list[Message]:
    """Take pairs, each of which is in it, out of a set."""
    return _elements(_DELETE_ELEMENTS, family, of_table, of_set, keys)


def _elements(
    kind: int, family: int, of_table: str, of_set: str, keys: Iterable[bytes]
) -> list[Message]:
    each = [nest(1, nest(1, attribute(1, key))) for key in keys]
    names = (text(1, of_table), text(2, of_set))
    return [
        _make(kind, family, *names, nest(3, *each[start : start + _ELEMENTS_MAX]))
        for start in range(0, len(each), _ELEMENTS_MAX)
    ]


def _expression(name: str, *parts: bytes) -> Expression:
    return nest(1, text(1, name), nest(2, *parts))


def _compare(how: int, with_bytes: bytes) -> Expression:
    value = nest(3, attribute(1, with_bytes))
    return _expression("cmp", _number(1, _REGISTER), _number(2, how), value)


def _load(what: int, register: int) -> Expression:
    return _expression("meta", _number(1, register), _number(2, what))


def frame_type(how: int, ether_type: bytes) -> list[Expression]:
    """Go on only with frames whose type is, or is not, this one."""
    return [_load(_PROTOCOL, _REGISTER), _compare(how, ether_type)]


def transport(protocol: bytes) -> list[Expression]:
    """Go on only with packets of this transport protocol."""
    return [_load(_L4_PROTOCOL, _REGISTER), _compare(EQUAL, protocol)]


def ports_in(of_set: str) -> list[Expression]:
    """Go on only with frames whose (in port, out port) is in a set."""
    look = _expression("lookup", text(1, of_set), _number(2, _KEY_FIRST))
    return [_load(_IN_PORT, _KEY_FIRST), _load(_OUT_PORT, _KEY_SECOND), look]


def port_and_destination_in(of_set: str) -> list[Expression]:
    """Go on only with packets whose (in port, IPv4 destination) is in a set."""
    look = _expression("lookup", text(1, of_set), _number(2, _KEY_FIRST))
    return [_load(_IN_PORT, _KEY_FIRST), _address(_DESTINATION_AT, _KEY_SECOND), look]


def source_in(of_set: str) -> list[Expression]:
    """Go on only with packets whose IPv4 source is in a set."""
    return _address_in(_SOURCE_AT, of_set)


def destination_in(of_set: str) -> list[Expression]:
    """Go on only with packets whose IPv4 destination is in a set."""
    return _address_in(_DESTINATION_AT, of_set)


def _address_in(at: int, of_set: str) -> list[Expression]:
    look = _expression("lookup", text(1, of_set), _number(2, _KEY_FIRST))
    return [_address(at, _KEY_FIRST), look]


def _address(at: int, register: int) -> Expression:
    """Load the four bytes of an address from the packet's IPv4 header."""
    return _expression(
        "payload",
        _number(1, register),
        _number(2, _NETWORK_HEADER),
        _number(3, at),
        _number(4, 4),
    )


def counted() -> Expression:
    """Count what comes so far."""
    return _expression("counter", attribute(1, b"\0" * 8), attribute(2, b"\0" * 8))


def drop() -> Expression:
    """Let it vanish."""
    return _expression("immediate", _number(1, 0), nest(2, nest(2, _number(1, _DROP))))


def refuse(*, with_reset: bool) -> Expression:
    """Let it vanish and tell the sender: a TCP reset, or "port unreachable"."""
    if with_reset:
        return _expression("reject", _number(1, 1))
    return _expression("reject", _number(1, 0), attribute(2, bytes([_PORT_UNREACHABLE])))


class Netfilter(Netlink):
    """A netlink socket in the network namespace of the thread that makes it."""

    def __init__(self) -> None:
        super().__init__(_NETLINK_NETFILTER)

    def commit(self, messages: Sequence[Message]) -> None:
        """Carry out all messages at once.  Raises OSError, and then none was carried out."""
        begin = _message(_BATCH_BEGIN, 0, 0, b"", _SUBSYSTEM >> 8)
        end = _message(_BATCH_END, 0, 0, b"", _SUBSYSTEM >> 8)
        self.send(begin + b"".join(messages) + end)
        answered, failed = 0, 0
        while answered < len(messages):
            for kind, body in self.receive():
                if kind == ERROR:
                    failed = failed or -struct.unpack_from("=i", body)[0]
                    # A batch that the kernel could not even begin is answered as one.
                    answered += 1
            if failed:
                break
        if failed:
            self.drain()
            raise OSError(failed, os.strerror(failed))

    def counted_packets(self, family: int, of_table: str, of_chain: str) -> int:
        """Return what the counters of a chain's rules have counted together."""
        body = text(1, of_table) + text(2, of_chain)
        self.send(_message(_SUBSYSTEM | _GET_RULE, DUMP, family, body))
        packets, done = 0, False
        while not done:
            for kind, answer in self.receive():
                done = done or kind in (DONE, ERROR)
                if kind == _SUBSYSTEM | _NEW_RULE:
                    packets += _packets(answer[4:])
        return packets


def _packets(rule_attributes: bytes) -> int:
    total = 0
    for kind, expressions in parse(rule_attributes):
        if kind != 4:
            continue
        for _, expression in parse(expressions):
            parts = dict(parse(expression))
            if parts.get(1) == b"counter\0":
                counts = dict(parse(parts[2]))
                total += int(struct.unpack(">Q", counts[2])[0])
    return total

"""All proxies of a run, in a process that no fault names, which is told what to do by lines."""

import re
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from harness import proxies
from harness.trick import Hit, Part, Trick, What


class Middle:
    """What can be ordered of the proxies."""

    def __init__(self, stream: Callable[[str], Awaitable[socket.socket]]) -> None:
        """`stream(worker)` makes a stream socket in the worker's network."""
        self._relay = proxies.Relay(stream)
        self._owners: set[str] = set()

    async def stand(
        self, worker: str, server: str, part: Part, address: str, port: int
    ) -> proxies.Address:
        """Let a proxy stand between a worker and a server."""
        return await self._relay.stand(worker, server, part, (address, port))

    def arm(self, owner: str, trick: Mapping[str, Any], nodes: Collection[str]) -> None:
        """Play a trick on the next messages."""
        self._owners.add(owner)
        self._relay.tricks.arm(owner, _from_record(trick), nodes)

    def disarm(self, owner: str) -> None:
        """Play it no longer."""
        self._owners.discard(owner)
        self._relay.tricks.disarm(owner)

    def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far."""
        return self._relay.tricks.hits(owner)

    def heal(self) -> None:
        """Play nothing any longer."""
        for owner in list(self._owners):
            self.disarm(owner)


class _Told(msgspec.Struct):
    """A trick on its way; a byte of the pattern is a character."""

    what: What
    part: Part
    match: str | None
    flags: int
    count: int


def as_record(trick: Trick) -> dict[str, Any]:
    """Return a trick as a line can carry it."""
    match = None if trick.match is None else trick.match.pattern.decode("latin-1")
    flags = 0 if trick.match is None else trick.match.flags
    told: dict[str, Any] = msgspec.to_builtins(
        _Told(trick.what, trick.part, match, flags, trick.count)
    )
    return told


def _from_record(record: Mapping[str, Any]) -> Trick:
    told = msgspec.convert(record, _Told)
    match = None if told.match is None else re.compile(told.match.encode("latin-1"), told.flags)
    return Trick(told.what, told.part, match, told.count)

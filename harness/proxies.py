"""Where the proxies of a run stand: in the network of each worker, on its loopback interface.

A worker is told the proxy's address instead of the server's, and the proxy connects from the
worker's own network.  So what passes it travels the same way as before, and a partition or a bad
link of that worker meets it like any other packet.  One process has all the proxies, because a
trick is meant for the next messages of any of them; a socket belongs for ever to the network in
which it was made.
"""

import asyncio
import itertools
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from harness.proxy import Through, Tricks
from harness.target import Place
from harness.trick import Hit, Part, Trick

_LOOPBACK = "127.0.0.1"
_BACKLOG = 100

Address = tuple[str, int]


class Relay:
    """All proxies of a run, in the process that has them."""

    def __init__(self, stream: Callable[[str], Awaitable[socket.socket]]) -> None:
        """`stream(worker)` makes a stream socket in the worker's network."""
        self.tricks = Tricks()
        self._stream = stream

    async def stand(self, worker: str, server: str, part: Part, to: Address) -> Address:
        """Take connections of a worker to a server from now on; return where.  Raises OSError."""
        listener = await self._stream(worker)
        listener.bind((_LOOPBACK, 0))
        listener.listen(_BACKLOG)
        accept = partial(self._accept, worker, server, part, partial(self._dial, worker, to))
        await asyncio.get_running_loop().create_server(accept, sock=listener)
        address, port = listener.getsockname()
        return address, port

    def _accept(self, worker: str, server: str, part: Part, dial: Any) -> asyncio.Protocol:
        return Through(self.tricks, worker, server, part, dial).near

    async def _dial(self, worker: str, to: Address) -> socket.socket:
        stream = await self._stream(worker)
        stream.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(stream, to)
        except BaseException:
            stream.close()
            raise
        return stream


class Proxies(ABC):
    """The proxies of a run, for the harness: none until a fault asks for those of a part."""

    def __init__(self, workers: Sequence[str], places: Mapping[Part, Sequence[Place]]) -> None:
        self._workers = workers
        self._places = places
        self._parts: dict[str, Part] = {}
        self._standing: dict[tuple[str, str], Address] = {}

    def unavailable(self, part: Part) -> str | None:
        """Return None when a proxy can stand before each server of a part, else why not."""
        if not self._places[part]:
            return f"the {part} has no server process of its own"
        for place in self._places[part]:
            if self._parts.setdefault(place.name, part) != part:
                return f"{place.name} plays both parts: its messages belong to the lock"
        return None

    async def open(self) -> None:
        """Begin to take connections.  Raises OSError."""
        places = {place.name: place for part in self._places.values() for place in part}
        wanted = list(itertools.product(self._workers, self._parts))
        made = await asyncio.gather(
            *(self._stand(worker, places[server], self._parts[server]) for worker, server in wanted)
        )
        self._standing = dict(zip(wanted, made, strict=True))

    def addresses(
        self, worker: str, records: Mapping[str, list[Mapping[str, Any]]]
    ) -> dict[str, list[Mapping[str, Any]]]:
        """Return the records of a `hello` with the proxies' addresses where there are any."""
        return {
            part: [self._address(worker, record) for record in listed]
            for part, listed in records.items()
        }

    def _address(self, worker: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
        standing = self._standing.get((worker, record["name"]))
        if standing is None:
            return record
        address, port = standing
        return {**record, "address": address, "port": port}

    @abstractmethod
    async def _stand(self, worker: str, place: Place, part: Part) -> Address:
        """Let a proxy stand before a server, and return where.  Raises OSError."""

    @abstractmethod
    async def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        """Play a trick on the next messages; see `harness.site.Messages`."""

    @abstractmethod
    async def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt."""

    @abstractmethod
    async def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far to the messages that an owner meant."""

"""Where the proxies of a lab stand: in the network of each worker, on its loopback interface.

A worker is told the proxy's address instead of the server's, and the proxy connects from the
worker's own network.  So what passes it travels over the same port of the bridge as before, and a
partition or a bad link of that worker meets it like any other packet.
"""

import asyncio
import socket
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from harness.local.lab import LocalNode
from harness.proxy import Through, Tricks
from harness.target import Place
from harness.trick import Hit, Part, Trick

_LOOPBACK = "127.0.0.1"
_BACKLOG = 100


class Proxies:
    """The proxies of a run: none until a fault asks for those of a part."""

    def __init__(
        self,
        nodes: Mapping[str, LocalNode],
        workers: Sequence[str],
        places: Mapping[Part, Sequence[Place]],
    ) -> None:
        self._nodes = nodes
        self._workers = workers
        self._places = places
        self._tricks = Tricks()
        self._listeners: dict[tuple[str, str], socket.socket] = {}
        self._parts: dict[str, Part] = {}

    def unavailable(self, part: Part) -> str | None:
        """Return None when a proxy stands before each server of a part, else why not."""
        if not self._places[part]:
            return f"the {part} has no server process of its own"
        for place in self._places[part]:
            if self._parts.setdefault(place.name, part) != part:
                return f"{place.name} plays both parts: its messages belong to the lock"
            for worker in self._workers:
                if (worker, place.name) not in self._listeners:
                    self._listeners[worker, place.name] = self._listen(worker)
        return None

    def _listen(self, worker: str) -> socket.socket:
        with self._nodes[worker].inside():
            listener = socket.socket()
        listener.bind((_LOOPBACK, 0))
        listener.listen(_BACKLOG)
        return listener

    async def open(self) -> None:
        """Begin to take connections."""
        loop = asyncio.get_running_loop()
        places = {place.name: place for part in self._places.values() for place in part}
        for (worker, server), listener in self._listeners.items():
            dial = partial(self._dial, worker, places[server])
            part = self._parts[server]
            await loop.create_server(
                partial(self._accept, worker, server, part, dial), sock=listener
            )

    def _accept(self, worker: str, server: str, part: Part, dial: Any) -> asyncio.Protocol:
        return Through(self._tricks, worker, server, part, dial).near

    async def _dial(self, worker: str, place: Place) -> socket.socket:
        with self._nodes[worker].inside():
            stream = socket.socket()
        stream.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(stream, (place.address, place.port))
        except BaseException:
            stream.close()
            raise
        return stream

    def addresses(
        self, worker: str, records: Mapping[str, list[Mapping[str, Any]]]
    ) -> dict[str, list[Mapping[str, Any]]]:
        """Return the records of a `hello` with the proxies' addresses where there are any."""
        return {
            part: [self._address(worker, record) for record in listed]
            for part, listed in records.items()
        }

    def _address(self, worker: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
        listener = self._listeners.get((worker, record["name"]))
        if listener is None:
            return record
        address, port = listener.getsockname()
        return {**record, "address": address, "port": port}

    def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        """Play a trick on the next messages; see `harness.site.Messages`."""
        self._tricks.arm(owner, trick, nodes)

    def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt."""
        self._tricks.disarm(owner)

    def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far to the messages that an owner meant."""
        return self._tricks.hits(owner)

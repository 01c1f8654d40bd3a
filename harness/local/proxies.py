"""The proxies of a lab: in the harness itself, with sockets in the workers' networks."""

import socket
from collections.abc import Collection, Mapping, Sequence

from harness import proxies
from harness.local.lab import LocalNode
from harness.target import Place
from harness.trick import Hit, Part, Trick


class Proxies(proxies.Proxies):
    """See `harness.backend.Proxying`."""

    def __init__(
        self,
        nodes: Mapping[str, LocalNode],
        workers: Sequence[str],
        places: Mapping[Part, Sequence[Place]],
    ) -> None:
        super().__init__(workers, places)
        self._nodes = nodes
        self._relay = proxies.Relay(self._stream)

    async def _stream(self, worker: str) -> socket.socket:
        with self._nodes[worker].inside():
            return socket.socket()

    async def _stand(self, worker: str, place: Place, part: Part) -> proxies.Address:
        return await self._relay.stand(worker, place.name, part, (place.address, place.port))

    async def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        """Play a trick on the next messages; see `harness.site.Messages`."""
        self._relay.tricks.arm(owner, trick, nodes)

    async def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt."""
        self._relay.tricks.disarm(owner)

    async def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far to the messages that an owner meant."""
        return self._relay.tricks.hits(owner)

"""The proxies of a run in containers: in the hub, with sockets in the workers' networks."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from harness import proxies
from harness.docker.holder import Holder
from harness.middle import as_record
from harness.target import Place
from harness.trick import Hit, Part, Trick


class Proxies(proxies.Proxies):
    """See `harness.backend.Proxying`."""

    def __init__(
        self,
        hub: Holder,
        holders: Mapping[str, Holder],
        workers: Sequence[str],
        places: Mapping[Part, Sequence[Place]],
    ) -> None:
        super().__init__(workers, places)
        self._hub = hub
        self._holders = holders

    def unavailable(self, part: Part) -> str | None:
        """Return None when a proxy can stand before each server of a part, else why not."""
        try:
            for worker in self._workers:
                self._holders[worker].ask("door", worker)
        except OSError as error:
            return f"no proxy can stand beside the workers: {error.strerror or error}"
        return super().unavailable(part)

    async def _stand(self, worker: str, place: Place, part: Part) -> proxies.Address:
        address, port = await self._hub.request(
            "stand", worker, place.name, part, place.address, place.port
        )
        return str(address), int(port)

    async def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        """Play a trick on the next messages; see `harness.site.Messages`."""
        await self._hub.request("arm", owner, as_record(trick), list(nodes))

    async def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt."""
        await self._hub.request("disarm", owner)

    async def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far to the messages that an owner meant."""
        return msgspec.convert(await self._hub.request("hits", owner), list[Hit])

"""The clocks of a node's processes on a host, lied to by the agent there.

A host has clocks of its own.  So nothing here is compared with this machine's: the moment at which
a lie begins is the host's, readings are taken on the host between two true ones of it, and what a
program says of the time is put between two moments that the host was asked for.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from harness.clocks import Applied, Moment, Readings, Skew
from harness.ssh.station import Station


class RemoteClocks:
    """The clocks of one node; see `harness.site.Clocks`."""

    def __init__(self, station: Station, room: str) -> None:
        self._station = station
        self._room = room
        self._applied: dict[str, list[Applied]] = {}

    def unavailable(self) -> str | None:
        """Return why no clock can be set on the host, None when one was."""
        if why := self._station.cannot_lie():
            return f"host {self._station.host.name}: {why}"
        return None

    def up_s(self) -> float:
        """Return what the host's monotonic clock shows."""
        return self._station.up_s()

    async def now(self) -> Moment:
        """Return this moment by the host's clocks."""
        return msgspec.convert(await asyncio.wrap_future(self._station.link.tell("now")), Moment)

    async def skew(self, owner: str, skew: Skew) -> Moment:
        """Lie to every process, and return the moment of the host from which the lie counts."""
        self._applied.pop(owner, None)  # told anew, it comes over all others
        self._applied[owner] = []
        said = await self._do("skew", owner=owner, skew=asdict(skew))
        return msgspec.convert(said["since"], Moment)

    async def true_clocks(self, owner: str) -> None:
        """Take an owner's lie back."""
        if owner in self._applied:
            await self._do("true_clocks", owner=owner)
            self._applied.pop(owner, None)

    def owners(self) -> Sequence[str]:
        """Return who lies here now, the latest last."""
        return list(self._applied)

    def applied(self, owner: str) -> Sequence[Applied]:
        """Return the processes that were lied to since this owner began, as last heard of."""
        return tuple(self._applied.get(owner, ()))

    async def read_clocks(self) -> Mapping[int, Readings]:
        """Return what each process there reads, by its pid in the agent's own namespace."""
        said = await self._do("read")
        return msgspec.convert(said["readings"], dict[int, Readings], strict=False)

    async def _do(self, method: str, **arguments: Any) -> Any:
        answer = self._station.link.tell(
            "clock", room=self._room, method=method, arguments=arguments
        )
        said = await asyncio.wrap_future(answer)
        applied = msgspec.convert(said["applied"], dict[str, list[Applied]])
        self._applied = {owner: applied.get(owner, old) for owner, old in self._applied.items()}
        return said

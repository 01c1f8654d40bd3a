"""The clocks of a node's processes, lied to by its holder.

The holder sees the processes as neighbours in one process space and may write to their memory, so
what works on this machine works in a container, on unmodified images: `harness.vdso` runs there.
Moments need no translation, because containers share the clocks of the machine below.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness.clocks import Applied, Moment, Readings, Skew
from harness.docker.holder import Holder
from harness.docker.sidecar import Sidecar

_BOUND_S = 30.0


_Told = tuple[Skew, Moment]


class HolderClocks:
    """The clocks of one node; see `harness.site.Clocks`."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def unavailable(self) -> str | None:
        """Return why no clock can be set on the engine's machine, None when it can."""
        if not self._holder.is_here:
            return "the engine runs on another machine, whose clocks cannot be compared with ours"
        return msgspec.convert(self._holder.ask("clocks_unavailable"), str | None)

    def up_s(self) -> float:
        """Return what the monotonic clock of this machine shows, which is the engine's."""
        return time.monotonic()

    async def now(self) -> Moment:
        """Return this moment."""
        return Moment.now()

    async def skew(self, owner: str, skew: Skew) -> Moment:
        """Lie to every process, and return the moment from which the lie counts."""
        said = await self._request("skew", owner, msgspec.to_builtins(skew))
        return msgspec.convert(said, Moment)

    async def true_clocks(self, owner: str) -> None:
        """Take an owner's lie back."""
        await self._request("true_clocks", owner)

    def owners(self) -> Sequence[str]:
        """Return who lies here now, the latest last."""
        return msgspec.convert(self._holder.ask("clock_owners"), list[str])

    def applied(self, owner: str) -> Sequence[Applied]:
        """Return the processes that were lied to since this owner began, as it happened."""
        return msgspec.convert(self._holder.ask("applied", owner), list[Applied])

    async def read_clocks(self) -> Mapping[int, Readings]:
        """Return what each process there reads, by its pid in there."""
        said = await self._request("read_clocks")
        return msgspec.convert(said, dict[int, Readings], strict=False)

    async def _request(self, call: str, *arguments: Any) -> Any:
        return await self._holder.request(call, *arguments, bound_s=_BOUND_S)


class SidecarClocks(HolderClocks):
    """The clocks of a server of the user's own, whose sidecar ends when its container does.

    So what is told is known here, and is told again in the next life by `renew`.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        super().__init__(sidecar)
        self._told: dict[str, _Told] = {}
        self._before: dict[str, list[Applied]] = {}
        self._seen: dict[str, list[Applied]] = {}

    async def skew(self, owner: str, skew: Skew) -> Moment:
        """Lie to every process; where nothing runs, to those that come."""
        said = await self._request("skew", owner, msgspec.to_builtins(skew))
        since = Moment.now() if said is None else msgspec.convert(said, Moment)
        self._told.pop(owner, None)  # told anew, it comes over all others
        self._told[owner] = (skew, since)
        self._before[owner], self._seen[owner] = [], []
        return since

    async def true_clocks(self, owner: str) -> None:
        """Take an owner's lie back."""
        self._told.pop(owner, None)
        await self._request("true_clocks", owner)

    async def renew(self) -> None:
        """Tell it all to the processes of a new life."""
        for owner, (skew, since) in self._told.items():
            self._before[owner] = self._seen[owner]
            told = msgspec.to_builtins(skew), msgspec.to_builtins(since)
            await self._request("skew", owner, *told)

    def owners(self) -> Sequence[str]:
        """Return who lies here now, the latest last."""
        return list(self._told)

    def applied(self, owner: str) -> Sequence[Applied]:
        """Return the processes that were lied to since this owner began, as far as it was seen."""
        now = [] if self._holder.gone else super().applied(owner)
        if owner in self._seen and now:
            self._seen[owner] = [*self._before[owner], *now]
        return self._seen.get(owner, [])

    async def read_clocks(self) -> Mapping[int, Readings]:
        """Return what each process there reads, by its pid in there."""
        said = await self._request("read_clocks")
        return msgspec.convert(said or {}, dict[int, Readings], strict=False)

    async def _request(self, call: str, *arguments: Any) -> Any:
        """Ask the sidecar; None where it is gone, or goes in the middle of the answer."""
        try:
            return await super()._request(call, *arguments)
        except OSError:
            if self._holder.gone:
                return None
            raise

"""The clocks of a node's processes, lied to by its holder.

The holder sees the processes as neighbours in one process space and may write to their memory, so
what works on this machine works in a container, on unmodified images: `harness.vdso` runs there.
Moments need no translation, because containers share the clocks of the machine below.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness.clocks import Applied, Moment, Readings, Skew
from harness.docker.holder import Holder

_BOUND_S = 30.0


class HolderClocks:
    """The clocks of one node; see `harness.site.Clocks`."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def unavailable(self) -> str | None:
        """Return why no clock can be set on the engine's machine, None when it can."""
        return msgspec.convert(self._holder.ask("clocks_unavailable"), str | None)

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

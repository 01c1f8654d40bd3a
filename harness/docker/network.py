"""Cutting nodes off from each other: each holder drops what comes from some of the others.

One directed pair is one source address in one holder's rules.  A change concerns some holders,
which are told at the same time; it is in force when the last of them has answered, a few
milliseconds later.  What the harness itself needs goes over the holders' standard input and over
an address that no cut names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from harness.cutting import Cutting
from harness.docker.holder import Holder
from harness.docker.passage import Prober
from harness.docker.telling import Standing
from harness.site import Pair

LOOK_S = 0.02


class Cuts(Cutting):
    """The network of a run; see `harness.site.Network`."""

    def __init__(
        self,
        holders: Mapping[str, Holder],
        hub: Holder,
        forget: Callable[[frozenset[Pair]], Awaitable[None]],
    ) -> None:
        super().__init__(LOOK_S, forget)
        self._holders = holders
        self._probing = Prober(holders, hub)
        self._standing = Standing(holders, "cut", ([], []))
        self._able: set[bool] = set()

    def unavailable(self, *, reject: bool = False) -> str | None:
        """Return None when the engine's kernel can cut (and refuse), else why not, by trying."""
        if reject in self._able:
            return None
        try:
            for holder in self._holders.values():
                holder.ask("can_cut", reject)
        except OSError as error:
            what = "refuse packets (nft_reject_ipv4)" if reject else "filter packets (nf_tables)"
            return f"the engine's kernel cannot {what}: {error.strerror or error}"
        self._able.add(reject)
        return None

    async def renew(self, name: str) -> bool:
        """Tell all again, because the network of a node began anew; return whether it is cut.

        Raises OSError.
        """
        async with self._alone:
            self._probing.forget(name)
            await self._standing.tell(self._holders, self._sources(*self._sides()))
            return any(name in pair for pair in self.cut_now())

    async def stopped_packets(self) -> int:
        """Return how many packets were stopped so far, by the kernel's own count."""
        counts = (holder.request("stopped_packets") for holder in self._holders.values())
        return sum(count or 0 for count in await asyncio.gather(*counts))

    def _prober(self) -> Prober:
        return self._probing

    async def _tell(self, silent: frozenset[Pair], told: frozenset[Pair]) -> None:
        """Bring all holders from what they cut now to this."""
        await self._standing.bring(self._sources(silent, told))

    def _sources(
        self, silent: frozenset[Pair], told: frozenset[Pair]
    ) -> dict[str, tuple[list[str], list[str]]]:
        """Return for each node from whom it drops, and to whom it refuses."""
        return {
            name: (
                sorted(self._holders[a].address for a, b in silent if b == name),
                sorted(self._holders[b].address for a, b in told if a == name),
            )
            for name in self._holders
        }

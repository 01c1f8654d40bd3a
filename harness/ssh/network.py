"""Cutting hosts off from each other: packets vanish where they arrive, on the receiver's host.

Every host holds the addresses that it lets nothing in from, so a cut is directed, for old
connections and new ones alike, and the sender notices nothing.  The hosts are told at the same
time, not in one atomic step: a cut of several hosts is whole some milliseconds after its first
packet was lost.  The controller's own connection is let in first, and a time limit in the host's
kernel ends every cut that nobody renews.

A host is cut as a whole.  So a node can be cut off only if it has a host of its own, and the
controller's machine never is: from there the run is watched.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from harness.cutting import Cutting
from harness.site import Pair
from harness.ssh.hosting import Hosting
from harness.ssh.passage import Prober
from harness.ssh.station import Station

LOOK_S = 0.05


class SshCuts(Cutting):
    """The network of a run; see `harness.site.Network`."""

    def __init__(
        self,
        hosting: Hosting,
        prober: Prober,
        forget: Callable[[frozenset[Pair]], Awaitable[None]],
    ) -> None:
        """`forget(pairs)` is told what was newly cut: what is under way there must not arrive."""
        super().__init__(LOOK_S, forget)
        self._hosting = hosting
        self._probing = prober
        self._in_kernel: dict[Station, list[str]] = {}

    def unavailable(self, *, reject: bool = False) -> str | None:
        """Return None when hosts can be cut off, else why not, found by trying on each."""
        if reject:
            return "on hosts packets vanish, nobody is told: there is no `reject` over SSH"
        free = self._hosting.free()
        if not free:
            return "no node has a host of its own that could be cut off"
        for station in free:
            if why := station.link.ask("can_cut"):
                return f"host {station.host.name} cannot stop packets: {why}"
        return None

    async def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        """Cut; raises OSError where a pair cannot be cut, and then nothing changed."""
        wanted = frozenset(pairs)
        for name in sorted({name for pair in wanted for name in pair}):
            if why := self._hosting.bound(name):
                raise OSError(why)
        await super().cut(owner, wanted, reject=reject)

    async def stopped_packets(self) -> int:
        """Return how many packets were stopped so far, by the kernels' own counts."""
        answers = [station.link.tell("stopped") for station in self._in_kernel]
        return sum(await asyncio.gather(*map(asyncio.wrap_future, answers)))

    def _prober(self) -> Prober:
        return self._probing

    async def _tell(self, silent: frozenset[Pair], told: frozenset[Pair]) -> None:
        """Bring the hosts from what they cut now to this.  Raises OSError, HostLostError."""
        wanted: dict[Station, set[str]] = {station: set() for station in self._in_kernel}
        nodes = self._hosting.nodes
        for a, b in silent:
            wanted.setdefault(nodes[b].station, set()).add(nodes[a].address)
        changed = {
            station: sorted(addresses)
            for station, addresses in wanted.items()
            if sorted(addresses) != self._in_kernel.get(station, [])
        }
        answers = [station.link.tell("cut", addresses=each) for station, each in changed.items()]
        done = await asyncio.gather(*map(asyncio.wrap_future, answers), return_exceptions=True)
        for (station, addresses), result in zip(changed.items(), done, strict=True):
            if not isinstance(result, BaseException):
                self._in_kernel[station] = addresses
        for result in done:
            if isinstance(result, BaseException):
                raise result

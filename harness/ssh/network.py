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
import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from harness.site import Pair, Passage
from harness.ssh.node import SshNode
from harness.ssh.passage import Prober
from harness.ssh.station import Station

LOOK_S = 0.05
_CHANGES_KEPT = 1000


class SshCuts:
    """See `harness.site.Network`.  All cuts of all owners add up."""

    def __init__(self, nodes: Mapping[str, SshNode]) -> None:
        self._nodes = nodes
        self._alone = asyncio.Lock()
        self._prober = Prober(nodes)
        self._lodgers = Counter(node.station for node in nodes.values())
        self._orders: dict[str, frozenset[Pair]] = {}
        self._changes: deque[tuple[float, frozenset[Pair]]] = deque(maxlen=_CHANGES_KEPT)
        self._in_kernel: dict[Station, list[str]] = {}

    def unavailable(self, *, reject: bool = False) -> str | None:
        """Return None when hosts can be cut off, else why not, found by trying on each."""
        if reject:
            return "on hosts packets vanish, nobody is told: there is no `reject` over SSH"
        free = {node.station for name, node in self._nodes.items() if self._bound(name) is None}
        if not free:
            return "no node has a host of its own that could be cut off"
        for station in sorted(free, key=lambda s: s.host.name):
            if why := station.link.ask("can_cut"):
                return f"host {station.host.name} cannot stop packets: {why}"
        return None

    def _bound(self, name: str) -> str | None:
        """Return why a node cannot be cut off."""
        station = self._nodes[name].station
        if station.host.local:
            return f"{name} lives on the controller's machine, which is never cut off"
        if self._lodgers[station] > 1:
            others = [o for o, node in self._nodes.items() if node.station is station and o != name]
            return (
                f"{name} shares the host {station.host.name} with {', '.join(sorted(others))}:"
                " to be cut off a node needs a host of its own"
            )
        return None

    async def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        """Cut; raises OSError where a pair cannot be cut, and then nothing changed."""
        wanted = frozenset(pairs)
        for name in sorted({name for pair in wanted for name in pair}):
            if why := self._bound(name):
                raise OSError(why)
        async with self._alone:
            before = {frozenset(pair) for pair in self.cut_now()}
            await self._prober.prepare({frozenset(pair) for pair in wanted} - before)
            orders = self._orders
            try:
                await self._change({**orders, owner: wanted})
            except OSError:
                with contextlib.suppress(OSError):  # the host that failed may fail again
                    await self._change(orders)
                raise

    async def mend(self, owner: str) -> None:
        """Undo the cut of an owner."""
        async with self._alone:
            await self._change({name: p for name, p in self._orders.items() if name != owner})

    async def _change(self, orders: dict[str, frozenset[Pair]]) -> None:
        """Bring the hosts from the orders of now to these.  Raises OSError, HostLostError."""
        wanted: dict[Station, set[str]] = {station: set() for station in self._in_kernel}
        for a, b in frozenset[Pair]().union(*orders.values()):
            wanted.setdefault(self._nodes[b].station, set()).add(self._nodes[a].address)
        before = self.cut_now()
        self._orders = orders
        self._changes.append((time.monotonic(), before ^ self.cut_now()))
        told = {
            station: sorted(addresses)
            for station, addresses in wanted.items()
            if sorted(addresses) != self._in_kernel.get(station, [])
        }
        answers = [station.link.tell("cut", addresses=each) for station, each in told.items()]
        done = await asyncio.gather(*map(asyncio.wrap_future, answers), return_exceptions=True)
        for (station, addresses), result in zip(told.items(), done, strict=True):
            if not isinstance(result, BaseException):
                self._in_kernel[station] = addresses
        for result in done:
            if isinstance(result, BaseException):
                raise result

    def cut_now(self) -> frozenset[Pair]:
        """All pairs that any owner cuts."""
        return frozenset[Pair]().union(*self._orders.values())

    def cut_since(self, since_s: float) -> frozenset[Pair]:
        """All pairs that were cut at any time since the monotonic clock showed `since_s`."""
        changed = [pairs for at_s, pairs in self._changes if at_s >= since_s]
        return self.cut_now().union(*changed)

    async def passes(self, pairs: Sequence[Pair], more_s: float = 0.0) -> Mapping[Pair, Passage]:
        """Send over pairs and return what arrived."""
        async with self._alone:
            return await self._prober.look(pairs, self.cut_now(), LOOK_S + more_s)

    def stopped_packets(self) -> int:
        """Return how many packets were stopped so far, by the kernels' own counts."""
        return sum(int(station.link.ask("stopped")) for station in self._in_kernel)

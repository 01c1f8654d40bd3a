"""Cutting nodes off from each other: each holder drops what comes from some of the others.

One directed pair is one source address in one holder's rules.  A change concerns some holders,
which are told at the same time; it is in force when the last of them has answered, a few
milliseconds later.  What the harness itself needs goes over the holders' standard input and over
an address that no cut names.
"""

import asyncio
import errno
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.docker.holder import Holder
from harness.docker.passage import Prober
from harness.site import Pair, Passage

LOOK_S = 0.02
_CHANGES_KEPT = 1000
_Sources = dict[str, tuple[list[str], list[str]]]


@dataclass(frozen=True)
class Order:
    """What one owner wants cut."""

    pairs: frozenset[Pair]
    reject: bool


class Cuts:
    """The network of a run; see `harness.site.Network`.

    All cuts of all owners add up; a silent one outdoes one that tells.
    """

    def __init__(self, holders: Mapping[str, Holder], hub: Holder) -> None:
        self._holders = holders
        self._prober = Prober(holders, hub)
        self._alone = asyncio.Lock()
        self._orders: dict[str, Order] = {}
        self._changes: deque[tuple[float, frozenset[Pair]]] = deque(maxlen=_CHANGES_KEPT)
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

    async def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        """Cut; see `harness.site.Network`.  Raises OSError, and then nothing changed."""
        wanted = frozenset(pairs)
        async with self._alone:
            before = self.cut_now()
            links = {frozenset(p) for p in wanted} - {frozenset(p) for p in before}
            await self._prober.prepare(links)
            await self._change({**self._orders, owner: Order(wanted, reject)})

    async def mend(self, owner: str) -> None:
        """Undo the cut of an owner."""
        async with self._alone:
            await self._change({name: o for name, o in self._orders.items() if name != owner})

    async def renew(self, name: str) -> bool:
        """Tell all again, because the network of a node began anew; return whether it is cut.

        Raises OSError.
        """
        async with self._alone:
            self._prober.forget(name)
            if failed := await self._tell(list(self._holders), self._sources(self._orders)):
                raise failed
            return any(name in pair for pair in self.cut_now())

    def cut_now(self) -> frozenset[Pair]:
        """All pairs that any owner cuts."""
        return frozenset(pair for order in self._orders.values() for pair in order.pairs)

    def cut_since(self, since_s: float) -> frozenset[Pair]:
        """All pairs that were cut at any time since the monotonic clock showed `since_s`."""
        changed = [pairs for at_s, pairs in self._changes if at_s >= since_s]
        return self.cut_now().union(*changed)

    async def passes(self, pairs: Sequence[Pair], more_s: float = 0.0) -> Mapping[Pair, Passage]:
        """Send over pairs and return what arrived."""
        async with self._alone:
            return await self._prober.look(pairs, self.cut_now(), LOOK_S + more_s)

    def stopped_packets(self) -> int:
        """Return how many packets were stopped so far, by the kernel's own count."""
        return sum(int(holder.ask("stopped_packets")) for holder in self._holders.values())

    async def _change(self, orders: dict[str, Order]) -> None:
        """Bring all holders from the orders of now to these; back again if one cannot."""
        now, wanted = self._sources(self._orders), self._sources(orders)
        changed = [name for name in self._holders if now[name] != wanted[name]]
        if failed := await self._tell(changed, wanted):
            await self._tell(changed, now)
            raise OSError(failed.errno or errno.EIO, failed.strerror or str(failed))
        before = self.cut_now()
        self._orders = orders
        self._changes.append((time.monotonic(), before ^ self.cut_now()))

    async def _tell(self, names: Sequence[str], sources: _Sources) -> OSError | None:
        """Tell holders what to cut, all at once; return the first failure."""
        said = await asyncio.gather(
            *(self._holders[name].request("cut", *sources[name]) for name in names),
            return_exceptions=True,
        )
        for one in said:
            if isinstance(one, BaseException) and not isinstance(one, OSError):
                raise one
        return next((one for one in said if isinstance(one, OSError)), None)

    def _sources(self, orders: Mapping[str, Order]) -> _Sources:
        """Return for each node from whom it drops, and to whom it refuses."""
        silent = {p for order in orders.values() if not order.reject for p in order.pairs}
        told = {p for order in orders.values() if order.reject for p in order.pairs} - silent
        return {
            name: (
                sorted(self._holders[a].address for a, b in silent if b == name),
                sorted(self._holders[b].address for a, b in told if a == name),
            )
            for name in self._holders
        }

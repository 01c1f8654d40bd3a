"""Cutting nodes off from each other: frames vanish in the bridge, per directed pair.

One set of (in port, out port) on the bridge's forward hook says what is cut, so any change from one
partition to another is one transaction, in one direction or both, for old connections and new ones
alike, and the sender notices nothing.  ARP is spared: without it a connect to a neighbour that was
not looked up yet would fail by itself after three seconds instead of hanging, as it does behind a
router.  The hub is no port of its own bridge, so the harness reaches every node, cut or not.

The bridge itself cannot refuse.  Where senders are to be told, packets are caught as they enter
the bridge's port, and answered with a TCP reset or "port unreachable".
"""

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.local import netfilter as nft
from harness.local.lab import LocalNode
from harness.local.passage import Prober
from harness.site import Pair, Passage

LOOK_S = 0.005
_FORWARD, _INGRESS = 2, 0
_CUT, _REFUSE = "winkle_cut", "winkle_refuse"
_SET, _CHAIN = "pairs", "frames"
_CHANGES_KEPT = 1000
_TABLES = {nft.BRIDGE: _CUT, nft.NETDEV: _REFUSE}


@dataclass(frozen=True)
class Order:
    """What one owner wants cut."""

    pairs: frozenset[Pair]
    reject: bool


class Cuts:
    """The network of a lab.  All cuts of all owners add up; a silent one outdoes one that tells.

    No change happens in the middle of a look.
    """

    def __init__(
        self,
        nodes: Mapping[str, LocalNode],
        forget: Callable[[frozenset[Pair]], Awaitable[None]],
    ) -> None:
        """`forget(pairs)` is told what was newly cut: what is under way there must not arrive."""
        self._nodes = nodes
        self._probing: Prober | None = None
        self._alone = asyncio.Lock()
        self._forget = forget
        self._ports = {
            name: struct.pack("=I", socket.if_nametoindex(node.port))
            for name, node in nodes.items()
        }
        self._orders: dict[str, Order] = {}
        self._changes: deque[tuple[float, frozenset[Pair]]] = deque(maxlen=_CHANGES_KEPT)
        self._in_kernel: dict[int, frozenset[bytes]] = {}
        self._netfilter: nft.Netfilter | None = None

    def unavailable(self, *, reject: bool = False) -> str | None:
        """Return None when this kernel can cut (and refuse), else why not, found by trying."""
        try:
            if self._netfilter is None:
                self._netfilter = nft.Netfilter()
            if nft.BRIDGE not in self._in_kernel:
                self._netfilter.commit(_cut_table())
                self._in_kernel[nft.BRIDGE] = frozenset()
            if reject and nft.NETDEV not in self._in_kernel:
                ports = [node.port for node in self._nodes.values()]
                self._netfilter.commit(_refuse_table(ports))
                self._in_kernel[nft.NETDEV] = frozenset()
        except OSError as error:
            what = "refuse packets (nft_reject_netdev)" if reject else "filter bridged frames"
            return f"this kernel cannot {what}: {error.strerror}"
        return None

    async def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        """Cut; see `harness.site.Network`.  Raises OSError, and then nothing changed."""
        wanted = frozenset(pairs)
        async with self._alone:
            before = self.cut_now()
            links = {frozenset(p) for p in wanted} - {frozenset(p) for p in before}
            await self._prober().prepare(links)
            self._change({**self._orders, owner: Order(wanted, reject)})
        await self._forget(self.cut_now() - before)

    async def mend(self, owner: str) -> None:
        """Undo the cut of an owner."""
        async with self._alone:
            self._change({name: o for name, o in self._orders.items() if name != owner})

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
            return await self._prober().look(pairs, self.cut_now(), LOOK_S + more_s)

    def stopped_packets(self) -> int:
        """Return how many packets were stopped so far, by the kernel's own count."""
        assert self._netfilter is not None, "the fault was not asked whether it is available"
        return sum(
            self._netfilter.counted_packets(family, _TABLES[family], _CHAIN)
            for family in self._in_kernel
        )

    def _prober(self) -> Prober:
        if self._probing is None:
            self._probing = Prober(self._nodes)
        return self._probing

    def _change(self, orders: dict[str, Order]) -> None:
        """Bring the kernel from the orders of now to these, in one transaction."""
        silent = {p for order in orders.values() if not order.reject for p in order.pairs}
        told = {p for order in orders.values() if order.reject for p in order.pairs} - silent
        wanted = {nft.BRIDGE: frozenset(self._ports[a] + self._ports[b] for a, b in silent)}
        if nft.NETDEV in self._in_kernel:
            wanted[nft.NETDEV] = frozenset(
                self._ports[a] + socket.inet_aton(self._nodes[b].address) for a, b in told
            )
        messages: list[nft.Message] = []
        for family, keys in wanted.items():
            now = self._in_kernel[family]
            messages += nft.delete_elements(family, _TABLES[family], _SET, now - keys)
            messages += nft.add_elements(family, _TABLES[family], _SET, keys - now)
        if messages:
            assert self._netfilter is not None
            self._netfilter.commit(messages)
        self._in_kernel.update(wanted)
        before = self.cut_now()
        self._orders = orders
        self._changes.append((time.monotonic(), before ^ self.cut_now()))


def _cut_table() -> list[nft.Message]:
    family = nft.BRIDGE
    not_arp = nft.frame_type(nft.DIFFERENT, nft.ARP)
    return [
        nft.table(family, _CUT),
        nft.pair_set(family, _CUT, _SET),
        nft.chain(family, _CUT, _CHAIN, _FORWARD),
        nft.rule(family, _CUT, _CHAIN, *not_arp, *nft.ports_in(_SET), nft.counted(), nft.drop()),
    ]


def _refuse_table(ports: Sequence[str]) -> list[nft.Message]:
    family = nft.NETDEV
    chosen = [*nft.frame_type(nft.EQUAL, nft.IPV4), *nft.port_and_destination_in(_SET)]
    reset = (*nft.transport(nft.TCP), nft.counted(), nft.refuse(with_reset=True))
    return [
        nft.table(family, _REFUSE),
        nft.pair_set(family, _REFUSE, _SET),
        nft.chain(family, _REFUSE, _CHAIN, _INGRESS, ports),
        nft.rule(family, _REFUSE, _CHAIN, *chosen, *reset),
        nft.rule(family, _REFUSE, _CHAIN, *chosen, nft.counted(), nft.refuse(with_reset=False)),
    ]

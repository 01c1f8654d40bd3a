"""Cutting nodes off from each other: frames vanish in the bridge, per directed pair.

One set of (in port, out port) on the bridge's forward hook says what is cut, so any change from one
partition to another is one transaction, in one direction or both, for old connections and new ones
alike, and the sender notices nothing.  ARP is spared: without it a connect to a neighbour that was
not looked up yet would fail by itself after three seconds instead of hanging, as it does behind a
router.  The hub is no port of its own bridge, so the harness reaches every node, cut or not.

The bridge itself cannot refuse.  Where senders are to be told, packets are caught as they enter
the bridge's port, and answered with a TCP reset or "port unreachable".
"""

import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence

from harness.cutting import Cutting, nothing_held
from harness.local import netfilter as nft
from harness.local.lab import LocalNode
from harness.local.netlink import Message
from harness.local.passage import Prober
from harness.site import Pair

LOOK_S = 0.005
_FORWARD, _INGRESS = 2, 0
_CUT, _REFUSE = "winkle_cut", "winkle_refuse"
_SET, _CHAIN = "pairs", "frames"
_TABLES = {nft.BRIDGE: _CUT, nft.NETDEV: _REFUSE}


class Cuts(Cutting):
    """The network of a lab; see `harness.site.Network`."""

    def __init__(
        self,
        nodes: Mapping[str, LocalNode],
        forget: Callable[[frozenset[Pair]], Awaitable[None]] = nothing_held,
    ) -> None:
        super().__init__(LOOK_S, forget)
        self._nodes = nodes
        self._probing: Prober | None = None
        self._ports = {
            name: struct.pack("=I", socket.if_nametoindex(node.port))
            for name, node in nodes.items()
        }
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

    async def stopped_packets(self) -> int:
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

    async def _tell(self, silent: frozenset[Pair], told: frozenset[Pair]) -> None:
        """Bring the kernel from what it cuts now to this, in one transaction."""
        wanted = {nft.BRIDGE: frozenset(self._ports[a] + self._ports[b] for a, b in silent)}
        if nft.NETDEV in self._in_kernel:
            wanted[nft.NETDEV] = frozenset(
                self._ports[a] + socket.inet_aton(self._nodes[b].address) for a, b in told
            )
        messages: list[Message] = []
        for family, keys in wanted.items():
            now = self._in_kernel[family]
            messages += nft.delete_elements(family, _TABLES[family], _SET, now - keys)
            messages += nft.add_elements(family, _TABLES[family], _SET, keys - now)
        if messages:
            assert self._netfilter is not None
            self._netfilter.commit(messages)
        self._in_kernel.update(wanted)


def _cut_table() -> list[Message]:
    family = nft.BRIDGE
    not_arp = nft.frame_type(nft.DIFFERENT, nft.ARP)
    return [
        nft.table(family, _CUT),
        nft.pair_set(family, _CUT, _SET),
        nft.chain(family, _CUT, _CHAIN, _FORWARD),
        nft.rule(family, _CUT, _CHAIN, *not_arp, *nft.ports_in(_SET), nft.counted(), nft.drop()),
    ]


def _refuse_table(ports: Sequence[str]) -> list[Message]:
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

"""Which nodes have a host of their own: only such a host can be cut off, or have bad links."""

from collections import Counter
from collections.abc import Mapping

from harness.ssh.node import SshNode
from harness.ssh.station import Station


class Hosting:
    """All nodes of a run, with who shares a host with whom; the envoy is not to be cut off."""

    def __init__(self, nodes: Mapping[str, SshNode], envoy: SshNode | None = None) -> None:
        self.nodes = nodes
        self._all = {**nodes, "the envoy": envoy} if envoy else nodes
        self._lodgers = Counter(node.station for node in self._all.values())

    def free(self) -> list[Station]:
        """Return the hosts that one node has for itself, by name."""
        found = {node.station for name, node in self.nodes.items() if self.bound(name) is None}
        return sorted(found, key=lambda station: station.host.name)

    def bound(self, name: str) -> str | None:
        """Return why a node cannot be cut off, nor its links be made bad; None when they can."""
        station = self.nodes[name].station
        if station.host.local:
            return (
                f"{name} lives on the controller's machine, which is never cut off and has no bad"
                " links"
            )
        if self._lodgers[station] > 1:
            others = [o for o, node in self._all.items() if node.station is station and o != name]
            return (
                f"{name} shares the host {station.host.name} with {', '.join(sorted(others))}:"
                " to be cut off, or to have bad links, a node needs a host of its own"
            )
        return None

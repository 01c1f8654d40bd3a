"""All hosts of one run, and which node lives on which.

The servers' programs must be on the hosts already: a target is told where (`etcd[binary=...]`).  A
worker is started with the Python that the inventory names for its host.  The controller asks the
servers itself whether they are ready, so it must reach them at the address that they have for each
other.
"""

import asyncio
import atexit
import os
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.backend import Proxying, Reached
from harness.ssh import node as nodes
from harness.ssh.hosting import Hosting
from harness.ssh.inventory import Host, Inventory, assign
from harness.ssh.links import SshLinks
from harness.ssh.network import SshCuts
from harness.ssh.node import SshNode
from harness.ssh.passage import Prober
from harness.ssh.proxies import Proxies
from harness.ssh.station import LEASE_S, Station
from harness.target import Place, Target
from harness.trick import Part

_AT_ONCE = 8
_WORKER = (nodes.PYTHON, "-P", "-m", "harness.worker")
_SLACK_S = 0.5


class SshLab:
    """See `harness.backend.Lab`."""

    worker_argv: Sequence[str] = _WORKER

    def __init__(
        self,
        servers: Sequence[str],
        workers: Sequence[str],
        inventory: Inventory,
        run: str,
        lease_s: float = LEASE_S,
        seed: int = 0,
        log: Path = Path(os.devnull),
    ) -> None:
        """Connect to all hosts that are needed and make the nodes.  Raises HarnessError.

        `log` takes what the proxies say.
        """
        self._log = log
        placed = assign(servers, workers, inventory)
        hosts = {host.name: host for host in placed.values()}
        token = f"{run}-{secrets.token_hex(4)}"
        self._stations: dict[str, Station] = {}
        self._connect(list(hosts.values()), token, lease_s)
        # After paramiko is imported: it ends its connections at exit, which is not to come first.
        atexit.register(self.close)
        self.nodes: Mapping[str, SshNode] = {
            name: nodes.make(self._stations[host.name], name) for name, host in placed.items()
        }
        hosting, prober = Hosting(self.nodes), Prober(self.nodes)
        self.links = SshLinks(hosting, prober, seed)
        self.network = SshCuts(hosting, prober, self.links.forget)

    def _connect(self, hosts: Sequence[Host], token: str, lease_s: float) -> None:
        """Start all agents; a host that fails does not leave the others open."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            starting = {host.name: pool.submit(Station, host, token, lease_s) for host in hosts}
        failed = [start.exception() for start in starting.values() if start.exception()]
        self._stations = {
            name: start.result() for name, start in starting.items() if not start.exception()
        }
        if failed and failed[0] is not None:
            self.close()
            raise failed[0]

    def close(self) -> None:
        """End all agents, and with them all that they started; may come twice."""
        atexit.unregister(self.close)
        stations, self._stations = list(self._stations.values()), {}
        for station in stations:
            station.close()

    def proxies(self, workers: Sequence[str], places: Mapping[Part, Sequence[Place]]) -> Proxying:
        """Return proxies that stand where the workers live."""
        return Proxies(self.nodes, workers, places, self._log)

    def distant(self, target: Target) -> Target:
        """Return the target itself: the controller reaches the hosts."""
        return target

    async def reach(self, place: Place, bound_s: float) -> Reached:
        """Connect from the server's own host, from which no cut keeps it."""
        link = self.nodes[place.name].station.link
        answer = link.tell("knock", address=place.address, port=place.port, bound_s=bound_s)
        try:
            async with asyncio.timeout(bound_s + _SLACK_S):
                reached: Reached = await asyncio.wrap_future(answer)
        except (TimeoutError, OSError):
            return "silent"
        return reached

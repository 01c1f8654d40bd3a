"""All hosts of one run, and which node lives on which.

The servers' programs must be on the hosts already: a target is told where (`etcd[binary=...]`).  A
worker is started with the Python that the inventory names for its host.  The controller asks the
servers itself whether they are ready, at the address that they have for each other, or it has an
envoy on a host that does.
"""

import asyncio
import atexit
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.asking import ENVOY, EnvoyLine
from harness.backend import Proxying, Reached
from harness.ssh import node as nodes
from harness.ssh.hosting import Hosting
from harness.ssh.inventory import Host, Inventory, assign
from harness.ssh.links import SshLinks
from harness.ssh.logs import with_log
from harness.ssh.network import SshCuts
from harness.ssh.node import SshNode
from harness.ssh.passage import Prober
from harness.ssh.proxies import Proxies
from harness.ssh.station import LEASE_S, Station
from harness.target import Place, Target
from harness.trick import Part

_ENVOY = "_envoy"  # no node's name
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
        logs: Path | None = None,
        parts: Mapping[Part, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Connect to all hosts that are needed and make the nodes.  Raises HarnessError.

        `logs` is the folder for what proxies and envoy say; `parts` are the targets that an envoy
        makes there.
        """
        self._logs = logs
        placed = assign(servers, workers, inventory)
        hosts = {host.name: host for host in (*placed.values(), inventory.envoy) if host}
        token = f"{run}-{secrets.token_hex(4)}"
        self._stations: dict[str, Station] = {}
        self._line: EnvoyLine | None = None
        self._connect(list(hosts.values()), token, lease_s)
        # After paramiko is imported: it ends its connections at exit, which is not to come first.
        atexit.register(self.close)
        self.nodes: Mapping[str, SshNode] = {
            name: nodes.make(self._stations[host.name], name) for name, host in placed.items()
        }
        asks = inventory.envoy
        envoy = nodes.make(self._stations[asks.name], _ENVOY) if asks else None
        self._line = self._call(envoy, parts) if envoy else None
        hosting, prober = Hosting(self.nodes, envoy), Prober(self.nodes)
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

    def _log(self, name: str) -> Path:
        return Path(os.devnull) if self._logs is None else self._logs / f"{name}.log"

    def _call(self, envoy: SshNode, parts: Mapping[Part, Mapping[str, Any]]) -> EnvoyLine:
        log = self._log("envoy")
        return EnvoyLine(envoy.spawn([nodes.PYTHON, *ENVOY], log=log, pipes=True), parts, log)

    @property
    def attached(self) -> Collection[str]:
        """The nodes on other machines: no program of this one says what they run."""
        return [name for name, node in self.nodes.items() if not node.station.host.local]

    def facts(self) -> Mapping[str, str]:
        """Return of each host its kernel, and how processes are kept; see `backend.Factual`."""
        return {
            f"host {name}": f"{station.kernel}; {station.kept}"
            for name, station in self._stations.items()
        }

    def close(self) -> None:
        """End all agents, and with them all that they started; may come twice."""
        atexit.unregister(self.close)
        line, self._line = self._line, None
        if line is not None:
            line.close()
        stations, self._stations = list(self._stations.values()), {}
        for station in stations:
            station.close()

    def proxies(self, workers: Sequence[str], places: Mapping[Part, Sequence[Place]]) -> Proxying:
        """Return proxies that stand where the workers live."""
        return Proxies(self.nodes, workers, places, self._log("proxies"))

    def distant(self, target: Target) -> Target:
        """Return the target, asked by the envoy; itself where the controller reaches the hosts."""
        asked = target if self._line is None else self._line.distant(target)
        return with_log(target, asked, self.nodes)

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

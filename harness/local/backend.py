"""The local backend: one sandbox, in which each node is a network namespace."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.backend import Left, Reached
from harness.local import advice, sandbox
from harness.local.lab import Lab, LocalNode
from harness.local.links import BadLinks
from harness.local.network import Cuts
from harness.local.proxies import Proxies
from harness.spec import RunSpec
from harness.target import Place, Target
from harness.trick import Part

DATA = Path("/dev/shm/winkle")
_WORKER = (sys.executable, "-P", "-m", "harness.worker")


def require() -> None:
    """Stop where there are no namespaces.  Raises SandboxError."""
    advice.require_linux()


def launch(folder: Path) -> Left:
    """Let the run live in a sandbox; see `harness.local.sandbox`."""
    left = sandbox.launch("harness.local.main", str(folder))
    return Left(left.code, None if left.failed is None else advice.explain(left.failed))


def build(names: Sequence[str], spec: RunSpec, folder: Path) -> "LocalLab":
    """Build the nodes.  Raises HarnessError, OSError."""
    return LocalLab(names, spec.seed, folder / "logs" / "links.log")


class LocalLab:
    """The nodes of a sandbox; see `harness.backend.Lab`.  They go with the sandbox."""

    worker_argv: Sequence[str] = _WORKER

    def __init__(self, names: Sequence[str], seed: int, links_log: Path) -> None:
        self.nodes: Mapping[str, LocalNode] = Lab(names, DATA).nodes
        for node in self.nodes.values():
            # Without this a healed connection stays silent for up to a minute of TCP back-off.
            node.sysctl("net.ipv4.tcp_rto_max_ms", "1000")
        self.links = BadLinks(self.nodes, seed, links_log)
        self.network = Cuts(self.nodes, self.links.forget)

    def proxies(self, workers: Sequence[str], places: Mapping[Part, Sequence[Place]]) -> Proxies:
        """Return the proxies, which stand on the workers' nodes."""
        return Proxies(self.nodes, workers, places)

    def distant(self, target: Target) -> Target:
        """Return the target itself: the harness has an address on the bridge of the nodes."""
        return target

    async def reach(self, place: Place, bound_s: float) -> Reached:
        """Connect from the harness's own namespace, which no cut concerns."""
        try:
            async with asyncio.timeout(bound_s):
                _, writer = await asyncio.open_connection(place.address, place.port)
        except TimeoutError:
            return "silent"
        except OSError:
            return "refused"
        writer.close()
        return "accepted"

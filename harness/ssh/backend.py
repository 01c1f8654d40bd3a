"""The SSH backend: the harness on this machine, one agent on every host.

The run's process needs the network of this machine, so it lives in no sandbox.  It dies with outer;
the agents end what they started when they hear no more of it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from harness import adversary
from harness.asking import parts_of
from harness.assemble import targets
from harness.backend import Left
from harness.errors import HarnessError
from harness.local import sandbox
from harness.servers import Parts
from harness.spec import RunSpec
from harness.ssh import inventory
from harness.ssh.lab import SshLab


def require() -> None:
    """Stop where the harness itself cannot live.  Raises HarnessError."""
    if sys.platform != "linux":
        raise HarnessError("the SSH backend needs Linux on the controller and on the hosts")


def launch(folder: Path) -> Left:
    """Let the run live in a process of its own."""
    return Left(sandbox.launch("harness.ssh.main", str(folder)).code)


def build(names: Sequence[str], spec: RunSpec, folder: Path) -> SshLab:
    """Connect to the hosts of the run's inventory and make the nodes.

    Raises HarnessError, UsageError.
    """
    crew = {*spec.worker_names(), adversary.WORKER}
    workers = [name for name in names if name in crew]
    servers = [name for name in names if name not in crew]
    assert spec.inventory is not None, "asked for with the backend"
    hosts = inventory.read(Path(spec.inventory))
    ports = {server.name: server.port for server in Parts(*targets(spec)).servers}
    placed = inventory.assign(servers, workers, hosts)
    inventory.check_addresses(placed)
    inventory.check_ports(placed, ports)
    return SshLab(
        servers,
        workers,
        hosts,
        folder.name,
        seed=spec.seed,
        logs=folder / "logs",
        parts=parts_of(spec),
    )

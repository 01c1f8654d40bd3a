"""The Docker backend: a cluster of three up and down, and faults from their order to their proof.

    python bench/containers.py [--windows N]

Needs an engine, with the image built.  Faults are measured as `bench/faults.py` does it, ten
windows each if not said; a restart is that of a store on its data, until it answers: of our own,
which is a Python program, and of Valkey.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.faults import Row, quantiles, recorded
from harness.assemble import targets
from harness.docker.lab import DockerLab
from harness.folder import RunFolder
from harness.runfile import from_values
from harness.servers import Parts, Servers

PAIR = {"lock": "atlasmart", "store": "atlasmart", "workload": "fencing", "workers": 2}
ROUNDS = 3


def cluster() -> Iterator[Row]:
    """Three members of etcd: containers, healthy, removed."""
    spec = from_values({"lock": "etcd", "store": "etcd", "backend": "docker"})
    times: dict[str, list[float]] = {"containers": [], "healthy": [], "down": []}
    for _ in range(ROUNDS):
        parts = Parts(*targets(spec))
        with tempfile.TemporaryDirectory() as out:
            folder = RunFolder(Path(out))
            (folder.path / "logs").mkdir()
            began = time.monotonic()
            lab = DockerLab([server.name for server in parts.servers], spec, folder.path)
            times["containers"].append((time.monotonic() - began) * 1000)
            asyncio.run(Servers(parts.seen_by(lab.distant), lab, folder).start())
            times["healthy"].append((time.monotonic() - began) * 1000)
            began = time.monotonic()
            lab.close()
            times["down"].append((time.monotonic() - began) * 1000)
    for name, values in times.items():
        yield f"three members of etcd: {name}", values


def faults(count: int) -> Iterator[Row]:
    """Each kind that a holder carries out."""
    lie = "at=500ms,clock=both,jump=1h"
    for fault, own_s in (
        ("pause:who=worker:1,at=500ms", 0.2),
        ("pause:who=worker:1,at=500ms,by=sigstop", 0.05),
        ("partition:who=worker:1,at=500ms", 0.2),
        (f"clock:who=worker:1,{lie}", 0.1),
        ("link:who=worker:1,at=500ms,delay=5ms", 0.4),
        ("kill:who=store,at=500ms", 1.0),
    ):
        yield from recorded(fault, count, own_s, backend="docker", **PAIR)
    valkey = PAIR | {"store": "valkey"}
    yield from recorded("kill:who=store,at=500ms", count, 1.0, backend="docker", **valkey)
    lost = {"length": "300ms", "op_timeout": "50ms"}
    yield from recorded("message:who=w1,at=500ms", count, 0.3, backend="docker", **lost, **PAIR)


def main() -> None:
    """Measure and print."""
    words = sys.argv[1:]
    count = int(words[words.index("--windows") + 1]) if "--windows" in words else 10
    for rows in (cluster(), faults(count)):
        for name, values in rows:
            print(f"{name}\n  {quantiles(values)}", flush=True)


if __name__ == "__main__":
    main()

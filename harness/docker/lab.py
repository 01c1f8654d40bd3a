"""All nodes of a run in containers, built side by side.

Beside the nodes of the run stands the hub: a holder that no cut names.  The envoy joins it, and
what must reach a server whatever is cut goes out from there.
"""

import asyncio
import contextlib
import io
import itertools
import secrets
import tarfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import assemble
from harness.backend import Proxying, Reached
from harness.docker import reaper
from harness.docker.agent import SILENCE_S
from harness.docker.attached import AttachedNode
from harness.docker.compose import Composed
from harness.docker.distant import EnvoyLine, Part, view
from harness.docker.engine import connect
from harness.docker.holder import Holder
from harness.docker.images import node_image
from harness.docker.network import Cuts
from harness.docker.node import DockerNode
from harness.docker.project import Project
from harness.docker.sidecar import Sidecar
from harness.spec import RunSpec
from harness.target import Place, Target
from harness.trick import Part as TrickPart

HUB = "hub"
_THREADS = 8
_REACH_MORE_S = 2.0


class DockerLab:
    """The nodes of one run; see `harness.backend.Lab`."""

    worker_argv: Sequence[str] = ("python", "-P", "-m", "harness.worker")
    links = None

    def __init__(self, names: Sequence[str], spec: RunSpec, folder: Path) -> None:
        """Build all of it.  Raises EngineError; what was made till then goes with the reaper."""
        api = connect()
        image = node_image(api)
        run = secrets.token_hex(4)
        self._reaper = reaper.start(run)
        composed = None if spec.compose is None else Composed(api, run, spec)
        self._servers = {} if composed is None else composed.containers
        self.project = Project(api, run, image, composed.network() if composed else None)
        self._holders: list[Holder] = []
        with ThreadPoolExecutor(_THREADS) as threads:
            hub = threads.submit(Holder, self.project, HUB, disk=False)
            made = list(threads.map(self._holder, names))
        self._hub = hub.result()
        self._holders.append(self._hub)
        self._ended = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        files = own_files(spec)
        self.network = Cuts({holder.name: holder for holder in made}, self._hub)
        self.nodes: Mapping[str, DockerNode | AttachedNode] = {
            holder.name: AttachedNode(self.project, holder, self.network.renew)
            if isinstance(holder, Sidecar)
            else DockerNode(self.project, holder, files=files)
            for holder in made
        }
        volumes = [bind for holder in made for bind in holder.binds]
        inside = DockerNode(self.project, self._hub, binds=volumes, files=files)
        self._envoy = EnvoyLine(inside, _parts(spec), folder / "logs" / "envoy.log")
        self._unseen = itertools.chain(_parts(spec))

    def _holder(self, name: str) -> Holder:
        if name in self._servers:
            holder: Holder = Sidecar(self.project, name, self._servers[name])
        else:
            holder = Holder(self.project, name)
        self._holders.append(holder)
        return holder

    def watch(self, report: Callable[[str], None]) -> None:
        """Report what is amiss with servers of the user's own; see `harness.backend.Watchful`."""
        loop = asyncio.get_running_loop()

        def tell(why: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                loop.call_soon_threadsafe(report, why)

        for node in self._attached():
            node.report = tell

    def _attached(self) -> list[AttachedNode]:
        return [node for node in self.nodes.values() if isinstance(node, AttachedNode)]

    def _beat(self) -> None:
        """Tell the holders that the harness lives."""
        while not self._ended.wait(SILENCE_S / 4):
            for holder in self._holders:
                holder.order("beat")

    def proxies(
        self, workers: Sequence[str], places: Mapping[TrickPart, Sequence[Place]]
    ) -> Proxying | None:
        """Return None: no proxies stand between containers."""
        return None

    def distant(self, target: Target) -> Target:
        """Return the target, asked by the envoy.  Called for the lock first, then for the store."""
        part = next(self._unseen)
        return view(target, lambda call, *arguments: self._envoy.ask(part, call, *arguments))

    async def reach(self, place: Place, bound_s: float) -> Reached:
        """Connect to a server's port from the hub."""
        reached: Reached = await self._hub.request(
            "reach", place.address, place.port, bound_s, bound_s=bound_s + _REACH_MORE_S
        )
        return reached

    def close(self) -> None:
        """End everything, and wait until it is removed."""
        self._ended.set()
        for node in self._attached():
            node.closing = True
        self._envoy.close()
        for holder in self._holders:
            holder.close()
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait()
        self.project.api.close()


def _parts(spec: RunSpec) -> dict[Part, dict[str, Any]]:
    """Return what the envoy makes its targets from; one of them when one plays both parts."""
    if spec.one_target:
        return {"lock": {"name": spec.lock.name, "options": assemble.merged(spec)}}
    return {
        "lock": {"name": spec.lock.name, "options": dict(spec.lock.options)},
        "store": {"name": spec.store.name, "options": dict(spec.store.options)},
    }


def own_files(spec: RunSpec) -> bytes | None:
    """Return a tar archive of the user's own target files, with the modules beside them.

    Each lies in the container where it lies here, so that its name means the same.
    """
    paths = set()
    for name in (spec.lock.name, spec.store.name):
        path, colon, _ = name.rpartition(":")
        if colon and path.endswith(".py"):
            paths |= set(Path(path).expanduser().resolve().parent.glob("*.py"))
    if not paths:
        return None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path_here in sorted(paths):
            tar.add(path_here, str(path_here).lstrip("/"), recursive=False)
    return packed.getvalue()

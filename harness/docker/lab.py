"""All nodes of a run in containers, built side by side.

Beside the nodes of the run stands the hub: a holder that no cut names.  The envoy joins it, and
what must reach a server whatever is cut goes out from there.
"""

import asyncio
import contextlib
import io
import secrets
import tarfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import assemble
from harness.asking import ENVOY, EnvoyLine, parts_of
from harness.backend import Proxying, Reached
from harness.docker.attached import AttachedNode
from harness.docker.compose import Composed
from harness.docker.door import DOORS
from harness.docker.engine import connect
from harness.docker.holder import Holder
from harness.docker.images import known_as, node_image, runs_from, server_image
from harness.docker.links import BadLinks
from harness.docker.network import Cuts
from harness.docker.node import DockerNode
from harness.docker.project import SILENCE_S, Project
from harness.docker.proxies import Proxies
from harness.docker.reaper import Reaper
from harness.docker.sidecar import Sidecar
from harness.servers import Parts
from harness.spec import RunSpec
from harness.target import Place, Target
from harness.trick import Part

HUB = "hub"
_SHARED = "_doors"  # no node's name
_THREADS = 8
_REACH_MORE_S = 2.0


class DockerLab:
    """The nodes of one run; see `harness.backend.Lab`."""

    worker_argv: Sequence[str] = ("python", "-P", "-m", "harness.worker")

    def __init__(self, names: Sequence[str], spec: RunSpec, folder: Path) -> None:
        """Build all of it.  Raises EngineError; what was made till then goes with the reaper."""
        self._images = _images(spec)
        with contextlib.ExitStack() as undone:
            api = connect()
            undone.callback(api.close)
            for wanted in sorted(set(self._images.values())):
                server_image(api, wanted)
            image = node_image(api)
            run = secrets.token_hex(4)
            self._reaper = Reaper(run)
            composed = None if spec.compose is None else Composed(api, run, spec)
            self._composed = composed
            self._servers = {} if composed is None else composed.containers
            self.project = Project(api, run, image, composed.network() if composed else None)
            undone.pop_all()
        self._holders: list[Holder] = []
        self._mounts = [f"{self.project.volume(_SHARED)}:{DOORS}"]
        with ThreadPoolExecutor(_THREADS) as threads:
            hub = threads.submit(Holder, self.project, HUB, disk=False, mounts=self._mounts)
            made = list(threads.map(self._holder, names))
        self._hub = hub.result()
        self._holders.append(self._hub)
        self._ended = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        files = own_files(spec)
        self._named = {holder.name: holder for holder in made}
        self.links = BadLinks(self._named, spec.seed)
        self.network = Cuts(self._named, self._hub, self.links.forget)
        self.nodes: Mapping[str, DockerNode | AttachedNode] = {
            holder.name: AttachedNode(self.project, holder, self._renew)
            if isinstance(holder, Sidecar)
            else DockerNode(self.project, holder, files=files, image=self._images.get(holder.name))
            for holder in made
        }
        volumes = [bind for holder in made for bind in holder.binds]
        inside = DockerNode(self.project, self._hub, binds=volumes, files=files)
        log = folder / "logs" / "envoy.log"
        envoy = inside.spawn(["python", *ENVOY], log=log, pipes=True)
        self._envoy = EnvoyLine(envoy, parts_of(spec), log)

    def _holder(self, name: str) -> Holder:
        if self._composed is not None and name in self._servers:
            holder: Holder = self._composed.attach(self.project, name)
        else:
            holder = Holder(self.project, name, mounts=self._mounts)
        self._holders.append(holder)
        return holder

    async def _renew(self, name: str) -> bool:
        """Tell a node all again that is in force there; return whether anything is."""
        cut = await self.network.renew(name)
        bad = await self.links.renew(name)
        node = self.nodes[name]
        if isinstance(node, AttachedNode):
            await node.clocks.renew()  # who lies tells of the gap itself
        return cut or bad

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
            self._reaper.beat()

    def proxies(self, workers: Sequence[str], places: Mapping[Part, Sequence[Place]]) -> Proxying:
        """Return the proxies, which stand on the workers' nodes."""
        return Proxies(self._hub, self._named, workers, places)

    def distant(self, target: Target) -> Target:
        """Return the target, asked by the envoy.  Called for the lock first, then for the store."""
        return self._envoy.distant(target)

    async def reach(self, place: Place, bound_s: float) -> Reached:
        """Connect to a server's port from the hub."""
        reached: Reached = await self._hub.request(
            "reach", place.address, place.port, bound_s, bound_s=bound_s + _REACH_MORE_S
        )
        return reached

    @property
    def attached(self) -> Collection[str]:
        """The servers that compose brought up."""
        return self._servers.keys()

    def facts(self) -> Mapping[str, str]:
        """Return which image each server runs from; see `harness.backend.Factual`."""
        api = self.project.api
        used: dict[str, list[str]] = {}
        for name, image in self._images.items():
            if name not in self._servers:
                used.setdefault(known_as(api, image), []).append(name)
        for name, container in self._servers.items():
            used.setdefault(runs_from(api, container), []).append(name)
        return {f"image of {', '.join(names)}": image for image, names in used.items()}

    def close(self) -> None:
        """End everything, and wait until it is removed."""
        self._ended.set()
        for attached in self._attached():
            attached.closing = True
        for node in self.nodes.values():  # nothing that is frozen can end
            node.freezer.thaw_for_good()
        self._envoy.close()
        for holder in self._holders:
            holder.close()
        self._reaper.finish()
        self.project.close()


def _images(spec: RunSpec) -> dict[str, str]:
    """Return the images of the user's own, by the server that is to run from each."""
    servers = Parts(*assemble.targets(spec)).servers
    return {server.name: server.image for server in servers if server.image is not None}


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

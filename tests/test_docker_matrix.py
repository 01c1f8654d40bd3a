"""Every kind of fault on a server that we start and on one that compose brings up.

Each of them either works, and its own proof says so, or is refused before anything starts, with
the reason.  A kind that is new is asked for here by name.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.assemble import faults, targets
from harness.docker.attached import AttachedNode
from harness.docker.lab import DockerLab
from harness.docker.node import DockerNode
from harness.errors import UsageError
from harness.folder import RunFolder
from harness.plugins import entries
from harness.runfile import from_values
from harness.servers import Parts, Servers
from harness.site import Site
from harness.spec import RunSpec
from harness.upkeep import Keeper
from tests.support_compose import needs_project, spec
from tests.support_docker import BOUND_S

pytestmark = [*needs_project, pytest.mark.real]
Where = Literal["own", "composed"]
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "amnesia": ("age=50ms", "empty=true"),
    "authority": ("",),
    "clock": ("jump=1h,clock=both",),
    "disk": ("what=full", "what=read-only", "what=flip", "what=truncate"),
    "kill": ("", "power=true", "signal=TERM"),
    "link": ("delay=20ms",),
    "membership": ("",),
    "message": ("",),
    "partition": ("", "reject=true"),
    "pause": ("", "by=sigstop", "by=freezer"),
}
# What is refused, and in which words; all else works.
REFUSED: Mapping[tuple[Where, str], str] = {
    ("own", "disk:what=read-only"): "what: found read-only; allowed in containers: full",
    ("composed", "disk:what=read-only"): "what: found read-only; allowed in containers: full",
    ("composed", "amnesia"): "the compose file brings up etcd2, whose data lies in the container",
    ("composed", "disk"): "the compose file brings up etcd2, whose data lies in the container",
    ("composed", "membership"): "etcd-over-http cannot change its members",
}
KEEPS_DATA = {"amnesia", "disk"}  # a store that is not one of three is the simpler victim
COMES_BY = {"message", "authority"}  # in force when a worker does something; here is none


@dataclass
class Place:
    """A lab with its servers, and what faults may touch there."""

    spec: RunSpec
    parts: Parts
    lab: DockerLab
    site: Site


async def _started(asked: RunSpec, lab: DockerLab, folder: RunFolder) -> Place:
    parts = Parts(*targets(asked)).seen_by(lab.distant)
    servers = Servers(parts, lab, folder)
    await servers.start()
    names = parts.names()
    cluster = servers.lock_cluster
    messages = lab.proxies(["w1"], {"lock": [cluster[name] for name in names["lock"]]})
    site = Site(
        nodes=lab.nodes,
        lock_servers=names["lock"],
        store_servers=names["store"],
        workers=["w1"],
        network=lab.network,
        links=lab.links,
        messages=messages,
        upkeep=Keeper(lab.nodes, servers),
        target=parts.lock,
        cluster=cluster,
    )
    return Place(asked, parts, lab, site)


async def _something_to_damage(place: Place) -> None:
    node = place.lab.nodes[place.site.store_servers[0]]
    how: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    argv = ["sh", "-c", "echo something > word"]
    spawned = node.spawn(argv, log=Path("/dev/null"), cwd=node.data)
    spawned.watch(asyncio.get_running_loop(), how.set_result)
    assert await how == "exit code 0"


# One for all: a lab hears its holders in the loop in which it was first used.
_loop = asyncio.Runner()


def values(where: Where, folder: Path, fault: str) -> dict[str, Any]:
    who = "store" if where == "own" and fault.partition(":")[0] in KEEPS_DATA else "etcd2"
    kind, _, options = fault.partition(":")
    asked = ",".join(part for part in (options, f"who={who}", "at=1s") if part)
    given = {"workers": 1, "readers": 0, "faults": [f"{kind}:{asked}"]}
    if where == "own":
        return given | {"lock": "etcd", "store": "atlasmart", "backend": "docker"}
    about = spec(folder)
    return given | {
        "lock": about.lock.name,
        "store": about.store.name,
        "compose": about.compose,
        "servers": about.servers,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(scope="module", params=["own", "composed"])
def place(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Where, Place]]:
    where: Where = request.param
    home = RunFolder(folder / where)
    (home.path / "logs").mkdir(parents=True)
    asked = from_values(values(where, folder, "pause"))
    names = [server.name for server in Parts(*targets(asked)).servers]
    lab = DockerLab([*names, "w1"], asked, home.path)
    try:
        yield where, _loop.run(_started(asked, lab, home))
    finally:
        lab.close()


def test_every_kind_is_in_the_table() -> None:
    assert set(entries("faults")) == set(VARIANTS)


@pytest.mark.parametrize(
    "fault",
    [f"{kind}:{options}".strip(":") for kind, each in VARIANTS.items() for options in each],
)
def test_it_works_or_is_refused_with_the_reason(
    place: tuple[Where, Place], folder: Path, fault: str
) -> None:
    where, here = place
    why = REFUSED.get((where, fault)) or REFUSED.get((where, fault.partition(":")[0]))
    if why is not None:
        with pytest.raises(UsageError) as told:
            from_values(values(where, folder, fault))
        assert why in str(told.value)
        return
    asked = from_values(values(where, folder, fault))
    name = here.site.store_servers[0] if asked.faults[0].who == "store" else asked.faults[0].who
    assert isinstance(here.lab.nodes[name], DockerNode if where == "own" else AttachedNode)
    if fault.startswith("disk"):  # amnesia took it
        _loop.run(_something_to_damage(here))
    if fault != "authority":  # which touches no node
        _loop.run(_proven(here, asked, name))


async def _proven(here: Place, asked: RunSpec, name: str) -> None:
    (fault,) = faults(asked)
    site, nodes = here.site, [here.lab.nodes[name]]
    assert fault.available(site) is None
    async with asyncio.timeout(2 * BOUND_S):
        await fault.start(site, nodes)
        try:
            on = await fault.in_force(site, nodes)
        finally:
            await fault.stop(site, nodes)
        assert on.holds or (fault.name in COMES_BY and on.holds is None), on
        off = await fault.gone(site, nodes)
        while not off.holds:  # what was ordered may take its time
            off = await fault.gone(site, nodes)

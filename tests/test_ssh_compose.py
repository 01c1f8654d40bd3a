"""The hosts of compose/sshd: containers, reached at ports of 127.0.0.1 and nowhere else.

What they have for each other, their addresses in the engine's network, only the agents use.
"""

import asyncio
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.clocks import Lie, Skew
from harness.docker.compose import command
from harness.docker.engine import EngineError
from harness.shape import Shape
from harness.site import Pair
from harness.ssh.inventory import read
from harness.ssh.lab import SshLab
from harness.ssh.node import DiskNode
from tests.live import until
from tests.support_docker import api, needs_engine
from tests.support_hosts import make_key
from tests.test_ssh_cuts import told

IMAGE = "vanwinkle/sshd:offline"
FILE = Path(__file__).resolve().parent.parent / "compose" / "sshd" / "docker-compose.yml"
AB: Pair = ("a", "b")
NAMES = {"host1": "a", "host2": "b", "host3": "c"}

pytestmark = [*needs_engine(), pytest.mark.ssh]


@contextmanager
def hosts_up(folder: Path, client: Any) -> Iterator[dict[str, Any]]:
    """Bring the project up, and yield its containers by service."""
    try:
        compose = command()
    except EngineError as error:
        pytest.skip(str(error))
    project = f"winkle-test-{secrets.token_hex(4)}"
    key = make_key(folder / "user_key")
    env = os.environ | {"AUTHORIZED_KEY": key, "SSHD_IMAGE": IMAGE}
    words = [*compose, "-p", project, "-f", str(FILE)]
    try:
        subprocess.run([*words, "up", "-d"], env=env, check=True, capture_output=True)
        mine = {"label": f"com.docker.compose.project={project}"}
        found = client.containers(filters=mine)
        yield {one["Labels"]["com.docker.compose.service"]: one["Id"] for one in found}
    finally:
        subprocess.run([*words, "down", "-t", "1"], env=env, check=True, capture_output=True)


def said(client: Any, container: str, *argv: str) -> str:
    """Run a program in a container, through the engine, and return what it wrote."""
    made = client.exec_create(container, list(argv))
    return str(client.exec_start(made["Id"]).decode())


def host_of(client: Any, service: str, container: str) -> dict[str, Any]:
    """Return an entry of the inventory; the host key comes through the engine."""
    networks = client.inspect_container(container)["NetworkSettings"]["Networks"]
    key = "/etc/ssh/ssh_host_ed25519_key.pub"
    public = until(lambda: _key(said(client, container, "cat", key)), "a host key")
    return {
        "name": service,
        "address": "127.0.0.1",
        "port": 2200 + int(service.removeprefix("host")),
        "peer_address": next(iter(networks.values()))["IPAddress"],
        "host_key": public,
        "nodes": [NAMES[service]],
    }


def left(client: Any, container: str) -> str:
    """Return what a run may leave: processes, tables of nft, mounts."""
    return said(client, container, "sh", "-c", "ps -eo args; nft list tables; cat /proc/1/mounts")


def _key(text: str) -> str:
    return text.strip() if text.startswith("ssh-ed25519 ") else ""


def test_every_fault_of_hosts_is_had_there_and_nothing_is_left(tmp_path: Path) -> None:
    with api() as client:
        if not client.images(IMAGE):
            pytest.skip(f"there is no image {IMAGE}: compose/products sshd builds it")
        with hosts_up(tmp_path, client) as containers:
            entries = [host_of(client, name, it) for name, it in sorted(containers.items())]
            path = tmp_path / "hosts.yaml"
            path.write_text(yaml.safe_dump({"defaults": {"key": "user_key"}, "hosts": entries}))
            until(lambda: _listens(client, containers), "sshd")
            before = {it: left(client, it) for it in containers.values()}
            place = SshLab(["a", "b", "c"], [], read(path), "t")
            try:
                found = asyncio.run(_faults(place, tmp_path))
            finally:
                place.close()
            until(
                lambda: before == {it: left(client, it) for it in containers.values()},
                "the end of all that was started",
            )
    assert found["means"] == {"namespace"}
    assert found["unavailable"] == [None, None, None]
    assert found["cut"] == {"ab": "nnn", "ba": "y??", "ac": "y?y"}
    assert found["late_s"] >= 0.039
    assert found["off_s"] == pytest.approx(1000.0, abs=0.01)
    assert found["stopped"] == found["total"] > 0
    assert found["disk"] == "ENOSPC"


def _listens(client: Any, containers: dict[str, str]) -> bool:
    states = [client.inspect_container(it)["State"] for it in containers.values()]
    return all(state["Health"]["Status"] == "healthy" for state in states)


async def _faults(place: SshLab, folder: Path) -> dict[str, Any]:
    node = place.nodes["a"]
    assert isinstance(node, DiskNode)
    found: dict[str, Any] = {
        "means": {each.station.means for each in place.nodes.values()},
        "unavailable": [
            place.network.unavailable(),
            place.links.unavailable(),
            node.clocks.unavailable(),
        ],
    }
    node.spawn(["sleep", "1000"], log=folder / "log")
    while not node.processes():
        await node.look()
    await node.clocks.skew("test", Skew(wall=Lie(offset_s=1000.0)))
    (read_now,) = (await node.clocks.read_clocks()).values()
    found["off_s"] = read_now.wall.error_s if read_now.wall else None
    node.stop("test")
    while not node.threads().stopped:
        await node.look()
    found["stopped"], found["total"] = node.threads().stopped, node.threads().total
    await place.network.cut("test", [AB])
    found["cut"] = told(await place.network.passes([AB, ("b", "a"), ("a", "c")]))
    await place.network.mend("test")
    await place.links.shape("test", [AB], Shape(delay_s=0.04))
    found["late_s"] = (await place.links.measure([AB], 20, 64, 0.001, 10.0))[AB].least_s
    await asyncio.to_thread(node.fill, "test")
    found["disk"] = await asyncio.to_thread(node.try_to_write)
    return found

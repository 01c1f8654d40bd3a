"""The hosts of compose/sshd: containers, reached at ports of 127.0.0.1 and nowhere else.

What they have for each other, their addresses in the engine's network, only the agents use.
"""

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
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
from tests.test_ssh_links import NEARLY

IMAGE = "vanwinkle/sshd:offline"
ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "compose" / "sshd" / "docker-compose.yml"
PYTHON = "/usr/local/bin/winkle-python"
RELEASE = f"{sys.version_info.major}.{sys.version_info.minor}"
AB: Pair = ("a", "b")
LATE_S = 0.04
NAMES = {"host1": "a", "host2": "b", "host3": "c"}

pytestmark = [*needs_engine(), pytest.mark.ssh]


@contextmanager
def hosts_up(folder: Path, client: Any, *more: Path) -> Iterator[dict[str, Any]]:
    """Bring the project up, with more files of it, and yield its containers by service."""
    if not client.images(IMAGE):
        pytest.skip(f"there is no image {IMAGE}: compose/products sshd builds it")
    try:
        compose = command()
    except EngineError as error:
        pytest.skip(str(error))
    project = f"winkletest-{secrets.token_hex(4)}"
    key = make_key(folder / "user_key")
    env = os.environ | {"AUTHORIZED_KEY": key, "SSHD_IMAGE": IMAGE}
    files = [word for path in (FILE, *more) for word in ("-f", str(path))]
    words = [*compose, "-p", project, *files]
    try:
        subprocess.run([*words, "up", "-d"], env=env, check=True, capture_output=True)
        mine = {"label": f"com.docker.compose.project={project}"}
        found = client.containers(filters=mine)
        made = {one["Labels"]["com.docker.compose.service"]: one["Id"] for one in found}
        until(lambda: _listens(client, made), "sshd")
        yield made
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


def inventory(
    folder: Path, client: Any, containers: dict[str, Any], **changes: dict[str, Any]
) -> Path:
    """Write the inventory, with changes of entries by service."""
    entries = [
        host_of(client, name, it) | changes.get(name, {}) for name, it in sorted(containers.items())
    ]
    path = folder / "hosts.yaml"
    path.write_text(yaml.safe_dump({"defaults": {"key": "user_key"}, "hosts": entries}))
    return path


def seen(client: Any, container: str) -> set[str]:
    """Return what a run may leave: processes, tables of nft, mounts."""
    text = said(client, container, "sh", "-c", "ps -eo args; nft list tables; cat /proc/1/mounts")
    return set(text.splitlines())


def await_end(client: Any, before: dict[str, set[str]]) -> None:
    """Wait until nothing is there that was not before.

    Each second the health check knocks at sshd: what one look sees of that, the next does not.
    """
    until(
        lambda: all(seen(client, container) <= was for container, was in before.items()),
        "the end of all that was started",
    )


def _key(text: str) -> str:
    return text.strip() if text.startswith("ssh-ed25519 ") else ""


def test_every_fault_of_hosts_is_had_there_and_nothing_is_left(tmp_path: Path) -> None:
    with api() as client, hosts_up(tmp_path, client) as containers:
        path = inventory(tmp_path, client, containers)
        before = {it: seen(client, it) for it in containers.values()}
        place = SshLab(["a", "b", "c"], [], read(path), "t")
        try:
            found = asyncio.run(_faults(place, tmp_path))
        finally:
            place.close()
        await_end(client, before)
    assert found["means"] == {"namespace"}
    assert found["unavailable"] == [None, None, None]
    assert found["cut"] == {"ab": "nnn", "ba": "y??", "ac": "y?y"}
    assert found["late_s"] >= NEARLY * LATE_S
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
    await place.links.shape("test", [AB], Shape(delay_s=LATE_S))
    found["late_s"] = (await place.links.measure([AB], 20, 64, 0.001, 10.0))[AB].least_s
    await asyncio.to_thread(node.fill, "test")
    found["disk"] = await asyncio.to_thread(node.try_to_write)
    return found


def lend(folder: Path) -> Path:
    """Return what gives each host this checkout, its packages, and a Python that finds both."""
    site = Path(msgspec.__file__).parent.parent
    python = folder / "winkle-python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}:{site} exec python3 "$@"\n')
    python.chmod(0o755)
    volumes = [*(f"{path}:{path}:ro" for path in (ROOT, site)), f"{python}:{PYTHON}:ro"]
    more = folder / "more.yml"
    more.write_text(yaml.safe_dump({"services": {name: {"volumes": volumes} for name in NAMES}}))
    return more


def test_a_whole_run_needs_nothing_but_sshd_of_the_hosts(tmp_path: Path) -> None:
    with api() as client, hosts_up(tmp_path, client, lend(tmp_path)) as containers:
        if not said(client, containers["host1"], "python3", "-V").startswith(f"Python {RELEASE}."):
            pytest.skip(f"the image's Python cannot use packages of {RELEASE}")
        path = inventory(
            tmp_path,
            client,
            containers,
            host1={"nodes": ["etcd*"]},
            host2={"nodes": ["w1"], "python": PYTHON},
            host3={"nodes": ["w2", "r1"], "python": PYTHON, "envoy": True},
        )
        before = {it: seen(client, it) for it in containers.values()}
        argv = [sys.executable, "-P", "-m", "harness.cli", "run", "--json", "--backend", "ssh"]
        argv += ["--inventory", str(path), "--lock", "etcd[nodes=1]", "--store", "etcd[nodes=1]"]
        argv += ["--fault", "pause:who=holder,at=before-write,for=2.5leases,count=1"]
        argv += ["--workers", "2", "--readers", "1", "--time", "10s", "--ttl", "2s", "--seed", "3"]
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        verdict = json.loads(done.stdout)["results"]["verdict"]
        assert "stale-owner-write" in {anomaly["name"] for anomaly in verdict["anomalies"]}
        await_end(client, before)

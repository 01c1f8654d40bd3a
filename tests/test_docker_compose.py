"""A stranger's compose project under test: its verdict, what it loses, and what is left of it.

The project is three members of etcd in containers as etcd's own documentation shows them; the
adapter is the one of the documentation.  Other runs may use the engine meanwhile, so what is left
is told by names that only runs with a compose file have.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from harness.docker.attached import AttachedNode
from harness.docker.compose import command
from harness.docker.engine import OWNER_LABEL, RUN_LABEL, EngineError, owner_is_dead
from harness.docker.lab import DockerLab
from harness.errors import UsageError
from harness.runfile import from_values, read, to_yaml
from harness.spec import RunSpec
from tests.live import live_run
from tests.live import until as wait_until
from tests.support_docker import api, engine_trouble, live, until

ADAPTER = Path(__file__).resolve().parent.parent / "docs" / "examples" / "etcd_over_http.py"
IMAGE = "vanwinkle/etcd:offline"
CODE_LINES_MAX = 60
GONE_S = 6.0
NAMES = ("etcd1", "etcd2", "etcd3")
OF_COMPOSE = re.compile(r"winkle(?P<run>[0-9a-f]+)(_inside|_etcd\d_data|-etcd\d-1)$")


def _trouble() -> str:
    """Return why the project cannot be brought up here, "" when it can."""
    if trouble := engine_trouble():
        return f"Docker: {trouble}"
    try:
        command()
    except EngineError as error:
        return str(error)
    with api() as client:
        return "" if client.images(IMAGE) else f"no image {IMAGE} (compose/products etcd makes it)"


_WHY_NOT = _trouble()
needs_project = [
    pytest.mark.docker,
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "the project can be brought up"),
]


def _marked(test: Any) -> Any:
    for mark in needs_project:
        test = mark(test)
    return test


def project() -> dict[str, Any]:
    """Return the compose file of three members, on a network that leads nowhere."""
    peers = ",".join(f"{name}=http://{name}:2380" for name in NAMES)
    services = {
        name: {
            "image": IMAGE,
            "entrypoint": "/usr/local/bin/etcd",
            "command": [
                f"--name={name}",
                f"--initial-advertise-peer-urls=http://{name}:2380",
                "--listen-peer-urls=http://0.0.0.0:2380",
                f"--advertise-client-urls=http://{name}:2379",
                "--listen-client-urls=http://0.0.0.0:2379",
                f"--initial-cluster={peers}",
                "--initial-cluster-token=mys3cr3ttok3n",
                "--data-dir=/etcd_data",
            ],
            "volumes": [f"{name}_data:/etcd_data"],
            "networks": ["inside"],
        }
        for name in NAMES
    }
    volumes: dict[str, Any] = {f"{name}_data": {} for name in NAMES}
    return {
        "services": services,
        "volumes": volumes,
        "networks": {"inside": {"internal": True}},
    }


def spec(tmp_path: Path, **more: Any) -> RunSpec:
    """Return a run of that project, in a folder of its own."""
    file = tmp_path / "docker-compose.yml"
    if not file.exists():
        file.write_text(yaml.safe_dump(project()))
    adapter = f"{ADAPTER}:Etcd"
    values = {"lock": adapter, "store": adapter, "compose": str(file), "servers": "etcd*"}
    return from_values(values | more)


def winkle(tmp_path: Path, wanted: RunSpec) -> dict[str, Any]:
    """Live a run and return what it says."""
    file = tmp_path / "run.yaml"
    file.write_text(to_yaml(wanted))
    argv = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), "--json"]
    done = subprocess.run(
        [*argv, "--out", str(tmp_path / "runs")],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert done.stdout, done.stderr.decode()
    said: dict[str, Any] = msgspec.json.decode(done.stdout)
    return said


def runs(client: Any) -> dict[str, str]:
    """Return the compose runs that the engine knows, with their owners."""
    volumes = client.volumes(filters={"name": "-owner"})["Volumes"] or ()
    return {one["Labels"][RUN_LABEL]: one["Labels"][OWNER_LABEL] for one in volumes}


def left_by_compose(client: Any) -> set[str]:
    """Return the names of what compose runs have left: what no live process owns."""
    owned = {run for run, owner in runs(client).items() if not owner_is_dead(owner)}
    found = {name: match["run"] for name in _names(client) if (match := OF_COMPOSE.match(name))}
    return {name for name, run in found.items() if run not in owned}


def of_run(client: Any, run: str) -> set[str]:
    """Return the names of everything that a run has in the engine."""
    return {name for name in _names(client) if run in name}


def _names(client: Any) -> set[str]:
    return {
        *(name.strip("/") for one in client.containers(all=True) for name in one["Names"]),
        *(one["Name"] for one in client.networks()),
        *(one["Name"] for one in client.volumes()["Volumes"] or ()),
    }


@contextmanager
def lab(tmp_path: Path) -> Iterator[DockerLab]:
    (tmp_path / "logs").mkdir()
    made = DockerLab([*NAMES, "w1"], spec(tmp_path), tmp_path)
    try:
        yield made
    finally:
        made.close()


# ------------------------------------------------------------------------------ without an engine


def test_the_adapter_is_short() -> None:
    body = ADAPTER.read_text("utf-8").split('"""', 2)[2]
    assert len([line for line in body.splitlines() if line.strip()]) < CODE_LINES_MAX


def test_a_compose_file_means_docker_and_reads_back_as_it_was(tmp_path: Path) -> None:
    made = spec(tmp_path)
    assert made.backend == "docker"
    assert read(to_yaml(made)) == made


def test_a_compose_file_does_not_go_with_hosts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"compose: found .*because backend is ssh"):
        spec(tmp_path, backend="ssh", inventory="hosts.yaml")


def test_a_server_without_a_command_needs_a_compose_file() -> None:
    with pytest.raises(UsageError, match=r"server etcd1: found argv"):
        from_values({"lock": f"{ADAPTER}:Etcd", "store": "atlasmart"})


# --------------------------------------------------------------------------------- with an engine


@_marked
def test_a_strangers_project_fails_under_a_paused_holder(tmp_path: Path) -> None:
    faults = [
        "pause:who=holder,at=before-write,for=2.5leases",
        "pause:who=leader,at=6s,for=1s",
        "partition:who=leader,at=8s,for=1s",
    ]
    said = winkle(tmp_path, spec(tmp_path, faults=faults, time="12s", seed=3))
    verdict = said["results"]["verdict"]
    assert verdict["verdict"] == "fail", verdict
    assert "stale-owner-write" in {anomaly["name"] for anomaly in verdict["anomalies"]}
    (lines,) = (tmp_path / "runs").glob("2*/faults.jsonl")
    proofs = [msgspec.json.decode(line) for line in lines.read_bytes().splitlines()]
    assert any("frozen" in str(proof) for proof in proofs), proofs
    with api() as client:
        assert left_by_compose(client) == set()


@_marked
def test_a_restart_by_somebody_else_is_healed_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    pairs = [("etcd2", "etcd1"), ("w1", "etcd1"), ("etcd3", "etcd2")]
    with lab(tmp_path) as made:

        async def work() -> None:
            made.watch(told.append)
            node = made.nodes["etcd1"]
            assert isinstance(node, AttachedNode)
            ends: list[str] = []
            loop = asyncio.get_running_loop()
            node.spawn([], log=tmp_path / "logs" / "etcd1.log").watch(loop, ends.append)
            await made.network.cut("test", pairs[:2])
            first = node.holder.container
            await loop.run_in_executor(
                None, lambda: made.project.api.restart(node.holder.server, timeout=1)
            )
            await until(lambda: told, "what is told of the restart")
            assert "etcd1 was started again by somebody else" in told[0]
            assert node.holder.container != first
            found = await made.network.passes(pairs)
            assert [found[pair].nothing for pair in pairs] == [True, True, False]
            assert not ends
            node.stop("test")
            await until(lambda: node.threads().stopped == node.threads().total, "a freeze")
            node.resume("test")
            await until(lambda: node.threads().stopped == 0, "a thaw")
            node.kill()
            await until(lambda: ends, "an end on order")
            assert ends == ["signal SIGKILL"]
            assert node.processes() == []
            node.spawn([], log=tmp_path / "logs" / "etcd1.log").watch(loop, ends.append)
            await until(lambda: len(told) > 1, "what is told of a start under a cut")
            assert "etcd1 was started: " in told[1]
            found = await made.network.passes(pairs)
            assert [found[pair].nothing for pair in pairs] == [True, True, False]

        live(work)


@_marked
def test_sigkill_of_the_harness_leaves_nothing(tmp_path: Path) -> None:
    text = to_yaml(spec(tmp_path, faults=["pause:who=leader,at=1s,for=60s"], time="90s"))
    with api() as client, live_run(tmp_path, text) as run:
        wait_until(lambda: run.ledger() and b'"entry"' in run.ledger().read_bytes(), "a fault")  # type: ignore[union-attr]
        harness = _harness(run.process.pid)
        (one,) = [name for name, who in runs(client).items() if who.split("/")[-2] == str(harness)]
        assert f"winkle{one}-etcd1-1" in of_run(client, one)
        os.kill(harness, signal.SIGKILL)
        wait_until(lambda: not of_run(client, one), "an engine as before", GONE_S)


def _harness(outer: int) -> int:
    """Return the process that lives the run: the child of outer."""
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    (found,) = (
        int(pid)
        for pid in children
        if b"harness.docker.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return found


@_marked
def test_a_pattern_that_fits_nothing_is_told_and_all_is_removed(tmp_path: Path) -> None:
    said = winkle(tmp_path, spec(tmp_path, servers="zk*"))
    told = said["error"] or said["results"]["error"]
    assert "found no service named zk*; there are etcd1, etcd2, etcd3" in told
    with api() as client:
        assert left_by_compose(client) == set()

"""A stranger's compose project under test: its verdict, what it loses, and what is left of it.

The adapter is the one of the documentation.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.docker.attached import AttachedNode
from harness.docker.compose import Composed
from harness.docker.engine import EngineError
from harness.errors import UsageError
from harness.runfile import from_values, read, to_yaml
from harness.shape import Shape
from tests.support_compose import (
    ADAPTER,
    await_nothing_of_compose,
    lab,
    marked,
    spec,
    winkle,
)
from tests.support_docker import BOUND_S, api, live, until

CODE_LINES_MAX = 60


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


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        ({"inside": {}}, ""),
        ({"inside": {}, "other": {}}, "they are on etcd1: inside, other"),
        ({"inside": {"GlobalIPv6Address": "fd00::2"}}, "gives etcd1 an IPv6 address as well"),
    ],
)
def test_a_cut_must_leave_no_way_around_it(networks: dict[str, Any], words: str) -> None:
    """A rule names IPv4 addresses of one network."""

    class Engine:
        def inspect_container(self, container: str) -> dict[str, Any]:
            return {"NetworkSettings": {"Networks": networks}}

    composed = object.__new__(Composed)
    composed._api, composed._file = Engine(), Path("docker-compose.yml")
    composed.containers = {"etcd1": "some container"}
    if not words:
        assert composed.network() == "inside"
        return
    with pytest.raises(EngineError, match=words):
        composed.network()


# --------------------------------------------------------------------------------- with an engine


@marked
def test_a_strangers_project_fails_under_a_paused_holder(tmp_path: Path) -> None:
    faults = [
        "pause:who=holder,at=before-write,for=2.5leases",
        "pause:who=leader,at=6s,for=1s",
        "partition:who=leader,at=8s,for=1s",
        "message:who=all,at=500ms,for=3s",
        "link:who=leader,delay=20ms,at=9500ms,for=1s",
    ]
    said = winkle(tmp_path, spec(tmp_path, faults=faults, time="15s", seed=3))
    verdict = said["results"]["verdict"]
    assert verdict["verdict"] == "fail", verdict
    assert "stale-owner-write" in {anomaly["name"] for anomaly in verdict["anomalies"]}
    (lines,) = (tmp_path / "runs").glob("2*/faults.jsonl")
    proofs = [msgspec.json.decode(line) for line in lines.read_bytes().splitlines()]
    assert any("frozen" in str(proof) for proof in proofs), proofs
    proven = {proof["kind"] for proof in proofs if proof["grade"] == "installed"}
    assert proven == {"pause", "partition", "message", "link"}, proofs
    with api() as client:
        await_nothing_of_compose(client)


@marked
def test_a_restart_by_somebody_else_is_healed_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    pairs = [("etcd2", "etcd1"), ("w1", "etcd1"), ("etcd3", "etcd2")]
    slow = ("etcd1", "w1")
    with lab(tmp_path) as made:

        async def work() -> None:
            made.watch(told.append)
            node = made.nodes["etcd1"]
            assert isinstance(node, AttachedNode)
            ends: list[str] = []
            loop = asyncio.get_running_loop()
            node.spawn([], log=tmp_path / "logs" / "etcd1.log").watch(loop, ends.append)
            assert made.links.unavailable() is None
            await made.network.cut("test", pairs[:2])
            await made.links.shape("test", [slow], Shape(delay_s=0.05))
            first = node.holder.container
            await loop.run_in_executor(
                None, lambda: made.project.api.restart(node.sidecar.server, timeout=1)
            )
            await until(lambda: told, "what is told of the restart")
            assert "etcd1 was started again by somebody else" in told[0]
            assert node.holder.container != first
            found = await made.network.passes(pairs)
            assert [found[pair].nothing for pair in pairs] == [True, True, False]
            late = (await made.links.measure([slow], 10, 64, 0.001, BOUND_S))[slow].least_s
            assert late is not None
            assert late >= 0.05
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


@marked
def test_a_pattern_that_fits_nothing_is_told_and_all_is_removed(tmp_path: Path) -> None:
    said = winkle(tmp_path, spec(tmp_path, servers="zk*"))
    told = said["error"] or said["results"]["error"]
    assert "found no service named zk*; there are etcd1, etcd2, etcd3" in told
    with api() as client:
        await_nothing_of_compose(client)

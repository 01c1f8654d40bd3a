"""Valkey with Sentinel: what a failover forgets."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.target import Cluster, Place, RefusedError, proves_no_effect
from targets import _sentinel_server as starter
from targets._valkey_server import connect
from targets.sentinel import Sentinel
from tests.support_faults import faulted
from tests.support_servers import Servers, becomes, fresh_address, servers_of, until


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Servers]:
    # A busy machine must not make a failover by itself.
    with servers_of(Sentinel(down_after_ms=2000), tmp_path) as servers:
        servers.start()
        yield servers


def client(servers: Servers) -> Any:
    return closing(Sentinel().lock(servers.cluster, 2.0))


@pytest.mark.real
def test_a_failover_forgets_what_the_replica_had_not_heard(five: Servers) -> None:
    """The lock, its count and so its token: the next grant is the same one again."""
    target: Any = five.target
    with client(five) as first, client(five) as second:
        becomes(lambda: target.leader(five.cluster), "data1")
        five.kill("data2")
        grant = first.acquire("k", 60.0)
        with pytest.raises(RefusedError, match="held"):
            second.acquire("k", 60.0)
        five.kill("data1")
        five._spawn("data2")
        until(lambda: target.leader(five.cluster) == "data2", "data2 is promoted")
        again = until_answered(lambda: second.acquire("k", 60.0))
        assert again.token == grant.token
        assert not first.check(grant)
        with pytest.raises(RefusedError, match="not-holder"):
            first.renew(grant)


def until_answered(call: Any) -> Any:
    answers: list[Any] = []

    def answered() -> bool:
        try:
            answers.append(call())
        except RefusedError:
            raise
        except Exception:  # noqa: BLE001 - whatever a failover looks like to a client
            return False
        return True

    until(answered, "the new primary answers")
    return answers[0]


@pytest.mark.real
def test_a_primary_that_became_a_replica_proves_no_effect(five: Servers) -> None:
    with client(five) as lock:
        lock.release(lock.acquire("k", 60.0))
        with closing(connect(five.cluster["data1"], 5.0)) as primary:
            primary.execute_command("REPLICAOF", five.cluster["data2"].address, "6379")
        with pytest.raises(Exception, match="slave") as refused:
            lock.acquire("k", 60.0)
        assert proves_no_effect(five.target, refused.value) is not None


@pytest.mark.real
def test_with_nobody_to_ask_nothing_happened(five: Servers) -> None:
    with client(five) as lock:
        five.kill()
        with pytest.raises(Exception, match=r".") as nobody:
            lock.acquire("k", 60.0)
        assert proves_no_effect(five.target, nobody.value) is not None


def test_a_worker_asks_where_it_is_sent() -> None:
    """A proxy before a Sentinel has a port of its own; there is none here, and that is told."""
    proxied = Place("sentinel2", fresh_address(), 40001, "lock", "/nonexistent")
    with closing(Sentinel().lock(Cluster([proxied]), 1.0)) as lock:
        with pytest.raises(Exception, match="No master found") as nobody:
            lock.acquire("k", 2.0)
        assert proves_no_effect(Sentinel(), nobody.value) is not None


def test_what_a_sentinel_has_learned_outlives_its_restart(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.write_text('#!/bin/sh\ncat $1; echo "$2"\n')
    server.chmod(0o755)
    file = str(tmp_path / "conf")

    def start(*lines: str) -> str:
        argv = [sys.executable, "-I", "-S", starter.__file__, str(server), file, *lines]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    assert start("port 1", "dir x") == "port 1\ndir x\n--sentinel\n"
    assert start("port 2") == "port 1\ndir x\n--sentinel\n"


@pytest.mark.sandbox
@pytest.mark.real
def test_a_primary_that_is_cut_off_grants_on_and_so_does_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """w1 reaches everybody and stays with the old primary; w2 is sent to the new one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    others = ("data2", "sentinel1", "sentinel2", "sentinel3", "w2")
    pairs = " ".join(f"data1>{other} {other}>data1" for other in others)
    run = faulted(
        tmp_path,
        f"partition:who=leader,at=1s,for=9500ms,shape=grudge,pairs={pairs}",
        lock="sentinel",
        store="atlasmart",
        workload="fencing[rounds=200]",
        workers=2,
        readers=0,
        ttl="1s",
        time="11s",
        op_timeout="1s",
    )
    assert "duplicate-grant" in run.names, run.results.verdict.headline
    (window,) = run.windows
    first = next(a for a in run.results.verdict.anomalies if a.name == "duplicate-grant")
    assert first.time_ns is not None
    assert window["on_ns"] < first.time_ns

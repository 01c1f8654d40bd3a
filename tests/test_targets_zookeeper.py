"""ZooKeeper: what its sessions, nodes and versions really do, and what a session says."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.target import Cluster, Grant, RefusedError, Stored, proves_no_effect
from targets import _zookeeper_server as starter
from targets._no_effect import NotConnectedError
from targets.zookeeper import ZooKeeper
from tests.support_servers import (
    ReplyEater,
    Servers,
    becomes,
    fresh_address,
    refused,
    servers_of,
    taken,
    until,
)

QUICK = {"nodes": 1, "fsync": False}
TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One server for all tests that leave it as it was; each uses a key of its own."""
    yield from started(tmp_path_factory.mktemp("zookeeper"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Servers]:
    """A server for one test."""
    yield from started(tmp_path)


def error_of(call: Callable[[], object]) -> Exception | None:
    """Return what a call raises, which for a client library is no exact science."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - looked at by who asked
        return error
    return None


def started(folder: Path) -> Iterator[Servers]:
    pytest.importorskip("kazoo")
    with servers_of(ZooKeeper(**QUICK), folder) as servers:
        servers.start()
        yield servers


def lock_of(servers: Servers, **options: Any) -> Any:
    return closing(ZooKeeper(**options).lock(servers.cluster, TIMEOUT_S))


def store_of(servers: Servers, **options: Any) -> Any:
    return closing(ZooKeeper(**options).store(servers.cluster, TIMEOUT_S))


def not_sent(servers: Servers, store: Any) -> bool:
    """Whether a store says of a write that it cannot have left: what was on its way may have."""
    error = error_of(lambda: store.write("k", "never", 1))
    return isinstance(error, NotConnectedError) and bool(proves_no_effect(servers.target, error))


def close_session(grant: Grant, servers: Servers) -> None:
    """End a session behind its owner's back: whoever knows its number and password may."""
    from kazoo.client import KazooClient

    identity = grant.handle.session._zk.client_id
    thief = KazooClient(servers.cluster.places[0].endpoint, client_id=identity, timeout=5.0)
    thief.start(TIMEOUT_S)
    thief.stop()
    thief.close()


# ------------------------------------------------------------------------------- the lock


@pytest.mark.real
def test_a_lock_is_held_until_it_is_released_and_tokens_grow(running: Servers) -> None:
    tokens = []
    with lock_of(running) as first, lock_of(running) as second:
        for _ in range(3):
            grant = first.acquire("held", 5.0)
            tokens.append(grant.token)
            assert refused(second.acquire, "held", 5.0) == "held"
            assert first.check(grant)
            assert first.believes(grant)
            second.renew(grant)  # another client of the same worker, as its renewal thread is
            other = second.acquire("other", 5.0)
            tokens.append(other.token)
            second.release(other)
            first.release(grant)
            assert not first.believes(grant)
            assert not first.check(grant)
            for call in (first.renew, first.release):
                assert refused(call, grant) == "not-holder"
    assert tokens == sorted(set(tokens))


@pytest.mark.real
def test_a_waiter_leaves_no_node_in_the_queue(running: Servers) -> None:
    with lock_of(running) as holder, lock_of(running) as waiter:
        grant = holder.acquire("queue", 5.0)
        for _ in range(3):
            assert refused(waiter.acquire, "queue", 5.0) == "held"
        names = grant.handle.session.ask("get_children", "/vanwinkle/lock/queue")
        assert names == [grant.handle.path.rpartition("/")[2]]


@pytest.mark.real
@pytest.mark.parametrize("fence", ["none", "checked", "guarded"])
def test_a_lost_session_gives_the_lock_away_and_the_fence_decides(
    fence: str, running: Servers
) -> None:
    key = f"lost-{fence}"
    with (
        lock_of(running) as first,
        lock_of(running) as second,
        store_of(running, fence=fence) as store,
    ):
        old = first.acquire(key, 5.0)
        assert store.write(key, "old-1", old.token) is None
        close_session(old, running)
        new = taken(second, key, 5.0)
        assert new.token > old.token
        until(lambda: not first.believes(old), "the library hears of it")
        assert refused(first.renew, old) == "not-holder"
        store.write(key, "new-1", new.token)
        if fence == "none":
            store.write(key, "old-2", old.token)
            assert store.read(key) == Stored("old-2", old.token)
        else:
            word = {"checked": "fenced", "guarded": "not-holder"}[fence]
            assert refused(store.write, key, "old-2", old.token) == word
            assert refused(store.write, key, "no token", None) == word
            assert store.read(key) == Stored("new-1", new.token)


@pytest.mark.real
def test_a_client_that_hears_nothing_gives_up_or_goes_on(own: Servers) -> None:
    with lock_of(own) as careful, lock_of(own, trust="session") as trusting:
        one, two = careful.acquire("one", 2.0), trusting.acquire("two", 2.0)
        own.freeze("zookeeper1")
        until(lambda: not careful.believes(one), "the connection counts as broken")
        assert trusting.believes(two)
        failure = error_of(lambda: trusting.renew(two))
        assert failure is not None
        assert not isinstance(failure, RefusedError)
        own.thaw("zookeeper1")


# -------------------------------------------------------------------------------- the store


@pytest.mark.real
def test_a_guarded_write_needs_the_lock_of_its_own_key(running: Servers) -> None:
    with lock_of(running) as lock, store_of(running, fence="guarded") as store:
        mine, other = lock.acquire("mine", 5.0), lock.acquire("yours", 5.0)
        store.write("mine", "v", mine.token)
        for token in (other.token, mine.token + 1, 0, -1, None):
            assert refused(store.write, "mine", "forged", token) == "not-holder"
        assert store.read("mine") == Stored("v", mine.token)
        lock.release(mine)
        assert refused(store.write, "mine", "late", mine.token) == "not-holder"


@pytest.mark.real
@pytest.mark.parametrize("value", [None, 0, "", "ü\n { } %", [1, {"a": None}], "x" * 50_000])
def test_any_json_value_survives(value: Any, running: Servers) -> None:
    with store_of(running) as store:
        assert store.read(f"never-{value!r}"[:20].replace("/", "")) is None
        store.write("json", value, 1)
        assert store.read("json") == Stored(value, 1)


@pytest.mark.real
def test_a_checked_write_tells_what_it_overwrote(running: Servers) -> None:
    with store_of(running, fence="checked") as store, store_of(running, fence="checked") as other:
        assert store.write("checked", "one", 9) is None
        assert other.write("checked", "two", 10) == Stored("one", 9)
        assert refused(store.write, "checked", "three", 9) == "fenced"


@pytest.mark.real
def test_a_lost_reply_leaves_the_outcome_unknown_and_the_write_is_sent_once(
    running: Servers,
) -> None:
    place = running.cluster.places[0]
    with (
        closing(ReplyEater(place, b"second")) as proxy,
        store_of(running) as witness,
        closing(ZooKeeper().store(Cluster([proxy.place]), TIMEOUT_S)) as store,
    ):
        store.write("lost", "first", 1)
        with pytest.raises(Exception, match=r"|") as failure:
            store.write("lost", "second", 2)
        assert proves_no_effect(running.target, failure.value) is None, failure.value
        until(lambda: witness.read("lost") == Stored("second", 2), "the write takes effect")
        witness.write("lost", "third", 3)
        _, stat = witness._ask("get", "/vanwinkle/data/lost")
        assert stat.version == 3  # three writes, each once


@pytest.mark.real
def test_what_is_acknowledged_survives_a_kill(own: Servers) -> None:
    with lock_of(own) as lock, store_of(own, fence="checked") as store:
        before = lock.acquire("k", 2.0)
        store.write("k", "kept", before.token)
        own.kill()
        until(lambda: not lock.believes(before), "the lock's connection is seen to be broken")
        until(lambda: not_sent(own, store), "the store's connection is seen to be broken")
        own.start()
        after = taken(lock, "k", 2.0)
        assert after.token > before.token
        with store_of(own, fence="checked") as again:
            assert again.read("k") == Stored("kept", before.token)


# ------------------------------------------------------------------------------ the server


@pytest.mark.real
def test_ready_says_what_is_missing(running: Servers, tmp_path: Path) -> None:
    target: Any = running.target
    [place] = running.cluster.places
    becomes(lambda: target.ready(running.cluster), None)
    becomes(lambda: target.answers(place), None)
    becomes(lambda: target.leader(running.cluster), "zookeeper1")
    assert target.version() == "zookeeper 3.9.5"
    nobody = Servers(ZooKeeper(**QUICK), tmp_path).cluster
    assert target.ready(nobody) == "zookeeper1 does not serve"
    assert target.answers(nobody.places[0]) == "zookeeper1 does not answer"
    assert target.leader(nobody) is None


def test_nobody_there_is_proven_to_have_had_no_effect() -> None:
    pytest.importorskip("kazoo")
    from harness.target import Place

    target = ZooKeeper()
    nobody = Cluster([Place("zookeeper1", fresh_address(), 2181, "lock", "/nowhere")])
    with closing(target.lock(nobody, 0.5)) as lock, closing(target.store(nobody, 0.5)) as store:
        for call in (lambda: lock.acquire("k", 2.0), lambda: store.write("k", "v", 1)):
            with pytest.raises(NotConnectedError, match=r"no session within 0\.5 s") as failure:
                call()
            assert proves_no_effect(target, failure.value) is not None


def test_the_starter_writes_the_configuration_and_becomes_the_server(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\necho "$@"\n')
    java.chmod(0o755)
    config = tmp_path / "zoo.cfg"
    words = [starter.__file__, "tickTime=500\ndataDir=x", "2", str(java), "-cp", "jars/*", "Main"]
    argv = [sys.executable, "-I", "-S", *words, str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"-cp jars/* Main {config}\n"
    assert config.read_text() == "tickTime=500\ndataDir=x\n"
    assert (tmp_path / "myid").read_text() == "2\n"

"""NATS JetStream: what its sequences, TTLs, majorities and missing answers really do."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.target import Cluster, Grant, Place, RefusedError, Stored, proves_no_effect
from targets._no_effect import ChangedMeanwhileError, NotAskedError
from targets.nats import Nats
from tests.support_faults import faulted
from tests.support_servers import Servers, becomes, fresh_address, in_time, servers_of, until


def started(folder: Path, nodes: int) -> Iterator[Servers]:
    with servers_of(Nats(nodes=nodes), folder) as servers:
        servers.start()
        yield servers


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One server; each test uses a key of its own and leaves the server as it was."""
    yield from started(tmp_path_factory.mktemp("nats"), 1)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Servers]:
    """Three servers for one test."""
    yield from started(tmp_path, 3)


def lock_of(servers: Servers, timeout_s: float = 5.0) -> Any:
    return closing(Nats().lock(servers.cluster, timeout_s))


def store_of(servers: Servers, timeout_s: float = 5.0, **options: Any) -> Any:
    return closing(Nats(**options).store(servers.cluster, timeout_s))


# ------------------------------------------------------------------------------- the lock


def test_an_image_is_given_flags_alone_since_its_entrypoint_is_the_server() -> None:
    (server,) = Nats(nodes=1, image="some/nats:1").servers()
    assert server.image == "some/nats:1"
    assert server.argv[0] == "--jetstream"


@pytest.mark.real
def test_a_ttl_is_whole_seconds_and_never_shorter_than_asked(one: Servers) -> None:
    with lock_of(one) as lock:
        assert lock.acquire("whole", 1.2).ttl_s == 2.0
        asked = time.monotonic()
        grant = lock.acquire("short", 1.0)
        assert grant.ttl_s == 1.0
        until(lambda: not lock.check(grant), "the lease ends")
        assert time.monotonic() - asked > 0.99


@pytest.mark.real
def test_only_the_owner_may_renew_and_release(one: Servers) -> None:
    with lock_of(one) as lock:
        grant = lock.acquire("owned", 30.0)
        for foreign in (None, b"guess", b""):
            forged = Grant("owned", token=grant.token, ttl_s=30.0, handle=foreign)
            assert not lock.check(forged)
            for call in (lock.renew, lock.release):
                with pytest.raises(RefusedError, match="not-holder"):
                    call(forged)
        lock.release(grant)
        nobody = Grant("owned", token=None, ttl_s=30.0, handle=None)
        assert not lock.check(nobody)  # a free key names nobody, and that is no name


@pytest.mark.real
def test_renewals_do_not_use_up_tokens_of_the_next_grant(one: Servers) -> None:
    """A renewal writes the key again, so the next token is greater than all of them."""
    with lock_of(one) as lock:
        first = lock.acquire("renewed", 30.0)
        for _ in range(3):
            lock.renew(first)
        lock.release(first)
        assert lock.acquire("renewed", 30.0).token > first.token + 3


@pytest.mark.real
def test_tokens_grow_across_the_death_of_the_leader_and_need_a_majority(three: Servers) -> None:
    target: Any = three.target
    with lock_of(three) as lock:
        first = lock.acquire("k", 30.0)
        lock.release(first)
        until(lambda: target.leader(three.cluster) is not None, "a leader that is told")
        leader = target.leader(three.cluster)
        three.kill(leader)
        until(lambda: target.leader(three.cluster) not in (None, leader), "another leads")
        second = in_time(lambda: lock.acquire("k", 30.0))
        assert second.token is not None
        assert second.token > first.token
        until(lambda: target.leader(three.cluster) is not None, "a leader that is told")
        three.kill(target.leader(three.cluster))
    with lock_of(three, 1.0) as lock:
        with pytest.raises(Exception, match=r".") as alone:
            lock.acquire("other", 30.0)
        assert not isinstance(alone.value, RefusedError)


# -------------------------------------------------------------------------------- the store


@pytest.mark.real
def test_a_write_between_read_and_write_is_a_conflict_without_effect(
    one: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from targets._nats_client import NatsStore

    with store_of(one, fenced=True) as store, store_of(one) as other:
        store.write("raced", "first", 1)
        honest = NatsStore._last

        async def slow(self: Any, stream: Any, subject: str) -> Any:
            found = await honest(self, stream, subject)
            await stream.publish(subject, b'[7,"between"]')
            return found

        monkeypatch.setattr(NatsStore, "_last", slow)
        with pytest.raises(ChangedMeanwhileError) as conflict:
            store.write("raced", "second", 2)
        monkeypatch.undo()
        assert proves_no_effect(one.target, conflict.value) is not None
        assert other.read("raced") == Stored("between", 7)
        with pytest.raises(RefusedError, match="fenced: token 2 is below 7"):
            store.write("raced", "third", 2)


@pytest.mark.real
def test_a_frozen_server_leaves_the_outcome_unknown_and_no_answer_behind(one: Servers) -> None:
    target: Any = one.target
    with store_of(one, 2.0) as store, store_of(one) as witness:
        in_time(lambda: store.write("k", "before", 1))
        one.freeze("nats1")
        assert "not healthy" in target.ready(one.cluster)
        with pytest.raises(TimeoutError, match="no answer") as late:
            store.write("k", "unknown", 2)
        assert proves_no_effect(target, late.value) is None
        with pytest.raises(NotAskedError, match="no connection") as none:
            store.write("k", "never", 3)
        assert proves_no_effect(target, none.value) is not None
        one.thaw("nats1")
        until(lambda: witness.read("k") == Stored("unknown", 2), "the late write takes effect")
        assert in_time(lambda: store.read("other")) is None


def test_a_worker_goes_where_it_is_sent() -> None:
    """A proxy before a server has a port of its own."""
    proxied = Place("nats1", fresh_address(), 40001, "lock", "/nonexistent")
    store = Nats().store(Cluster([proxied]), 1.0)
    with closing(store), pytest.raises(NotAskedError, match=f"nats://{proxied.endpoint}: "):
        store.read("k")


def test_only_an_answer_that_nobody_listens_proves_anything() -> None:
    from nats.errors import ConnectionClosedError
    from nats.js.errors import APIError, NoStreamResponseError

    target = Nats()
    assert proves_no_effect(target, NoStreamResponseError()) is not None
    for error in (ConnectionClosedError(), APIError(code=503, err_code=10008)):
        assert proves_no_effect(target, error) is None


# ------------------------------------------------------------------------------ the server


@pytest.mark.real
def test_a_server_tells_its_state_its_time_and_its_version(one: Servers, tmp_path: Path) -> None:
    target: Any = one.target
    place = one.cluster.places[0]
    becomes(lambda: target.ready(one.cluster), None)
    told_s = in_time(lambda: target.server_time(place).time_s)
    assert told_s == pytest.approx(time.time(), abs=5)
    assert target.version().startswith("nats-server: v")
    nobody = Servers(Nats(nodes=1), tmp_path).cluster
    assert "not healthy" in target.ready(nobody)
    assert target.server_time(nobody.places[0]) is None
    with pytest.raises(UsageError, match="nats"):
        Nats(binary=os.devnull).servers()


@pytest.mark.sandbox
@pytest.mark.real
def test_the_stale_write_of_a_sleeping_holder_is_refused(
    one: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = faulted(
        tmp_path,
        "pause:who=holder,at=before-write,for=4leases,count=1",
        lock="nats",
        store="nats[fenced=true]",
        workers=2,
        readers=0,
        ttl="1s",
        time="7s",
    )
    assert run.names == set(), run.results.verdict.headline
    assert run.results.verdict.stats["stale_refused"] > 0

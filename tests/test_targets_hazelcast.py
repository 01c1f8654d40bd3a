"""Hazelcast: what its CP sessions and fences really do.

Three JVMs are slow to start on a small machine, so all tests share one cluster, each with keys of
its own.  The lease of every lock is the one that the members were set up with.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from harness.target import Cluster, Grant, Place, RefusedError, Stored, proves_no_effect
from targets._no_effect import NotConnectedError
from targets.hazelcast import Hazelcast
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

TTL_S = 5.0
TIMEOUT_S = 20.0
START_S = 180.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pytest.importorskip("hazelcast")
    target = Hazelcast(session_ttl=5)
    with servers_of(target, tmp_path_factory.mktemp("hazelcast")) as servers:
        for name in servers._servers:
            servers._spawn(name)
        until(lambda: target.ready(servers.cluster) is None, "the members are ready", START_S)
        yield servers


def lock_of(servers: Servers) -> Any:
    return closing(Hazelcast().lock(servers.cluster, TIMEOUT_S))


def store_of(servers: Servers, **options: Any) -> Any:
    return closing(Hazelcast(**options).store(servers.cluster, TIMEOUT_S))


@pytest.mark.real
def test_a_lock_is_held_until_it_is_released_and_fences_grow(running: Servers) -> None:
    tokens: list[int] = []
    with lock_of(running) as first, lock_of(running) as second:
        for _ in range(3):
            grant = first.acquire("held", 30.0)
            assert grant.ttl_s == TTL_S  # whatever was asked for
            assert refused(second.acquire, "held", TTL_S) == "held"
            assert first.check(grant)
            second.renew(grant)  # another client of the same worker, as its renewal thread is
            second.release(second.acquire("other", TTL_S))
            first.release(grant)
            assert not first.check(grant)
            for call in (first.renew, first.release):
                assert refused(call, grant) == "not-holder"
            tokens.append(grant.token)
    assert tokens == sorted(set(tokens))


@pytest.mark.real
def test_renewals_keep_a_lock_and_nothing_else_does(running: Servers) -> None:
    with lock_of(running) as holder, lock_of(running) as rival:
        kept, left = holder.acquire("kept", TTL_S), holder.acquire("left", TTL_S)
        newer: list[Grant] = []

        def gone() -> bool:
            holder.renew(kept)
            assert refused(rival.acquire, "kept", TTL_S) == "held"
            try:
                newer.append(rival.acquire("left", TTL_S))
            except RefusedError:
                return False
            return True

        until(gone, "a session without heartbeats ends")
        assert newer[0].token > left.token
        for call in (holder.renew, holder.release):
            assert refused(call, left) == "not-holder"
        holder.release(kept)


@pytest.mark.real
@pytest.mark.parametrize("fenced", [False, True])
def test_a_stale_owner_is_refused_by_the_fence_and_by_nothing_else(
    fenced: bool, running: Servers
) -> None:
    key = f"stale-{fenced}"
    with (
        lock_of(running) as first,
        lock_of(running) as second,
        store_of(running, fenced=fenced) as store,
    ):
        old = first.acquire(key, TTL_S)
        assert store.read(key) is None
        assert store.write(key, "old-1", old.token) is None
        new = taken(second, key, TTL_S)
        assert store.write(key, "new-1", new.token) == Stored("old-1", old.token)
        if fenced:
            assert refused(store.write, key, "old-2", old.token) == "fenced"
            assert refused(store.write, key, "no token", None) == "fenced"
            assert store.read(key) == Stored("new-1", new.token)
        else:
            assert store.write(key, "old-2", old.token) == Stored("new-1", new.token)


@pytest.mark.real
@pytest.mark.parametrize("value", [None, 0, "", "ü\n { } %", [1, {"a": None}], "x" * 50_000])
def test_any_json_value_survives(value: Any, running: Servers) -> None:
    with store_of(running) as store:
        store.write("json", value, 1)
        assert store.read("json") == Stored(value, 1)


@pytest.mark.real
def test_a_lost_reply_leaves_the_outcome_unknown_and_no_retry(running: Servers) -> None:
    """The library would send a lock request again after a lost connection: here it must not."""
    place = running.cluster.places[0]
    with (
        closing(ReplyEater(place, b"vanwinkle-data-lost")) as proxy,
        store_of(running) as witness,
        closing(Hazelcast().store(Cluster([proxy.place]), TIMEOUT_S)) as store,
    ):
        began = time.monotonic()
        with pytest.raises(Exception, match=r"|") as failure:
            store.write("lost", "once", 1)
        assert time.monotonic() - began < TIMEOUT_S / 2
        assert proves_no_effect(running.target, failure.value) is None, failure.value
        until(lambda: witness.read("lost") == Stored("once", 1), "the write takes effect")


@pytest.mark.real
def test_ready_says_what_is_missing(running: Servers) -> None:
    target: Any = running.target
    becomes(lambda: target.ready(running.cluster), None)
    for place in running.cluster.places:
        becomes(partial(target.answers, place), None)
    assert target.version() == "hazelcast 5.3.8"
    nobody = Cluster([nowhere()])
    assert target.ready(nobody) == "hazelcast1 is not ready"
    assert target.answers(nobody.places[0]) == "hazelcast1 is silent"
    stranger = Cluster([*running.cluster.places, running.cluster.places[0]])
    becomes(lambda: target.ready(stranger), "hazelcast1 knows 3 of 4 members of the CP subsystem")


@pytest.mark.real
def test_a_client_finds_another_member_and_fences_go_on(running: Servers) -> None:
    """The last test on this cluster: the member that all clients talk to is killed."""
    with lock_of(running) as lock:
        before = lock.acquire("moved", TTL_S)
        running.kill("hazelcast1")
        after: list[Grant] = []

        def served() -> bool:
            try:
                after.append(lock.acquire("moved", TTL_S))
            except Exception:  # noqa: BLE001 - refused or broken: it goes on elsewhere
                return False
            return True

        until(served, "two members of three serve", START_S)
        assert after[0].token > before.token


def nowhere() -> Place:
    return Place("hazelcast1", fresh_address(), 5701, "lock", "/nowhere")


def test_nobody_there_is_proven_to_have_had_no_effect() -> None:
    pytest.importorskip("hazelcast")
    target, nobody = Hazelcast(), Cluster([nowhere()])
    with closing(target.lock(nobody, 0.5)) as lock, closing(target.store(nobody, 0.5)) as store:
        grant = Grant("k", token=1, ttl_s=TTL_S, handle=1)
        for call in (
            lambda: lock.acquire("k", TTL_S),
            lambda: lock.renew(grant),
            lambda: lock.release(grant),
            lambda: store.write("k", "v", 1),
        ):
            with pytest.raises(NotConnectedError) as failure:
                call()
            assert proves_no_effect(target, failure.value) is not None

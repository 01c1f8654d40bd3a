"""etcd: leases, revisions, leaders, and which of its errors prove anything."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.target import Grant, RefusedError, Stored, proves_no_effect
from targets._etcd_access import Access
from targets.etcd import Etcd
from tests.support_servers import Servers, becomes, servers_of, until

pytestmark = pytest.mark.real
Call = Callable[[], object]
SMALL: dict[str, Any] = {"nodes": 1, "heartbeat_ms": 50, "election_ms": 500}


def running(folder: Path, **options: Any) -> Iterator[Servers]:
    with servers_of(Etcd(**options), folder) as servers:
        servers.start()
        yield servers


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    yield from running(tmp_path_factory.mktemp("one"), **SMALL)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Servers]:
    yield from running(tmp_path, **SMALL)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Servers]:
    yield from running(tmp_path, nodes=3, heartbeat_ms=50, election_ms=500, fsync=False)


def lock_of(servers: Servers, timeout_s: float = 5.0) -> Any:
    return closing(Etcd().lock(servers.cluster, timeout_s))


def store_of(servers: Servers, timeout_s: float = 5.0, *, guarded: bool = False) -> Any:
    return closing(Etcd(guarded=guarded).store(servers.cluster, timeout_s))


def raw(servers: Servers) -> Any:
    """A key-value stub for what no target does."""
    from targets._etcd_client import EtcdClient

    return closing(EtcdClient(Access([place.endpoint for place in servers.cluster.places], 5.0)))


def leases(client: Any) -> list[int]:
    from aetcd import rpc

    stub = rpc.LeaseStub(client._channel)
    return [lease.ID for lease in stub.LeaseLeases(rpc.LeaseLeasesRequest(), timeout=5).leases]


# -- the lock


def test_the_token_is_the_create_revision_of_the_key(one: Servers) -> None:
    with lock_of(one) as lock, raw(one) as client:
        grant = lock.acquire("revision", 30.0)
        found = client._get(b"vanwinkle/lock/revision", 5.0)
        assert grant.token == found.create_revision
        assert found.lease == grant.handle


def test_tokens_of_all_locks_are_one_sequence(one: Servers) -> None:
    with lock_of(one) as lock:
        tokens = [lock.acquire(f"sequence-{i}", 30.0).token for i in range(3)]
    assert tokens == sorted(set(tokens))


def test_the_ttl_of_a_grant_is_what_the_server_gave(one: Servers) -> None:
    with lock_of(one) as lock:
        assert lock.acquire("ttl-2.5", 2.5).ttl_s == 3.0
        assert lock.acquire("ttl-7", 7.0).ttl_s == 7.0


def test_a_ttl_below_the_least_is_raised_by_the_server(tmp_path: Path) -> None:
    for servers in running(tmp_path, nodes=1, heartbeat_ms=100, election_ms=2000):
        with lock_of(servers) as lock:
            assert lock.acquire("k", 1.0).ttl_s == 3.0


def test_a_try_that_fails_leaves_no_lease_behind(fresh: Servers) -> None:
    with lock_of(fresh) as lock, raw(fresh) as client:
        grant = lock.acquire("k", 30.0)
        real_grant, lock._lease.LeaseGrant = lock._lease.LeaseGrant, None  # a waiter asks for none
        with pytest.raises(RefusedError, match="held"):
            lock.acquire("k", 30.0)
        lock._lease.LeaseGrant = real_grant
        assert leases(client) == [grant.handle]
        lock.release(grant)
        assert leases(client) == []


def test_losing_the_race_for_a_free_lock_is_held_and_revokes_the_lease(fresh: Servers) -> None:
    with lock_of(fresh) as winner, lock_of(fresh) as loser, raw(fresh) as client:
        real_grant, won = loser._lease.LeaseGrant, []

        def grant_slowly(*args: Any, **kwargs: Any) -> Any:
            answer = real_grant(*args, **kwargs)
            won.append(winner.acquire("k", 30.0))  # after the loser saw that the lock is free
            return answer

        loser._lease.LeaseGrant = grant_slowly
        with pytest.raises(RefusedError, match="held"):
            loser.acquire("k", 30.0)
        assert leases(client) == [won[0].handle]
        assert winner.check(won[0])


def test_a_foreign_or_forged_grant_opens_nothing(one: Servers) -> None:
    with lock_of(one) as lock:
        grant = lock.acquire("forged", 30.0)
        other = lock.acquire("forged-other", 30.0)
        for token in (None, 0, -1, grant.token - 1, grant.token + 1, other.token):
            forged = Grant("forged", token=token, ttl_s=30.0, handle=None)
            assert not lock.check(forged)
            for call in (lock.renew, lock.release):
                with pytest.raises(RefusedError, match="not-holder"):
                    call(forged)
        assert lock.check(grant)
        with pytest.raises(RefusedError, match="not-holder"):
            lock.release(Grant("free", token=0, ttl_s=30.0))


# -- the store


def test_a_guarded_store_takes_writes_of_the_holder_only(one: Servers) -> None:
    with lock_of(one) as lock, store_of(one, guarded=True) as store:
        old = lock.acquire("guarded", 30.0)
        assert store.write("guarded", "old", old.token) is None
        lock.release(old)
        new = lock.acquire("guarded", 30.0)
        foreign = lock.acquire("another", 30.0)
        for token in (old.token, foreign.token, new.token + 1, 0, None):
            with pytest.raises(RefusedError, match="not-holder"):
                store.write("guarded", "stale", token)
        assert store.read("guarded") == Stored("old", old.token)
        assert store.write("guarded", "new", new.token) == Stored("old", old.token)
        lock.release(new)
        for token in (new.token, 0, None):
            with pytest.raises(RefusedError, match="not-holder"):
                store.write("guarded", "after the release", token)
        assert store.read("guarded") == Stored("new", new.token)


def test_a_plain_store_takes_a_stale_write_and_tells_what_it_cost(one: Servers) -> None:
    with lock_of(one) as lock, store_of(one) as store:
        old = lock.acquire("plain", 30.0)
        lock.release(old)
        new = lock.acquire("plain", 30.0)
        store.write("plain", "new", new.token)
        assert store.write("plain", "stale", old.token) == Stored("new", new.token)


def test_bytes_that_somebody_else_stored_are_read_as_text(one: Servers) -> None:
    from aetcd import rpc

    with store_of(one) as store, raw(one) as client:
        client._kv.Put(rpc.PutRequest(key=b"vanwinkle/data/foreign", value=b"\xff<b>"), timeout=5)
        assert store.read("foreign") == Stored("\\xff<b>")
        assert store.write("foreign", "v", 1) == Stored("\\xff<b>")


def test_locks_tokens_and_values_survive_a_kill(fresh: Servers) -> None:
    with lock_of(fresh) as lock, store_of(fresh, guarded=True) as store:
        grant = lock.acquire("k", 30.0)
        store.write("k", "v", grant.token)
        fresh.kill("etcd1")
        fresh.start("etcd1")
        until(lambda: _answers(lambda: lock.check(grant)), "the client is connected again")
        assert lock.check(grant)
        lock.renew(grant)
        assert store.read("k") == Stored("v", grant.token)
        lock.release(grant)
        assert lock.acquire("k", 30.0).token > grant.token


def _answers(call: Any) -> bool:
    import grpc

    try:
        call()
    except grpc.RpcError:
        return False
    return True


# -- leaders


def leader_by_grpc(servers: Servers) -> str | None:
    """The member whose own id is the leader's that every member names, if they name one."""
    import grpc
    from aetcd import rpc

    ids: dict[int, str] = {}
    leaders: set[int] = set()
    for place in servers.cluster.places:
        with grpc.insecure_channel(place.endpoint) as channel:
            status = rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=5)
        ids[status.header.member_id] = place.name
        leaders.add(status.leader)
    return ids.get(leaders.pop()) if len(leaders) == 1 else None


def test_the_leader_is_named_and_another_one_after_its_death(three: Servers) -> None:
    target: Any = three.target
    until(lambda: leader_by_grpc(three) is not None, "all members agree")
    becomes(lambda: target.leader(three.cluster), leader_by_grpc(three))
    first = target.leader(three.cluster)
    with lock_of(three) as lock:
        grant = lock.acquire("k", 30.0)
        three.kill(first)
        until(lambda: target.leader(three.cluster) not in (None, first), "another leader")
        until(lambda: target.ready(three.cluster) == f"{first} is not healthy", "two are healthy")
        until(lambda: _answers(lambda: lock.check(grant)), "the client found another member")
        lock.release(grant)
        assert lock.acquire("k", 30.0).token > grant.token
    three.start(first)


def test_without_a_majority_there_is_no_leader_and_nothing_is_granted(three: Servers) -> None:
    target: Any = three.target
    with lock_of(three) as patient, lock_of(three, 1.0) as lock, store_of(three, 1.0) as store:
        grant = patient.acquire("k", 30.0)
        until(lambda: _answers(lambda: lock.renew(grant)), "the lock client is connected")
        until(lambda: _answers(lambda: store.read("k")), "the store client is connected")
        three.kill("etcd2", "etcd3")
        until(lambda: target.leader(three.cluster) is None, "the last member steps down")
        calls: list[Call] = [lambda: store.write("k", "v", 1), lambda: lock.renew(grant)]
        for call in calls:
            with pytest.raises(Exception, match=r"(?i)deadline|unavailable") as failure:
                call()
            assert proves_no_effect(target, failure.value) is None
    assert target.ready(three.cluster) == "etcd1 is not healthy"


def test_a_leader_that_does_not_answer_is_not_named(fresh: Servers) -> None:
    target: Any = fresh.target
    becomes(lambda: target.leader(fresh.cluster), "etcd1")
    fresh.freeze("etcd1")
    assert target.leader(fresh.cluster) is None
    fresh.thaw("etcd1")
    until(lambda: target.leader(fresh.cluster) == "etcd1", "it answers again")


# -- errors


def rule_of(error: BaseException) -> str | None:
    rule = proves_no_effect(Etcd(), error)
    return None if rule is None else rule.name.partition(":")[0].partition(",")[0]


class Answered(Exception):  # noqa: N818 - stands for a gRPC error
    """What gRPC raises, as far as the error table looks at it."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(status, text)
        self._answer = status, text

    def code(self) -> Any:
        """The status, which has a name."""
        return type("StatusCode", (), {"name": self._answer[0]})

    def details(self) -> str:
        """The text."""
        return self._answer[1]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("UNAVAILABLE", "etcdserver: request timed out"),
        ("UNAVAILABLE", "etcdserver: no leader"),
        ("UNAVAILABLE", "etcdserver: leader changed"),
        ("UNAVAILABLE", "Socket closed"),
        ("UNAVAILABLE", "recvmsg:Connection reset by peer"),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded"),
        ("UNKNOWN", "failed to connect to all addresses"),
        ("INTERNAL", ""),
        ("CANCELLED", "Channel closed!"),
    ],
)
def test_an_answer_that_may_hide_an_effect_proves_nothing(status: str, text: str) -> None:
    assert rule_of(Answered(status, text)) is None
    connected = Answered("UNAVAILABLE", "failed to connect to all addresses; last error: refused")
    assert rule_of(connected) == "UNAVAILABLE"


def test_a_dead_server_proves_no_effect(fresh: Servers) -> None:
    with lock_of(fresh) as lock, store_of(fresh) as store:
        grant = lock.acquire("k", 30.0)
        fresh.kill("etcd1")
        with pytest.raises(Exception, match=r"."):  # the connection may still seem to stand
            store.write("k", "v", 1)
        calls: list[tuple[Call, str]] = [
            (lambda: store.write("k", "v", 1), "UNAVAILABLE"),
            (lambda: lock.renew(grant), "UNAVAILABLE"),
            (lambda: lock.release(grant), "UNAVAILABLE"),
            (lambda: lock.acquire("k", 30.0), "not asked"),
        ]
        for call, rule in calls:
            with pytest.raises(Exception, match="failed to connect") as failure:
                call()
            assert rule_of(failure.value) == rule


def test_a_frozen_server_leaves_the_outcome_unknown(fresh: Servers) -> None:
    with (
        lock_of(fresh) as patient,
        lock_of(fresh, 0.5) as lock,
        store_of(fresh, 0.5) as store,
        store_of(fresh) as witness,
    ):
        witness.write("k", "before", 1)
        grant = patient.acquire("k", 30.0)
        until(lambda: _answers(lambda: lock.renew(grant)), "the lock client is connected")
        until(lambda: _answers(lambda: store.read("k")), "the store client is connected")
        fresh.freeze("etcd1")
        calls: list[Call] = [
            lambda: store.write("k", "unknown", 2),
            lambda: lock.renew(grant),
            lambda: lock.release(grant),
        ]
        for call in calls:
            with pytest.raises(Exception, match=r"(?i)deadline") as failure:
                call()
            assert rule_of(failure.value) is None
        with pytest.raises(Exception, match="DEADLINE_EXCEEDED") as failure:
            lock.acquire("other", 30.0)
        assert rule_of(failure.value) == "not asked"
        fresh.thaw("etcd1")
        until(lambda: _answers(lambda: witness.read("k")), "it answers again")
        assert witness.read("k") in (Stored("before", 1), Stored("unknown", 2))


def test_an_acquire_that_was_asked_for_is_unknown_when_it_times_out(fresh: Servers) -> None:
    with lock_of(fresh, 2.0) as lock:
        real_grant = lock._lease.LeaseGrant

        def freeze_after(*args: Any, **kwargs: Any) -> Any:
            answer = real_grant(*args, **kwargs)
            fresh.freeze("etcd1")
            return answer

        lock._lease.LeaseGrant = freeze_after
        with pytest.raises(Exception, match=r"(?i)deadline") as failure:
            lock.acquire("k", 30.0)
        assert rule_of(failure.value) is None
        fresh.thaw("etcd1")


def test_an_acquire_whose_lease_ended_first_is_proven_to_have_had_no_effect(one: Servers) -> None:
    from aetcd import rpc

    with lock_of(one) as lock:
        real_grant = lock._lease.LeaseGrant

        def revoke_after(*args: Any, **kwargs: Any) -> Any:
            answer = real_grant(*args, **kwargs)
            lock._lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=answer.ID), timeout=5)
            return answer

        lock._lease.LeaseGrant = revoke_after
        with pytest.raises(Exception, match="lease not found") as failure:
            lock.acquire("too-late", 30.0)
        assert rule_of(failure.value) == "FAILED_PRECONDITION"
        lock._lease.LeaseGrant = real_grant
        lock.acquire("too-late", 30.0)


def test_a_request_that_etcd_rejects_is_proven_to_have_had_no_effect(one: Servers) -> None:
    from aetcd import rpc

    with raw(one) as client:
        with pytest.raises(Exception, match="key is not provided") as failure:
            client._kv.Put(rpc.PutRequest(key=b"", value=b"v"), timeout=5)
        assert rule_of(failure.value) == "FAILED_PRECONDITION"


# -- the target


def test_the_harness_process_never_loads_grpc(one: Servers) -> None:
    program = (
        "import sys; from targets.etcd import Etcd; from harness.target import *\n"
        "e = Etcd(); e.servers(); e.version()\n"
        f"c = {one.cluster!r}\n"
        "assert e.ready(c) is None; assert e.leader(c) == 'etcd1'\n"
        "assert proves_no_effect(e, OSError()) is None\n"
        "assert not {'grpc', 'aetcd'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-P", "-W", "error", "-c", program], check=True)


def test_the_version_is_what_the_binary_says(one: Servers) -> None:
    assert Etcd().version().startswith("etcd Version: ")


def test_options_that_etcd_would_reject_are_rejected_first() -> None:
    with pytest.raises(ValueError, match="5 times"):
        Etcd(heartbeat_ms=100, election_ms=499)
    for wrong in ({"nodes": 0}, {"nodes": 10}, {"heartbeat_ms": 0}, {"election_ms": 60_000}):
        with pytest.raises(ValueError, match="validation error"):
            Etcd(**wrong)
    assert [server.name for server in Etcd(nodes="2", binary=sys.executable).servers()] == [
        "etcd1",
        "etcd2",
    ]

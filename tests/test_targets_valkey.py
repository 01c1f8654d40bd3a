"""Valkey: what its scripts, its disk and its error replies really do."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.target import Grant, RefusedError, Stored, proves_no_effect
from targets.valkey import Valkey
from tests.support_servers import Servers, in_time, servers_of, until

pytestmark = pytest.mark.real


@pytest.fixture
def fenced(tmp_path: Path) -> Iterator[Servers]:
    with servers_of(Valkey(fenced=True), tmp_path) as servers:
        servers.start()
        yield servers


def lock_of(servers: Servers, **options: Any) -> Any:
    return closing(Valkey(**options).lock(servers.cluster, 5.0))


def store_of(servers: Servers, timeout_s: float = 5.0, **options: Any) -> Any:
    return closing(Valkey(**options).store(servers.cluster, timeout_s))


def raw(servers: Servers) -> Any:
    """A client for what no target does."""
    import redis

    place = servers.cluster.places[0]
    return closing(redis.Redis(host=place.address, port=place.port, protocol=2))


def test_tokens_and_fence_survive_a_kill(fenced: Servers) -> None:
    with lock_of(fenced) as lock, store_of(fenced, fenced=True) as store:
        for token in (1, 2):
            grant = lock.acquire("k", 30.0)
            assert grant.token == token
            lock.release(grant)
        store.write("k", "new", 2)
        fenced.kill("valkey1")
        fenced.start("valkey1")
        assert lock.acquire("k", 30.0).token == 3
        with pytest.raises(RefusedError, match="fenced: token 1 is below 2"):
            store.write("k", "stale", 1)
        assert store.read("k") == Stored("new", 2)
        assert store.write("k", "newer", 3) == Stored("new", 2)


def test_tokens_are_compared_as_numbers_and_not_as_text(fenced: Servers) -> None:
    with store_of(fenced, fenced=True) as store:
        store.write("k", "v", 9)
        store.write("k", "v", 10)
        store.write("k", "v", 2**53)
        with pytest.raises(RefusedError, match=str(2**53)):
            store.write("k", "v", 2**53 - 1)


def test_an_expiry_keeps_the_counter(fenced: Servers) -> None:
    with lock_of(fenced) as lock:
        first = lock.acquire("k", 0.1)
        assert first.ttl_s == 0.1
        until(lambda: not lock.check(first), "the lease ends")
        assert lock.acquire("k", 30.0).token == 2


def test_a_lock_without_counter_gives_no_token(fenced: Servers) -> None:
    with lock_of(fenced, token="none") as lock, raw(fenced) as client:  # noqa: S106 - no secret
        assert lock.acquire("k", 30.0).token is None
        assert client.keys("vanwinkle:*") == [b"vanwinkle:lock:k"]


def test_only_the_owner_may_renew_and_release(fenced: Servers) -> None:
    with lock_of(fenced) as lock:
        grant = lock.acquire("k", 30.0)
        for foreign in (None, "guess", ""):
            forged = Grant("k", token=grant.token, ttl_s=30.0, handle=foreign)
            assert not lock.check(forged)
            for call in (lock.renew, lock.release):
                with pytest.raises(RefusedError, match="not-holder"):
                    call(forged)
        assert lock.check(grant)


def test_bytes_that_somebody_else_stored_are_read_as_text(fenced: Servers) -> None:
    with store_of(fenced) as store, raw(fenced) as client:
        client.set("vanwinkle:data:k", b"\xff<b>")
        assert store.read("k") == Stored("\\xff<b>")
        assert store.write("k", "v", 1) == Stored("\\xff<b>")


def test_a_frozen_server_leaves_the_outcome_unknown_and_no_answer_behind(fenced: Servers) -> None:
    with store_of(fenced, 0.3) as store, store_of(fenced) as witness:
        witness.write("k", "before", 1)
        assert in_time(lambda: store.read("k")) == Stored("before", 1)  # and it is connected
        fenced.freeze("valkey1")
        assert fenced.target.ready(fenced.cluster) is not None  # type: ignore[attr-defined]
        with pytest.raises(Exception, match="Timeout") as late:
            store.write("k", "unknown", 2)
        assert proves_no_effect(fenced.target, late.value) is None
        fenced.thaw("valkey1")
        until(lambda: witness.read("k") == Stored("unknown", 2), "the late write takes effect")
        assert in_time(lambda: store.read("other")) is None  # not the late answer to the write


def test_a_killed_server_proves_no_effect_until_it_is_back(fenced: Servers) -> None:
    with store_of(fenced) as store:
        store.write("k", "v", 1)
        fenced.kill("valkey1")
        for _ in range(2):
            with pytest.raises(Exception, match="refused") as refused:
                store.write("k", "never", 1)
            rule = proves_no_effect(fenced.target, refused.value)
            assert rule is not None
            assert rule.name == "connection refused"
        fenced.start("valkey1")
        assert store.read("k") == Stored("v", 1)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), "read.only"),
        (("CONFIG", "SET", "maxmemory", "1"), "maxmemory"),
    ],
    ids=["READONLY", "OOM"],
)
@pytest.mark.parametrize("options", [{}, {"fenced": True}], ids=["plain", "fenced"])
def test_a_rejected_write_is_proven_to_have_had_no_effect(
    fenced: Servers, command: tuple[str, ...], says: str, options: dict[str, Any]
) -> None:
    with store_of(fenced, **options) as store, lock_of(fenced) as lock, raw(fenced) as client:
        client.execute_command(*command)
        for call, args in ((store.write, ("k", "v", 1)), (lock.acquire, ("k", 30.0))):
            with pytest.raises(Exception, match=f"(?i){says}") as rejected:
                call(*args)
            assert proves_no_effect(fenced.target, rejected.value) is not None
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.execute_command("CONFIG", "SET", "maxmemory", "0")
        assert store.read("k") is None
        assert lock.acquire("k", 30.0).token == 1


def test_another_error_reply_leaves_the_outcome_unknown(fenced: Servers) -> None:
    with lock_of(fenced) as lock, raw(fenced) as client:
        client.lpush("vanwinkle:token:k", "no counter")
        with pytest.raises(Exception, match="WRONGTYPE") as halfway:
            lock.acquire("k", 30.0)
        assert proves_no_effect(fenced.target, halfway.value) is None
        assert client.exists("vanwinkle:lock:k")  # the script had taken the lock when it failed


def test_a_server_that_loads_is_not_ready_and_proves_no_effect() -> None:
    from redis.exceptions import BusyLoadingError

    assert proves_no_effect(Valkey(), BusyLoadingError("LOADING")) is not None


def test_only_a_refusal_of_its_own_connection_proves_anything() -> None:
    from redis.exceptions import ConnectionError as Lost
    from redis.exceptions import TimeoutError as Late

    def raised(
        kind: type[Exception], reason: BaseException, before: BaseException | None = None
    ) -> BaseException:
        error = kind("from redis-py")
        error.__context__, reason.__context__ = reason, before
        return error

    def proven(error: BaseException) -> bool:
        return proves_no_effect(Valkey(), error) is not None

    assert proven(raised(Lost, ConnectionRefusedError()))
    assert not proven(raised(Lost, ConnectionResetError()))
    assert not proven(raised(Lost, ConnectionResetError(), ConnectionRefusedError()))
    assert not proven(raised(Late, ConnectionRefusedError()))
    assert not proven(raised(OSError, ConnectionRefusedError()))


def test_ready_says_what_is_missing(fenced: Servers) -> None:
    target: Any = fenced.target
    assert target.ready(fenced.cluster) is None
    with raw(fenced) as client:
        client.execute_command("CONFIG", "SET", "requirepass", "x")
        assert "NOAUTH" in target.ready(fenced.cluster)
    fenced.kill()
    assert "refused" in target.ready(fenced.cluster)


def test_the_version_is_what_the_server_says(fenced: Servers) -> None:
    assert Valkey().version().startswith("Valkey server v=")

"""The locks of etcd for which one queues, and what a dead place in the queue is answered."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness import released
from harness.target import Grant, QueueClient, Queued, RefusedError, Stored
from targets.etcd import Etcd
from tests.support_servers import Servers, in_time, servers_of, until

pytestmark = pytest.mark.real
SMALL: dict[str, Any] = {"nodes": 1, "heartbeat_ms": 50, "election_ms": 500}
KINDS = ("service", "mutex")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers_of(Etcd(**SMALL), tmp_path_factory.mktemp("one")) as servers:
        servers.start()
        yield servers


def client(servers: Servers, kind: str, timeout_s: float = 5.0) -> Any:
    return closing(Etcd(**SMALL, lock=kind).lock(servers.cluster, timeout_s))


def wait(lock: Any, place: Queued) -> "tuple[threading.Thread, list[Grant]]":
    """Wait in a thread of its own; the grant appears in the list."""
    granted: list[Grant] = []
    thread = threading.Thread(target=lambda: granted.append(lock.wait(place, 20.0)))
    thread.start()
    return thread, granted


@pytest.mark.parametrize("kind", KINDS)
def test_the_queue_is_served_in_its_order_with_growing_tokens(one: Servers, kind: str) -> None:
    with client(one, kind) as first, client(one, kind) as second, client(one, kind) as third:
        queues: object = first
        assert isinstance(queues, QueueClient)
        place = first.queue(f"order-{kind}", 30.0)
        assert not place.waiting
        held = first.wait(place, 5.0)
        assert first.check(held)
        places = [lock.queue(held.key, 30.0) for lock in (second, third)]
        assert [place.waiting for place in places] == [True, True]
        assert not second.check(places[0].grant)
        waits = [wait(lock, at) for lock, at in zip((second, third), places, strict=True)]
        second.renew(places[0].grant)
        first.release(held)
        waits[0][0].join(20)
        (granted,) = waits[0][1]
        assert second.check(granted)
        assert not first.check(held)
        assert waits[1][1] == []
        second.release(granted)
        waits[1][0].join(20)
        (last,) = waits[1][1]
        tokens = [grant.token or 0 for grant in (held, granted, last)]
        assert 0 < tokens[0] < tokens[1] < tokens[2]
        third.release(last)


@pytest.mark.parametrize("kind", KINDS)
def test_who_gives_up_leaves_no_place_behind(one: Servers, kind: str) -> None:
    with client(one, kind) as first, client(one, kind) as second:
        held = first.acquire(f"gives-up-{kind}", 30.0)
        place = second.queue(held.key, 30.0)
        with pytest.raises(TimeoutError, match="not granted within"):
            second.wait(place, 0.2)
        with pytest.raises(RefusedError, match="the lease has ended"):
            second.renew(place.grant)
        first.release(held)
        assert second.acquire(held.key, 30.0).token > held.token


def test_a_single_try_of_the_mutex_is_refused_and_leaves_nothing(one: Servers) -> None:
    with client(one, "mutex") as first, client(one, "mutex") as second:
        held = first.acquire("try", 30.0)
        with pytest.raises(RefusedError, match="held"):
            second.acquire("try", 30.0)
        first.release(held)
        assert second.acquire("try", 30.0).token > held.token


def outlive(one: Servers, kind: str) -> "tuple[Any, Grant]":
    """Let a place in the queue lose its lease, then end the wait; return what came of it."""
    with client(one, kind) as first, client(one, kind) as second:
        held = first.acquire(f"outlive-{kind}", 30.0)
        place = second.queue(held.key, 2.0)
        until(lambda: lost(second, place.grant), "the lease in the queue ends", 20.0)
        first.release(held)
        return second.wait(place, 10.0), place.grant


def lost(lock: Any, grant: Grant) -> bool:
    """Whether its lease has ended, seen without keeping it alive."""
    from targets._etcd_queue import _own_key

    return lock._get(_own_key(grant.key, grant.handle), 5.0) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_whose_lease_ended_is_refused_the_lock(one: Servers, kind: str) -> None:
    with pytest.raises(RefusedError, match=r"^not-holder: .*session is expired"):
        outlive(one, kind)


def test_etcd_3_4_3_grants_the_lock_to_a_place_whose_lease_ended(tmp_path: Path) -> None:
    if released.binary("etcd", "3.4.3") is None:
        pytest.skip("etcd 3.4.3 is not in the cache: winkle get etcd@3.4.3")
    with Servers(Etcd(**SMALL, version="3.4.3"), tmp_path) as old:
        old.start()
        granted, place = outlive(old, "service")
        assert granted.token == place.token
        with client(old, "service") as lock, pytest.raises(RefusedError, match="lease has ended"):
            lock.renew(granted)


def test_reads_of_one_member_and_of_a_majority(tmp_path: Path) -> None:
    """A member that is alone answers the one kind at once and the other not at all."""
    small = SMALL | {"nodes": 3, "fsync": False}
    with servers_of(Etcd(**small), tmp_path) as servers:
        servers.start()
        with closing(Etcd(**small).store(servers.cluster, 1.0)) as agreed:
            in_time(lambda: agreed.write("k", "v", None))
            with closing(Etcd(**small, reads="serializable").store(servers.cluster, 1.0)) as alone:
                until(lambda: in_time(lambda: alone.read("k")) is not None, "the member has it")
                for name in ("etcd2", "etcd3"):
                    servers.kill(name)
                assert alone.read("k") == Stored("v")
                began = time.monotonic()
                with pytest.raises(Exception, match=r"(?i)deadline.exceeded|UNAVAILABLE"):
                    agreed.read("k")
                assert time.monotonic() - began < 10

"""What every lock and every store of ours must do, whatever product is behind it."""

import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.target import (
    Cluster,
    ErrorTable,
    Grant,
    LeaseCheck,
    LockClient,
    LockService,
    Place,
    RefusedError,
    Store,
    Stored,
    StoreLog,
    Target,
    proves_no_effect,
)
from targets._stored import pack
from targets.atlasmart import Atlasmart
from targets.etcd import Etcd
from targets.nats import Nats
from targets.postgres import Postgres
from targets.redlock import Redlock
from targets.sentinel import Sentinel
from targets.valkey import Valkey
from tests.support_servers import (
    ReplyEater,
    Servers,
    fresh_address,
    refused,
    servers_of,
    taken,
    until,
)

TIMEOUT_S = 5.0
SHORT_S = 1.0  # of a lease that is waited for; a busy machine must get it before it is over
EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "mylock.py"


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mylock", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FACTORIES: dict[str, Any] = {
    "atlasmart": Atlasmart,
    "mylock": lambda **options: example().MyLock(**options),
    "etcd": Etcd,
    "nats": Nats,
    "postgres": Postgres,
    "redlock": Redlock,
    "sentinel": Sentinel,
    "valkey": Valkey,
}
OURS = [factory for name, factory in FACTORIES.items() if name != "mylock"]
SMALL_ETCD = {"nodes": 1, "heartbeat_ms": 50, "election_ms": 500}


def made(name: str, **options: Any) -> pytest.param:  # type: ignore[valid-type]
    """A parameter: this target with these options, marked `real` where it is a product."""
    marks = [] if name in ("atlasmart", "mylock") else [pytest.mark.real]
    shown = ",".join(f"{key}={value}" for key, value in options.items() if key not in SMALL_ETCD)
    return pytest.param((name, options), marks=marks, id=f"{name}[{shown}]" if shown else name)


def running(request: pytest.FixtureRequest, folder: Path) -> Iterator[Servers]:
    name, options = request.param
    with servers_of(FACTORIES[name](**options), folder) as servers:
        servers.start()
        yield servers


@pytest.fixture(
    scope="module",
    params=[
        made("atlasmart"),
        made("mylock"),
        made("etcd", **SMALL_ETCD),
        made("nats", nodes=1),
        made("postgres"),
        made("postgres", lock="advisory"),
        made("redlock", node_timeout_ms=1000),
        made("valkey"),
        made("valkey", token="none"),  # noqa: S106 - a fencing token is no secret
    ],
)
def locks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    yield from running(request, tmp_path_factory.mktemp("locks"))


@pytest.fixture(
    scope="module",
    params=[
        made("atlasmart"),
        made("atlasmart", fence="checked"),
        made("etcd", **SMALL_ETCD),
        made("nats", nodes=1),
        made("nats", nodes=1, fenced=True),
        made("postgres"),
        made("postgres", fenced=True),
        made("valkey"),
        made("valkey", fenced=True),
    ],
)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    yield from running(request, tmp_path_factory.mktemp("stores"))


def client(servers: Servers) -> Any:
    target: Any = servers.target
    return closing(target.lock(servers.cluster, TIMEOUT_S))


def store(servers: Servers) -> Any:
    target: Any = servers.target
    return closing(target.store(servers.cluster, TIMEOUT_S))


# -- locks


def test_a_held_lock_is_refused_until_it_is_released(locks: Servers) -> None:
    with client(locks) as first, client(locks) as second:
        grant = first.acquire("held", 30.0)
        assert grant.key == "held"
        assert grant.ttl_s >= 29.5  # Redlock gives less than it asks of its servers
        assert refused(second.acquire, "held", 30.0) == "held"
        assert refused(first.acquire, "held", 30.0) == "held"
        first.release(grant)
        second.release(second.acquire("held", 30.0))


def test_locks_do_not_disturb_each_other(locks: Servers) -> None:
    with client(locks) as first, client(locks) as second:
        one, two = first.acquire("mine", 30.0), second.acquire("yours", 30.0)
        first.release(one)
        second.renew(two)
        second.release(two)


def test_tokens_grow_with_every_grant_of_a_lock(locks: Servers) -> None:
    with client(locks) as lock:
        tokens = []
        for _ in range(4):
            grant = lock.acquire("growing", 30.0)
            tokens.append(grant.token)
            lock.release(grant)
    if tokens[0] is None:
        assert tokens == [None] * 4
    else:
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens))


def test_a_lease_that_is_not_renewed_ends_the_grant(locks: Servers) -> None:
    with client(locks) as first, client(locks) as second:
        old = first.acquire("expiring", SHORT_S)
        new = taken(second, "expiring", 30.0)
        if old.token is not None:
            assert new.token is not None
            assert new.token > old.token
        assert refused(first.renew, old) == "not-holder"
        assert refused(first.release, old) == "not-holder"
        if isinstance(first, LeaseCheck):
            assert not first.check(old)
            assert first.check(new)
        assert refused(first.acquire, "expiring", SHORT_S) == "held"
        second.renew(new)
        second.release(new)


def test_an_ended_lease_that_nobody_took_cannot_be_renewed(locks: Servers) -> None:
    with client(locks) as lock, client(locks) as other:
        grant = lock.acquire("abandoned", SHORT_S)
        if isinstance(lock, LeaseCheck):
            until(lambda: not lock.check(grant), "the lease ends")
        else:  # a younger lease of the same length tells, where leases end exactly on time
            lock.acquire("younger", SHORT_S)
            taken(other, "younger", 30.0)
        assert refused(lock.renew, grant) == "not-holder"
        assert refused(lock.release, grant) == "not-holder"


class TooLateError(Exception):
    """The machine was too busy to renew in time, so nothing is known."""


def test_renewals_keep_a_lock_beyond_its_lease(locks: Servers) -> None:
    for ttl_s in (1.0, 5.0, 25.0):
        try:
            keep_beyond_the_lease(locks, f"renewed-{ttl_s}", f"short-{ttl_s}", ttl_s)
        except TooLateError:
            continue
        return
    pytest.fail("no lease was long enough for this machine")


def keep_beyond_the_lease(locks: Servers, key: str, other_key: str, ttl_s: float) -> None:
    with client(locks) as holder, client(locks) as renewer, client(locks) as rival:
        renewed_s = time.monotonic()
        grant = holder.acquire(key, ttl_s)
        short = rival.acquire(other_key, grant.ttl_s)
        # When the rival's own lease of the same length is over, ours would be too without renewal.
        with client(locks) as other:

            def in_time(call: Callable[[], object]) -> None:
                """Do what fails only when the last renewal is longer ago than the lease lasts."""
                try:
                    call()
                except (AssertionError, RefusedError, pytest.fail.Exception) as error:
                    if time.monotonic() - renewed_s < grant.ttl_s:
                        raise
                    raise TooLateError from error

            def gone() -> bool:
                nonlocal renewed_s
                began_s = time.monotonic()
                # By another client of the same worker, as its renewal thread is.
                in_time(lambda: renewer.renew(grant))
                renewed_s = began_s
                in_time(lambda: held(rival, key, ttl_s))
                try:
                    other.release(other.acquire(other_key, 30.0))
                except RefusedError:
                    return False
                return True

            until(gone, "a lease without renewals ends", 30.0 + 3 * ttl_s)
        assert refused(rival.release, short) == "not-holder"
        in_time(lambda: holder.release(grant))


def held(rival: LockClient, key: str, ttl_s: float) -> None:
    assert refused(rival.acquire, key, ttl_s) == "held"


def test_a_released_grant_is_over(locks: Servers) -> None:
    with client(locks) as lock:
        grant = lock.acquire("released", 30.0)
        if isinstance(lock, LeaseCheck):
            assert lock.check(grant)
        lock.release(grant)
        assert refused(lock.release, grant) == "not-holder"
        assert refused(lock.renew, grant) == "not-holder"
        if isinstance(lock, LeaseCheck):
            assert not lock.check(grant)


# -- stores


def over(stores: Servers, value: Any, token: int) -> Stored | None:
    """What a write that covered this must return: a plain put of NATS does not say."""
    target: Any = stores.target
    silent = target.name == "nats" and target.fence == "none"
    return None if silent else Stored(value, token)


def test_a_store_returns_what_was_written_and_what_was_overwritten(stores: Servers) -> None:
    with store(stores) as one, store(stores) as two:
        assert one.read("plain") is None
        assert one.write("plain", "w1-1", 5) is None
        assert two.read("plain") == Stored("w1-1", 5)
        assert two.write("plain", "w2-1", 7) == over(stores, "w1-1", 5)
        assert two.write("plain", "w2-2", 7) == over(stores, "w2-1", 7)
        assert one.read("plain") == Stored("w2-2", 7)
        assert one.read("another") is None


@pytest.mark.parametrize(
    "value",
    [None, False, 0, -1.5, "", "\0", "ü\n\u2028 { } %", [1, [2, {"a": None}]], "x" * 50_000],
)
def test_any_json_value_survives_a_store(stores: Servers, value: Any) -> None:
    with store(stores) as one:
        one.write("json", value, 1)
        assert one.read("json") == Stored(value, 1)


def test_a_lower_token_is_refused_or_its_damage_is_reported(stores: Servers) -> None:
    assert isinstance(stores.target, Store)
    with store(stores) as one:
        one.write("stale", "new owner", 9)
        if stores.target.fence == "none":
            assert one.write("stale", "old owner", 8) == over(stores, "new owner", 9)
            assert one.read("stale") == Stored("old owner", 8)
            one.write("stale", "no token", None)
            assert one.read("stale") == Stored("no token", None)
        else:
            assert stores.target.fence == "checked"
            with pytest.raises(RefusedError, match=r"fenced: token 8 .*\b9\b"):
                one.write("stale", "old owner", 8)
            assert refused(one.write, "stale", "no token", None) == "fenced"
            assert one.read("stale") == Stored("new owner", 9)
            assert one.write("stale", "10 is above 9", 10) == Stored("new owner", 9)
            assert one.write("other", "a key has its own fence", 1) is None


def test_a_lost_reply_leaves_the_outcome_unknown_and_the_write_is_sent_once(
    stores: Servers,
) -> None:
    target: Any = stores.target
    places = stores.cluster.places
    [behind] = stores.cluster.role("store") or places
    with (
        closing(ReplyEater(behind, b"second")) as proxy,
        store(stores) as witness,
        closing(target.store(Cluster([proxy.place]), TIMEOUT_S)) as one,
    ):
        one.write("lost", "first", 1)
        with pytest.raises(Exception, match=r".") as failure:  # each client has its own error
            one.write("lost", "second", 2)
        assert proves_no_effect(target, failure.value) is None, failure.value
        until(lambda: witness.read("lost") == Stored("second", 2), "the write takes effect")
        witness.write("lost", "third", 3)
        assert written(stores, "second") == 1


def written(servers: Servers, value: str) -> int:
    """How often the server was asked to write this value, by its own account."""
    target: Any = servers.target
    place = (servers.cluster.role("store") or servers.cluster.places)[0]
    if isinstance(target, StoreLog):
        return sum(line.value == value for line in target.store_log(servers.cluster))
    if target.name in ("nats", "valkey"):
        files = Path(place.data).rglob("*.blk" if target.name == "nats" else "*.aof")
        return sum(file.read_bytes().count(pack(value, 2)) for file in files)
    if target.name == "postgres":
        return versions_in_postgres(place) - 2
    from targets._etcd_access import Access
    from targets._etcd_client import EtcdClient

    with closing(EtcdClient(Access([place.endpoint], TIMEOUT_S))) as raw:
        # Three different values were written to this key; each write is one version.
        return int(raw._get(b"vanwinkle/data/lost", TIMEOUT_S).version) - 2


def versions_in_postgres(place: Place) -> int:
    """How often the row of `lost` was written: nothing cleans up old versions that soon."""
    from targets._postgres_session import Session

    with closing(Session(place, TIMEOUT_S)) as session:
        session.ask("CREATE EXTENSION IF NOT EXISTS pageinspect")
        found = session.ask(
            "SELECT count(*) FROM heap_page_items(get_raw_page('vanwinkle_data', 0))"
            " WHERE t_data LIKE '%'::bytea || convert_to('lost', 'UTF8') || '%'::bytea"
        )
    return int(found[0][0] or 0)


# -- what a target says about itself


@pytest.mark.parametrize("name", FACTORIES)
def test_a_target_has_a_name_servers_and_a_lock(name: str) -> None:
    target = FACTORIES[name]()
    assert isinstance(target, Target)
    assert isinstance(target, LockService)
    assert target.name == name


@pytest.mark.parametrize("factory", OURS)
def test_an_unknown_option_is_rejected_by_name(factory: Any) -> None:
    with pytest.raises(ValueError, match="nodez"):
        factory(nodez=3)


@pytest.mark.parametrize("factory", OURS)
def test_every_option_is_described(factory: Any) -> None:
    assert all(field.description for field in factory.Options.model_fields.values())


@pytest.mark.parametrize("factory", [factory for factory in OURS if hasattr(factory, "store")])
def test_a_refused_connection_is_proven_to_have_had_no_effect(factory: Any) -> None:
    target: Any = factory()
    assert isinstance(factory(), ErrorTable)
    nobody = nowhere(target)
    with closing(target.lock(nobody, 2.0)) as lock, closing(target.store(nobody, 2.0)) as kept:
        grant = Grant("k", token=1, ttl_s=2.0, handle=1)
        calls: list[Callable[[], object]] = [
            lambda: lock.acquire("k", 2.0),
            lambda: lock.renew(grant),
            lambda: lock.release(grant),
            lambda: kept.write("k", "v", 1),
        ]
        for call in calls:
            with pytest.raises(Exception) as failure:  # noqa: PT011 - the table is what is tested
                call()
            assert proves_no_effect(target, failure.value) is not None, failure.value


def nowhere(target: Any) -> Cluster:
    """A cluster at addresses where nobody listens."""
    names = ("lock1", "store1") if target.name == "atlasmart" else ("one", "two")
    return Cluster([Place(name, fresh_address(), 9, "lock", "/nonexistent") for name in names])


@pytest.mark.parametrize("factory", OURS)
def test_other_errors_leave_the_outcome_unknown(factory: Any) -> None:
    for error in (TimeoutError("timed out"), ConnectionResetError(), OSError(5, "input/output")):
        assert proves_no_effect(factory(), error) is None


def test_the_example_stays_short_enough_to_be_shown_whole() -> None:
    code_lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip()]
    assert len(code_lines) < 50

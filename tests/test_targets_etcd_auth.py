"""Users of etcd: workers work as before, strangers are refused, and what a leak looks like."""

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness import released
from harness.target import RefusedError
from targets import _etcd_auth
from targets._etcd_gateway import Gateway
from targets.etcd import Etcd
from tests.support_servers import Servers, becomes, servers_of, until

pytestmark = pytest.mark.real
SMALL: dict[str, Any] = {"nodes": 1, "heartbeat_ms": 50, "election_ms": 500, "auth": True}


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers_of(Etcd(**SMALL), tmp_path_factory.mktemp("users")) as servers:
        servers.start()
        yield servers


def test_workers_lock_and_write_as_before(users: Servers) -> None:
    target = Etcd(**SMALL, guarded=True)
    with (
        closing(target.lock(users.cluster, 5.0)) as lock,
        closing(target.store(users.cluster, 5.0)) as store,
    ):
        grant = lock.acquire("k", 5.0)
        lock.renew(grant)
        store.write("k", "mine", grant.token)
        stored = store.read("k")
        assert stored is not None
        assert stored.value == "mine"
        lock.release(grant)
    becomes(lambda: target.leader(users.cluster), "etcd1")
    becomes(lambda: target.answers(users.cluster.places[0]), None)
    becomes(lambda: target.ready(users.cluster), None)


def test_nobody_is_refused(users: Servers) -> None:
    with (
        closing(Etcd(nodes=1).store(users.cluster, 5.0)) as nobody,
        pytest.raises(Exception, match="user name is empty"),
    ):
        nobody.read("k")


WAYS = ("read", "write", "watch")


def denied(servers: Servers) -> dict[str, str]:
    """What was said to a stranger who tried each way, where he was refused."""
    target, said = Etcd(**SMALL), {}
    over = threading.Event()
    with (
        closing(target.store(servers.cluster, 5.0)) as store,
        closing(target.stranger(servers.cluster, 5.0)) as stranger,
    ):
        stranger.own("mine")
        store.write("secret", "s", None)
        writer = threading.Thread(target=lambda: _write_until(store, "secret", over))
        writer.start()
        try:
            for way in WAYS:
                more = {"read": (), "write": ("changed",), "watch": (0.5,)}[way]
                asked = partial(getattr(stranger, way), "secret", *more)
                try:
                    until(lambda: bool(asked()), f"a {way}")  # noqa: B023 - asked at once
                except RefusedError as error:
                    said[way] = str(error)
        finally:
            over.set()
            writer.join()
    return said


def test_a_stranger_is_refused_each_way_by_3_7_1_and_may_use_his_own(tmp_path: Path) -> None:
    if released.binary("etcd", "3.7.1") is None:
        pytest.skip("etcd 3.7.1 is not in the cache: winkle get etcd@3.7.1")
    with Servers(Etcd(**SMALL, version="3.7.1"), tmp_path) as servers:
        servers.start()
        said = denied(servers)
    assert set(said) == set(WAYS)
    assert all(
        text.startswith("denied: ") and "permission denied" in text for text in said.values()
    )


def test_the_holes_of_3_5_1_are_seen(users: Servers) -> None:
    """CVE-2026-33343 lets a stranger write, GHSA-xg4h-6gfc-h4m8 lets him watch."""
    if "3.5.1" not in Etcd().version():
        pytest.skip("the etcd that is installed is not 3.5.1")
    assert set(denied(users)) == {"read"}


def test_a_stranger_with_too_wide_a_role_is_caught(tmp_path: Path) -> None:
    """The control: with a permission that he should not have, each of his ways shows it."""
    target = Etcd(**SMALL)
    with servers_of(target, tmp_path) as servers:
        servers.start()
        place = servers.cluster.places[0]
        with (
            closing(target.store(servers.cluster, 5.0)) as store,
            closing(target.stranger(servers.cluster, 5.0)) as stranger,
        ):
            store.write("k", "v0", None)
            asked = {"user": "stranger", "role": "worker"}
            assert "header" in _grant(place, asked)
            assert set(stranger.read("k")) == {"v0"}
            over = threading.Event()
            writer = threading.Thread(target=lambda: _write_until(store, "k", over))
            writer.start()
            try:
                until(lambda: bool(stranger.watch("k", 0.5)), "what he sees")
            finally:
                over.set()
                writer.join()
            assert set(stranger.write("k", "changed")) == {
                "put",
                "transaction",
                "nested transaction",
                "delete",
            }
            stored = store.read("k")
            assert stored is not None
            assert stored.value == "changed"


def _grant(place: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Give a user a role, as the root."""
    import http.client
    import json

    connection = http.client.HTTPConnection(place.address, place.port, timeout=5)
    headers = {"Authorization": _etcd_auth.token(Gateway(), place, _etcd_auth.ROOT) or ""}
    connection.request("POST", "/v3/auth/user/grant", json.dumps(body), headers)
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def _write_until(store: Any, key: str, over: threading.Event) -> None:
    n = 0
    while not over.wait(0.02):
        n += 1
        store.write(key, f"v{n}", None)

"""Redlock: its majorities, what a refusal proves, and the two critiques as runs.

Cases: C35 (a second majority), C11 (a clock that jumps, here on one server of three).
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.target import Grant, RefusedError, proves_no_effect
from targets._valkey_server import connect, lock_key
from targets.redlock import NoMajorityError, Redlock, UndecidedError
from tests.support_clocks import needs_clocks
from tests.support_faults import faulted
from tests.support_servers import Servers, servers_of

SLOW_MS = 5000  # for one server, in tests that freeze none


def started(folder: Path, **options: Any) -> Iterator[Servers]:
    with servers_of(Redlock(**options), folder) as servers:
        servers.start()
        yield servers


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Servers]:
    yield from started(tmp_path)


@pytest.fixture(params=[True, False], ids=["persist", "forget"])
def restartable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    yield from started(tmp_path, persist=request.param)


def client(servers: Servers, node_timeout_ms: int = SLOW_MS) -> Any:
    return closing(Redlock(node_timeout_ms=node_timeout_ms).lock(servers.cluster, 5.0))


def holders(servers: Servers, key: str) -> list[bytes | None]:
    """Who holds the key on each server, by its own account."""
    found = []
    for place in servers.cluster.places:
        with closing(connect(place, 5.0)) as server:
            found.append(server.get(lock_key(key)))
    return found


@pytest.mark.real
def test_a_majority_grants_and_what_is_granted_is_less_than_the_ttl(five: Servers) -> None:
    five.kill("redlock1", "redlock4")
    with client(five) as lock, client(five) as rival:
        grant = lock.acquire("k", 10.0)
        assert grant.token is None
        assert grant.ttl_s == pytest.approx(10.0 * 0.99 - 0.002)
        with pytest.raises(RefusedError, match="held: 0 of 5 servers agreed"):
            rival.acquire("k", 10.0)
        lock.renew(grant)
        assert lock.check(grant)
        lock.release(grant)
        assert not lock.check(grant)
        rival.release(rival.acquire("k", 10.0))


@pytest.mark.real
def test_no_majority_is_proven_by_refused_connections_and_not_by_silence(five: Servers) -> None:
    five.freeze("redlock1")
    five.freeze("redlock2")
    with client(five, 1000) as lock, client(five, 100) as hurried:
        grant = lock.acquire("frozen", 60.0)  # three of five do
        five.freeze("redlock3")
        with pytest.raises(UndecidedError) as undecided:
            hurried.renew(grant)
        assert proves_no_effect(five.target, undecided.value) is None
        with pytest.raises(UndecidedError):
            hurried.acquire("other", 10.0)
    for name in ("redlock1", "redlock2", "redlock3"):
        five.thaw(name)
    with client(five) as lock:
        partly = lock.acquire("partly", 60.0)
        five.kill("redlock1", "redlock2", "redlock3")
        with pytest.raises(UndecidedError, match="2 yes, 0 no, 3 away of 5") as unlocked:
            lock.release(partly)
        assert proves_no_effect(five.target, unlocked.value) is None
        with pytest.raises(NoMajorityError, match="0 yes, 2 no, 3 away of 5") as impossible:
            lock.acquire("frozen", 10.0)
        assert proves_no_effect(five.target, impossible.value) is not None


@pytest.mark.real
def test_a_try_that_did_not_win_is_undone_everywhere(five: Servers) -> None:
    for place in five.cluster.places[:3]:
        with closing(connect(place, 5.0)) as server:
            server.set(lock_key("k"), "somebody")
    with client(five) as lock:
        with pytest.raises(RefusedError, match="held: 2 of 5"):
            lock.acquire("k", 10.0)
        assert holders(five, "k") == [b"somebody"] * 3 + [None] * 2
        with pytest.raises(UndecidedError, match="over already"):
            lock.acquire("late", 0.002)  # less than the allowance for drift
        assert holders(five, "late") == [None] * 5


@pytest.mark.real
def test_only_the_owner_may_renew_and_release(five: Servers) -> None:
    with client(five) as lock:
        grant = lock.acquire("k", 30.0)
        forged = Grant("k", token=None, ttl_s=30.0, handle="guess")
        for call in (lock.renew, lock.release):
            with pytest.raises(RefusedError, match="not-holder"):
                call(forged)
        assert lock.check(grant)


@pytest.mark.real
def test_c35_a_restart_that_forgets_lets_a_second_majority_form(restartable: Servers) -> None:
    """A holds 1-3, for 4 and 5 were down; 3 comes back without its memory; B gets 3-5."""
    options: Any = restartable.target
    restartable.kill("redlock4", "redlock5")
    with client(restartable) as lock, client(restartable) as rival:
        grant = lock.acquire("k", 30.0)
        restartable.kill("redlock3")
        restartable.start("redlock3", "redlock4", "redlock5")
        if options.options.persist:
            with pytest.raises(RefusedError, match="held: 2 of 5"):
                rival.acquire("k", 30.0)
            assert lock.check(grant)
        else:
            assert rival.check(rival.acquire("k", 30.0))
            lost = [
                holder is None or holder != grant.handle.encode()
                for holder in holders(restartable, "k")
            ]
            assert lost == [False, False, True, True, True]


# ------------------------------------------------------------------------- the critiques


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


RUN = {"store": "atlasmart", "workers": 2, "readers": 0, "ttl": "1s"}


@pytest.mark.sandbox
@pytest.mark.real
def test_a_paused_holder_writes_over_its_successor(tmp_path: Path, own_state: None) -> None:
    run = faulted(
        tmp_path,
        "pause:who=holder,at=before-write,for=2.5leases,count=1",
        lock="redlock[node_timeout_ms=200]",
        time="6s",
        **RUN,
    )
    assert "stale-owner-write" in run.names
    assert run.names <= {"stale-owner-write", "lost-update"}


@pytest.mark.sandbox
@pytest.mark.real
@needs_clocks
def test_c11_the_clock_of_one_server_jumps_and_both_hold_a_majority(
    tmp_path: Path, own_state: None
) -> None:
    """Each client is cut from another server, so that their majorities share one server only.

    A jump may come upon a holder whose lease ends before the other one asks again; holds are short,
    so that each of the jumps finds another one.
    """
    pairs = "w1>redlock1 redlock1>w1 w2>redlock2 redlock2>w2"
    run = faulted(
        tmp_path,
        f"partition:who=all,at=100ms,for=10500ms,shape=grudge,pairs={pairs}",
        "clock:who=server:3,at=2500ms,for=300ms,every=500ms,jump=2leases",
        lock="redlock[nodes=3]",
        workload="fencing[rounds=20,check=false]",
        time="12s",
        **{**RUN, "ttl": "2s"},
    )
    assert "duplicate-grant" in run.names, run.results.verdict.headline
    first = next(a for a in run.results.verdict.anomalies if a.name == "duplicate-grant")
    assert first.time_ns is not None
    assert first.time_ns > run.of("clock")[0]["requested_ns"]

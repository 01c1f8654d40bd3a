"""What a wrong clock does to real products: Valkey's dates, etcd's leases, a Python worker.

Cases: C11 (a jump of the wall clock ends Redis and Valkey locks).
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.clocks import Glimpse, Lie, Skew
from harness.errors import UsageError
from harness.target import Target
from harness.vdso.clocks import VdsoClocks
from harness.vdso.halt import FreeReins
from targets.etcd import Etcd
from targets.valkey import Valkey
from tests.support_clocks import needs_clocks, process_id
from tests.support_faults import Faulted, lived
from tests.support_servers import Servers, in_time, until

pytestmark = [pytest.mark.real, needs_clocks]
TTL_S = 4.0


@contextmanager
def started(target: Target, folder: Path) -> Iterator[Servers]:
    """The servers of a target, started."""
    try:
        servers = Servers(target, folder)
    except UsageError as missing:
        pytest.skip(f"{target.name}: {missing}")
    with servers:
        servers.start()
        yield servers


def clocks_of(servers: Servers, name: str) -> VdsoClocks:
    process = process_id(servers._processes[name].pid)
    return VdsoClocks(lambda: [process], FreeReins())


def run(tmp_path: Path, *faults: str, **keys: object) -> Faulted:
    """Run against atlasmart as store, if the products are here."""
    try:
        return lived(tmp_path, *faults, store="atlasmart", **keys)
    except UsageError as missing:
        pytest.skip(str(missing))


# ------------------------------------------------------------------------------- valkey


def test_c11_a_forward_jump_of_valkeys_clock_past_the_ttl_is_a_duplicate_grant(
    tmp_path: Path,
) -> None:
    lied = run(
        tmp_path,
        "clock:who=server:1,at=2s,for=1s,every=1s,jump=2leases",
        lock="valkey",
        ttl="2s",
        time="11s",
    )
    assert {window["grade"] for window in lied.windows} == {"installed"}
    told = [window["on"]["facts"]["valkey1"].get("told") for window in lied.windows]
    seen = [one["wall"] for one in told if one]  # what it could not be asked in time, nobody told
    assert len(seen) > len(told) / 2
    assert seen == pytest.approx([4.0] * len(seen), abs=0.5)
    # One jump may come upon a holder that renews or asks just then, and stops in time.
    found = [a for a in lied.results.verdict.anomalies if a.name == "duplicate-grant"]
    assert found, lied.names
    assert any(w["requested_ns"] <= found[0].time_ns < w["heal_ns"] for w in lied.windows)


def test_a_backward_jump_lets_a_dead_owners_lock_outlive_its_ttl(tmp_path: Path) -> None:
    """The holder sleeps for three leases; by Valkey's clock its lock lives ten seconds longer.

    It falls asleep first, and its lease must not be over when the clock jumps.
    """
    slept = run(
        tmp_path,
        "clock:who=server:1,at=1s,for=7s,jump=-10s",
        "pause:who=holder,at=before-write,after=300ms,for=6s,count=1",
        lock="valkey",
        workload="fencing[rounds=50]",
        ttl="2s",
        time="9s",
    )
    (clock,), (pause,) = slept.by_spec(0), slept.by_spec(1)
    assert clock["grade"] == pause["grade"] == "installed"
    assert clock["on_ns"] < pause["heal_ns"]
    assert "zombie-lease" in slept.names
    acquired = [op for op in slept.ops() if op.f == "acquire"]
    granted = [op.time_ns for op in acquired if op.type == "ok"]
    asleep = max(clock["on_ns"], pause["on_ns"]), pause["heal_ns"]
    lease_over = asleep[0] + 2_000_000_000
    assert not [at_ns for at_ns in granted if asleep[0] < at_ns < asleep[1]]
    refused = [
        op
        for op in acquired
        if op.type == "fail"
        and (op.error or "").startswith("held")
        and lease_over + 1_000_000_000 < op.time_ns < asleep[1]
    ]
    assert len(refused) > 10
    assert [at_ns for at_ns in granted if at_ns > clock["heal_ns"]]


def test_valkey_answers_what_it_was_made_to_read(tmp_path: Path) -> None:
    target = Valkey()
    with started(target, tmp_path) as servers:
        place = servers.cluster.places[0]
        clocks = clocks_of(servers, "valkey1")

        async def test() -> None:
            for off_s in (3600.0, -3600.0):
                since = await clocks.skew("a", Skew(wall=Lie(off_s)))
                glimpse = server_time(target, place)
                assert glimpse.fits(Lie(off_s), since.wall_ns, within_ns=2_000_000)
                assert glimpse.error_s == pytest.approx(off_s, abs=1)
            await clocks.true_clocks("a")
            assert server_time(target, place).fits(Lie(), 0, within_ns=2_000_000)

        asyncio.run(test())


def server_time(target: Any, place: Any) -> Glimpse:
    def asked() -> Glimpse:
        before_ns = time.time_ns()
        told = target.server_time(place)
        assert told is not None
        seen_ns, grain_ns = round(told.time_s * 1e9), round(told.grain_s * 1e9)
        return Glimpse(before_ns, seen_ns, time.time_ns(), grain_ns)

    return in_time(asked)


# ------------------------------------------------------------------------------- etcd


def test_a_statically_linked_go_program_is_reached_and_lives_on(tmp_path: Path) -> None:
    target = Etcd(nodes=1)
    with started(target, tmp_path) as servers:
        place = servers.cluster.places[0]
        pid = servers._processes["etcd1"].pid
        assert "ld-linux" not in Path(f"/proc/{pid}/maps").read_text()
        clocks = clocks_of(servers, "etcd1")

        async def test() -> None:
            for _ in range(20):
                since = await clocks.skew("a", Skew(wall=Lie(3600.0), monotonic=Lie(rate=2.0)))
                readings = (await clocks.read_clocks())[pid]
                assert readings.trouble == ""
                told = server_time(target, place)
                assert told.fits(Lie(3600.0), since.wall_ns, within_ns=10_000_000)
                await clocks.true_clocks("a")
            assert (await clocks.read_clocks())[pid].original

        asyncio.run(test())
        until(lambda: target.ready(servers.cluster) is None, "an answer")
        os.kill(pid, 0)


def test_an_etcd_lease_follows_the_leaders_monotonic_clock(tmp_path: Path) -> None:
    """At double speed a lease of 4 s is over in about 2 s, at half speed in about 8 s.

    It begins between the call that gets it and the answer.
    """
    lies = {"double": Lie(rate=2.0), "half": Lie(rate=0.5), "wall": None}
    target = Etcd(nodes=1)

    async def life_s(servers: Servers, lie: Lie | None) -> tuple[float, float]:
        clocks = clocks_of(servers, "etcd1")
        client: Any = target.lock(servers.cluster, 5.0)
        with closing(client) as lock:
            await asyncio.to_thread(in_time, lambda: lock.acquire("connects", TTL_S))
            await clocks.skew("a", Skew(monotonic=lie) if lie else Skew(wall=Lie(86400.0)))
            called = time.monotonic()
            grant = await asyncio.to_thread(in_time, lambda: lock.acquire("k", TTL_S))
            assert grant.ttl_s == TTL_S
            granted = time.monotonic()
            while await asyncio.to_thread(lock.check, grant):
                assert time.monotonic() - granted < 5 * TTL_S
                await asyncio.sleep(0.05)
            gone = time.monotonic()
            await clocks.true_clocks("a")
            return gone - granted, gone - called

    async def all_lives() -> dict[str, tuple[float, float]]:
        lives = await asyncio.gather(*(life_s(all_servers[name], lies[name]) for name in lies))
        return dict(zip(lies, lives, strict=True))

    with (
        started(target, tmp_path / "double") as double,
        started(target, tmp_path / "half") as half,
        started(target, tmp_path / "wall") as wall,
    ):
        all_servers = {"double": double, "half": half, "wall": wall}
        lived_s = asyncio.run(all_lives())
    least = {name: both[0] for name, both in lived_s.items()}
    most = {name: both[1] for name, both in lived_s.items()}
    assert least["double"] < 0.95 * TTL_S < most["wall"], lived_s
    assert most["double"] > 0.4 * TTL_S, lived_s
    assert least["wall"] < 1.8 * TTL_S < most["half"], lived_s  # the date does not matter


def test_the_leaders_clock_in_a_run_of_three(tmp_path: Path) -> None:
    lied = run(
        tmp_path,
        "clock:who=leader,at=1s,for=2s,clock=monotonic,rate=2",
        "clock:who=follower,at=1s,for=500ms,every=200ms,clock=both,jump=1h",
        lock="etcd",
        workers=2,
        ttl="2s",
        time="4s",
    )
    (leader,), followers = lied.by_spec(0), lied.by_spec(1)
    assert {window["grade"] for window in (leader, *followers)} == {"installed"}
    assert all(leader["nodes"] != window["nodes"] for window in followers)
    told = [window["on"]["facts"][window["nodes"][0]].get("told") for window in followers]
    seen = [one["wall"] for one in told if one]
    assert seen
    assert seen == pytest.approx([3600] * len(seen), abs=2)
    assert leader["off"]["holds"]

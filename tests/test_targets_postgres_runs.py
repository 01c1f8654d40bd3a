"""PostgreSQL in runs: what a flag believes, what a clock ends, what a pause stops.

Cases: C55 (the session that owned an advisory lock is gone, and the leader stays), C21 (a pause
that stops only the first of several processes is none).
"""

from pathlib import Path

import pytest

from harness.errors import UsageError
from targets.postgres import Postgres
from tests.support_clocks import needs_clocks
from tests.support_faults import faulted

pytestmark = [pytest.mark.sandbox, pytest.mark.real]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    try:
        Postgres().servers()
    except UsageError as missing:
        pytest.skip(f"postgres: {missing}")


@needs_clocks
def test_a_jump_of_the_servers_clock_ends_a_lease_and_a_pause_stops_every_session(
    tmp_path: Path,
) -> None:
    run = faulted(
        tmp_path,
        "pause:who=server:1,at=1s,for=400ms",
        # A jump may come upon a holder whose lease ends before the other one asks again; holds are
        # short, so that each of the jumps finds another one.
        "clock:who=server:1,at=2500ms,for=300ms,every=500ms,jump=2leases",
        lock="postgres",
        store="atlasmart",
        workload="fencing[rounds=20,check=false]",
        workers=2,
        readers=0,
        ttl="2s",
        time="8s",
    )
    (pause,) = run.of("pause")
    told = [window["on"]["facts"]["postgres1"].get("told") for window in run.of("clock")]
    seen = [one["wall"] for one in told if one]  # what it could not be asked in time, nobody told
    assert seen
    assert seen == pytest.approx([4.0] * len(seen), abs=0.5)
    assert "duplicate-grant" in run.names, run.results.verdict.headline
    # Case C21: with only the first process stopped, open sessions would go on to commit.
    assert pause["on"]["facts"]["stopped"] == pause["on"]["facts"]["threads"] > 5
    served = [op for op in run.ops() if op.f in ("acquire", "renew") and op.type == "ok"]
    assert not [op for op in served if pause["on_ns"] < op.time_ns < pause["heal_ns"]]


C55 = {"lock": "postgres[lock=advisory]", "workers": 2, "readers": 0, "ttl": "1s"}


@pytest.mark.parametrize("fence", ["none", "checked"])
def test_c55_a_leader_whose_session_is_gone_stays_leader(fence: str, tmp_path: Path) -> None:
    """Packets vanish in silence; the server ends the idle session, and the next one leads."""
    run = faulted(
        tmp_path,
        "partition:who=holder,at=before-write,for=2leases,count=1,shape=worker-lock",
        store=f"atlasmart[fence={fence}]",
        workload="fencing[rounds=200]",
        time="5s",
        op_timeout="300ms",
        **C55,
    )
    if fence == "checked":  # the first refused write is its notice
        assert run.names <= {"late-loss-notice"}
        assert run.results.verdict.stats["stale_refused"] > 0
        return
    assert run.results.verdict.verdict == "fail"
    # The old leader may have read what it wrote over: then nothing is lost.
    assert run.names - {"lost-update"} == {"late-loss-notice", "stale-owner-write"}
    late = next(a for a in run.results.verdict.anomalies if a.name == "late-loss-notice")
    assert late.size_s is not None
    assert late.size_s > 0.5

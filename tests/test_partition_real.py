"""What partitions do to real servers: etcd as lock service, Valkey as store."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support_faults import lived

pytestmark = [pytest.mark.sandbox, pytest.mark.real]


class Lived:
    """A run with one window."""

    def __init__(
        self, tmp_path: Path, fault: str, *, fenced: str, check: str, time: str, lock: str = "etcd"
    ) -> None:
        run = lived(
            tmp_path,
            f"partition:{fault}",
            lock=lock,
            store=f"valkey[fenced={fenced}]",
            workload=f"fencing[rounds=300,check={check}]",
            workers=3,
            readers=0,
            ttl="2s",
            time=time,
            op_timeout="500ms",
            seed=5,
        )
        self.exit_code = run.exit_code
        self.verdict = run.results.verdict
        (self.window,) = run.windows
        assert self.window["grade"] == "installed", self.window
        self.ops = lines(run.folder / "history.jsonl")

    def ended(self, f: str, kind: str, since_ns: int, until_ns: int | None = None) -> int:
        """How many operations ended so within a time."""
        return sum(
            op["f"] == f
            and op["type"] == kind
            and since_ns <= op["time_ns"]
            and (until_ns is None or op["time_ns"] < until_ns)
            for op in self.ops
        )

    def asked_in_vain(self, f: str) -> int:
        """How often the node of the window asked within it; nothing may have been granted."""
        window = self.window
        mine = [
            op["type"]
            for op in self.ops
            if op["f"] == f
            and op["worker"] in window["nodes"]
            and window["on_ns"] < op["time_ns"] < window["heal_ns"]
        ]
        assert "ok" not in mine
        return mine.count("invoke")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


CUT = "who=holder,at=before-write,for=4leases,count=1,shape=worker-lock"


def test_a_holder_cut_from_the_lock_service_only_writes_on_and_learns_too_late(
    tmp_path: Path,
) -> None:
    """The nastiest cut: its renewals fail, its lease ends, and it still reaches the data.

    Its library takes the lock for held until somebody says otherwise.
    """
    trusting = f"{Path(__file__).parent / 'support_trusting.py'}:Trusting"
    run = Lived(tmp_path, lock=trusting, fault=CUT, fenced="false", check="false", time="12s")
    (holder,) = run.window["nodes"]
    assert set(run.window["on"]["facts"]["cut"]) == {
        pair for i in (1, 2, 3) for pair in (f"{holder}>etcd{i}", f"etcd{i}>{holder}")
    }
    assert run.asked_in_vain("renew") > 0
    assert run.exit_code == 1
    stale = [a for a in run.verdict.anomalies if a.name == "stale-owner-write"]
    assert stale[0].size_s is not None
    assert stale[0].size_s > 0
    (late,) = [a for a in run.verdict.anomalies if a.name == "late-loss-notice"]
    assert late.details["worker"] == holder
    # Its lease ran out within the cut; it heard of that only after the heal.
    assert run.window["on_ns"] < late.details["due_ns"] < run.window["heal_ns"]
    assert late.details["believed_until_ns"] > run.window["heal_ns"]
    assert late.size_s is not None
    assert late.size_s > 0.5


def test_the_same_with_a_fence_is_no_finding(tmp_path: Path) -> None:
    run = Lived(tmp_path, fault=CUT, fenced="true", check="false", time="12s")
    assert run.asked_in_vain("renew") > 0
    assert not run.verdict.anomalies
    assert run.verdict.verdict in ("pass", "unknown"), run.verdict.headline
    assert run.verdict.stats["stale_refused"] > 0


def test_with_its_leader_cut_off_etcd_elects_another_and_goes_on(tmp_path: Path) -> None:
    """With resets, for a client that hears nothing stays with the member that it knows."""
    run = Lived(
        tmp_path,
        fault="who=leader,at=3s,for=4s,reject=true",
        fenced="true",
        check="true",
        time="10s",
    )
    window = run.window
    assert window["nodes"][0].startswith("etcd")
    assert run.verdict.verdict in ("pass", "unknown"), run.verdict.headline
    assert not run.verdict.anomalies
    assert run.ended("acquire", "ok", 0, window["on_ns"]) > 0
    # Only a leader can say that the lock is held or give it, and the old one reaches nobody.
    later_ns = window["on_ns"] + 500_000_000
    served = [
        op
        for op in run.ops
        if op["f"] in ("acquire", "renew", "check")
        and later_ns < op["time_ns"] < window["heal_ns"]
        and (op["type"] == "ok" or op.get("error") == "held")
    ]
    assert served
    assert run.ended("write", "ok", window["off_ns"]) > 0

"""Partitions, bad links and lost messages in whole runs: together, at phases, and undone."""

from collections import Counter
from pathlib import Path

import pytest

from harness.errors import UsageError
from tests.support_faults import IDLE, lived

pytestmark = pytest.mark.sandbox

ATLASMART = {
    "lock": "atlasmart",
    "store": "atlasmart",
    "workers": 2,
    "readers": 0,
    "ttl": "2s",
    "op_timeout": "500ms",
}


def test_cuts_and_bad_links_that_overlap_are_all_proven_and_leave_nothing(tmp_path: Path) -> None:
    found = lived(
        tmp_path,
        "partition:who=worker:1,at=300ms,for=100ms,every=100ms",
        "partition:who=worker:2,at=200ms,for=50ms,every=20ms,shape=one-way-in",
        'partition:who=worker:1,at=400ms,for=70ms,every=90ms,shape=grudge,pairs="w1>w2 w3>w1"',
        "link:who=worker:3,at=300ms,for=300ms,every=50ms,delay=20ms",
        **IDLE,
    ).windows
    assert {window["spec"] for window in found} == {0, 1, 2, 3}
    bad = [w for w in found if w["grade"] == "not-effective"]
    assert not bad, bad
    proven = Counter(window["spec"] for window in found if window["grade"] == "installed")
    assert set(proven) == {0, 1, 2, 3}
    assert sum(proven.values()) >= 0.8 * len(found)


def test_a_holder_is_cut_off_at_a_phase(tmp_path: Path) -> None:
    run = lived(
        tmp_path, "partition:who=holder,at=before-write,for=100ms,count=2,reject=true", **IDLE
    )
    assert run.results.verdict.verdict == "pass"
    assert len(run.windows) == 2
    for window in run.windows:
        assert window["grade"] == "installed"
        assert window["at"] == "before-write"
        assert len(window["on"]["facts"]["cut"]) == 4
        assert window["requested_ns"] < window["on_ns"] < window["heal_ns"] < window["off_ns"]


def test_a_message_to_each_part_of_one_target_is_lost_when_it_comes(tmp_path: Path) -> None:
    run = lived(
        tmp_path,
        "message:who=all,at=500ms,for=2s,part=lock",
        "message:who=store,at=1s,for=2s,part=store",
        "message:who=w1,at=500ms,for=500ms,match=xyzzy",
        time="4s",
        **ATLASMART,
    )
    for spec, part in enumerate(["lock", "store"]):
        (window,) = run.by_spec(spec)
        assert window["grade"] == "installed", window
        (hit,) = window["on"]["facts"]["hits"]
        assert hit["server"] == f"{part}1"
    (never,) = run.by_spec(2)
    assert never["grade"] == "indeterminate"
    assert "no such message has come by" in never["text"]
    assert "fault-not-effective" in run.reasons
    assert not run.names


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the lock service has no servers here"):
        lived(tmp_path, "partition:who=w1,at=1s,for=1s,shape=worker-lock", **IDLE)
    assert not (tmp_path / "runs").exists()

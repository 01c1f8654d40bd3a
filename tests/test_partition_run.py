"""Partitions, bad links and lost messages in whole runs: together, at phases, and undone."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.api import execute
from harness.runfile import read
from tests.live import NOOP

pytestmark = pytest.mark.sandbox

HEAD = f"""
lock: {NOOP}:Noop
store: {NOOP}:Noop
workload: {NOOP}:Hold
workers: 3
readers: 0
ttl: 200ms
time: 2s
op_timeout: 100ms
"""
ATLASMART = """
lock: atlasmart
store: atlasmart
workers: 2
readers: 0
ttl: 500ms
time: 2s
op_timeout: 100ms
seed: 1
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def windows(tmp_path: Path, head: str, *faults: str) -> tuple[list[dict[str, Any]], Any]:
    """Run the faults; return the windows as recorded and the results."""
    text = head + "faults:\n" + "".join(f"  - {fault}\n" for fault in faults)
    result = execute(read(text), tmp_path / "runs", quiet=True)
    assert result.folder is not None, result.error
    assert result.results is not None
    assert result.results.leftover == ()
    assert result.results.error is None
    assert not list((tmp_path / "state").glob("vanwinkle/ledgers/*"))
    lines = (result.folder / "faults.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], result.results


def test_cuts_and_bad_links_that_overlap_are_all_proven_and_leave_nothing(tmp_path: Path) -> None:
    found, _ = windows(
        tmp_path,
        HEAD,
        "partition:who=worker:1,at=300ms,for=100ms,every=100ms",
        "partition:who=worker:2,at=200ms,for=50ms,every=20ms,shape=one-way-in",
        'partition:who=worker:1,at=400ms,for=70ms,every=90ms,shape=grudge,pairs="w1>w2 w3>w1"',
        "link:who=worker:3,at=300ms,for=300ms,every=50ms,delay=20ms",
    )
    assert {window["spec"] for window in found} == {0, 1, 2, 3}
    bad = [w for w in found if w["grade"] == "not-effective"]
    assert not bad, bad
    proven = Counter(window["spec"] for window in found if window["grade"] == "installed")
    assert set(proven) == {0, 1, 2, 3}
    assert sum(proven.values()) >= 0.8 * len(found)


def test_a_holder_is_cut_off_at_a_phase(tmp_path: Path) -> None:
    found, results = windows(
        tmp_path, HEAD, "partition:who=holder,at=before-write,for=100ms,count=2,reject=true"
    )
    assert results.verdict.verdict == "pass"
    assert len(found) == 2
    for window in found:
        assert window["grade"] == "installed"
        assert window["at"] == "before-write"
        assert len(window["on"]["facts"]["cut"]) == 4
        assert window["requested_ns"] < window["on_ns"] < window["heal_ns"] < window["off_ns"]


@pytest.mark.parametrize("part", ["lock", "store"])
def test_a_message_to_each_part_of_one_target_is_lost_when_it_comes(
    tmp_path: Path, part: str
) -> None:
    who = {"lock": "all", "store": "store"}[part]
    fault = f"message:who={who},at=500ms,for=1s,part={part}"
    found, results = windows(tmp_path, ATLASMART, fault)
    (window,) = found
    assert window["grade"] == "installed", window
    (hit,) = window["on"]["facts"]["hits"]
    assert hit["server"] == f"{part}1"
    assert results.verdict.verdict != "fail"
    assert not results.verdict.anomalies


def test_a_message_that_never_comes_is_not_proven(tmp_path: Path) -> None:
    found, results = windows(tmp_path, ATLASMART, "message:who=w1,at=1s,for=500ms,match=xyzzy")
    assert found[0]["grade"] == "indeterminate"
    assert "no such message has come by" in found[0]["text"]
    assert "fault-not-effective" in {unknown.reason for unknown in results.verdict.unknown}


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    text = HEAD + "faults:\n  - partition:who=w1,at=1s,for=1s,shape=worker-lock\n"
    result = execute(read(text), tmp_path / "runs", quiet=True)
    assert result.exit_code == 255
    assert "needs a lock service with servers" in str(result.error)

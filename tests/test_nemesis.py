"""The nemesis on live workers: who is hit, when, for how long, with what proof, and undone."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from harness.api import execute
from harness.errors import UsageError
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


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def windows(tmp_path: Path, *faults: str) -> tuple[list[dict[str, Any]], int]:
    """Run the faults; return the windows as recorded and the exit code."""
    text = HEAD + "faults:\n" + "".join(f"  - {fault}\n" for fault in faults)
    result = execute(read(text), tmp_path / "runs", quiet=True)
    assert result.folder is not None, result.error
    assert not list((tmp_path / "state").glob("vanwinkle/ledgers/*"))
    lines = (result.folder / "faults.jsonl").read_text().splitlines()
    assert result.results is not None
    assert result.results.leftover == ()
    assert result.results.error is None
    return [json.loads(line) for line in lines], result.exit_code


def length_s(window: dict[str, Any]) -> float:
    return float(window["heal_ns"] - window["on_ns"]) / 1e9


def test_a_time_a_length_in_seconds_and_a_named_worker(tmp_path: Path) -> None:
    found, code = windows(tmp_path, "pause:who=worker:2,at=500ms,for=300ms")
    assert code == 0
    (window,) = found
    assert window["nodes"] == ["w2"]
    assert window["grade"] == "installed"
    assert window["on"]["facts"]["threads"] >= 3
    assert window["off"]["holds"]
    assert length_s(window) == pytest.approx(0.3, abs=0.2)


def test_a_length_in_leases(tmp_path: Path) -> None:
    (window,), _ = windows(tmp_path, "pause:who=w1,at=500ms,for=2leases")
    assert length_s(window) == pytest.approx(0.4, abs=0.2)


def test_every_so_often_and_so_many_times(tmp_path: Path) -> None:
    found, _ = windows(tmp_path, "pause:who=w1,at=100ms,for=50ms,every=100ms,count=4")
    assert len(found) == 4
    assert all(window["grade"] == "installed" for window in found)
    gaps = [b["requested_ns"] - a["off_ns"] for a, b in itertools.pairwise(found)]
    assert min(gaps) >= 100_000_000


def test_random_times_come_from_the_seed(tmp_path: Path) -> None:
    fault = "pause:who=w1,at=random,count=3,for=50ms"
    first, _ = windows(tmp_path, fault)
    again, _ = windows(tmp_path, fault)
    assert len(first) == 3
    assert [window["at"] for window in first] == [window["at"] for window in again]


@pytest.mark.parametrize("phase", ["acquired", "lease-checked", "before-write"])
def test_a_holder_stops_itself_at_the_phase(tmp_path: Path, phase: str) -> None:
    found, code = windows(tmp_path, f"pause:who=holder,at={phase},for=100ms,count=1")
    if phase == "acquired":  # these workers take their locks before the warm-up is over
        assert code == 2
        assert "never triggered" in found[0]["text"]
        return
    assert code == 0
    history = next((tmp_path / "runs").glob("2*")) / "history.jsonl"
    op = json.loads(history.read_text().splitlines()[found[0]["op"]])
    assert op["f"] == "check"
    assert op["worker"] in found[0]["nodes"]


def test_a_fault_that_never_came_makes_the_run_unknown(tmp_path: Path) -> None:
    found, code = windows(tmp_path, "pause:who=waiter,at=1s,for=100ms")
    assert code == 2
    assert found[0]["grade"] == "not-effective"
    assert "no waiter" in found[0]["text"]


def test_windows_that_overlap_on_one_node_leave_nothing(tmp_path: Path) -> None:
    found, code = windows(
        tmp_path,
        "pause:who=holder,at=before-write,for=70ms,every=10ms",
        "pause:who=w1,at=before-write,for=50ms,every=20ms",
        "pause:who=w1,at=300ms,for=40ms,every=10ms",
        "pause:who=w2,at=300ms,for=30ms,every=10ms",
    )
    assert code == 0
    assert {window["spec"] for window in found} == {0, 1, 2, 3}
    assert all(window["grade"] == "installed" for window in found)


def test_a_window_that_would_not_fit_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="after the run"):
        windows(tmp_path, "pause:who=w1,at=1500ms,for=1s")
    assert not (tmp_path / "runs").exists()

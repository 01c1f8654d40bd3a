"""The nemesis on live workers: who is hit, when, for how long, with what proof, and undone."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from tests.support_faults import IDLE, Faulted, lived

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Faulted:
    """One run with a fault at a time for each worker."""
    keys = IDLE | {"time": "3s"}
    return lived(
        tmp_path_factory.mktemp("timed"),
        "pause:who=worker:2,at=500ms,for=300ms",
        "pause:who=w1,at=500ms,for=2leases",
        "pause:who=w3,at=100ms,for=50ms,every=100ms,count=4",
        **keys,
    )


def length_s(window: dict[str, Any]) -> float:
    return float(window["heal_ns"] - window["on_ns"]) / 1e9


def test_a_time_a_length_in_seconds_and_a_named_worker(timed: Faulted) -> None:
    assert timed.exit_code == 0
    (window,) = timed.by_spec(0)
    assert window["nodes"] == ["w2"]
    assert window["grade"] == "installed"
    assert window["on"]["facts"]["threads"] >= 3
    assert window["off"]["holds"]
    assert 0.3 <= length_s(window) < 1.5


def test_a_length_in_leases(timed: Faulted) -> None:
    (window,) = timed.by_spec(1)
    assert 0.4 <= length_s(window) < 1.5


def test_every_so_often_and_so_many_times(timed: Faulted) -> None:
    found = timed.by_spec(2)
    assert len(found) == 4
    assert all(window["grade"] == "installed" for window in found)
    gaps = [b["requested_ns"] - a["off_ns"] for a, b in itertools.pairwise(found)]
    assert min(gaps) >= 100_000_000


def test_random_times_come_from_the_seed(tmp_path: Path) -> None:
    fault, keys = (
        "pause:who=w1,at=random,count=3,for=50ms",
        IDLE | {"time": "2s", "seed": 38},
    )  # the last one long before the end
    first, again = (lived(tmp_path, fault, **keys).windows for _ in range(2))
    assert len(first) == 3
    assert [window["at"] for window in first] == [window["at"] for window in again]


def test_a_holder_stops_itself_at_the_phase(tmp_path: Path) -> None:
    phases = ["lease-checked", "before-write"]
    faults = [f"pause:who=holder,at={phase},for=100ms,count=1" for phase in phases]
    run = lived(tmp_path, *faults, **IDLE)
    assert run.exit_code == 0
    for i in range(len(phases)):
        (window,) = run.by_spec(i)
        assert window["grade"] == "installed"
        op = run.ops()[window["op"]]
        assert op.f == "check"
        assert op.worker in window["nodes"]


def test_a_fault_that_never_came_makes_the_run_unknown(tmp_path: Path) -> None:
    run = lived(
        tmp_path,
        "pause:who=waiter,at=1s,for=100ms",
        # These workers take their locks once, and long before.
        "pause:who=holder,at=acquired,after=1s,for=100ms",
        **IDLE,
    )
    assert run.exit_code == 2
    assert {window["grade"] for window in run.windows} == {"not-effective"}
    ((waiter,), (phase,)) = (run.by_spec(i) for i in range(2))
    assert "no waiter" in waiter["text"]
    assert "never triggered" in phase["text"]


def test_windows_that_overlap_on_one_node_leave_nothing(tmp_path: Path) -> None:
    run = lived(
        tmp_path,
        "pause:who=holder,at=before-write,for=70ms,every=10ms",
        "pause:who=w1,at=before-write,for=50ms,every=20ms",
        "pause:who=w1,at=300ms,for=40ms,every=10ms",
        "pause:who=w2,at=300ms,for=30ms,every=10ms",
        **IDLE,
    )
    assert run.exit_code == 0
    assert {window["spec"] for window in run.windows} == {0, 1, 2, 3}
    assert all(window["grade"] == "installed" for window in run.windows)


def test_a_window_that_would_not_fit_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="after the run"):
        lived(tmp_path, "pause:who=w1,at=1500ms,for=1s", **IDLE)
    assert not (tmp_path / "runs").exists()

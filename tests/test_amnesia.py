"""Amnesia: what is promised for ever is forgotten, and the findings say so."""

from pathlib import Path

import pytest

from tests.support_faults import faulted

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(("who", "name"), [("lock1", "fence-regression"), ("store", "lost-ack")])
def test_a_lock_server_gives_old_tokens_again_and_a_store_loses_what_it_took(
    tmp_path: Path, who: str, name: str
) -> None:
    run = faulted(
        tmp_path,
        f"amnesia:who={who},at=1s,for=100ms,age=1500ms",
        lock="atlasmart",
        store="atlasmart",
        workload="fencing[rounds=2..4]",  # many grants in what is forgotten
        ttl="1s",
        time="4500ms",
    )
    assert run.exit_code == 1
    assert name in run.names
    assert not run.results.leftover
    (window,) = run.of("amnesia")
    assert window["on"]["facts"]["age_s"] == pytest.approx(1.5, abs=0.5)
    assert window["on"]["facts"]["processes"] == 0
    assert "1 of 1 threads in state T" in window["on"]["text"]


@pytest.mark.real
def test_a_lock_that_is_forgotten_under_its_holder_is_granted_twice(tmp_path: Path) -> None:
    """Case C35 on one node: the holder sleeps, well within its lease, and the server forgets."""
    run = faulted(
        tmp_path,
        "pause:who=holder,at=before-write,for=2500ms,count=1",
        "amnesia:who=valkey1,at=1800ms,for=100ms,empty=true",
        lock="valkey",
        store="atlasmart",
        ttl="4s",
        time="6s",
    )
    assert run.exit_code == 1
    assert "duplicate-grant" in run.names
    (window,) = run.of("amnesia")
    assert "0 files in its data folder" in window["on"]["text"]

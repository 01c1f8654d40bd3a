"""Kill: processes end, are proven gone, start again, and go on as new processes."""

from collections import Counter
from pathlib import Path

import pytest

from tests.live import NOOP
from tests.support_faults import FRAIL, Faulted, faulted

pytestmark = pytest.mark.sandbox

HELD = {
    "store": f"{NOOP}:Noop",
    "workload": f"{NOOP}:Hold[think_ms=10]",
    "readers": 0,
    "ttl": "200ms",
    "op_timeout": "100ms",
}
IDLE = {"lock": f"{NOOP}:Noop", **HELD}


def problems(run: Faulted) -> list[str]:
    return [note["why"] for note in run.notes("problem")]


def test_killed_workers_take_their_seats_again_as_new_processes(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "kill:who=w1,at=500ms,for=200ms,every=200ms,count=2",
        "kill:who=w2,at=before-write,for=200ms,count=1",
        "kill:who=w3,at=800ms,for=200ms,signal=TERM",
        workers=3,
        time="8s",  # a worker's start takes a third of a second, or many on a busy machine
        **IDLE,
    )
    assert run.exit_code == 0
    assert not problems(run)
    assert Counter(window["nodes"][0] for window in run.windows) == {"w1": 2, "w2": 1, "w3": 1}
    infos = [op for op in run.ops() if op.type == "info"]
    assert Counter(op.worker for op in infos) == {"w1": 2, "w2": 1, "w3": 1}
    ends = {op.worker: op.error or "" for op in infos}
    assert "SIGKILL" in ends["w1"]
    assert "SIGTERM" in ends["w3"]
    for op in infos:
        later = [o for o in run.ops() if o.worker == op.worker and o.time_ns > op.time_ns]
        assert later
        assert all(o.process != op.process for o in later)
    lost = [note for note in run.notes("belief") if note.get("holds") is False]
    assert {note["worker"] for note in lost} == {"w1", "w2", "w3"}
    (at_phase,) = (window for window in run.windows if window["at"] == "before-write")
    assert run.ops()[at_phase["op"]].f == "check"
    assert at_phase["on"]["facts"]["processes"] == 0


def test_the_last_of_two_windows_lets_a_worker_live_and_some_are_left_dead(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "kill:who=w1,at=300ms,for=2s",
        "kill:who=w1,at=500ms,for=200ms",
        "kill:who=w2,at=300ms,for=200ms,restart=false",
        workers=2,
        time="4s",
        **IDLE,
    )
    assert not problems(run)
    long, short = sorted(
        (window for window in run.windows if window["nodes"] == ["w1"]),
        key=lambda window: int(window["requested_ns"]),
    )
    assert short["off"]["text"] == "another fault keeps w1 down"
    assert long["off"]["text"] == "w1 runs and answers"
    ends = {op.worker: op.time_ns for op in run.ops()}
    assert ends["w1"] > long["off_ns"]
    (dead,) = (window for window in run.windows if window["nodes"] == ["w2"])
    assert ends["w2"] <= dead["on_ns"]


def test_a_killed_server_comes_back_with_its_data(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "kill:who=frail1,at=300ms,for=200ms",
        "kill:who=frail1,at=1s,for=200ms,power=true",
        lock=FRAIL,
        workers=1,
        time="2s",
        **HELD,
    )
    assert run.exit_code == 0
    assert not problems(run)
    assert run.log("frail1").split("\n")[:3] == ["start 1", "start 2", "start 3"]
    crash, cut = run.of("kill")
    assert crash["on"]["facts"] == {"processes": 0, "connections": {"frail1": "refused"}}
    assert cut["on"]["text"].endswith("its peers hear nothing")


def test_a_server_that_does_not_come_back_is_left_over_with_its_last_words(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "kill:who=frail1,at=300ms,for=200ms",
        lock=f"{FRAIL}[mode=once]",
        workers=1,
        time="2s",
        **HELD,
    )
    assert run.results.verdict.verdict == "pass"
    (left,) = run.results.leftover
    assert "frail1 does not run (it ended with exit code 4)" in left
    assert "never again" in left


def test_a_server_that_dies_by_itself_makes_the_run_unknown(tmp_path: Path) -> None:
    run = faulted(tmp_path, lock=f"{FRAIL}[mode=fleeting]", workers=1, time="2s", **HELD)
    assert run.exit_code == 2
    assert run.reasons == {"harness-error"}
    (why,) = (unknown.text for unknown in run.results.verdict.unknown)
    assert "server frail1 ended by itself with exit code 3" in why
    assert "boom" in why

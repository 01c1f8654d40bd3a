"""Public cases (`C..`) as histories, each with the verdict that it must get.

Times are in milliseconds.  Where a case speaks of a register alone, its compare-and-sets are writes
here, which changes none of the verdicts.
"""

from pathlib import Path
from typing import Any

import pytest

from harness.evidence import Evidence
from harness.importing import load
from harness.judge import check_history
from harness.op import encode
from harness.verdict import Reason, Verdict
from tests.builders import Script
from workloads.fencing import judge


def checked(script: Script, tmp_path: Path) -> Verdict:
    """Judge a history as `winkle check FILE` does."""
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(encode(op) for op in script.history().ops))
    return check_history(path, "fencing").verdict


def names(verdict: Verdict) -> list[str]:
    return [anomaly.name for anomaly in verdict.anomalies]


# ----------------------------------------------------------------- lost and late answers


def lost_answer(**outcome: Any) -> Script:
    """A's lock is taken at 0 for 30 s; the answer never comes."""
    script = Script(ttl_s=30.0)
    script.acquire("A", None, 0, 4, **outcome)
    script.acquire("A", None, 5, 6, fail="held: by a1")
    script.acquire("B", None, 10_000, 10_001, fail="held: by a1")
    script.acquire("B", 2, 30_100, 30_101)
    return script


def test_c03_a_lost_answer_recorded_as_unknown_accuses_nobody(tmp_path: Path) -> None:
    verdict = checked(lost_answer(info=True), tmp_path)
    assert names(verdict) == []
    assert any("refused as held for up to 30.10 s while nobody" in note for note in verdict.notes)


def test_c03_but_it_explains_one_lease_and_no_second_one(tmp_path: Path) -> None:
    script = lost_answer(info=True)
    script.marks.pop()
    script.acquire("B", None, 61_010, 61_011, fail="held: by a1")
    assert names(checked(script, tmp_path)) == []
    script.acquire("B", None, 122_012, 122_013, fail="held: by a1")
    assert names(checked(script, tmp_path)) == ["zombie-lease"]


def test_c03_recorded_as_failed_the_service_looks_guilty(tmp_path: Path) -> None:
    """Somebody released in between, so nobody at all can hold it: the mapping is the mistake."""
    script = Script(ttl_s=30.0)
    script.acquire("C", 1, 0, 1)
    script.release("C", 1, 2, 3)
    script.acquire("A", None, 4, 8, fail="no-effect: reply lost")
    script.acquire("A", None, 9, 10, fail="held: by a1")
    script.acquire("B", None, 10_000, 10_001, fail="held: by a1")
    assert names(checked(script, tmp_path)) == ["zombie-lease"]


def late_execution(**outcome: Any) -> Script:
    """The store is stopped from 50 to 2060; B's write of 60 is carried out when it goes on."""
    script = Script(ttl_s=1.5)
    script.acquire("A", 1, 0, 1)
    script.acquire("B", 2, 40, 45, ttl_s=10.0)
    script.write("B", "B-0", 2, 60, 1060, **outcome)
    script.read("R", 2360, 2361, "B-0", 2)
    script.marks.pop(0)
    return script


def test_c05_a_request_that_was_given_up_may_still_be_executed(tmp_path: Path) -> None:
    verdict = checked(late_execution(info=True), tmp_path)
    assert names(verdict) == []
    assert "1 write with unknown outcome took effect all the same." in verdict.notes


def test_c05_recorded_as_failed_it_is_an_aborted_read(tmp_path: Path) -> None:
    verdict = checked(late_execution(fail="no-effect: timeout"), tmp_path)
    assert names(verdict) == ["aborted-read"]
    assert "takes an error for a proof of failure that is none" in verdict.anomalies[0].sentence
    assert verdict.anomalies[0].details["robust"] is False


def test_c05_a_lock_that_was_taken_by_a_request_given_up(tmp_path: Path) -> None:
    script = Script(ttl_s=1.5)
    script.acquire("A", 1, 0, 1)
    script.acquire("B", None, 60, 1060, info=True)
    script.acquire("A", None, 2360, 2361, fail="held: by B")
    script.acquire("A", None, 5900, 5901, fail="held: by B")
    assert names(checked(script, tmp_path)) == []


def test_c06_the_next_owner_may_be_told_before_the_last_one_was(tmp_path: Path) -> None:
    script = Script(ttl_s=None)
    script.acquire("4", None, 0, 281)
    script.acquire("3", None, 0, 422)
    script.acquire("2", None, 0, 686)
    script.release("4", None, 400, 435)
    script.release("3", None, 672, 694)
    assert names(checked(script, tmp_path)) == []


@pytest.mark.parametrize(
    ("case", "outcome", "found"),
    [
        ("C08a", {"fail": "no-effect: no leader"}, ["aborted-read"]),
        ("C08b", {"info": True}, []),
    ],
)
def test_c08_the_class_of_an_error_decides(
    case: str, outcome: dict[str, Any], found: list[str], tmp_path: Path
) -> None:
    script = Script()
    script.write("1", "5", None, 0, 1)
    script.write("2", "14", None, 2, 3, **outcome)
    script.read("3", 4, 5, "14")
    assert names(checked(script, tmp_path)) == found, case


# -------------------------------------------------------------------------- leases


def test_c11_a_jump_of_the_servers_clock_ends_a_lock_of_60_s_at_once(tmp_path: Path) -> None:
    script = Script(ttl_s=60.0)
    script.acquire("A", None, 0, 1)
    script.fault("clock", ["valkey1"], 1000, 1001)
    script.acquire("B", None, 1010, 1011)
    script.check("A", None, 1020, 1021, held=False)
    assert names(checked(script, tmp_path)) == ["duplicate-grant"]


def sleeper(*, fenced: bool) -> Script:
    """A sleeps from 100 to 3100 between check and write; B takes over at 2051."""
    script = Script()
    script.acquire("A", 33, 0, 1)
    script.acquire("B", 34, 2050, 2051)
    script.write("B", "b", 34, 2060, 2061)
    script.write("A", "a", 33, 3101, 3102, fail="fenced: 33 < 34" if fenced else None)
    return script


def test_c32a_without_a_fence_the_sleeper_overwrites_the_new_owner(tmp_path: Path) -> None:
    verdict = checked(sleeper(fenced=False), tmp_path)
    assert verdict.verdict == "fail"
    assert names(verdict) == ["stale-owner-write", "lost-update"]


def test_c32b_with_a_fence_it_is_refused_and_that_is_a_pass(tmp_path: Path) -> None:
    verdict = checked(sleeper(fenced=True), tmp_path)
    assert verdict.verdict == "pass"
    assert verdict.margins["stale_refused"] == 1


def test_c34_a_node_that_forgot_that_it_was_fenced() -> None:
    script = Script(ttl_s=60.0)
    script.acquire("W1", 1, 0, 1)
    script.write("W1", "e0", 1, 2, 3)
    script.acquire("R2", 2, 70_000, 70_001)
    script.write("R2", "fence", 2, 70_002, 70_003, over=("e0", 1))
    script.fault("amnesia", ["node1"], 70_100, 70_200)
    script.write("W1", "e1", 1, 70_300, 70_301, over=("e0", 1))  # the older copy was put back
    verdict = judge(script.evidence(fence="checked"))
    assert names(verdict)[0] == "forgotten-fence"


@pytest.mark.parametrize("believed_until", [4050, 12_000])
def test_c55_c62_a_flag_that_outlives_the_session(believed_until: float) -> None:
    """The service ends the session at 2000; B leads from 2050 on; A's flag says yes for longer."""
    script = Script()
    script.acquire("A", 1, 0, 1)
    script.belief("A", 1, holds=True, token=1)
    script.fault("partition", ["A"], 100, 11_000, cut=["A>pg1", "pg1>A"])
    script.acquire("B", 2, 2050, 2051)
    script.write("B", "b", 2, 2060, 2061)
    script.write("A", "a", 1, 2070, 2071)
    script.belief("A", believed_until, holds=False, token=1)
    verdict = judge(script.evidence())
    assert names(verdict) == ["stale-owner-write", "lost-update", "late-loss-notice"]
    late = verdict.anomalies[-1]
    assert late.size_s == pytest.approx((believed_until - 2001) / 1000)


# ---------------------------------------------------------------- nothing happened


FAULTS_ONLY = b"""[{:process :nemesis :type :info :f :isolate :value nil}
{:process :nemesis :type :info :f :kill :value nil}
{:process :nemesis :type :info :f :recover :value nil}]
"""


def vacuous(verdict: Verdict) -> bool:
    assert "0 takeovers, 0 stale writes attempted" in verdict.headline
    return verdict.verdict == "unknown" and verdict.unknown[0].reason is Reason.VACUOUS


def test_c13_a_history_in_which_nothing_succeeded_is_no_pass(tmp_path: Path) -> None:
    script = Script()
    script.write("155", "0", None, 0, 6, fail="no-effect: no quorum")
    script.read("3", 1, 2, fail="no-effect: no quorum")
    script.read("4", 3, 4, fail="no-effect: no quorum")
    assert vacuous(checked(script, tmp_path))


def test_c13_nor_is_one_that_holds_only_the_faults(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_bytes(FAULTS_ONLY)
    assert vacuous(judge(Evidence(load(path, "jepsen").history)))

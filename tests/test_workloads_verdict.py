"""What makes a run worth judging, what is told beside the findings, and in which order."""

from dataclasses import replace

import msgspec
import pytest

from harness.errors import MalformedHistoryError
from harness.evidence import Evidence
from harness.history import History
from harness.op import Op
from harness.spec import RunSpec, TargetSpec
from harness.verdict import Reason, Verdict
from harness.workload import Workload
from tests.builders import Script
from workloads._telling import GRAVITY
from workloads.fencing import Fencing, judge


def full_run(*, final_reads: bool = True) -> Script:
    """A run with a pause: work before it, a takeover during it, a refused write after it."""
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.read("w1", 2, 3)
    script.write("w1", "w1-0", 1, 30, 31)
    script.read("w1", 40, 41, "w1-0", 1)
    script.check("w1", 1, 42, 5010)
    script.paused("w1", 50, 5000)
    script.acquire("w2", 2, 2050, 2051)
    script.read("w2", 2052, 2053, "w1-0", 1)
    script.write("w2", "w2-0", 2, 2060, 2061)
    script.renew("w2", 2, 2700, 2710)
    script.release("w2", 2, 2800, 2801)
    script.write("w1", "w1-1", 1, 5011, 5012, fail="fenced: 1 < 2")
    if final_reads:
        script.read("r1", 9000, 9001, "w2-0", 2)
    return script


def reasons(verdict: Verdict) -> list[Reason]:
    return [unknown.reason for unknown in verdict.unknown]


def test_a_run_in_which_everything_came_to_pass_passes() -> None:
    verdict = judge(full_run().evidence(final=8000, fence="checked"))
    assert verdict.verdict == "pass"
    assert verdict.unknown == ()
    assert verdict.notes == (
        "The resource refuses a token lower than the highest that it has seen.",
    )


def test_the_margins_of_that_run() -> None:
    verdict = judge(full_run().evidence(final=8000))
    assert verdict.margins == {
        "renewal_margin_s": pytest.approx(2.050 + 2.0 - 2.710),
        "takeover_median_s": pytest.approx(0.051),
        "takeover_max_s": pytest.approx(0.051),
        "stale_attempts": 1,
        "stale_refused": 1,
        "stale_accepted": 0,
        "stale_share": 0.0,
        "share_lost": 0.0,
    }
    assert verdict.stats["operations"]["write"] == {"ok": 2, "fail": 1, "info": 0, "open": 0}
    assert verdict.stats["takeovers"] == 1


# ---------------------------------------------------------------------- vacuous


def test_c13_a_run_in_which_all_operations_failed_is_vacuous() -> None:
    script = Script()
    script.acquire("w1", None, 0, 1, fail="no-effect: no quorum")
    script.read("w1", 2, 3, fail="no-effect: no quorum")
    verdict = judge(script.evidence())
    assert verdict.verdict == "unknown"
    assert reasons(verdict) == [Reason.VACUOUS]
    assert "0 takeovers, 0 stale writes attempted" in verdict.headline


def test_an_empty_history_is_vacuous() -> None:
    assert judge(Evidence(History([]))).verdict == "unknown"


def test_a_takeover_without_an_attempt_is_vacuous() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w2", 2, 2050, 2051)
    assert "no old owner tried to write" in judge(script.evidence()).headline


@pytest.mark.parametrize(("at", "attempts"), [(2051, 0), (2052, 1)])
def test_an_attempt_is_one_that_began_after_the_newer_grant(at: int, attempts: int) -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w2", 2, 2050, 2051)
    script.write("w1", "w1-0", 1, at, at + 1, info="timeout")
    assert judge(script.evidence()).margins["stale_attempts"] == attempts


@pytest.mark.parametrize(("until", "attempts"), [(2051, 0), (2052, 1)])
def test_or_that_was_refused_after_it(until: int, attempts: int) -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w2", 2, 2050, 2051)
    script.write("w1", "w1-0", 1, 1000, until, fail="fenced: 1 < 2")
    assert judge(script.evidence()).margins["stale_refused"] == attempts


def test_a_write_that_became_stale_on_its_way_is_an_attempt() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w2", 2, 2050, 2051)
    script.write("w1", "w1-0", 1, 2045, 5012, info="timeout")
    script.write("w2", "w2-0", 2, 2060, 2061)
    script.read("r1", 6000, 6001, "w1-0", 1)
    verdict = judge(script.evidence())
    assert verdict.anomalies[0].name == "stale-owner-write"
    assert verdict.margins["stale_attempts"] == verdict.margins["stale_accepted"] == 1
    assert verdict.unknown == ()


def test_an_old_owner_that_had_released_was_not_out() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.release("w1", 1, 2, 3)
    script.acquire("w2", 2, 10, 11)
    script.write("w1", "w1-0", 1, 20, 21, fail="fenced: 1 < 2")
    assert "no lock was taken over while its old owner was out" in judge(script.evidence()).headline


def test_nor_one_that_had_turned_to_another_lock() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w1", 1, 1000, 1001, key="k1")
    script.acquire("w2", 2, 2050, 2051)
    assert "0 takeovers" in judge(script.evidence()).headline


def test_without_work_before_the_first_fault_it_is_vacuous() -> None:
    script = full_run()
    script.marks = [mark for mark in script.marks if not (mark.f == "write" and mark.at < 100)]
    script.windows = [msgspec.structs.replace(script.windows[0], at="0.05 s")]
    script.marks = [mark for mark in script.marks if mark.result != "w1-0"]
    verdict = judge(script.evidence(final=8000))
    assert "too little succeeded before the first fault (acquire 1, write 0, read 1)" in (
        verdict.headline
    )


def test_a_fault_at_a_phase_may_come_inside_the_very_first_round() -> None:
    script = full_run()
    script.marks = [mark for mark in script.marks if not (mark.f == "write" and mark.at < 100)]
    script.marks = [mark for mark in script.marks if mark.result != "w1-0"]
    script.read("w2", 2052, 2053)
    assert judge(script.evidence(final=8000)).verdict == "pass"


def test_without_work_during_the_faults_it_is_vacuous() -> None:
    script = full_run()
    script.windows = [msgspec.structs.replace(script.windows[0], heal_ns=60_000_000, off_ns=None)]
    assert "during the faults" in judge(script.evidence(final=8000)).headline


@pytest.mark.parametrize("final", [None, 8000])
def test_without_final_reads_it_is_vacuous(final: float | None) -> None:
    verdict = judge(full_run(final_reads=False).evidence(final=final))
    assert verdict.verdict == "unknown"
    assert "no final read succeeded after the faults" in verdict.headline
    cut = "The run never came to its final reads: it is judged up to where it ended."
    assert (cut in verdict.notes) is (final is None)


def test_faults_that_never_came_do_not_divide_the_run() -> None:
    script = full_run(final_reads=False)
    never = msgspec.structs.replace(script.windows[0], grade="not-effective", nodes=(), on_ns=None)
    script.windows = [never]
    assert judge(script.evidence()).verdict == "pass"


def test_a_recorded_run_needs_its_final_reads_also_without_any_fault() -> None:
    spec = RunSpec(TargetSpec("a"), TargetSpec("b"))
    script = full_run(final_reads=False)
    script.windows = []
    assert judge(script.evidence()).verdict == "pass"  # a bare history has no phases
    assert judge(replace(script.evidence(), spec=spec)).verdict == "unknown"


def test_a_finding_beats_what_is_missing() -> None:
    script = full_run(final_reads=False)
    script.write("w1", "w1-2", 1, 5020, 5021)
    verdict = judge(script.evidence())
    assert verdict.verdict == "fail"
    assert reasons(verdict) == [Reason.VACUOUS]


# -------------------------------------------------------------- forged tokens alone


def forgery(*, tried: bool = True) -> Script:
    """A run whose only fault is an adversary `a1`, which used an old token."""
    script = Script()
    for n, (worker, at) in enumerate((("w1", 0), ("w2", 1000)), start=1):
        script.acquire(worker, n, at, at + 1)
        script.read(worker, at + 2, at + 3, *((None, None) if n == 1 else ("w1-0", 1)))
        script.write(worker, f"{worker}-0", n, at + 30, at + 31)
        script.release(worker, n, at + 40, at + 41)
    script.fault("authority", ["w2"], 1050, 1500)
    script.read("r1", 1060, 1061, "w2-0", 2)
    script.acquire("w1", 3, 1100, 1101)
    script.write("w1", "w1-1", 3, 1110, 1111)
    if tried:
        script.write("a1", "a1-1", 1, 1200, 1201, fail="fenced: 1 < 3")
        made_up = {"made_up": True, "ttl_s": 2.0}
        script.call("a1", "release", 1300, 1301, value=made_up, token=2, fail="not-holder")
    script.read("r1", 9000, 9001, "w1-1", 3)
    return script


def test_a_run_about_forged_tokens_needs_no_old_owner() -> None:
    verdict = judge(forgery().evidence(final=8000))
    assert verdict.verdict == "pass"
    assert verdict.stats["forged_attempts"] == verdict.stats["forged_refused"] == 2
    assert verdict.margins["stale_attempts"] == 0
    assert verdict.headline == (
        "2 uses of a token that was never granted to its user were refused, of 2 tried."
    )


def test_but_it_needs_somebody_who_tries() -> None:
    verdict = judge(forgery(tried=False).evidence(final=8000))
    assert reasons(verdict) == [Reason.VACUOUS]
    assert "nobody tried a token that he was never granted" in verdict.headline


def test_beside_another_fault_it_is_no_excuse() -> None:
    script = forgery()
    script.fault("pause", ["w2"], 1050, 1500)
    assert "no lock was taken over" in judge(script.evidence(final=8000)).headline


# -------------------------------------------------------------------- malformed


def op(process: int, kind: str, f: str, *, key: str | None = "k0", value: object = None) -> Op:
    return msgspec.convert(
        {"process": process, "type": kind, "f": f, "key": key, "value": value, "time_ns": 0}, Op
    )


def test_c22_histories_that_are_none_raise() -> None:
    after_info = [op(1, "invoke", "read"), op(1, "info", "read"), op(1, "invoke", "read")]
    with pytest.raises(MalformedHistoryError):
        judge(Evidence(History(after_info)))
    with pytest.raises(MalformedHistoryError):
        judge(Evidence(History([op(3, "invoke", "read"), op(6, "ok", "read")])))


def test_c22c_the_completions_value_counts() -> None:
    history = [op(1, "invoke", "read", value="1"), op(1, "ok", "read", value="2")]
    assert judge(Evidence(History(history))).anomalies[0].name == "phantom-read"


def malformed(script: Script) -> str:
    verdict = judge(script.evidence())
    assert verdict.verdict == "unknown"
    assert verdict.unknown[0].reason is Reason.MALFORMED
    return verdict.unknown[0].text


def test_two_writes_of_one_value_cannot_be_told_apart() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.write("w1", "x", 1, 2, 3)
    script.write("w1", "x", 1, 4, 5, fail="fenced")
    assert malformed(script).startswith('k0: ops 2 and 4 both write "x"')


def test_other_shapes_that_say_too_little() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.write("w1", "x", None, 2, 3)
    assert "writes without a token" in malformed(script)

    script = Script()
    script.acquire("w1", None, 0, 1)
    script.write("w2", "x", None, 2, 3)
    assert "writes without any grant before it" in malformed(script)

    script = Script()
    script.write("w1", {"a": 1}, None, 2, 3)
    assert "which is no text" in malformed(script)

    script = Script()
    script.read("r1", 2, 3, None, 7)
    assert "read a token without a value" in malformed(script)

    script = Script()
    script.call("r1", "read", 2, 3, key=None)
    assert "read without a key" in malformed(script)

    script = Script()
    script.call("w1", "acquire", 0, 1, result={"ttl_s": "2s"}, got=1)
    assert 'has a lease of "2s" seconds' in malformed(script)


def test_a_key_that_cannot_be_judged_does_not_hide_another() -> None:
    script = full_run()
    script.write("w1", "w1-9", 1, 5020, 5021)
    script.write("x", "x", None, 0, 1, key="k1")
    script.write("x", "x", None, 2, 3, key="k1")
    verdict = judge(script.evidence(final=8000))
    assert verdict.verdict == "fail"
    assert verdict.unknown[0].reason is Reason.MALFORMED


def test_answers_of_any_shape_are_judged_and_never_crash() -> None:
    for value in ([1], {"x": [1]}, 1.5, True, "\ud83d", 10**30):
        script = full_run()
        script.read("r1", 9100, 9101, value, 2)
        script.call("w2", "write", 9200, 9201, value="w2-9", token=2, result={"over": value})
        assert "phantom-read" in {a.name for a in judge(script.evidence(final=8000)).anomalies}


# ------------------------------------------------------------- what is told, how


def test_findings_come_gravest_first_then_by_time() -> None:
    script = full_run()
    script.read("r1", 60, 61, "nobody")
    script.write("w1", "w1-2", 1, 5020, 5021)
    script.write("w1", "w1-3", 1, 5030, 5031)
    verdict = judge(script.evidence(final=8000))
    order = [anomaly.name for anomaly in verdict.anomalies]
    assert order == sorted(order, key=GRAVITY.index)
    # The run's first stale write was refused: the store knew the token, and forgot it.
    assert order[:2] == ["forgotten-fence"] * 2
    assert verdict.anomalies[0].time_ns < verdict.anomalies[1].time_ns
    assert verdict.headline == verdict.anomalies[0].sentence


def test_every_property_is_listed_and_one_without_a_case_is_not_called_kept() -> None:
    verdict = judge(full_run().evidence(final=8000))
    rows = {row.name: row for row in verdict.properties}
    assert set(rows) == set(GRAVITY)
    assert rows["stale-owner-write"].verdict == "pass"
    assert rows["stale-owner-write"].checked == 2
    script = Script()
    script.acquire("w1", 1, 0, 1)
    rows = {row.name: row for row in judge(script.evidence()).properties}
    assert rows["stale-owner-write"].verdict == "unknown"
    assert rows["stale-owner-write"].note == "no case came up"
    assert rows["late-loss-notice"].verdict == "unknown"
    assert rows["late-loss-notice"].note == "no worker said what it believed"


def test_a_cut_history_and_foreign_operations_are_noted() -> None:
    script = full_run()
    script.call("x", "cas", 9500, 9501)
    evidence = script.evidence(final=8000)
    cut = Evidence(History(evidence.history.ops, cut=True), final_ns=evidence.final_ns)
    notes = judge(cut).notes
    assert any("ends in the middle of a line" in note for note in notes)
    assert any("cas (1)" in note for note in notes)


def test_verdicts_can_be_written_to_disk() -> None:
    script = full_run()
    script.write("w1", "w1-2", 1, 5020, 5021)
    verdict = judge(script.evidence(final=8000))
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


def test_the_workload_is_one() -> None:
    assert isinstance(Fencing(), Workload)
    assert Fencing().check(full_run().evidence(final=8000)).verdict == "pass"

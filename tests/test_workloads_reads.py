"""Values that nobody wrote, values of failed writes, and logs that disagree with the clients."""

import pytest

from harness.target import Accept
from harness.verdict import Verdict
from tests.builders import Script
from workloads.fencing import judge


def names(verdict: Verdict) -> set[str]:
    return {anomaly.name for anomaly in verdict.anomalies}


def test_c28_a_value_that_nobody_wrote_is_a_phantom() -> None:
    script = Script()
    script.write("w1", "1", None, 0, 1)
    script.read("w1", 2, 3, "2")
    verdict = judge(script.evidence())
    assert names(verdict) == {"phantom-read"}
    assert verdict.headline == 'w1 saw "2" on k0 at 0.003 s, but nobody ever wrote that there.'


def test_a_phantom_is_told_once_however_often_it_was_read() -> None:
    script = Script()
    script.write("w1", "1", None, 0, 1)
    for n in range(5):
        script.read("w1", 2 + 2 * n, 3 + 2 * n, "2")
    assert len(judge(script.evidence()).anomalies) == 1


def test_a_value_read_before_it_was_asked_for_is_a_phantom() -> None:
    script = Script()
    script.read("r1", 0, 1, "1")
    script.write("w1", "1", None, 2, 3)
    verdict = judge(script.evidence())
    assert names(verdict) == {"phantom-read"}
    assert "before anybody asked to write it" in verdict.headline


def test_a_value_with_another_writes_token_is_a_phantom() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.write("w1", "w1-0", 33, 10, 11)
    script.read("r1", 20, 21, "w1-0", 35)
    assert names(judge(script.evidence())) == {"phantom-read"}


def test_a_value_of_another_key_is_a_phantom() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1, key="k1")
    script.write("w1", "w1-0", 1, 10, 11, key="k1")
    script.read("r1", 20, 21, "w1-0", 1, key="k0")
    assert names(judge(script.evidence())) == {"phantom-read"}


@pytest.mark.parametrize(("outcome", "found"), [("fail", {"aborted-read"}), ("info", set())])
def test_c08_a_failed_write_that_was_seen_is_aborted_an_unknown_one_is_legal(
    outcome: str, found: set[str]
) -> None:
    script = Script()
    script.write("w1", "5", None, 0, 1)
    fail = "no-effect: not succeeded" if outcome == "fail" else None
    script.write("w2", "14", None, 2, 3, fail=fail, info=outcome == "info")
    script.read("w3", 4, 5, "14")
    verdict = judge(script.evidence())
    assert names(verdict) == found
    if found:
        assert "or the adapter takes an error for a proof of failure" in verdict.headline
        assert verdict.anomalies[0].details["robust"] is False


def test_c05_a_timed_out_write_stored_as_failed_would_accuse_the_store() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.write("w1", "w1-0", 1, 60, 1060, fail="no-effect: timeout")
    script.read("r1", 2360, 2361, "w1-0", 1)
    assert names(judge(script.evidence())) == {"aborted-read"}


def test_c24_the_first_completed_operation_may_already_be_wrong() -> None:
    script = Script()
    script.read("r1", 0, 30, "3")
    script.write("w1", "3", None, 10, 20, fail="no-effect: no")
    assert names(judge(script.evidence())) == {"aborted-read"}


def test_c23_crashed_writes_may_act_at_any_later_time() -> None:
    for outcome, found in ((True, False), (False, True)):
        script = Script()
        script.write("w0", "a", None, 0, 1)
        script.write("w0", "b", None, 2, 3, info=outcome, fail=None if outcome else "no-effect: x")
        script.read("r1", 10, 11, "a")
        script.read("r1", 20, 21, "b")
        assert bool(judge(script.evidence()).anomalies) is found


def test_c31a_operations_of_no_length_in_one_instant_are_concurrent() -> None:
    script = Script()
    script.write("p0", "100", None, 0, 100)
    script.read("p1", 25, 75, "100")
    script.read("p2", 30, 30)
    script.read("p3", 30, 30)
    assert judge(script.evidence()).anomalies == ()


def test_c31b_but_a_value_that_was_seen_stays() -> None:
    script = Script()
    script.write("p0", "200", None, 0, 100)
    script.read("p1", 10, 10, "200")
    script.read("p2", 10, 10, "200")
    script.read("p3", 40, 90)
    verdict = judge(script.evidence())
    assert verdict.verdict == "fail"
    assert names(verdict) == {"stale-read"}


def logged(*entries: Accept) -> Script:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.write("w1", "w1-0", 1, 10, 11)
    script.write("w1", "w1-1", 1, 20, 21, fail="no-effect: refused connection")
    script.log = list(entries)
    return script


def accepted(value: str, *, token: int = 1, ok: bool = True) -> Accept:
    return Accept("k0", value, token, accepted=ok)


def test_an_acknowledged_write_that_the_log_does_not_know_is_lost() -> None:
    assert names(judge(logged().evidence(final=900))) == {"lost-ack"}
    assert names(judge(logged(accepted("w1-0", ok=False)).evidence(final=900))) == {"lost-ack"}
    assert names(judge(logged(accepted("w1-0")).evidence(final=900))) == set()


def test_a_log_of_a_run_that_was_cut_may_lack_its_end() -> None:
    assert judge(logged().evidence()).anomalies == ()


def test_if_clients_saw_the_write_it_is_the_log_that_is_wrong() -> None:
    script = logged()
    script.read("r1", 30, 31, "w1-0", 1)
    verdict = judge(script.evidence(final=900))
    assert verdict.anomalies == ()
    assert "The resource's own log of k0 lacks 1 write that clients saw." in verdict.notes


def test_a_failed_write_that_the_log_accepted_took_effect() -> None:
    verdict = judge(logged(accepted("w1-0"), accepted("w1-1")).evidence(final=900))
    assert names(verdict) == {"aborted-read"}
    assert "the resource's own log accepted it" in verdict.headline


def test_other_disagreements_with_the_log_are_notes() -> None:
    entries = [accepted("w1-0", token=9), accepted("w1-0"), accepted("stranger")]
    verdict = judge(logged(*entries).evidence(final=900))
    assert verdict.anomalies == ()
    assert len([note for note in verdict.notes if "own log" in note]) == 3

"""Leases that end too early, and workers that act as holders without a grant."""

from typing import Any

import pytest

from harness.verdict import Anomaly
from tests.builders import Script
from workloads.fencing import judge

EARLY = "premature-expiry"
UNEARNED = "unearned-hold"


def found(script: Script, name: str) -> list[Anomaly]:
    return [a for a in judge(script.evidence()).anomalies if a.name == name]


def names(script: Script) -> set[str]:
    return {anomaly.name for anomaly in judge(script.evidence()).anomalies}


# ----------------------------------------------------------------- premature expiry


def renewed() -> Script:
    """w1's lease of 2 s was renewed at 1000, so it lasts until 3000 for certain."""
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.renew("w1", 1, 1000, 1010)
    return script


@pytest.mark.parametrize(("ret", "early"), [(2999, True), (3000, False)])
def test_a_renewal_that_is_refused_inside_the_hold(ret: int, early: bool) -> None:
    script = renewed()
    refused = script.renew("w1", 1, 2500, ret, fail="not-holder")
    anomalies = found(script, EARLY)
    assert bool(anomalies) is early
    if early:
        (anomaly,) = anomalies
        assert anomaly.ops == (script.marks[0].index, script.marks[1].index, refused.index)
        assert anomaly.size_s == pytest.approx(0.001)
        assert "asked for at 1.000 s had been acknowledged with 2.00 s" in anomaly.sentence


def test_the_first_lease_may_end_early_too() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.renew("w1", 1, 700, 710, fail="not-holder")
    script.release("w1", 1, 720, 730, fail="not-holder")
    (anomaly,) = found(script, EARLY)
    assert "its grant asked for at 0.000 s had been acknowledged" in anomaly.sentence


def test_a_release_and_a_check_are_witnesses_too() -> None:
    script = renewed()
    script.release("w1", 1, 2500, 2510, fail="not-holder: gone")
    assert len(found(script, EARLY)) == 1
    script = renewed()
    script.check("w1", 1, 2500, 2510, held=False)
    (anomaly,) = found(script, EARLY)
    assert "(a check said that it is not held)" in anomaly.sentence


@pytest.mark.parametrize("what", ["unknown", "not asked", "no-effect"])
def test_answers_that_say_nothing_about_the_service(what: str) -> None:
    script = renewed()
    if what == "unknown":
        script.renew("w1", 1, 2500, 2510, info=True)
    elif what == "no-effect":
        script.release("w1", 1, 2500, 2510, fail="no-effect: this worker knows that it lost it")
    else:
        asked = {"ask": True, "think_ms": 20}
        answer = {"held": False, "asked": False}
        script.call("w1", "check", 2500, 2510, value=asked, token=1, result=answer)
        script.check("w1", 1, 2520, 2530, held=None)
    assert found(script, EARLY) == []


def test_a_renewal_counts_only_if_it_was_acknowledged_before() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.renew("w1", 1, 1900, 2100)
    script.check("w1", 1, 2050, 2060, held=False)  # it may have come before the renewal
    assert found(script, EARLY) == []
    script.check("w1", 1, 2150, 2160, held=False)
    assert len(found(script, EARLY)) == 1


def test_after_its_own_release_the_owner_may_be_refused() -> None:
    script = renewed()
    script.release("w1", 1, 1500, None)
    script.renew("w1", 1, 1510, 1520, fail="not-holder")
    assert found(script, EARLY) == []


def test_a_killed_owner_holds_nothing_for_certain() -> None:
    script = renewed()
    script.fault("kill", ["w1"], 1400, 1600)
    script.check("w1", 1, 2500, 2510, held=False)
    assert found(script, EARLY) == []


def test_where_somebody_else_got_the_lock_it_is_a_duplicate_grant() -> None:
    script = renewed()
    script.acquire("w2", 2, 2400, 2410)
    script.renew("w1", 1, 2500, 2510, fail="not-holder")
    assert names(script) == {"duplicate-grant"}


def test_one_that_may_have_come_after_the_lease_does_not_explain_the_refusal() -> None:
    script = renewed()
    script.acquire("w2", 2, 2400, 3010)
    script.renew("w1", 1, 2500, 2510, fail="not-holder")
    assert names(script) == {EARLY}


def test_where_a_stranger_released_the_lock_it_is_a_forged_token() -> None:
    for token in (1, None):
        script = Script()
        script.acquire("w1", token, 0, 1)
        script.release("a1", token, 100, 110)
        script.renew("w1", token, 700, 710, fail="not-holder")
        assert names(script) == {"forged-token"}


@pytest.mark.parametrize("worker", ["a1", "w1"])
def test_a_release_by_a_stranger_that_was_refused_explains_nothing(worker: str) -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.release(worker, 1 if worker == "a1" else 9, 100, 110, fail="not-holder")
    script.renew("w1", 1, 700, 710, fail="not-holder")
    assert names(script) == {EARLY}


# -------------------------------------------------------------------- unearned holds


def refused(how: dict[str, Any], token: int | None = 1) -> Script:
    """w1 holds k0; w2's acquire ends at 110 without a grant."""
    script = Script()
    script.acquire("w1", token, 0, 1)
    script.acquire("w2", None, 100, 110, **how)
    script.read("r1", 900, 901)
    return script


@pytest.mark.parametrize("how", [{"fail": "held"}, {"info": True}])
@pytest.mark.parametrize("token", [1, None])
def test_a_belief_after_an_answer_that_was_no_grant(how: dict[str, Any], token: int | None) -> None:
    script = refused(how, token)
    script.belief("w2", 111, holds=True)
    (anomaly,) = found(script, UNEARNED)
    assert anomaly.ops == (script.marks[1].index,)
    assert "w2 acted as the holder of k0 at 0.111 s (it said that it held it)" in anomaly.sentence


def test_a_check_with_yes_and_a_renewal_count_too() -> None:
    script = refused({"fail": "held"})
    check = script.check("w2", None, 120, 140)
    (anomaly,) = found(script, UNEARNED)
    assert anomaly.ops == (script.marks[1].index, check.index)
    script = refused({"info": True}, None)
    script.renew("w2", None, 120, 130)
    assert UNEARNED in names(script)


def test_a_belief_that_was_given_up_and_a_check_with_no_do_not() -> None:
    script = refused({"fail": "held"})
    script.belief("w2", 111, holds=False)
    script.check("w2", None, 120, 140, held=False)
    script.check("w2", None, 150, 160, held=None)
    assert found(script, UNEARNED) == []


def test_a_word_before_the_answer_says_nothing() -> None:
    script = refused({"fail": "held"})
    script.belief("w2", 110, holds=True)
    assert found(script, UNEARNED) == []


def test_the_word_of_a_grant_may_come_before_its_answer() -> None:
    script = refused({"fail": "held"})
    script.release("w1", 1, 200, 210)
    script.acquire("w2", 2, 300, 320)
    script.belief("w2", 310, holds=True, token=2)
    assert found(script, UNEARNED) == []


def test_a_word_about_an_earlier_grant_is_late_and_not_unearned() -> None:
    script = Script()
    script.acquire("w2", 1, 0, 1)
    script.acquire("w2", None, 100, 110, fail="held")
    script.read("r1", 900, 901)
    script.belief("w2", 111, holds=True, token=1)
    assert found(script, UNEARNED) == []
    script.belief("w2", 112, holds=True, token=7)
    assert len(found(script, UNEARNED)) == 1


def test_a_word_after_the_end_of_a_record_that_was_cut_may_be_about_what_it_lacks() -> None:
    script = refused({"fail": "held"})
    script.belief("w2", 902, holds=True, token=2)
    assert found(script, UNEARNED) == []


def test_an_adversary_that_never_asked_for_the_lock_is_not_meant() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    made_up = {"made_up": True, "ttl_s": 2.0}
    script.call("a1", "renew", 100, 110, value=made_up, token=1, fail="not-holder")
    assert names(script) == set()

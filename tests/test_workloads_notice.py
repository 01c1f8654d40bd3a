"""Late news of a loss: who believed too long, and who merely slept."""

import pytest

from harness.verdict import Anomaly
from harness.window import Window
from tests.builders import Script, ns
from workloads.fencing import judge


def late(script: Script) -> list[Anomaly]:
    verdict = judge(script.evidence(final=90_000))
    return [anomaly for anomaly in verdict.anomalies if anomaly.name == "late-loss-notice"]


def superseded(*, lost_at: float | None, left_s: float | None = None) -> Script:
    """w1 holds k0 from 0, its lease ends at 2000; w2 is granted it at 2051."""
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.belief("w1", 1, holds=True, token=33, left_s=left_s)
    script.acquire("w2", 34, 2050, 2051)
    if lost_at is not None:
        script.belief("w1", lost_at, holds=False, token=33)
    return script


def test_a_belief_that_outlives_its_lease_by_seconds_is_late() -> None:
    (anomaly,) = late(superseded(lost_at=5001))
    assert anomaly.size_s == pytest.approx(3.0)
    assert anomaly.details["due_ns"] == ns(2001)
    assert "w1 still believed at 5.001 s that it held k0, 3.00 s after its lease had run out" in (
        anomaly.sentence
    )


def test_within_the_margin_it_is_prompt() -> None:
    assert late(superseded(lost_at=2001 + 660)) == []
    assert len(late(superseded(lost_at=2001 + 670))) == 1


def test_a_renewal_moves_the_deadline() -> None:
    script = superseded(lost_at=3000)
    script.renew("w1", 33, 690, 700)
    assert late(script) == []


def test_a_frozen_holder_that_finds_out_when_it_wakes_up_is_not_late() -> None:
    script = superseded(lost_at=7050)
    script.paused("w1", 500, 7000)
    assert late(script) == []


def test_a_frozen_holder_that_goes_on_believing_is_late() -> None:
    script = superseded(lost_at=8500)
    script.paused("w1", 500, 7000)
    (anomaly,) = late(script)
    assert anomaly.size_s == pytest.approx(1.5)
    assert anomaly.details["stopped_s"] == pytest.approx(4.999)


def test_a_holder_that_was_cut_off_is_not_excused() -> None:
    """It can know by its own clock when its lease ends, whoever it can or cannot reach."""
    script = superseded(lost_at=8500)
    script.fault("partition", ["w1"], 500, 7000, cut=["w1>etcd1", "etcd1>w1"])
    (anomaly,) = late(script)
    assert anomaly.size_s == pytest.approx(6.499)
    assert anomaly.details["stopped_s"] == 0.0
    assert "6.50 s after its lease had run out; w2 held it from 2.051 s on" in anomaly.sentence


def test_only_a_proven_stop_of_its_own_node_excuses_it() -> None:
    script = superseded(lost_at=7050)
    script.paused("w2", 500, 7000)
    assert len(late(script)) == 1
    script = superseded(lost_at=7050)
    script.windows = [
        Window(
            spec=0,
            kind="pause",
            who="holder",
            nodes=("w1",),
            at="1 s",
            requested_ns=ns(500),
            on_ns=ns(500),
            heal_ns=ns(7000),
            grade="not-effective",
        )
    ]
    assert len(late(script)) == 1


def test_pauses_that_overlap_count_once() -> None:
    script = superseded(lost_at=7050)
    script.paused("w1", 500, 4000)
    script.paused("w1", 1000, 5000)
    (anomaly,) = late(script)
    assert anomaly.details["stopped_s"] == pytest.approx(2.999)
    assert anomaly.size_s == pytest.approx(2.05)


def test_a_belief_ends_by_itself_when_the_client_knows_its_end() -> None:
    assert late(superseded(lost_at=9000, left_s=2.0)) == []


def test_but_not_by_a_clock_that_was_tampered_with() -> None:
    script = superseded(lost_at=9000, left_s=2.0)
    script.windows = [
        Window(
            spec=0,
            kind="clock-drift",
            who="holder",
            nodes=("w1",),
            at="1 s",
            requested_ns=ns(1),
            on_ns=ns(1),
            grade="installed",
        )
    ]
    assert len(late(script)) == 1


def test_nobody_is_late_while_nobody_else_has_the_lock() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.belief("w1", 1, holds=True, token=33)
    script.belief("w1", 9000, holds=False, token=33)
    script.acquire("w2", 34, 9500, 9501)
    assert late(script) == []


def test_a_release_ends_the_belief() -> None:
    script = superseded(lost_at=9000)
    script.release("w1", 33, 1900, 1901)
    assert late(script) == []


def test_only_grants_that_somebody_else_took_over_are_cases() -> None:
    script = superseded(lost_at=2100)
    script.belief("w2", 2052, holds=True, token=34)
    script.release("w2", 34, 2200, 2201)
    script.acquire("w3", 35, 2300, 2301)
    rows = {row.name: row for row in judge(script.evidence(final=90_000)).properties}
    assert (rows["late-loss-notice"].checked, rows["late-loss-notice"].broken) == (1, 0)


def test_a_worker_that_fell_silent_believes_nothing_any_more() -> None:
    script = superseded(lost_at=None)
    script.read("w1", 2400, 2401)
    assert late(script) == []
    script.read("w1", 9000, 9500, info=True)  # it was asked, and did not answer
    assert late(script) == []
    script.read("w1", 10_000, 10_001)
    assert len(late(script)) == 1


def test_a_service_that_says_held_much_too_late_counts_as_belief() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.check("w1", 33, 6000, 6010)
    (anomaly,) = late(script)
    assert anomaly.size_s == pytest.approx(3.999)


def test_a_check_that_was_asked_before_and_answered_after_a_sleep_does_not() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.check("w1", 33, 1900, 6010)
    assert late(script) == []


def test_a_check_in_which_nobody_was_asked_says_nothing() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.check("w1", 33, 6000, 6010, held=None)
    assert late(script) == []


def test_words_are_about_the_grant_with_their_token() -> None:
    script = superseded(lost_at=2100)
    script.release("w2", 34, 2200, 2201)
    script.acquire("w1", 35, 2300, 2301)
    script.belief("w1", 2301, holds=True, token=35)
    script.belief("w1", 2302, holds=False, token=33)  # a late word about the old grant
    script.acquire("w3", 36, 4400, 4401)
    script.belief("w1", 6302, holds=False, token=35)
    (anomaly,) = late(script)
    assert anomaly.details["believed_until_ns"] == ns(6302)


def test_beliefs_that_overlap_are_only_a_note() -> None:
    script = superseded(lost_at=2500)
    script.belief("w2", 2051, holds=True, token=34)
    script.read("w2", 3000, 3001)
    verdict = judge(script.evidence(final=90_000))
    assert verdict.anomalies == ()
    assert any("Two workers believed at once that they held k0: 1 time" in n for n in verdict.notes)

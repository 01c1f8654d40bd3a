"""Writes of an older owner: what proves them, what they cost, and what only looks like them."""

from dataclasses import replace
from typing import Any

import pytest

from harness.target import Accept
from harness.verdict import Anomaly, Verdict
from tests.builders import Script, ns
from workloads.fencing import judge


def named(verdict: Verdict, name: str) -> list[Anomaly]:
    return [anomaly for anomaly in verdict.anomalies if anomaly.name == name]


def names(verdict: Verdict) -> set[str]:
    return {anomaly.name for anomaly in verdict.anomalies}


def takeover(token_1: int | None = 33, token_2: int | None = 34) -> Script:
    """w1 takes k0, reads and falls asleep; w2 takes over and writes three times."""
    script = Script()
    script.acquire("w1", token_1, 0, 1)
    script.read("w1", 2, 3)
    script.acquire("w2", token_2, 2050, 2051)
    for n in range(3):
        script.write("w2", f"w2-{n}", token_2, 2060 + 10 * n, 2061 + 10 * n)
    return script


# ------------------------------------------------------------------ the classic


def test_c32a_a_sleeping_owner_that_writes_is_found() -> None:
    script = takeover()
    late = script.write("w1", "w1-0", 33, 3101, 3102)
    verdict = judge(script.evidence())
    (stale,) = named(verdict, "stale-owner-write")
    assert verdict.verdict == "fail"
    assert verdict.headline == stale.sentence
    assert stale.sentence == (
        "w1 wrote to k0 1.10 s after its lease had ended: token 33 was accepted 1.04 s after"
        " token 34 of its next owner w2, and 3 acknowledged writes are lost (75 % of all)."
    )
    assert stale.certain
    assert stale.ops[-1] == late.index
    assert stale.time_ns == ns(3102)
    assert stale.size_s == pytest.approx(1.041)


def test_the_details_name_what_the_picture_needs() -> None:
    script = takeover()
    late = script.write("w1", "w1-0", 33, 3101, 3102, over=("w2-2", 34))
    (stale,) = named(judge(script.evidence()), "stale-owner-write")
    first, _, second, *newer = script.marks
    assert stale.ops == (first.index, second.index, newer[0].index, late.index)
    assert stale.details == {
        "stale_grant": first.index,
        "newer_grant": second.index,
        "stale_write": late.index,
        "newer_write": newer[0].index,
        "over": {"value": "w2-2", "token": 34},
        "lease_end_ns": ns(2000),
        "window_s": pytest.approx(1.041),
        "worker": "w1",
        "newer_worker": "w2",
        "lost": [mark.index for mark in newer[:3]],
        "proof": "order",
        "robust": True,
    }


def test_c32b_with_a_fence_the_same_story_passes() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 3101, 3102, fail="fenced: token 33 < 34")
    verdict = judge(script.evidence())
    assert verdict.verdict == "pass"
    assert (
        verdict.headline == "The resource refused 1 stale write (of 1 attempted) after 1 takeover."
    )
    assert verdict.margins["stale_refused"] == 1


def test_every_stale_write_is_one_finding_not_every_pair() -> None:
    script = takeover()
    for n in range(4):
        script.write("w1", f"w1-{n}", 33, 3101 + 10 * n, 3102 + 10 * n)
    assert len(named(judge(script.evidence()), "stale-owner-write")) == 4


def test_a_write_before_the_newer_owners_first_is_legal() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w1", "w1-0", 33, 2052, 2053)
    script.write("w2", "w2-0", 34, 2060, 2061)
    verdict = judge(script.evidence())
    assert verdict.verdict == "pass"
    assert "each came before the newer owner had written" in verdict.headline


def test_writes_that_touch_in_one_instant_are_concurrent() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 2061, 2070)  # asked for when the newer one was answered
    assert judge(script.evidence()).verdict == "pass"


def test_a_write_under_way_together_with_the_newer_one_is_legal() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 2055, 2070)
    assert judge(script.evidence()).verdict == "pass"


# ----------------------------------------------------- what counts as in effect


def test_c05_a_write_with_unknown_outcome_counts_only_when_it_was_seen() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 3101, 4101, info=True)
    assert judge(script.evidence()).anomalies == ()
    script.read("r1", 5000, 5001, "w1-0", 33)
    (stale,) = named(judge(script.evidence()), "stale-owner-write")
    assert stale.certain
    assert stale.details["stale_write"] == script.marks[-2].index


def test_a_request_that_is_executed_much_later_is_no_anomaly_but_a_note() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.write("w1", "w1-0", 33, 60, 1060, info=True)
    script.read("r1", 1500, 1501)
    script.read("r1", 2360, 2361, "w1-0", 33)
    verdict = judge(script.evidence())
    assert verdict.anomalies == ()
    assert any("took effect all the same" in note for note in verdict.notes)


def test_a_newer_value_that_was_only_seen_proves_the_order_too() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w2", "w2-0", 34, 2060, None)
    script.read("r1", 2070, 2071, "w2-0", 34)
    late = script.write("w1", "w1-0", 33, 2080, 2081)
    (stale,) = named(judge(script.evidence()), "stale-owner-write")
    assert stale.details["proof"] == "read"
    assert stale.ops[-1] == late.index


def test_an_answer_in_the_instant_of_the_request_is_no_proof_but_an_earlier_sight_is() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w2", "w2-0", 34, 2060, 2080)
    script.read("r1", 2070, 2071, "w2-0", 34)
    script.write("w1", "w1-0", 33, 2080, 2081)
    (stale,) = named(judge(script.evidence()), "stale-owner-write")
    assert stale.details["proof"] == "read"


def test_a_refused_write_is_never_stale() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 3101, 3102, fail="no-effect: connection refused")
    assert judge(script.evidence()).anomalies == ()


# ------------------------------------------------------------- the other proofs


def test_the_stores_own_answer_proves_it_without_any_clock() -> None:
    script = takeover()
    late = script.write("w1", "w1-0", 33, 2055, 2075, over=("w2-0", 34))
    (stale,) = named(judge(script.evidence()), "stale-owner-write")
    assert stale.details["proof"] == "over"
    assert stale.certain
    assert "token 33 overwrote token 34 of its next owner w2" in stale.sentence
    assert named(judge(script.evidence()), "lost-update")[0].details["stale_write"] == late.index


def test_the_stores_own_log_proves_it_without_any_clock() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 2055, 2095)
    values = [("w2-0", 34), ("w2-1", 34), ("w2-2", 34)]
    script.log = [Accept("k0", value, token, accepted=True) for value, token in values]
    script.log.append(Accept("k0", "w1-0", 33, accepted=True))
    (stale,) = named(judge(script.evidence()), "stale-owner-write")
    assert stale.details["proof"] == "store-log"
    assert "by the resource's own log token 33 was accepted after token 34" in stale.sentence


def test_the_log_in_the_legal_order_proves_nothing() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 2055, 2095)
    script.log = [Accept("k0", "w1-0", 33, accepted=True)]
    script.log += [Accept("k0", f"w2-{n}", 34, accepted=True) for n in range(3)]
    assert judge(script.evidence(final=9000)).anomalies == ()


def test_a_log_makes_an_unknown_write_certain() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 3101, None)
    script.log = [Accept("k0", f"w2-{n}", 34, accepted=True) for n in range(3)]
    script.log.append(Accept("k0", "w1-0", 33, accepted=True))
    assert names(judge(script.evidence())) == {"stale-owner-write", "lost-update"}


# ------------------------------------------------------- late sights, two readings


def test_an_old_value_shown_after_a_newer_write_is_a_stale_read() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.write("w1", "w1-0", 33, 10, 11)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w2", "w2-0", 34, 2060, 2061)
    read = script.read("r1", 2070, 2071, "w1-0", 33)
    verdict = judge(script.evidence())
    assert names(verdict) == {"stale-read"}
    assert verdict.anomalies[0].ops[-1] == read.index
    assert verdict.anomalies[0].size_s == pytest.approx(0.009)


def test_the_same_sight_in_the_final_reads_is_a_lost_acknowledgement() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.write("w1", "w1-0", 33, 10, 11)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w2", "w2-0", 34, 2060, 2061)
    script.read("r1", 9000, 9001, "w1-0", 33)
    assert names(judge(script.evidence(final=8000))) == {"lost-ack"}


def test_a_resource_that_lost_everything_shows_nothing() -> None:
    script = takeover()
    script.read("r1", 9000, 9001)
    assert names(judge(script.evidence(final=8000))) == {"lost-ack"}


def test_when_both_writes_were_under_way_both_readings_are_named() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w1", "w1-0", 33, 2055, 2065)
    script.write("w2", "w2-0", 34, 2058, 2060)
    script.read("r1", 2070, 2071, "w1-0", 33)
    (stale,) = named(judge(script.evidence()), "stale-owner-write")
    assert not stale.certain
    assert "or it showed an old value" in stale.sentence


def test_one_earlier_newer_write_makes_the_sight_a_stale_read_for_certain() -> None:
    """The first newer write overlaps the old one, a later newer write does not."""
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w1", "w1-0", 33, 2055, 2065)
    script.write("w2", "w2-0", 34, 2058, 2060)
    script.write("w2", "w2-1", 34, 2066, 2068)
    script.read("r1", 2070, 2071, "w1-0", 33)
    assert names(judge(script.evidence())) == {"stale-read"}


@pytest.mark.parametrize(("ret", "name"), [(2069, "stale-read"), (2070, "stale-owner-write")])
def test_a_newer_write_counts_only_if_it_was_answered_before_the_sight(ret: int, name: str) -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w1", "w1-0", 33, 2055, 2065)
    script.write("w2", "w2-0", 34, 2058, 2060)
    script.write("w2", "w2-1", 34, 2066, ret)
    script.read("r1", 2070, 2071, "w1-0", 33)
    assert names(judge(script.evidence())) == {name}


def test_a_later_write_of_the_same_owner_does_not_settle_the_order_of_owners() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.acquire("w2", 34, 2050, 2051)
    script.write("w1", "w1-0", 33, 2055, 2062)
    script.write("w2", "w2-0", 34, 2058, 2060)
    script.write("w1", "w1-1", 33, 2063, 2064)
    script.read("r1", 2070, 2071, "w1-0", 33)
    doubtful = [a for a in judge(script.evidence()).anomalies if not a.certain]
    assert [a.details["newer_write"] for a in doubtful] == [script.marks[3].index]


def test_values_that_touch_in_one_instant_may_follow_each_other() -> None:
    script = Script()
    script.write("w1", "a", None, 0, 1)
    script.write("w1", "b", None, 4, 5)
    script.read("r1", 5, 6, "a")
    script.read("r1", 7, 8, "b")
    assert judge(script.evidence()).anomalies == ()


def test_one_owner_may_not_go_back_in_time_either() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.write("w1", "w1-0", 33, 10, 11)
    script.write("w1", "w1-1", 33, 20, 21)
    script.read("r1", 30, 31, "w1-0", 33)
    verdict = judge(script.evidence())
    assert names(verdict) == {"stale-read"}
    assert verdict.anomalies[0].details["old_write"] == script.marks[1].index


# ------------------------------------------------------------------ lost updates


def test_only_what_the_stale_owner_had_not_seen_is_lost() -> None:
    script = takeover()
    script.read("w1", 2065, 2066, "w2-0", 34)  # it saw the first write of the newer owner
    late = script.write("w1", "w1-0", 33, 3101, 3102)
    verdict = judge(script.evidence())
    (lost,) = named(verdict, "lost-update")
    assert lost.details["lost"] == [script.marks[4].index, script.marks[5].index]
    assert lost.ops == (script.marks[4].index, script.marks[5].index, late.index)
    assert verdict.margins["share_lost"] == pytest.approx(2 / 4)


def test_a_stale_write_that_saw_everything_loses_nothing() -> None:
    script = takeover()
    script.read("w1", 3000, 3001, "w2-2", 34)
    script.write("w1", "w1-0", 33, 3101, 3102)
    assert names(judge(script.evidence())) == {"stale-owner-write"}


def test_a_lost_write_is_laid_to_the_first_stale_write_only() -> None:
    script = takeover()
    script.write("w1", "w1-0", 33, 3101, 3102)
    script.write("w1", "w1-1", 33, 3111, 3112)
    verdict = judge(script.evidence())
    assert [len(a.details["lost"]) for a in named(verdict, "stale-owner-write")] == [3, 0]
    assert verdict.stats["lost_writes"] == 3
    (row,) = [p for p in verdict.properties if p.name == "lost-update"]
    assert (row.checked, row.broken) == (5, 3)


def test_a_write_that_was_never_acknowledged_is_not_counted_as_lost() -> None:
    script = takeover()
    script.write("w2", "w2-3", 34, 2095, None)
    script.write("w1", "w1-0", 33, 3101, 3102)
    assert len(named(judge(script.evidence()), "lost-update")[0].details["lost"]) == 3


# --------------------------------------------------------------- a lost fence


def forgetful(**over: Any) -> Script:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.write("w1", "e0", 1, 10, 11)
    script.acquire("w2", 2, 2050, 2051)
    script.write("w2", "fence", 2, 2060, 2061)
    script.write("w1", "e1", 1, 3000, 3001, **over)
    return script


def test_c34_a_node_that_forgot_the_fence_is_named_so() -> None:
    """The old writer overwrote its own entry: the newer owner's acknowledged one is gone."""
    verdict = judge(forgetful(over=("e0", 1)).evidence(fence="checked"))
    assert verdict.verdict == "fail"
    assert names(verdict) == {"forgotten-fence", "lost-ack", "lost-update"}
    assert "no longer knew of the newer owner" in verdict.headline


def test_without_such_a_proof_it_is_a_stale_write_like_any_other() -> None:
    assert "stale-owner-write" in names(judge(forgetful().evidence(fence="checked")))
    assert "stale-owner-write" in names(judge(forgetful(over=("fence", 2)).evidence()))


def test_a_resource_without_a_fence_has_none_to_forget() -> None:
    verdict = judge(forgetful(over=("e0", 1)).evidence(fence="none"))
    assert names(verdict) == {"stale-owner-write", "lost-ack", "lost-update"}


def test_the_log_can_show_that_the_highest_token_was_forgotten() -> None:
    script = forgetful()
    script.log = [
        Accept("k0", "e0", 1, accepted=True, highest=1),
        Accept("k0", "fence", 2, accepted=True, highest=2),
        Accept("k0", "e1", 1, accepted=True, highest=1),
    ]
    assert "forgotten-fence" in names(judge(script.evidence(fence="checked")))


def test_a_log_that_names_no_highest_token_after_a_restart_has_lost_it() -> None:
    script = forgetful()
    script.log = [
        Accept("k0", "e0", 1, accepted=True, highest=None),
        Accept("k0", "fence", 2, accepted=True, highest=1),
        Accept("k0", "e1", 1, accepted=True, highest=None),
    ]
    assert "forgotten-fence" in names(judge(script.evidence(fence="checked")))
    script.log = [replace(entry, highest=None) for entry in script.log]  # it never names any
    assert "stale-owner-write" in names(judge(script.evidence(fence="checked")))


@pytest.mark.parametrize(
    ("refused_at", "fence", "name"),
    [
        (2500, "checked", "forgotten-fence"),
        (3100, "checked", "stale-owner-write"),
        (2500, "guarded", "stale-owner-write"),
    ],
)
def test_a_token_that_was_refused_before_is_accepted_by_a_fence_that_forgot(
    refused_at: int, fence: str, name: str
) -> None:
    script = forgetful()
    script.write("w1", "e2", 1, refused_at, refused_at + 1, fail="fenced")
    assert name in names(judge(script.evidence(fence=fence)))


# --------------------------------------------------------- locks without tokens


def test_without_tokens_owners_are_ranked_by_when_they_were_granted() -> None:
    script = takeover(None, None)
    script.write("w1", "w1-0", None, 3101, 3102)
    verdict = judge(script.evidence())
    assert names(verdict) == {"stale-owner-write", "lost-update"}
    assert "its write was accepted" in verdict.headline


def test_acquires_that_overlap_are_of_one_rank() -> None:
    script = Script()
    script.acquire("w1", None, 0, 100)
    script.acquire("w2", None, 50, 60)
    script.write("w2", "w2-0", None, 110, 111)
    script.write("w1", "w1-0", None, 120, 121)  # nobody knows who was granted first
    assert "stale-owner-write" not in names(judge(script.evidence()))


def test_a_write_belongs_to_the_workers_latest_grant() -> None:
    script = takeover(None, None)
    script.release("w2", None, 2100, 2101)
    script.acquire("w1", None, 2200, 2201)
    script.write("w1", "w1-0", None, 2210, 2211)
    assert judge(script.evidence()).anomalies == ()


def test_a_released_owner_that_writes_is_told_apart_in_words() -> None:
    script = Script()
    script.acquire("w1", 33, 0, 1)
    script.release("w1", 33, 100, 101)
    script.acquire("w2", 34, 110, 111)
    script.write("w2", "w2-0", 34, 120, 121)
    script.write("w1", "w1-0", 33, 200, 201)
    assert (
        "w1 wrote to k0 100 ms after it had asked to release the lock: "
        in judge(script.evidence()).headline
    )


def test_where_the_tokens_themselves_went_backwards_nobody_is_called_the_next_owner() -> None:
    script = Script()
    script.acquire("w1", 7, 0, 1)
    script.write("w1", "w1-0", 7, 10, 11)
    script.release("w1", 7, 20, 21)
    script.acquire("w2", 6, 30, 31)
    script.write("w2", "w2-0", 6, 40, 41)
    verdict = judge(script.evidence())
    assert names(verdict) == {"stale-owner-write", "lost-update", "fence-regression"}
    assert "after token 7 of w1, who had been granted the lock before it" in verdict.headline


def test_two_keys_are_independent() -> None:
    script = takeover()
    script.acquire("w1", 7, 2500, 2501, key="k1")
    script.write("w1", "w1-0", 7, 3101, 3102, key="k1")
    assert judge(script.evidence()).anomalies == ()

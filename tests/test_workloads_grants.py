"""Grants that overlap, tokens that go wrong, refusals and acceptances of the wrong caller."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.target import Accept
from harness.verdict import Anomaly, Verdict
from tests.builders import Script
from workloads._grants import ranks_by_time
from workloads._trace import read_traces
from workloads.fencing import judge
from workloads.granting import grant_faults


def names(verdict: Verdict) -> set[str]:
    return {anomaly.name for anomaly in verdict.anomalies}


def only(script: Script) -> Anomaly:
    (anomaly,) = judge(script.evidence()).anomalies
    return anomaly


# -------------------------------------------------------------- duplicate grants


def test_two_certain_holds_that_overlap_are_a_duplicate_grant() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 10)
    second = script.acquire("w2", 2, 1000, 1010)
    anomaly = only(script)
    assert anomaly.name == "duplicate-grant"
    assert anomaly.size_s == pytest.approx(0.99)
    assert anomaly.ops[-1] == second.index
    assert "w1 and w2 both held k0 for 990 ms" in anomaly.sentence


def test_the_lease_counts_from_when_it_was_asked_for() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 500)  # the lease may have begun at 0, so it may end at 2000
    script.acquire("w2", 2, 1990, 2000)
    assert judge(script.evidence()).anomalies == ()


def test_c06_the_next_grant_may_come_before_the_release_is_acknowledged() -> None:
    script = Script(ttl_s=None)
    script.acquire("4", None, 0, 281)
    script.acquire("3", None, 0, 422)
    script.acquire("2", None, 0, 686)
    script.release("4", None, 400, 435)
    script.release("3", None, 672, 694)
    verdict = judge(script.evidence())
    assert verdict.anomalies == ()
    assert verdict.verdict == "unknown"  # nothing was written, so the fence was not tried


def test_a_lock_without_lease_is_held_until_it_is_released() -> None:
    script = Script(ttl_s=None)
    script.acquire("w1", None, 0, 10)
    script.acquire("w2", None, 100_000, 100_010)
    assert only(script).name == "duplicate-grant"


def test_an_acknowledged_renewal_extends_the_hold_and_an_unclear_one_does_not() -> None:
    for info, found in ((False, {"duplicate-grant"}), (True, set())):
        script = Script()
        script.acquire("w1", 1, 0, 10)
        script.renew("w1", 1, 1500, 1510, info=info)
        script.acquire("w2", 2, 2500, 2510)
        assert names(judge(script.evidence())) == found


def test_a_release_that_was_only_asked_for_ends_the_certain_hold() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 10)
    script.release("w1", 1, 900, None)
    script.acquire("w2", 2, 1000, 1010)
    assert judge(script.evidence()).anomalies == ()


def test_the_lease_that_was_granted_counts_not_the_one_asked_for() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 10, ttl_s=1.0)
    script.acquire("w2", 2, 1500, 1510)
    assert judge(script.evidence()).anomalies == ()


def test_a_grant_that_came_after_its_own_lease_is_no_certain_hold() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 6001)  # c54
    script.acquire("w2", 2, 6000, 6002)
    assert judge(script.evidence()).anomalies == ()


def test_a_worker_that_re_enters_its_own_lock_endangers_nobody() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 10)
    script.acquire("w1", 1, 100, 110)
    assert judge(script.evidence()).anomalies == ()


def test_a_short_hold_inside_a_long_one_does_not_hide_the_long_one() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 10, ttl_s=10.0)
    script.acquire("w2", 2, 1000, 1010, ttl_s=0.5)
    script.acquire("w3", 3, 5000, 5010)
    assert [a.details["worker"] for a in judge(script.evidence()).anomalies] == ["w1", "w1"]


HOLDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 8), st.integers(1, 12)),
    max_size=7,
)


@settings(max_examples=1500)
@given(HOLDS)
def test_the_sweep_finds_what_comparing_all_pairs_finds(
    holds: Sequence[tuple[str, int, int, int]],
) -> None:
    script = Script()
    for n, (worker, at, took, ttl) in enumerate(holds):
        script.acquire(worker, n, at, at + took, ttl_s=ttl / 1000)
    book = read_traces(script.history())
    for trace in book.traces:
        found = {a.details["second_grant"] for a in grant_faults(trace)[0].anomalies}
        real = [g for g in trace.grants if g.end_ns > g.start_ns]
        expected = {
            two.acquire.index
            for i, two in enumerate(real)
            for one in real[:i]
            if one.worker != two.worker and two.start_ns < min(one.end_ns, two.end_ns)
        }
        assert found == expected


@settings(max_examples=500)
@given(HOLDS)
def test_a_lower_rank_was_granted_before(holds: Sequence[tuple[str, int, int, int]]) -> None:
    script = Script()
    for worker, at, took, _ in holds:
        script.acquire(worker, None, at, at + took)
    won = script.calls()
    ranks = ranks_by_time(won)
    for one in won:
        for two in won:
            if ranks[one.index] < ranks[two.index]:
                assert one.precedes(two)


# ----------------------------------------------------------------------- tokens


def test_a_later_grant_must_bring_a_greater_token() -> None:
    script = Script()
    script.acquire("w1", 7, 0, 10)
    script.release("w1", 7, 20, 30)
    script.acquire("w2", 6, 40, 50)
    anomaly = only(script)
    assert anomaly.name == "fence-regression"
    assert "was granted 7" in anomaly.sentence


def test_grants_that_overlap_have_no_order() -> None:
    script = Script()
    script.acquire("w1", 7, 0, 45)
    script.release("w1", 7, 46, 47)
    script.acquire("w2", 6, 40, 50)
    assert judge(script.evidence()).anomalies == ()


def test_a_regression_is_measured_against_the_highest_token_before() -> None:
    script = Script()
    for n, token in enumerate((1, 9, 2, 3)):
        script.acquire("w1", token, 100 * n, 100 * n + 10)
        script.release("w1", token, 100 * n + 20, 100 * n + 30)
    found = judge(script.evidence()).anomalies
    assert [a.name for a in found] == ["fence-regression"] * 2
    assert {a.ops[0] for a in found} == {script.marks[2].index}


def test_two_grants_with_one_token_collide_in_whatever_order() -> None:
    script = Script()
    script.acquire("w1", 7, 0, 45)
    script.release("w1", 7, 46, 47)
    script.acquire("w2", 7, 40, 50)
    assert only(script).name == "fence-collision"


def test_the_same_worker_may_not_get_a_token_again_that_it_gave_back() -> None:
    script = Script()
    script.acquire("w1", 7, 0, 10)
    script.release("w1", 7, 20, 30)
    script.acquire("w1", 7, 40, 50)
    assert only(script).name == "fence-collision"


def test_c03_a_lost_answer_makes_nobody_guilty() -> None:
    script = Script(ttl_s=30.0)
    script.acquire("A", None, 0, 4, info=True)
    script.acquire("A", None, 5, 6, fail="held: by a1")
    script.acquire("B", None, 10_000, 10_001, fail="held: by a1")
    script.acquire("B", 2, 30_100, 30_101)
    assert judge(script.evidence()).anomalies == ()


# ---------------------------------------------------------------------- forgery


def test_a_write_with_somebody_elses_token_is_forged() -> None:
    script = Script()
    grant = script.acquire("w1", 5, 0, 10)
    write = script.write("w2", "w2-0", 5, 20, 30)
    anomaly = only(script)
    assert anomaly.name == "forged-token"
    assert anomaly.ops == (grant.index, write.index)
    assert "which was granted to w1" in anomaly.sentence


def test_c46_c49_a_release_or_renewal_by_a_stranger_is_forged() -> None:
    for use in ("release", "renew"):
        script = Script()
        script.acquire("w1", 5, 0, 10)
        getattr(script, use)("w2", 5, 20, 30)
        assert only(script).name == "forged-token"


def test_a_release_without_any_grant_is_forged_where_there_are_no_tokens() -> None:
    script = Script()
    script.acquire("w1", None, 0, 10)
    script.release("w2", None, 20, 30)
    assert only(script).name == "forged-token"


def test_a_guessed_token_is_forged_even_if_it_is_granted_later() -> None:
    script = Script()
    script.acquire("w1", 5, 0, 10)
    script.release("w1", 5, 11, 12)
    script.write("w2", "w2-0", 6, 20, 30)
    script.acquire("w2", 6, 40, 50)
    assert names(judge(script.evidence())) == {"forged-token"}


def test_a_refused_forgery_is_what_a_resource_should_do() -> None:
    script = Script()
    script.acquire("w1", 5, 0, 10)
    script.write("w2", "w2-0", 5, 20, 30, fail="not-holder")
    assert "forged-token" not in names(judge(script.evidence()))


def test_an_acquire_with_unknown_outcome_may_have_brought_the_token() -> None:
    script = Script()
    script.acquire("w1", 5, 0, 10)
    script.acquire("w2", None, 11, 15, info=True)
    script.write("w2", "w2-0", 6, 20, 30)
    assert judge(script.evidence()).anomalies == ()


# --------------------------------------------------------------------- refusals


def test_the_newest_owner_must_not_be_refused() -> None:
    script = Script()
    grant = script.acquire("w1", 5, 0, 10)
    write = script.write("w1", "w1-0", 5, 20, 30, fail="fenced: 5 < 9")
    script.log = [Accept("k0", "w1-0", 5, accepted=False, highest=9)]
    anomaly = only(script)
    assert anomaly.name == "refused-newest"
    assert anomaly.ops == (grant.index, write.index)
    assert "the highest token it knew was 9" in anomaly.sentence


@pytest.mark.parametrize("outcome", ["granted", "open", "written", "granted while refused"])
def test_a_refusal_is_fair_when_a_higher_token_can_have_been_used(outcome: str) -> None:
    script = Script()
    script.acquire("w1", 5, 0, 10)
    if outcome == "granted":
        script.acquire("w2", 6, 12, 15)
    elif outcome == "granted while refused":
        script.acquire("w2", 6, 30, 35)
    elif outcome == "open":
        script.acquire("w2", None, 12, None)
    else:
        script.write("w2", "w2-0", 6, 12, 15, fail="no-effect: reset")
    script.write("w1", "w1-0", 5, 20, 30, fail="fenced: 5 < 6")
    assert "refused-newest" not in names(judge(script.evidence()))


def test_a_higher_token_that_came_after_the_refusal_explains_nothing() -> None:
    script = Script()
    script.acquire("w1", 5, 0, 10)
    script.write("w1", "w1-0", 5, 20, 30, fail="fenced: 5 < 6")
    script.acquire("w2", 6, 2050, 2060)
    assert names(judge(script.evidence())) == {"refused-newest"}


@pytest.mark.parametrize(("ret", "found"), [(1999, {"refused-newest"}), (2000, set())])
def test_not_holder_counts_only_inside_the_certain_hold(ret: int, found: set[str]) -> None:
    script = Script()
    script.acquire("w1", 5, 0, 10)
    script.write("w1", "w1-0", 5, 1990, ret, fail="not-holder: gone")
    assert names(judge(script.evidence())) == found


def test_without_tokens_a_grant_that_overlaps_may_be_the_newer_one() -> None:
    for at, found in ((5, set()), (40, {"refused-newest"})):
        script = Script()
        script.acquire("w1", None, 0, 10)
        script.acquire("w2", None, at, 50, fail=None if at == 5 else "held")
        script.release("w2", None, 60, 70)
        script.write("w1", "w1-0", None, 80, 90, fail="fenced")
        assert {n for n in names(judge(script.evidence())) if n == "refused-newest"} == found

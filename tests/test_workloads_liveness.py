"""A lock that stays held, a system that stays silent: what is a finding, and what excuses it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.evidence import Evidence
from harness.spec import FaultSpec, RunSpec, TargetSpec
from harness.units import Duration
from harness.verdict import Anomaly, Property
from tests.builders import Script
from workloads.fencing import judge

ZOMBIE = "zombie-lease"
SILENT = "no-progress-after-heal"


def found(script: Script, name: str, **rest: float) -> list[Anomaly]:
    verdict = judge(script.evidence(**rest))  # type: ignore[arg-type] # only times are passed on
    return [anomaly for anomaly in verdict.anomalies if anomaly.name == name]


def refused(script: Script, *times: float, worker: str = "w2", code: str = "held") -> None:
    for at in times:
        script.acquire(worker, None, at, at + 1, fail=code)


# ----------------------------------------------------------------- past the lease


def leased() -> Script:
    """w1 holds k0 from 0 on with a lease of 2 s; it must be over at 2001."""
    script = Script()
    script.acquire("w1", 1, 0, 1)
    return script


def test_a_lock_that_is_held_two_leases_and_a_second_after_its_grant_is_a_zombie() -> None:
    script = leased()
    refused(script, 1000, 4000, 5002, 6000, 7000)
    (anomaly,) = found(script, ZOMBIE)
    assert anomaly.ops == (script.marks[0].index, script.marks[3].index, script.marks[5].index)
    assert anomaly.size_s == pytest.approx(4.999)
    assert anomaly.details["refused"] == 3
    assert anomaly.sentence == (
        "k0 stayed held after the lease of w1, the last who was granted it, had ended at 2.001 s at"
        " the latest: 3 attempts to acquire it were still refused, the last one 5.00 s later."
    )


def test_a_service_may_give_a_lease_its_full_time_once_more_and_end_it_lazily() -> None:
    script = leased()
    refused(script, 1000, 4000, 5001)
    assert found(script, ZOMBIE) == []


def test_without_attempts_nothing_is_known() -> None:
    script = leased()
    refused(script, 9000, code="no-effect: connection refused")
    script.acquire("w2", None, 9500, 9600, info=True)
    assert found(script, ZOMBIE) == []


def test_a_renewal_lengthens_the_lease_from_its_answer_on() -> None:
    script = leased()
    script.renew("w1", 1, 1000, 1900)
    refused(script, 6900)
    assert found(script, ZOMBIE) == []
    refused(script, 6901)
    assert len(found(script, ZOMBIE)) == 1


def test_a_stranger_who_renews_with_the_holders_token_lengthens_it_too() -> None:
    script = leased()
    script.renew("w3", 1, 1000, 1900)
    refused(script, 7000)
    assert found(script, ZOMBIE) == []
    assert len(found(script, "forged-token")) == 1
    refused(script, 7002)
    assert len(found(script, ZOMBIE)) == 1


def test_a_stranger_who_was_refused_lengthens_nothing() -> None:
    script = leased()
    script.renew("w3", 1, 1000, 1900, fail="not-holder")
    refused(script, 5002)
    assert len(found(script, ZOMBIE)) == 1


def test_one_with_unknown_outcome_may_come_at_the_last_moment() -> None:
    script = leased()
    script.renew("w1", 1, 1000, 1900, info=True)
    refused(script, 7000)
    assert found(script, ZOMBIE) == []
    refused(script, 7002)
    assert len(found(script, ZOMBIE)) == 1


def test_a_refused_renewal_lengthens_nothing() -> None:
    script = leased()
    script.renew("w1", 1, 2100, 3900, fail="not-holder")
    refused(script, 5002)
    assert len(found(script, ZOMBIE)) == 1


def test_each_stretch_is_one_finding() -> None:
    script = leased()
    refused(script, 5500, 6500)
    script.acquire("w2", 2, 7000, 7001)
    refused(script, 7500, 12_500, 13_000, worker="w3")
    assert [a.details["grant"] for a in found(script, ZOMBIE)] == [
        script.marks[0].index,
        script.marks[3].index,
    ]


def test_the_next_grant_ends_a_lock_without_a_lease() -> None:
    script = Script(ttl_s=None)
    script.acquire("w1", 1, 0, 1)
    refused(script, 100_000)
    assert found(script, ZOMBIE) == []
    script.acquire("w2", 2, 100_100, 100_101)  # w1's session had died
    script.release("w2", 2, 100_200, 100_201)
    refused(script, 101_300)
    (anomaly,) = found(script, ZOMBIE)
    assert anomaly.details["worker"] == "w2"


# ------------------------------------------------------------------- after a release


def test_a_lock_that_is_still_held_a_second_after_its_release_is_a_zombie() -> None:
    script = leased()
    script.release("w1", 1, 100, 101)
    refused(script, 1102)
    (anomaly,) = found(script, ZOMBIE)
    assert anomaly.ops == tuple(mark.index for mark in script.marks)
    assert "after w1, the last who was granted it, had released it at 0.101 s" in anomaly.sentence
    assert "1 attempt to acquire it was still refused" in anomaly.sentence


def test_within_a_second_it_may_be_held() -> None:
    script = leased()
    script.release("w1", 1, 100, 101)
    refused(script, 1101)
    assert found(script, ZOMBIE) == []


@pytest.mark.parametrize("how", [{"info": True}, {"fail": "not-holder"}])
def test_a_release_that_was_not_acknowledged_frees_nothing(how: dict[str, object]) -> None:
    script = leased()
    script.release("w1", 1, 100, 101, **how)
    refused(script, 3000, 5000)
    assert found(script, ZOMBIE) == []


# --------------------------------------------------------- grants that nobody knows of


def test_a_lost_answer_explains_one_lease_and_no_more() -> None:
    script = leased()
    script.release("w1", 1, 100, 101)
    script.acquire("w2", None, 200, 1200, info=True)
    refused(script, 1300, 3000, 5000, 6301)
    assert found(script, ZOMBIE) == []
    refused(script, 6302)
    assert len(found(script, ZOMBIE)) == 1


def test_what_it_explains_is_a_note() -> None:
    script = leased()
    script.release("w1", 1, 100, 101)
    script.acquire("w2", None, 200, 1200, info=True)
    refused(script, 1300, 3000)
    script.acquire("w2", 2, 3300, 3301)
    notes = judge(script.evidence()).notes
    assert any(note.startswith("k0 was refused as held for up to 2.00 s while") for note in notes)


def test_a_service_that_frees_a_lock_a_little_late_is_not_even_a_note() -> None:
    script = leased()
    script.release("w1", 1, 100, 101)
    refused(script, 500, 900)
    assert judge(script.evidence()).notes == ()


def test_two_lost_answers_explain_two_leases_at_any_later_time() -> None:
    script = leased()
    script.release("w1", 1, 100, 101)
    for n in range(2):
        script.acquire("w2", None, 200 + n, 1200 + n, info=True)
    refused(script, 1300, 6000, 20_000, 24_000)
    assert found(script, ZOMBIE) == []
    refused(script, 30_000)
    assert len(found(script, ZOMBIE)) == 1


def test_an_acquire_that_was_asked_later_explains_nothing() -> None:
    script = leased()
    script.release("w1", 1, 100, 101)
    refused(script, 1200)
    script.acquire("w2", None, 1300, 2300, info=True)
    assert len(found(script, ZOMBIE)) == 1


def test_before_the_history_somebody_may_have_taken_the_lock() -> None:
    script = Script()
    refused(script, 1000, 5999)
    assert found(script, ZOMBIE) == []
    refused(script, 6001)
    (anomaly,) = found(script, ZOMBIE)
    assert anomaly.details["grant"] is None


# ------------------------------------------------------------- faults of the servers


@pytest.mark.parametrize(
    ("kind", "nodes", "cut", "excused"),
    [
        ("pause", ["etcd1"], [], True),
        ("kill", ["etcd1"], [], True),
        ("partition", ["etcd1"], ["etcd1>etcd2", "etcd2>etcd1"], True),
        ("partition", ["w1"], ["w1>etcd1", "etcd1>w1"], False),
        ("partition", ["w1"], [], True),  # nobody knows what it cut
        ("link", ["w1"], [], True),
        ("pause", ["w1"], [], False),
        ("clock", ["etcd1"], [], False),
        ("message", ["etcd1"], [], False),
    ],
)
def test_the_margin_begins_anew_after_a_fault_of_the_servers(
    kind: str, nodes: Sequence[str], cut: Sequence[str], excused: bool
) -> None:
    script = leased()
    script.fault(kind, nodes, 4000, 6000, cut=cut)
    refused(script, 10_999)  # 2 s to settle and 3 s of margin
    assert (found(script, ZOMBIE) == []) is excused
    refused(script, 11_003)
    assert len(found(script, ZOMBIE)) == 1


@pytest.mark.parametrize(("first_off", "second_off"), [(8000, 5000), (5000, 8000)])
def test_the_last_of_faults_that_overlap_counts(first_off: int, second_off: int) -> None:
    script = leased()
    script.fault("pause", ["etcd1"], 4000, first_off)
    script.fault("kill", ["etcd2"], 4500, second_off)
    refused(script, 12_999)
    assert found(script, ZOMBIE) == []
    refused(script, 13_003)
    assert len(found(script, ZOMBIE)) == 1


def test_one_that_begins_later_excuses_nothing_before_it() -> None:
    script = leased()
    refused(script, 6000)
    script.fault("pause", ["etcd1"], 7000, 8000)
    assert len(found(script, ZOMBIE)) == 1


# ------------------------------------------------------------- progress after the faults


def healed(*, gone: bool = True) -> Script:
    """A run whose partition is over at 5000; its final phase is from 8000 to 24000."""
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.read("w1", 10, 11)
    script.fault("partition", ["etcd1"], 1000, 5000 if gone else None)
    return script


def silent(script: Script, *, end: float | None = 24_000) -> Anomaly | None:
    evidence = script.evidence(final=8000, end=end)
    listed = [a for a in judge(evidence).anomalies if a.name == SILENT]
    return listed[0] if listed else None


def row(evidence: Evidence) -> Property:
    return next(row for row in judge(evidence).properties if row.name == SILENT)


def test_a_healed_system_that_grants_nothing_is_found() -> None:
    script = healed()
    first = script.acquire("w1", None, 8100, 9100, info=True)
    last = script.acquire("w2", None, 17_900, 18_900, info=True)
    script.read("r1", 8100, 8101)
    anomaly = silent(script)
    assert anomaly is not None
    assert anomaly.ops == (first.index, last.index)
    assert anomaly.size_s == 10.0
    assert anomaly.sentence == (
        "After all faults were healed, nothing was granted or renewed from 8.000 s on, for 10.00 s:"
        " 2 attempts, the last one ended with: timeout."
    )


def test_one_that_answers_no_read_is_found() -> None:
    script = healed()
    script.acquire("w1", 2, 8100, 8101)
    script.read("r1", 8100, 9100, info=True)
    script.read("r1", 9100, None)
    anomaly = silent(script)
    assert anomaly is not None
    assert "nothing was read from 8.000 s on" in anomaly.sentence
    assert "ended with: no answer" in anomaly.sentence


@pytest.mark.parametrize("what", ["acquire", "renew"])
def test_a_grant_or_a_renewal_and_a_read_are_progress(what: str) -> None:
    script = healed()
    script.acquire("w2", None, 8100, 9100, info=True)
    getattr(script, what)("w1", 2, 9100, 9101)
    script.read("r1", 8100, 9100, info=True)
    script.read("r1", 23_000, 23_001)  # contenders read after their last try
    evidence = script.evidence(final=8000, end=24_000)
    assert row(evidence).verdict == "pass"
    assert row(evidence).checked == 2


def test_progress_that_comes_too_late_is_none() -> None:
    script = healed()
    script.acquire("w1", None, 8100, 9100, info=True)
    script.acquire("w1", 2, 18_001, 18_002)
    script.read("r1", 8100, 8101)
    assert silent(script) is not None
    long = replace(
        script.evidence(final=8000, end=24_000),
        spec=RunSpec(TargetSpec("a"), TargetSpec("b"), ttl_s=4.0),
    )
    assert row(long).verdict == "pass"  # five leases are longer than ten seconds


def test_what_worked_before_the_end_of_the_faults_is_no_progress() -> None:
    script = healed()
    script.acquire("w1", 2, 7000, 7001)
    script.acquire("w1", None, 8100, 8101, fail="held")
    script.read("r1", 8100, 8101)
    assert silent(script) is not None


@pytest.mark.parametrize("why", ["never tried", "not over", "not gone", "no fault", "for good"])
def test_nothing_is_said_where_the_run_cannot_tell(why: str) -> None:
    script = healed(gone=why != "not gone")
    if why != "never tried":
        script.acquire("w1", None, 8100, 9100, info=True)
    if why == "no fault":
        script.windows = []
    evidence = script.evidence(final=8000, end=None if why == "not over" else 24_000)
    if why == "for good":
        fault = FaultSpec("kill", "all", Duration(1.0), options={"restart": False})
        spec = RunSpec(TargetSpec("a"), TargetSpec("b"), faults=(fault,))
        evidence = replace(evidence, spec=spec)
    assert row(evidence).verdict == "unknown"
    assert row(evidence).note

"""Who could talk to whom: grants by a minority, and holders that were killed."""

from collections.abc import Sequence

import pytest

from harness.verdict import Anomaly
from tests.builders import Script
from workloads.fencing import judge

NAME = "minority-grant"
THREE = {"lock": ["s1", "s2", "s3"], "store": ["d1"]}


def both(*pairs: str) -> list[str]:
    return [way for pair in pairs for way in (pair, ">".join(reversed(pair.split(">"))))]


def granted(script: Script, servers: dict[str, list[str]] | None = None) -> list[Anomaly]:
    evidence = script.evidence(servers=THREE if servers is None else servers)
    return [a for a in judge(evidence).anomalies if a.name == NAME]


def acquired(at: float = 1500, ret: float = 1510) -> Script:
    script = Script()
    script.acquire("w1", 1, at, ret)
    return script


def isolated(script: Script, cut: Sequence[str], **rest: str) -> None:
    script.fault("partition", ["s1"], 1000, 5000, cut=cut, **rest)  # type: ignore[arg-type] # grade


SIDE = both("s1>s2", "s1>s3", "w1>s2", "w1>s3")  # w1 and s1 on one side


def test_a_grant_by_one_of_three_is_found() -> None:
    script = acquired()
    isolated(script, SIDE)
    (anomaly,) = granted(script)
    assert anomaly.ops == (script.marks[0].index,)
    assert anomaly.details["reached"] == ["s1"]
    assert anomaly.sentence == (
        "w1 was granted k0 with token 1 at 1.510 s, although it could reach only s1, and from there"
        " no more of the 3 lock servers: a majority is 2 (partition, in force since 1.000 s)."
    )


@pytest.mark.parametrize(
    "open_ways",
    [["s1>s2"], ["s3>s1"], ["w1>s3", "s3>w1"], ["w1>s2", "s2>w1", "w1>s3", "s3>w1"], SIDE],
)
def test_any_way_to_a_majority_clears_it(open_ways: Sequence[str]) -> None:
    """Between servers one direction is enough: what is heard may come round another way."""
    script = acquired()
    isolated(script, [way for way in SIDE if way not in open_ways])
    assert granted(script) == []


def test_an_answer_needs_both_directions_between_worker_and_server() -> None:
    script = acquired()
    isolated(script, [way for way in SIDE if way not in ("w1>s3", "s2>w1")])
    assert len(granted(script)) == 1


def test_a_client_that_collects_the_majority_itself_is_not_accused() -> None:
    script = acquired()
    isolated(script, both("s1>s2", "s2>s3", "s1>s3"))
    assert granted(script) == []


def test_where_nobody_can_have_answered_the_facts_are_not_enough() -> None:
    script = acquired()
    isolated(script, both("w1>s1", "w1>s2", "w1>s3"))
    assert granted(script) == []


@pytest.mark.parametrize(("at", "ret"), [(999, 1510), (4990, 5001)])
def test_the_whole_call_must_lie_in_the_proven_time(at: float, ret: float) -> None:
    script = acquired(at, ret)
    isolated(script, SIDE)
    assert granted(script) == []


def test_a_fault_that_was_not_proven_proves_nothing() -> None:
    script = acquired()
    isolated(script, SIDE, grade="indeterminate")
    assert granted(script) == []


def test_two_faults_together_make_a_minority() -> None:
    script = acquired()
    script.fault("pause", ["s2"], 1000, 5000)
    assert granted(script) == []
    script.fault("kill", ["s3"], 1400, 3000)
    (anomaly,) = granted(script)
    assert anomaly.details["faults"] == [0, 1]
    assert "(pause, kill, in force since 1.400 s)" in anomaly.sentence


def test_faults_after_each_other_do_not() -> None:
    script = acquired()
    script.fault("pause", ["s2"], 1000, 1505)
    script.fault("pause", ["s3"], 1505, 3000)
    assert granted(script) == []


def test_a_write_needs_a_majority_of_the_store() -> None:
    script = acquired(100, 110)
    write = script.write("w1", "w1-0", 1, 1500, 1510)
    script.write("w1", "w1-1", 1, 1600, 1700, fail="no-effect: no leader")
    isolated(script, SIDE)
    assert granted(script) == []
    (anomaly,) = granted(script, {"lock": THREE["lock"], "store": THREE["lock"]})
    assert anomaly.ops == (write.index,)
    assert "w1 wrote k0 with token 1" in anomaly.sentence


@pytest.mark.parametrize("servers", [{}, {"lock": ["s1"]}])
def test_without_a_cluster_there_is_no_majority(servers: dict[str, list[str]]) -> None:
    script = acquired()
    isolated(script, SIDE)
    assert granted(script, servers) == []


def test_two_servers_need_each_other() -> None:
    script = acquired()
    isolated(script, both("s1>s2", "w1>s2"))
    assert len(granted(script, {"lock": ["s1", "s2"]})) == 1


def test_where_members_were_changed_nobody_can_count() -> None:
    script = acquired()
    isolated(script, SIDE)
    script.fault("membership", ["s3"], 100, 200)
    assert granted(script) == []


# -------------------------------------------------------------------- killed holders


def names(script: Script) -> set[str]:
    return {anomaly.name for anomaly in judge(script.evidence()).anomalies}


def test_the_lock_of_a_killed_holder_may_be_given_away_at_once() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w2", 2, 1000, 1001)
    assert names(script) == {"duplicate-grant"}
    script.fault("kill", ["w1"], 900, 3000)
    assert names(script) == set()


def test_a_kill_of_which_nobody_can_tell_may_have_come() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w2", 2, 1000, 1001)
    script.fault("kill", ["w1"], 900, 3000, grade="indeterminate")
    assert names(script) == set()


def test_but_not_before_it_was_killed_and_not_that_of_another() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.acquire("w2", 2, 1000, 1001)
    script.fault("kill", ["w2"], 900, 950)
    script.fault("kill", ["w1"], 1500, 3000)
    script.fault("pause", ["w1"], 900, 3000)
    script.fault("kill", ["w1"], 900, 3000, grade="not-effective")
    assert names(script) == {"duplicate-grant"}


def test_a_grant_after_the_restart_is_a_new_one() -> None:
    script = Script()
    script.fault("kill", ["w1"], 100, 200)
    script.acquire("w1", 1, 300, 301)
    script.acquire("w2", 2, 1000, 1001)
    assert names(script) == {"duplicate-grant"}


def test_a_killed_holder_is_no_old_owner_that_is_out() -> None:
    script = Script()
    script.acquire("w1", 1, 0, 1)
    script.fault("kill", ["w1"], 900, 5000)
    script.acquire("w2", 2, 2100, 2101)
    assert judge(script.evidence()).stats["takeovers"] == 0

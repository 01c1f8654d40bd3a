"""Public histories that other checkers got wrong, and what the search says when it gives up."""

import itertools
from typing import Any

import pytest

from harness.checking import MODELS, check, check_columns, evidence
from harness.checking.columns import Columns, from_history
from harness.errors import UsageError
from harness.history import History
from harness.op import Op, OpType
from harness.verdict import Reason, Verdict
from tests.checking_histories import Made, history_of


def script(text: str) -> History:
    """A history of lines `process type f value`; the value is a Python literal or `-`."""
    ops = []
    for time_ns, line in enumerate(text.strip().splitlines()):
        who, kind, f, value = line.split(maxsplit=3)
        types: dict[str, OpType] = {t: t for t in ("invoke", "ok", "fail", "info")}
        literal: Any = None if value == "-" else [int(v) for v in value.strip("[]").split()]
        if literal is not None and not value.startswith("["):
            literal = literal[0]
        ops.append(Op(process=int(who), type=types[kind], f=f, value=literal, time_ns=time_ns))
    return History(ops)


def name(verdict: Verdict) -> str:
    assert verdict.verdict == "fail", verdict
    return verdict.anomalies[0].name


ALTERNATING = """
0 invoke write 1
0 ok write 1
0 invoke write 3
0 ok write 3
0 invoke write 2
0 ok write 2
0 invoke read -
0 ok read 2
0 invoke write 4
0 ok write 4
0 invoke read -
0 ok read 4
0 invoke write 4
0 info write 4
1 invoke read -
1 ok read 4
1 invoke write 0
1 info write 0
2 invoke read -
2 ok read 4
2 invoke write 0
2 info write 0
3 invoke read -
3 ok read 0
3 invoke write 0
3 info write 0
4 invoke read -
4 ok read 4
4 invoke write 1
4 info write 1
5 invoke read -
5 ok read 0
"""


def test_crashed_writes_may_alternate() -> None:  # C23
    assert check(script(ALTERNATING), "register").verdict == "pass"
    assert name(check(script(ALTERNATING.replace("info", "fail")), "register")) == "aborted-read"


def test_a_failed_cas_that_took_effect() -> None:  # C08
    text = "1 invoke write 5\n1 ok write 5\n2 invoke cas [5 14]\n2 fail cas [5 14]\n"
    text += "3 invoke read -\n3 ok read 14"
    for cas_fail in ("differed", "did-not-happen"):
        verdict = check(script(text), "cas", cas_fail=cas_fail)
        assert name(verdict) == "aborted-read"
        assert verdict.anomalies[0].details["robust"] is False
    assert check(script(text.replace("2 fail", "2 info")), "cas").verdict == "pass"


def test_the_first_completed_operation_is_wrong() -> None:  # C24
    text = "1 invoke read -\n101 invoke write 3\n101 fail write 3\n1 ok read 3"
    assert name(check(script(text), "register")) == "aborted-read"
    assert check(script(text.replace("fail", "info")), "register").verdict == "pass"


def test_a_value_from_nowhere() -> None:  # C28
    text = "0 invoke write 1\n0 ok write 1\n0 invoke read -\n0 ok read 2"
    verdict = check(script(text), "register")
    assert name(verdict) == "phantom-read"
    assert verdict.anomalies[0].ops == (2,)
    assert verdict.anomalies[0].details["earliest_ns"] == 3
    assert verdict.anomalies[0].details["robust"] is True


def test_the_initial_value_decides() -> None:  # C30, each transaction as one compare-and-set
    text = "0 invoke cas [2 2]\n1 invoke cas [2 3]\n0 ok cas -\n1 ok cas -"
    assert check(script(text), "cas", initial=2).verdict == "pass"
    assert check(script(text), "cas").verdict == "fail"


def test_equal_times_are_concurrent() -> None:  # C31
    legal = [
        Made(0, 100, "write", value=100),
        Made(25, 75, "read", result=100),
        Made(30, 30, "read", result=0),
        Made(30, 30, "read", result=0),
    ]
    stale = [
        Made(0, 100, "write", value=200),
        Made(10, 10, "read", result=200),
        Made(10, 10, "read", result=200),
        Made(40, 90, "read", result=0),
    ]
    assert check(history_of(legal), "register", initial=0).verdict == "pass"
    verdict = check(history_of(stale), "register", initial=0)
    assert name(verdict) == "read-reversal"
    assert verdict.anomalies[0].details["earliest_ns"] == 90


def test_lists_that_shrink() -> None:  # C70
    empty = "0 invoke append 89\n0 ok append 89\n0 invoke read -\n0 ok read [4 5 7 26 89]\n"
    empty += "0 invoke append 97\n0 ok append 97\n2 invoke read -\n2 ok read -"
    assert name(check(script(empty), "kv", initial=[4, 5, 7, 26])) == "stale-read"
    gone = "526 invoke append 25\n526 info append 25\n7 invoke append 27\n7 info append 27\n"
    gone += "548 invoke read -\n548 ok read [24 26 25]\n521 invoke read -\n521 ok read [24 26 25]\n"
    gone += "560 invoke read -\n560 ok read [24 26 27]"
    assert name(check(script(gone), "kv", initial=[24, 26])) == "lost-ack"


def test_unknown_writes_of_distinct_values_are_no_search() -> None:
    """Forty unknown writes; they are read in reverse order, twice."""  # C26
    calls = [Made(i, 0, "write", value=i + 1, type="info") for i in range(40)]
    calls += [Made(100 + i, 100 + i, "read", result=40 - i) for i in range(40)]
    assert check(history_of(calls), "register", initial=0, budget_s=0).verdict == "pass"
    calls += [Made(200 + i, 200 + i, "read", result=40 - i % 40) for i in range(40)]
    assert check(history_of(calls), "register", initial=0, budget_s=0).verdict == "fail"


def hard() -> Columns:
    """Pending appends of even length and a text of odd length: every subset has to be tried."""
    calls = [Made(i, 300 + i, "append", value="a" * (2 * i + 2)) for i in range(18)]
    return from_history(history_of([*calls, Made(100, 101, "get", result="a" * 101)]))


def test_a_search_that_runs_away_is_stopped() -> None:  # C26
    ticks = itertools.count()
    late = check_columns(hard(), "kv", budget_s=5, clock=lambda: float(next(ticks)))
    full = check_columns(hard(), "kv", memory_bytes=1 << 16)
    for verdict in (late, full):
        assert verdict.verdict == "unknown"
        assert [item.reason for item in verdict.unknown] == [Reason.CHECKER_LIMIT]
        assert "gave up after" in verdict.headline


def test_text_that_grew_is_no_phantom() -> None:
    calls = [Made(2 * i, 2 * i + 1, "append", value=f"x{i}y") for i in range(3)]
    lost = history_of([*calls, Made(10, 11, "get", result="x0yx2y")])
    assert name(check(lost, "kv", initial="")) == "stale-read"
    unsaid = history_of([*calls, Made(10, 11, "get", result="x0yx9y")])
    assert name(check(unsaid, "kv", initial="")) == "phantom-read"


def test_evidence_has_a_budget_of_its_own() -> None:
    """A finding is told although nothing about it can be made smaller in time."""
    ticks = itertools.count(step=20)
    calls = [Made(2 * i, 2 * i + 1, "put", value=f"x{i}y") for i in range(30)]
    columns = from_history(history_of([*calls, Made(90, 91, "get", result="x2y")]))
    verdict = check_columns(columns, "kv", budget_s=1e9, initial="", clock=lambda: next(ticks))
    assert name(verdict) == "stale-read"
    assert verdict.anomalies[0].details["coarse"]
    assert any("coarse" in note for note in verdict.notes)
    assert len(verdict.anomalies[0].ops) == 31
    verdict = check_columns(columns, "kv", initial="")
    assert not verdict.anomalies[0].details["coarse"]
    assert len(verdict.anomalies[0].ops) < 10


def test_the_read_is_blamed_and_not_what_a_search_that_looks_ahead_gave_up_at() -> None:
    for puts in (20, 120):
        calls = [Made(2 * i, 2 * i + 9, "put", value=f"x{i}y") for i in range(puts)]
        stale = history_of([*calls, Made(500, 501, "get", result="x2y")])
        (anomaly,) = check(stale, "kv", initial="").anomalies
        assert anomaly.sentence.startswith("get -> 'x2y'")
        assert anomaly.details["earliest_ns"] == 501
        assert len(anomaly.ops) == 3


@pytest.mark.parametrize("work", [None, 10_000.0])
def test_a_busy_machine_finds_the_same_evidence(
    work: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand times as slow: what is bounded by work stays the same, coarse or not."""
    if work:
        monkeypatch.setattr(evidence, "_WORK", work)
    calls = [Made(2 * i, 2 * i + 9, "put", value=f"x{i}y") for i in range(120)]
    columns = from_history(history_of([*calls, Made(500, 501, "get", result="x2y")]))

    def verdict(step_s: float) -> Verdict:
        ticks = itertools.count(step=step_s)
        return check_columns(columns, "kv", initial="", clock=lambda: next(ticks))

    at_once, slow = verdict(0.0), verdict(0.001)
    assert at_once == slow
    assert at_once.anomalies[0].details["coarse"] == (work is not None)


def test_what_cannot_be_judged() -> None:
    again = "1 invoke cas [2 0]\n1 info cas [2 0]\n1 invoke read -"
    verdict = check(script(again), "cas")
    assert (verdict.verdict, verdict.unknown[0].reason) == ("unknown", Reason.MALFORMED)
    assert "line 3" in verdict.headline
    verdict = check(script("1 invoke cas 5\n1 ok cas -"), "cas")
    assert "needs [old, new]" in verdict.headline
    nothing = "1 invoke write 0\n3 invoke read -\n3 fail read -\n1 fail write 0"
    assert check(script(nothing), "register").unknown[0].reason == Reason.VACUOUS
    assert check(History([]), "register").verdict == "unknown"
    with pytest.raises(UsageError, match="did you mean register"):
        check(History([]), "registr")


def test_only_one_key_is_wrong() -> None:
    calls = [Made(3 * i, 3 * i + 1, "write", key=f"k{i % 7}", value=i) for i in range(70)]
    calls += [Made(400, 401, "read", key="k3", result=10)]
    verdict = check(history_of(calls), "register")
    assert name(verdict) == "stale-read"
    assert verdict.anomalies[0].key == "k3"
    assert len(verdict.anomalies[0].ops) == 3


def test_every_model_says_what_it_is() -> None:
    for model in MODELS.values():
        assert len(model.doc) > 20
        assert model.ops

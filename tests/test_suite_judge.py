"""What came out of a suite is compared with what was expected, run by run."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.results import Results
from harness.spec import RunSpec, TargetSpec
from harness.suite import Expected, Planned, Row, carry_out, exit_code, judge
from harness.verdict import Anomaly, Outcome, Verdict


def planned(
    expect: Expected = "pass", anomalies: Sequence[str] = (), refusals: int = 0, name: str = "one"
) -> Planned:
    spec = RunSpec(TargetSpec("etcd"), TargetSpec("valkey"))
    return Planned(name, spec, expect, tuple(anomalies), refusals)


def results(verdict: Outcome = "pass", anomalies: Sequence[str] = (), refusals: int = 0) -> Results:
    found = tuple(
        Anomaly(name=name, sentence="", ops=(1,), time_ns=2_500_000_000) for name in anomalies
    )
    return Results(
        run="r",
        command="",
        began="",
        duration_s=1.0,
        verdict=Verdict(
            verdict=verdict, headline="so it is", anomalies=found, stats={"stale_refused": refusals}
        ),
        first_finding_s=2.5 if found else None,
    )


@pytest.mark.parametrize(
    ("plan", "code", "came", "why_not"),
    [
        (planned(), 0, results(), ""),
        (planned("fail"), 1, results("fail", ["lost-update"]), ""),
        (planned("fail", ["lost-update"]), 1, results("fail", ["stale-read", "lost-update"]), ""),
        (planned("unknown"), 2, results("unknown"), ""),
        (planned("pass", refusals=2), 0, results(refusals=2), ""),
        (planned(), 1, results("fail", ["lost-update"]), "fail instead of pass: so it is"),
        (planned("fail"), 0, results(), "pass instead of fail: so it is"),
        (planned(), 2, results("unknown"), "unknown instead of pass: so it is"),
        (
            planned("fail", ["stale-owner-write"]),
            1,
            results("fail", ["lost-update"]),
            "not found: stale-owner-write",
        ),
        (
            planned("pass", refusals=2),
            0,
            results(refusals=1),
            "stale writes refused: 1, expected at least 2",
        ),
        (planned("fail"), 255, results("fail"), "broken"),
        (planned("fail"), 1, None, "broken"),
    ],
)
def test_what_is_as_expected(plan: Planned, code: int, came: Results | None, why_not: str) -> None:
    row = judge(plan, code, Path("runs/x"), came, "broken")
    assert row.why_not == why_not
    assert row.as_expected == (not why_not)


def test_a_row_knows_the_time_to_the_first_finding() -> None:
    row = judge(planned("fail"), 1, Path("runs/x"), results("fail", ["lost-update"]), "")
    assert (row.verdict, row.first_finding_s, row.folder) == ("fail", 2.5, Path("runs/x"))


def row(code: int, why_not: str = "") -> Row:
    return Row(planned(), code, "pass", why_not)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([row(0), row(1)], 0),
        ([row(0), row(0, "no")], 1),
        ([row(0), row(255, "broken"), row(1, "no")], 255),
        ([row(254, "broken")], 255),
        ([row(255, "broken"), row(130, "interrupted")], 130),
        ([], 1),
    ],
)
def test_the_exit_code_of_a_suite(rows: list[Row], code: int) -> None:
    assert exit_code(rows) == code


def test_a_broken_run_does_not_stop_the_others_and_an_interrupted_one_does() -> None:
    plans = [planned(name=name) for name in ("a", "b", "c", "d")]
    codes = iter([255, 0, 130])

    def run(_: RunSpec) -> tuple[int, Path | None, Results | None, str]:
        code = next(codes)
        return code, None, results() if code == 0 else None, "broken"

    rows = list(carry_out(plans, run))
    assert [(r.planned.name, r.verdict) for r in rows] == [
        ("a", "error"),
        ("b", "pass"),
        ("c", "interrupted"),
    ]

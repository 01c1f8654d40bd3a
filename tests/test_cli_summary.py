"""What a person reads first: the summary, tables, colours, and text that cannot harm a terminal."""

import io
from pathlib import Path

import msgspec
import pytest

from harness import terminal
from harness.results import Results
from harness.summary import lines, proven_faults
from harness.verdict import Anomaly, Outcome, Reason, Unknown, Verdict
from harness.window import Grade, Window


def results(
    verdict: Outcome,
    headline: str,
    *,
    anomalies: tuple[Anomaly, ...] = (),
    unknown: tuple[Unknown, ...] = (),
    leftover: tuple[str, ...] = (),
    error: str | None = None,
    interrupted: bool = False,
) -> Results:
    return Results(
        run="r",
        command="",
        began="",
        duration_s=1.0,
        verdict=Verdict(verdict=verdict, headline=headline, anomalies=anomalies, unknown=unknown),
        leftover=leftover,
        error=error,
        interrupted=interrupted,
    )


def anomaly(name: str, seconds: float) -> Anomaly:
    return Anomaly(name=name, sentence="", ops=(1,), time_ns=int(seconds * 1e9))


def window(grade: Grade) -> bytes:
    made = Window(spec=0, kind="pause", who="holder", nodes=(), at="x", requested_ns=0, grade=grade)
    return msgspec.json.encode(made) + b"\n"


def test_a_failed_run(tmp_path: Path) -> None:
    (tmp_path / "faults.jsonl").write_bytes(window("installed") * 2 + window("not-effective"))
    (tmp_path / "report.html").touch()
    found = (
        anomaly("stale-owner-write", 5),
        anomaly("lost-update", 3),
        anomaly("lost-update", 2.5),
    )
    assert lines(results("fail", "w1 overwrote w2", anomalies=found), tmp_path) == [
        "FAIL: w1 overwrote w2",
        "  stale-owner-write: once at 5.000 s",
        "  lost-update: 2 times, first at 2.500 s",
        "  faults proven in force: 2 of 3",
        f"  report: {tmp_path}/report.html",
    ]


def test_an_unknown_run_says_every_reason_and_what_stands_beside_it() -> None:
    unknown = (
        Unknown(reason=Reason.VACUOUS, text="no takeover"),
        Unknown(reason=Reason.FAULT_NOT_EFFECTIVE, text="w1 ran on"),
    )
    shown = lines(
        results(
            "unknown",
            "cannot be judged",
            unknown=unknown,
            leftover=("pause on w1",),
            error="worker died",
            interrupted=True,
        )
    )
    assert shown == [
        "UNKNOWN: cannot be judged",
        "  unknown because vacuous: no takeover",
        "  unknown because fault-not-effective: w1 ran on",
        "  interrupted: judged up to there",
        "  left over after the run: pause on w1",
    ]


def test_only_the_first_five_kinds_of_findings_are_listed() -> None:
    found = tuple(anomaly(f"name{i}", 1) for i in range(7))
    shown = lines(results("fail", "much", anomalies=found))
    assert shown[-2:] == ["  name4: once at 1.000 s", "  and 2 more kinds of findings"]


def test_a_run_without_a_report_points_to_its_folder(tmp_path: Path) -> None:
    assert lines(results("pass", "well"), tmp_path) == ["PASS: well", f"  run: {tmp_path}"]


def test_faults_are_counted_up_to_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "faults.jsonl").write_bytes(window("installed") + b'{"spec":')
    assert proven_faults(tmp_path) == (1, 1)
    (tmp_path / "faults.jsonl").write_bytes(b"no json\n")
    assert proven_faults(tmp_path) is None


def test_text_of_a_target_cannot_reach_the_terminal_as_control() -> None:
    head, *_ = lines(results("fail", "w1 wrote \x1b]0;owned\x07\x9b31m\r!"))
    assert head == "FAIL: w1 wrote \\x1b]0;owned\\x07\\x9b31m\\r!"
    assert terminal.printable("zwei\nZeilen, schön") == "zwei\nZeilen, schön"
    assert terminal.printable("a\u202eb") == "a\\u202eb"


def test_a_table_is_as_wide_as_its_cells() -> None:
    assert terminal.table(("a", "long"), [("xyz", "1"), ("y", "2")]) == [
        "a    long",
        "xyz  1",
        "y    2",
    ]


class Tty(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "wanted"),
    [
        (Tty(), {}, True),
        (io.StringIO(), {}, False),
        (Tty(), {"NO_COLOR": "1"}, False),
        (Tty(), {"NO_COLOR": ""}, True),
        (Tty(), {"TERM": "dumb"}, False),
    ],
)
def test_colours_only_where_they_are_wanted(
    stream: io.StringIO,
    variables: dict[str, str],
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal.colourful(stream) is wanted
    monkeypatch.setattr("sys.stdout", stream)
    assert terminal.paint("x", "red") == ("\x1b[31mx\x1b[0m" if wanted else "x")

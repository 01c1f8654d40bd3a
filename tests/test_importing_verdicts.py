"""`winkle check` on other people's histories: verdicts, readings, names, and what must be said."""

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from harness.importing import load
from harness.offline import Asked, judge_file
from tests.support_importing import PUBLISHED, as_edn, as_jsonl, as_log, check, reasons

KNOWN = PUBLISHED / "verdicts.json"
# Nothing succeeded in these: an order exists, and shows nothing.
VACUOUS = ("mongodb-v0-ack-rollback-10.edn", "mongodb-v0-ack-rollback-9.edn")
C08A = """
1 invoke write 5
1 ok write 5
2 invoke cas [5 14]
2 fail cas [5 14]
3 invoke read -
3 ok read 14
"""


def published() -> list[Any]:
    if not KNOWN.is_file():
        reason = "the published histories are not beside the project"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="published")]
    return [pytest.param(e, id=e["file"]) for e in json.loads(KNOWN.read_text("utf-8"))]


@pytest.mark.parametrize("entry", published())
def test_published_verdicts(entry: dict[str, Any]) -> None:
    path = PUBLISHED / entry["file"]
    loaded = load(path)
    assert sum(op.type == "invoke" for op in loaded.history.ops) == entry["invocations"]
    asked = Asked(initial=0) if entry["model"].endswith("initial 0") else Asked()
    verdict = judge_file(path, asked).verdict
    if path.name in VACUOUS:
        assert [item.reason for item in verdict.unknown] == ["vacuous"]
        return
    assert verdict.verdict == ("pass" if entry["expected"] else "fail"), verdict.headline
    if "first_impossible_event" in entry:
        assert verdict.anomalies[0].details["earliest_ns"] == entry["first_impossible_event"]


@pytest.mark.parametrize("write", [as_jsonl, as_edn, as_log])
def test_a_failed_operation_was_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Any
) -> None:
    """C08a and C08b: the verdict hangs on one word of the adapter's error table."""
    path = tmp_path / "history"
    text = C08A.replace("[5 14]", "[5,14]") if write is as_jsonl else C08A
    path.write_text(write(text))
    flags = ("--model", "cas", "--cas-fail", "did-not-happen")
    code, verdict = check(path, *flags, capsys=capsys)
    assert (code, [a["name"] for a in verdict["anomalies"]]) == (1, ["aborted-read"])
    path.write_text(write(text.replace("fail", "info")))
    code, verdict = check(path, *flags, capsys=capsys)
    assert (code, verdict["verdict"]) == (0, "pass")


@pytest.mark.parametrize("write", [as_jsonl, as_edn])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1 invoke cas [2,0]\n1 info cas [2,0]\n1 invoke read -", 3),
        ("6 invoke read [6,-]\n3 invoke read [3,-]\n6 ok read -\n3 ok read -", 3),
    ],
)
def test_histories_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Any, text: str, line: int
) -> None:
    """C22a and C22b."""
    path = tmp_path / "history"
    path.write_text(write(text))
    code, verdict = check(path, "--model", "cas", capsys=capsys)
    assert (code, reasons(verdict)) == (2, ["malformed"])
    assert f"line {line}:" in verdict["unknown"][0]["text"]


@pytest.mark.parametrize("write", [as_jsonl, as_edn])
def test_the_value_of_the_completion_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Any
) -> None:
    """C22c: a read is invoked with one value, and returns another."""
    path = tmp_path / "history"
    path.write_text(write("a invoke read [1,2]\na ok read [1,3]"))
    code, verdict = check(path, "--model", "register", "--initial", "3", capsys=capsys)
    assert (code, verdict["verdict"]) == (0, "pass")
    code, verdict = check(path, "--model", "register", "--initial", "2", capsys=capsys)
    assert code == 1


def test_two_readings_of_a_failed_compare_and_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value certainly was the old one, and the operation failed all the same."""
    path = tmp_path / "history"
    text = "1 invoke write 5\n1 ok write 5\n2 invoke cas [5 6]\n2 fail cas [5 6]"
    path.write_text(as_log(text))
    code, verdict = check(path, capsys=capsys)
    assert code == 1
    assert any("--cas-fail differed" in note for note in verdict["notes"])
    code, verdict = check(path, "--cas-fail", "did-not-happen", capsys=capsys)
    assert code == 0
    assert any("--cas-fail did-not-happen" in note for note in verdict["notes"])
    assert check(path, "--format", "jepsen", capsys=capsys)[0] == 0


def test_an_error_that_is_not_about_the_value_proves_nothing_about_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    text = as_edn("1 invoke write [0 5]\n1 ok write [0 5]\n2 invoke cas [0 [5 6]]\n3 invoke read -")
    text = text.replace(":read, :value nil", ":read, :value [0 nil]")
    end = "{{:process 2, :type :fail, :f :cas, :value [0 [5 6]], :error [:{0} nil]}}\n"
    flags = ("--format", "maelstrom", "--cas-fail", "differed")
    path.write_text(text + end.format("precondition-failed"))
    assert check(path, *flags, capsys=capsys)[0] == 1
    path.write_text(text + end.format("temporarily-unavailable"))
    code, verdict = check(path, *flags, capsys=capsys)
    assert code == 0
    assert any("not about the value" in note for note in verdict["notes"])


def test_a_read_of_nil(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history"
    path.write_text(as_edn("1 invoke write 5\n1 ok write 5\n2 invoke read -\n2 ok read -"))
    assert check(path, capsys=capsys)[0] == 1
    code, verdict = check(path, "--initial", "0", capsys=capsys)
    assert code == 0
    assert any("matches anything" in note for note in verdict["notes"])
    assert check(path, "--initial", "0", "--nil-read", "value", capsys=capsys)[0] == 1


@pytest.mark.parametrize("write", [as_jsonl, as_edn])
def test_a_finding_that_hangs_on_the_initial_value_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Any
) -> None:
    """C30: what the first value was decides, and nobody says it."""
    path = tmp_path / "history"
    text = "0 invoke cas [2,2]\n1 invoke cas [2,3]\n0 ok cas -\n1 ok cas -"
    path.write_text(write(text))
    code, verdict = check(path, "--model", "cas", capsys=capsys)
    assert (code, reasons(verdict)) == (2, ["malformed"])
    assert "--initial" in verdict["headline"]
    assert check(path, "--model", "cas", "--initial", "2", capsys=capsys)[0] == 0
    assert check(path, "--model", "cas", "--initial", "nil", capsys=capsys)[0] == 1
    path.write_text(write(text + "\n2 invoke read -\n2 ok read 9"))
    assert check(path, "--model", "cas", capsys=capsys)[0] == 1


def test_a_history_of_maelstrom_is_recognised_by_its_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    text = as_edn("1 invoke write [0 5]\n1 ok write [0 5]\n2 invoke cas [0 [7 6]]")
    end = '{:process 2, :type :fail, :f :cas, :value [0 [7 6]], :error [:precondition-failed "no"]}'
    path.write_text(f"{text}{end}\n")
    code, verdict = check(path, capsys=capsys)
    assert code == 0
    assert any("read as maelstrom" in note for note in verdict["notes"])


def test_a_read_that_timed_out_says_nothing_and_a_write_may_still_act(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    text = "1 invoke write 5\n1 info write :timed-out\n2 invoke read -\n2 fail read :timed-out\n"
    for value, code in (("5", 0), ("-", 0), ("6", 1)):
        path.write_text(as_log(f"{text}2 invoke read -\n2 ok read {value}"))
        assert check(path, capsys=capsys)[0] == code, value


def test_names_are_mapped_by_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history"
    path.write_text(as_edn("1 invoke lock -\n1 ok lock -\n2 invoke lock -\n2 ok lock -"))
    code, said = check(path, capsys=capsys)
    assert code == 254
    assert "--acquire" in said["error"]
    assert check(path, "--acquire", "lock", "--release", "unlock", capsys=capsys)[0] == 1
    path.write_text(as_edn("1 invoke lock -\n1 ok lock -\n1 invoke unlock -\n1 ok unlock -"))
    assert check(path, "--acquire", "lock", "--release", "unlock", capsys=capsys)[0] == 0


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--model", "registre"), "register"),
        (("--format", "xml"), "jepsen"),
        (("--cas-fail", "no"), "differed"),
        (("--nil-read", "no"), "anything"),
        (("--budget", "60"), "--budget"),
        (("--workload", "fencing"), "--workload"),
        (("--model", "set"), "knows add"),
    ],
)
def test_wrong_flags_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], word: str
) -> None:
    path = tmp_path / "history"
    path.write_text(as_edn("1 invoke write 5\n1 ok write 5\n2 invoke cas [1 2]"))
    code, said = check(path, *flags, capsys=capsys)
    assert code == 254
    assert word in said["error"]
    assert said["error"].count("\n") == 1


def test_our_own_records_are_judged_by_their_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl.gz"
    path.write_bytes(gzip.compress(as_jsonl("1 invoke write 5\n1 ok write 5").encode()))
    code, verdict = check(path, capsys=capsys)
    assert code == 2
    assert not any("read as" in note for note in verdict["notes"])
    assert check(path, "--model", "register", capsys=capsys)[0] == 0
    code, said = check(path, "--initial", "0", capsys=capsys)
    assert code == 254
    assert "--model" in said["error"]


@pytest.mark.parametrize("text", ["", "INFO jepsen.core - the cluster did not start\n", "[]"])
def test_an_empty_history_shows_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    code, verdict = check(path, "--model", "cas", capsys=capsys)
    assert (code, reasons(verdict)) == (2, ["vacuous"])


def test_a_person_is_told_what_the_verdict_rests_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.cli import main

    path = tmp_path / "history"
    path.write_text("; a remark\n" + as_edn(C08A))
    assert main(["check", str(path)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("FAIL: ")
    assert "of the file" in printed
    assert "read as jepsen, judged as cas with initial value null" in printed
    assert "--cas-fail did-not-happen" in printed


def test_the_command_of_the_results_repeats_the_check(tmp_path: Path) -> None:
    asked = Asked(
        model="mutex", format="jepsen", initial={"a": [1]}, names={"lock": "acquire"}, budget_s=2.5
    )
    (tmp_path / "no history").write_text("[]")
    words = shlex.split(judge_file(tmp_path / "no history", asked).command)
    assert words[:3] == ["winkle", "check", str(tmp_path / "no history")]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert given == {
        "--model": "mutex",
        "--format": "jepsen",
        "--initial": '{"a":[1]}',
        "--acquire": "lock",
        "--budget": "2.5s",
    }

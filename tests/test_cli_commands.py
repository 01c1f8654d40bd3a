"""The commands with a stub in place of the harness: flags, output, and exit codes."""

import importlib
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.cli import main
from harness.errors import HarnessError, MalformedHistoryError, SandboxError, TargetError
from harness.results import Results
from harness.spec import RunSpec
from harness.units import Duration
from harness.verdict import Anomaly, Outcome, Verdict
from tests.support_plugins import install

RUN = ["run", "--lock", "etcd", "--store", "valkey"]


@dataclass(frozen=True)
class Result:
    """What `harness.api.execute` returns."""

    exit_code: int
    folder: Path | None
    results: Results | None
    error: str | None = None


@dataclass(frozen=True)
class Finding:
    """What `harness.doctor.examine` returns."""

    name: str
    ok: bool
    text: str
    fix: str
    required: bool = True


def results(
    verdict: Outcome,
    first_s: float | None = None,
    refusals: int = 0,
    found: Sequence[str] = ("stale-owner-write",),
) -> Results:
    anomalies = tuple(
        Anomaly(name=name, sentence="", ops=(1,), time_ns=int(first_s * 1e9))
        for name in found
        if first_s is not None
    )
    return Results(
        run="r",
        command="",
        began="",
        duration_s=1.0,
        verdict=Verdict(
            verdict=verdict,
            headline="so it is",
            anomalies=anomalies,
            stats={"stale_refused": refusals},
        ),
        first_finding_s=first_s,
    )


class Api:
    """Stands for `harness.api`: answers from a list, and notes what was asked."""

    def __init__(self) -> None:
        self.answers: Iterator[Result | BaseException] = iter(())
        self.asked: list[tuple[RunSpec, Path, bool, bool]] = []
        self.missing: Exception | None = None

    def answer(self, *answers: Result | BaseException) -> None:
        """Set the answers of the next runs."""
        self.answers = iter(answers)

    def require(self, backends: Collection[str]) -> None:
        """Say what all runs miss, if anything."""
        assert backends
        if self.missing:
            raise self.missing

    def execute(self, spec: RunSpec, out: Path, *, json_output: bool, quiet: bool) -> Result:
        """Answer."""
        self.asked.append((spec, out, json_output, quiet))
        answer = next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    """Put a module of that name in the place of the real one."""
    made = ModuleType(name)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)
    parent, _, child = name.rpartition(".")
    monkeypatch.setattr(importlib.import_module(parent), child, made, raising=False)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    install(monkeypatch)
    stub = Api()
    module(monkeypatch, "harness.api", execute=stub.execute, require=stub.require)
    return stub


def test_flags_become_a_run(api: Api, tmp_path: Path) -> None:
    api.answer(Result(0, None, results("pass")))
    code = main(
        [
            *RUN,
            *(
                "--fault",
                "pause:who=holder,at=before-write,for=2.5leases",
                "--fault",
                "pause:at=3s",
            ),
            *(
                "--workers",
                "5",
                "--readers",
                "0",
                "--ttl",
                "1s",
                "--time",
                "30s",
                "--op-timeout",
                "2s",
            ),
            *("--seed", "7", "--keys", "3", "--think", "5ms", "--no-check", "--backend", "local"),
            *("--out", str(tmp_path), "--quiet"),
        ]
    )
    assert code == 0
    ((spec, out, as_json, quiet),) = api.asked
    assert (out, as_json, quiet) == (tmp_path, False, True)
    assert (spec.workers, spec.readers, spec.seed) == (5, 0, 7)
    assert (spec.ttl_s, spec.time_s, spec.op_timeout_s) == (1.0, 30.0, 2.0)
    assert spec.options == {"keys": 3, "think": "5ms", "check": False}
    assert [(f.phase, f.at) for f in spec.faults] == [
        ("before-write", None),
        (None, Duration(3.0)),
    ]


def test_a_run_file_and_flags_over_it(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("lock: etcd\nstore: valkey\nseed: 3\nworkers: 9\n")
    api.answer(Result(0, None, results("pass")))
    assert main(["run", str(path), "--workers", "2"]) == 0
    assert (api.asked[0][0].seed, api.asked[0][0].workers) == (3, 2)


def test_a_run_without_a_seed_gets_a_new_one_each_time(api: Api) -> None:
    api.answer(*(Result(0, None, results("pass")) for _ in range(3)))
    for _ in range(3):
        main(RUN)
    assert len({spec.seed for spec, *_ in api.asked}) == 3


def test_all_mistakes_of_flags_are_said_at_once(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--lock", "etcdd", "--workers", "x", "--ttl", "2", "--rate", "3"]) == 254
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(":")[1].strip() for line in said.err.splitlines()] == [
        "--store",
        "--workers",
        "--ttl",
        "--lock",
        "--rate",
    ]
    assert api.asked == []


@pytest.mark.parametrize(
    ("result", "out", "err"),
    [
        (Result(0, None, results("pass")), "PASS: so it is\n", ""),
        (
            Result(1, None, results("fail", 4.25)),
            "FAIL: so it is\n  stale-owner-write: once at 4.250 s\n",
            "",
        ),
        (Result(2, None, results("unknown")), "UNKNOWN: so it is\n", ""),
        (Result(130, None, results("unknown")), "UNKNOWN: so it is\n", ""),
        (Result(255, None, None, "no\x1bsandbox"), "", "winkle: no\\x1bsandbox\n"),
    ],
)
def test_a_run_ends_with_its_summary_and_its_exit_code(
    api: Api, capsys: pytest.CaptureFixture[str], result: Result, out: str, err: str
) -> None:
    api.answer(result)
    assert main(RUN) == result.exit_code
    assert capsys.readouterr() == (out, err)


def test_a_run_prints_json_for_programs(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer(Result(1, Path("runs/x"), results("fail", 2.0)), Result(255, None, None, "broken"))
    assert main([*RUN, "--json", "--repeat", "2", "--seed", "5"]) == 255
    said = capsys.readouterr()
    first, second = (json.loads(line) for line in said.out.splitlines())
    assert (first["seed"], first["exit_code"], first["folder"]) == (5, 1, "runs/x")
    assert first["results"]["verdict"]["anomalies"][0]["name"] == "stale-owner-write"
    assert (second["seed"], second["results"], second["error"]) == (6, None, "broken")
    assert api.asked[0][2] is True


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([0, 0, 0], 0),
        ([0, 2, 0], 2),
        ([2, 1, 0], 1),
        ([1, 255, 2], 255),
        ([0, 77, 1], 255),
    ],
)
def test_repeats_end_with_a_table_and_the_gravest_code(
    api: Api, capsys: pytest.CaptureFixture[str], codes: list[int], worst: int
) -> None:
    api.answer(*(Result(code, None, results("pass", 1.5)) for code in codes))
    assert main([*RUN, "--repeat", "3", "--seed", "10"]) == worst
    assert [spec.seed for spec, *_ in api.asked] == [10, 11, 12]
    table = capsys.readouterr().out.splitlines()[-4:]
    assert table[0].split() == ["seed", "verdict", "first", "finding", "after", "report"]
    assert table[1].split() == ["10", "pass", "1.5", "s", "-"]


def test_an_interrupted_run_ends_the_repeats(api: Api) -> None:
    api.answer(Result(1, None, results("fail")), Result(130, None, None, "interrupted"))
    assert main([*RUN, "--repeat", "9"]) == 130
    assert len(api.asked) == 2


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (HarnessError("no space"), 255, "winkle: no space"),
        (TargetError("etcd1 died\nlast line"), 255, "winkle: etcd1 died\nlast line"),
        (MalformedHistoryError(3, "no op"), 2, "winkle: UNKNOWN (malformed): line 3: no op"),
        (OSError(28, "No space left", "runs/x"), 255, "winkle: runs/x: No space left"),
        (
            ZeroDivisionError("by\nzero"),
            255,
            "internal error: ZeroDivisionError: by zero (run again",
        ),
        (SystemExit(7), 255, "internal error: SystemExit: 7"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_breaks_is_said_in_a_line_and_never_a_traceback(
    api: Api, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, words: str
) -> None:
    api.answer(error)
    assert main(RUN) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("place", [0, 1, len(RUN)])
def test_debug_shows_the_traceback_wherever_it_stands(
    api: Api, capsys: pytest.CaptureFixture[str], place: int
) -> None:
    api.answer(ZeroDivisionError("by zero"))
    assert main([*RUN[:place], "--debug", *RUN[place:]]) == 255
    assert "Traceback" in capsys.readouterr().err


SUITE = """\
runs:
  - {name: must fail, lock: etcd, store: valkey, expect: fail, anomalies: [stale-owner-write]}
  - {name: must pass, lock: etcd, store: "valkey[fenced=true]", expect: pass, refusals: 1}
"""


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(SUITE)
    return str(path)


def test_a_suite_that_goes_as_expected(
    api: Api, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(
        Result(1, Path("runs/a"), results("fail", 4.0)),
        Result(0, Path("runs/b"), results("pass", refusals=3)),
    )
    assert main(["suite", suite]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "run        verdict  expected  after  found",
        "must fail  fail     yes       4.0 s  stale-owner-write",
        "must pass  pass     yes       -      -",
        "runs/a",
        "runs/b",
        "2 of 2 runs as expected",
    ]
    assert said.err.splitlines()[:2] == ["[1/2] must fail", "  fail, as expected: runs/a"]


def test_the_table_of_a_suite_fits_into_80_columns(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    name = "a store behind a fence, with a holder that is paused for very long"
    path.write_text(SUITE.replace("must fail", f'"{name}"'))
    found = ("no-progress-after-heal", "unauthorised-effect", "stale-owner-write")
    api.answer(
        Result(1, Path("runs/a"), results("fail", 104.0, found=found)),
        Result(0, Path("runs/b"), results("pass", refusals=3)),
    )
    assert main(["suite", str(path), "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    table = lines[: lines.index("runs/a")]
    width = table[0].index("verdict")
    assert " ".join(line[:width].strip() for line in table[1:4]) == name
    assert all(any(name in line for line in table) for name in found)


def test_a_suite_goes_to_the_backend_that_is_asked_for(
    api: Api, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(
        Result(1, Path("runs/a"), results("fail", 4.0)),
        Result(0, Path("runs/b"), results("pass", refusals=3)),
    )
    assert main(["suite", suite, "-q", "--backend", "docker"]) == 0
    assert [asked[0].backend for asked in api.asked] == ["docker", "docker"]
    assert main(["suite", suite, "-q", "--backend", "moon"]) == 254
    assert "backend: found" in capsys.readouterr().err


def test_a_suite_goes_on_after_what_was_not_expected(
    api: Api, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(
        Result(0, Path("runs/a"), results("pass")),
        Result(0, Path("runs/b"), results("pass", refusals=0)),
    )
    assert main(["suite", suite, "--quiet"]) == 1
    said = capsys.readouterr()
    assert said.err == ""
    assert "must fail: pass instead of fail: so it is\n" in said.out
    assert "must pass: stale writes refused: 0, expected at least 1\n" in said.out
    assert said.out.endswith("0 of 2 runs as expected\n")


@pytest.mark.parametrize("broken", [HarnessError("no sandbox"), ZeroDivisionError("no sandbox")])
def test_a_run_that_breaks_makes_the_suite_255_and_does_not_stop_it(
    api: Api, suite: str, capsys: pytest.CaptureFixture[str], broken: Exception
) -> None:
    api.answer(broken, Result(0, None, results("pass", refusals=1)))
    assert main(["suite", suite, "--json"]) == 255
    record = json.loads(capsys.readouterr().out)
    assert record["exit_code"] == 255
    first, second = record["runs"]
    assert (first["verdict"], first["as_expected"]) == ("error", False)
    assert "no sandbox" in first["why_not"]
    assert (second["name"], second["verdict"], second["as_expected"]) == ("must pass", "pass", True)


def test_a_machine_on_which_no_run_can_live_is_told_once(
    api: Api, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.missing = HarnessError("no engine")
    assert main(["suite", suite]) == 255
    api.missing = None
    api.answer(SandboxError("no namespaces"))
    assert main(["suite", suite, "--quiet"]) == 255
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "winkle: no engine\nwinkle: no namespaces\n")


def test_a_sandbox_that_fails_later_costs_one_run(
    api: Api, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(Result(0, None, results("pass")), SandboxError("no memory"))
    assert main(["suite", suite, "--json"]) == 255
    assert [run["why_not"] for run in json.loads(capsys.readouterr().out)["runs"]][1] == "no memory"


def test_an_interrupted_suite_shows_what_it_has(
    api: Api, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(KeyboardInterrupt())
    assert main(["suite", suite]) == 130
    assert "0 of 2 runs as expected" in capsys.readouterr().out


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcome], list[tuple[Any, ...]]]:
    """Stand for `harness.judge`; returns what it was asked."""

    def stub(verdict: Outcome) -> list[tuple[Any, ...]]:
        asked: list[tuple[Any, ...]] = []

        def answer(*question: Any) -> Results:
            asked.append(question)
            return results(verdict)

        module(
            monkeypatch,
            "harness.judge",
            check_folder=answer,
            check_history=answer,
            render_folder=lambda path: [path / "report.html", path / "junit.xml"],
        )
        return asked

    return stub


@pytest.mark.parametrize(("verdict", "code"), [("pass", 0), ("fail", 1), ("unknown", 2)])
def test_check_judges_a_folder_or_a_history(
    judge: Callable[[Outcome], list[tuple[Any, ...]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    verdict: Outcome,
    code: int,
) -> None:
    asked = judge(verdict)
    history = tmp_path / "history.jsonl"
    history.touch()
    assert main(["check", str(tmp_path)]) == code
    assert main(["check", str(history)]) == code
    assert main(["check", str(history), "--workload", "other"]) == code
    assert asked == [(tmp_path,), (history, "fencing"), (history, "other")]
    assert capsys.readouterr().out.startswith(f"{verdict.upper()}: so it is\n  run: {tmp_path}\n")
    assert main(["check", str(tmp_path), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["verdict"]["verdict"] == verdict
    assert main(["check", str(tmp_path), "--workload", "other"]) == 254


def test_report_prints_what_it_wrote(
    judge: Callable[[Outcome], list[tuple[Any, ...]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judge("pass")
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/report.html\n{tmp_path}/junit.xml\n"


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([Finding("sandbox", ok=True, text="works", fix="")], 0),
        ([Finding("sandbox", ok=False, text="refused", fix="do this")], 1),
        ([Finding("extra", ok=False, text="absent", fix="do that", required=False)], 0),
    ],
)
def test_doctor_says_what_works_and_how_to_fix_the_rest(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    findings: list[Finding],
    code: int,
) -> None:
    module(monkeypatch, "harness.doctor", examine=lambda: findings)
    assert main(["doctor"]) == code
    said = capsys.readouterr().out
    (one,) = findings
    assert f"{'ok' if one.ok else 'no'}  {one.name}: {one.text}\n" in said
    assert (f"    fix: {one.fix}\n" in said) == bool(one.fix)
    assert main(["doctor", "--json"]) == code
    record: Mapping[str, Any] = json.loads(capsys.readouterr().out)[0]
    assert (record["name"], record["ok"], record["fix"]) == (one.name, one.ok, one.fix)


@pytest.mark.parametrize(
    ("done", "said"), [([], "nothing to undo\n"), (["run x: ended"], "run x: ended\n")]
)
def test_heal_prints_what_it_undid(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    done: list[str],
    said: str,
) -> None:
    module(monkeypatch, "harness.heal", heal=lambda: done)
    module(monkeypatch, "harness.docker.sweep", heal=list)
    assert main(["heal"]) == 0
    assert capsys.readouterr().out == said

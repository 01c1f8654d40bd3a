"""Suite files: what they mean, and that everything wrong with one is said before anything runs."""

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.suite import locate, read_suite, shipped, shipped_folder, suite_schema
from harness.yaml_places import read_yaml
from tests.support_plugins import install

GOOD = """\
about: two runs
runs:
  - name: first
    lock: etcd
    store: valkey
    faults: [pause]
    expect: fail
    anomalies: [stale-owner-write]
  - {name: second, lock: etcd, store: "valkey[fenced=true]", expect: pass, refusals: 1, seed: 9}
"""


@pytest.fixture(autouse=True)
def _stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def written(folder: Path, text: str) -> Path:
    path = folder / "s.yaml"
    path.write_text(text)
    return path


def complaints(folder: Path, text: str) -> list[str]:
    path = written(folder, text)
    with pytest.raises(UsageError) as caught:
        read_suite(path)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).split("\n")]


def test_a_suite_is_runs_with_expectations(tmp_path: Path) -> None:
    first, second = read_suite(written(tmp_path, GOOD), default_seed=5)
    assert (first.name, first.expect, first.anomalies) == ("first", "fail", ("stale-owner-write",))
    assert (first.spec.store.name, first.spec.seed, len(first.spec.faults)) == ("valkey", 5, 1)
    assert (second.expect, second.refusals, second.spec.seed) == ("pass", 1, 9)


def test_every_mistake_of_every_run_is_shown_at_once(tmp_path: Path) -> None:
    shown = complaints(
        tmp_path,
        """\
abuot: typo
runs:
  - name: first
    lock: etcdd
    store: valkey
    expect: passes
    workers: 0
  - lock: etcd
    store: valkey
    expect: fail
    anomalies: [stale-write, lost-update]
  - name: third
    lock: etcd
    stor: valkey
    expect: pass
  - 5
""",
    )
    starts = [
        '1:1: abuot: unknown key "abuot"; did you mean about?',
        '4:11: runs[0].lock: unknown target "etcdd"; did you mean etcd?',
        '6:13: runs[0].expect: found "passes"; allowed: pass, fail or unknown',
        "7:14: runs[0].workers: found 0; allowed: at least 1",
        "8:5: runs[1].name: missing",
        '11:17: runs[1].anomalies[0]: unknown anomaly "stale-write"; did you mean stale',
        "12:5: runs[2].store: missing",
        '14:5: runs[2].stor: unknown key "stor"; did you mean store?',
        "16:5: runs[3]: found 5; allowed: a mapping with name and expect",
    ]
    assert len(shown) == len(starts), "\n".join(shown)
    for line, start in zip(shown, starts, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "1:1: found nothing; allowed: a mapping with `runs:`"),
        ("runs: 5\n", "1:7: runs: found 5; allowed: a list of runs"),
        ("runs: []\n", "1:7: runs: found an empty list; allowed: at least one run"),
        (GOOD.replace("second", "first"), '9:12: runs[1].name: found "first" twice'),
        (GOOD.replace("refusals: 1", "refusals: -1"), "9:86: runs[1].refusals: found -1"),
        (
            GOOD.replace("[stale-owner-write]", "[stale-write]"),
            '8:17: runs[0].anomalies[0]: unknown anomaly "stale-write"; did you mean stale',
        ),
        (
            GOOD.replace("expect: fail", "expect: no"),
            "7:13: runs[0].expect: found false; allowed: pass",
        ),
    ],
)
def test_suites_that_make_no_sense(tmp_path: Path, text: str, line: str) -> None:
    shown = complaints(tmp_path, text)
    assert len(shown) == 1, shown
    assert shown[0].startswith(line)


def test_suites_are_found_by_name_and_by_path() -> None:
    assert locate("quick") == shipped_folder() / "quick.yaml"
    assert locate("./mine.yaml") == Path("mine.yaml")
    assert locate("some/where") == Path("some/where")
    with pytest.raises(UsageError, match=r'unknown suite "quik"; did you mean quick\?'):
        locate("quik")


def test_every_shipped_suite_says_what_it_is_about() -> None:
    assert "quick" in shipped()
    assert all(shipped().values())


def test_the_quick_suite_begins_with_a_run_that_must_fail() -> None:
    runs = read_yaml((shipped_folder() / "quick.yaml").read_bytes(), "quick").value["runs"]
    assert runs[0]["expect"] == "fail"
    assert runs[0]["anomalies"] == ["stale-owner-write"]
    assert [run["expect"] for run in runs] == ["fail", "pass", "fail", "pass", "pass"]
    assert all(run.get("refusals", 0) >= 1 for run in runs if "fenced=true" in run["store"])


def test_the_published_schema_accepts_the_quick_suite() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    value = read_yaml((shipped_folder() / "quick.yaml").read_bytes(), "quick").value
    jsonschema.validate(value, suite_schema())
    value["runs"][0]["expect"] = "maybe"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, suite_schema())

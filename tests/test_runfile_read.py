"""Run files: what they mean, and that everything wrong with one is said at once."""

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.runfile import from_flags, from_values, read, read_file, read_recorded, run_schema
from harness.spec import FaultSpec, TargetSpec
from harness.units import Duration
from tests.support_plugins import install

NO_DURATION = "is no duration: write a number and a unit, like 500ms, 2s, 1.5m or 2.5leases"
MINIMAL = "lock: etcd\nstore: valkey\n"


@pytest.fixture(autouse=True)
def _stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def complaints(text: str | bytes) -> list[str]:
    with pytest.raises(UsageError) as caught:
        read(text, source="run.yaml")
    return str(caught.value).split("\n")


def test_a_minimal_file_gets_the_defaults() -> None:
    spec = read(MINIMAL, default_seed=42)
    assert (spec.lock, spec.store) == (TargetSpec("etcd"), TargetSpec("valkey"))
    assert (spec.workload, spec.options, spec.faults) == ("fencing", {}, ())
    assert (spec.workers, spec.readers, spec.backend, spec.seed) == (3, 1, "local", 42)
    assert (spec.ttl_s, spec.time_s, spec.op_timeout_s) == (2.0, 15.0, 1.0)


def test_a_full_file() -> None:
    spec = read("""
lock: {name: etcd, options: {nodes: 5}}
store: valkey[fenced=true]
workload: {name: fencing, options: {keys: 2, think: 20ms}}
faults:
  - {kind: pause, who: holder, at: before-write, for: 2.5leases, every: 1s, count: 4, depth: 2}
  - "pause:who=leader,at=3s,for=4s"
  - {kind: pause, who: minority, at: random}
  - {kind: pause, at: random, count: 5, for: 500ms}
  - pause
backend: local
workers: 4
readers: 0
ttl: 1500ms
time: 1m
op_timeout: 0.5s
seed: 7
recorded: {anything: [goes, here]}
""")
    assert spec.lock == TargetSpec("etcd", {"nodes": 5})
    assert spec.store == TargetSpec("valkey", {"fenced": True})
    assert spec.options == {"keys": 2, "think": "20ms"}
    assert (spec.ttl_s, spec.time_s, spec.op_timeout_s, spec.seed) == (1.5, 60.0, 0.5, 7)
    two = Duration(2.0, in_leases=True)
    assert spec.faults == (
        FaultSpec(
            "pause",
            "holder",
            Duration(2.5, in_leases=True),
            phase="before-write",
            every=Duration(1.0),
            count=4,
            options={"depth": 2},
        ),
        FaultSpec("pause", "leader", Duration(4.0), at=Duration(3.0)),
        FaultSpec("pause", "minority", two, random_count=3),
        FaultSpec("pause", "holder", Duration(0.5), random_count=5),
        FaultSpec("pause", "holder", two, phase="before-write"),
    )


def test_every_mistake_is_shown_at_once_with_line_and_column() -> None:
    assert complaints("lock: etcdd\nstore: valkey\nworkers: 0\nttl: 2\n") == [
        (
            'run.yaml:1:7: lock: unknown target "etcdd"; did you mean etcd? allowed: etcd, lonely,'
            " valkey, or module:attribute, or ./file.py:attribute"
        ),
        "run.yaml:3:10: workers: found 0; allowed: at least 1",
        f"run.yaml:4:6: ttl: 2 {NO_DURATION}",
    ]


def test_mistakes_of_shape_do_not_hide_mistakes_of_meaning_beside_them() -> None:
    shown = complaints("""\
lock: {name: etcd, option: {}, options: {nodse: 3}}
store: valkey[fenced=maybe]
workload: {name: fencing, options: {keys: 0, thick: 2}}
faults:
  - {kind: pauze, for: 2}
  - {kind: pause, who: holderr, at: naver}
  - "pause:who=worker:9,dept=3"
  - 5
workers: no
wrokers: 3
workers: 4
""")
    starts = [
        "run.yaml:1:20: lock.option: unknown key",
        'run.yaml:1:42: lock.options.nodse: unknown option "nodse"; did you mean nodes?',
        'run.yaml:2:8: store.options.fenced: found "maybe"; allowed: true or false',
        "run.yaml:3:43: workload.options.keys: found 0; allowed: at least 1",
        'run.yaml:3:46: workload.options.thick: unknown option "thick"; did you mean think?',
        'run.yaml:5:12: faults[0].kind: unknown fault "pauze"; did you mean pause?',
        "run.yaml:5:24: faults[0].for: 2 is no duration",
        'run.yaml:6:24: faults[1].who: found "holderr"; did you mean holder?',
        'run.yaml:6:37: faults[1].at: found "naver"',
        'run.yaml:7:5: faults[2].dept: unknown option "dept"; did you mean depth?',
        "run.yaml:8:5: faults[3]: found 5; allowed: a mapping with a kind",
        "run.yaml:9:10: workers: found false; allowed: a whole number (YAML reads the bare word no",
        'run.yaml:10:1: wrokers: unknown key "wrokers"; did you mean workers?',
        "run.yaml:11:1: workers: found twice, first in line 9",
    ]
    assert len(shown) == len(starts), "\n".join(shown)
    for line, start in zip(shown, starts, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "run.yaml:1:1: found nothing; allowed: at least `lock:` and `store:`"),
        (
            "# only a comment\n",
            "run.yaml:1:1: found nothing; allowed: at least `lock:` and `store:`",
        ),
        ("- lock\n", "run.yaml:1:1: found a list; allowed: a mapping, `lock:`, `store:` and so on"),
        (
            "just text\n",
            'run.yaml:1:1: found "just text"; allowed: a mapping, `lock:`, `store:` and so on',
        ),
        (b"lock: \xfc\n", "run.yaml:1:7: found the byte 0xfc; allowed: UTF-8 text"),
        ("lock: etcd\n", "run.yaml:1:1: store: missing; it has no default"),
    ],
)
def test_files_that_are_no_run_files(text: str | bytes, line: str) -> None:
    assert complaints(text) == [line]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("workers: 51", "run.yaml:3:10: workers: found 51; allowed: at most 50"),
        ("workers: 2.5", "run.yaml:3:10: workers: found 2.5; allowed: a whole number"),
        ("workers: true", "run.yaml:3:10: workers: found true; allowed: a whole number"),
        ('workers: "3"', 'run.yaml:3:10: workers: found "3"; allowed: a whole number'),
        ("readers: -1", "run.yaml:3:10: readers: found -1; allowed: at least 0"),
        ("ttl: 0s", 'run.yaml:3:6: ttl: found "0s"; allowed: 1ms to 24h'),
        ("ttl: 2leases", "run.yaml:3:6: ttl: '2leases': leases are no unit here, write seconds"),
        ("time: 1:30", "run.yaml:3:7: time: '1:30' is no duration"),
        ("backend: moon", 'run.yaml:3:10: backend: found "moon"; allowed: local, docker, ssh'),
        ("seed: -1", "run.yaml:3:7: seed: found -1; allowed: at least 0"),
        ("seed: x", 'run.yaml:3:7: seed: found "x"; allowed: a whole number'),
        ("faults: pause", 'run.yaml:3:9: faults: found "pause"; allowed: a list'),
        ("faults:", "run.yaml:3:8: faults: found nothing; allowed: a list"),
        ("workload: 5", "run.yaml:3:11: workload: found 5; allowed: a name"),
        ("workload: {options: {}}", "run.yaml:3:11: workload.name: missing"),
        ("workload: fencing[keys=]", "run.yaml:3:11: workload: option keys has no value"),
        (
            "workload: {name: fencing, options: [1]}",
            "run.yaml:3:36: workload.options: found a list",
        ),
    ],
)
def test_bounds_and_types(more: str, line: str) -> None:
    shown = complaints(f"{MINIMAL}{more}\n")
    assert len(shown) == 1, shown
    assert shown[0].startswith(line)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("{who: holder}", "run.yaml:4:5: faults[0].kind: missing"),
        (
            "{kind: pause, at: random, every: 2s}",
            "run.yaml:4:31: faults[0].every: found together with",
        ),
        ("{kind: pause, at: 3s, count: 2}", "run.yaml:4:27: faults[0].count: found without every"),
        ("{kind: pause, count: 0}", "run.yaml:4:26: faults[0].count: found 0; allowed: at least 1"),
        (
            "{kind: pause, for: 0s}",
            'run.yaml:4:24: faults[0].for: found "0s"; allowed: more than 0s',
        ),
        ("{kind: pause, for: 20s}", "run.yaml:4:24: faults[0].for: found 20s; it would end at 20s"),
        (
            "{kind: pause, at: 7leases, for: 2s}",
            "run.yaml:4:23: faults[0].at: found 7leases; it would end at 16s, after the run (15s)",
        ),
        (
            "{kind: pause, at: beforewrite}",
            'run.yaml:4:23: faults[0].at: found "beforewrite"; did you mean',
        ),
        (
            "{kind: pause, who: leader}",
            "run.yaml:4:5: faults[0].at: missing; leader passes no phase",
        ),
        ("{kind: pause, who: r1}", "run.yaml:4:5: faults[0].at: missing; r1 passes no phase"),
        (
            "{kind: pause, who: 'server:1', at: acquired}",
            'run.yaml:4:40: faults[0].at: found "acquired"; server:1 passes no phase',
        ),
        (
            "{kind: pause, depth: x}",
            'run.yaml:4:26: faults[0].depth: found "x"; allowed: a whole number',
        ),
        (
            "'pause:holder'",
            'run.yaml:4:5: faults[0].kind: found "pause:holder"; allowed: pause, its options',
        ),
    ],
)
def test_faults_that_make_no_sense(fault: str, line: str) -> None:
    shown = complaints(f"{MINIMAL}faults:\n  - {fault}\n")
    assert len(shown) == 1, shown
    assert shown[0].startswith(line)


def test_a_window_may_end_with_the_run() -> None:
    spec = read(f"{MINIMAL}faults: ['pause:at=5.5leases,for=2leases']\n")
    assert spec.faults[0].at == Duration(5.5, in_leases=True)


def test_a_target_must_be_able_to_play_its_part() -> None:
    assert complaints("lock: valkey\nstore: lonely\n") == [
        "run.yaml:1:7: lock: valkey cannot be the lock service; it can be the store",
        "run.yaml:2:8: store: lonely cannot be the store; it can be the lock service",
    ]


def test_one_target_that_plays_both_parts_has_one_set_of_options() -> None:
    spec = read("lock: etcd[nodes=5]\nstore: etcd[guarded=true]\n")
    assert spec.lock == spec.store == TargetSpec("etcd", {"nodes": 5, "guarded": True})
    assert complaints(
        "lock: etcd[nodes=5]\nstore: {name: etcd, options: {nodes: 3, guraded: true}}\n"
    ) == [
        (
            "run.yaml:2:38: store.options.nodes: found 3, but lock says 5; allowed: one value,"
            " because etcd plays both parts and is started once"
        ),
        (
            'run.yaml:2:41: store.options.guraded: unknown option "guraded"; did you mean guarded?'
            " allowed: guarded, nodes"
        ),
    ]


def test_flags_override_the_file_and_go_through_the_same_checks(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"{MINIMAL}workers: 5\nworkload: fencing[keys=3,think=1s]\nfaults: [pause]\n")
    spec = read_file(
        path,
        {
            ("workers",): 2,
            ("lock",): "lonely",
            ("faults",): ["pause:at=1s"],
            ("workload", "options", "keys"): 9,
        },
    )
    assert (spec.workers, spec.lock.name) == (2, "lonely")
    assert spec.options == {"keys": 9, "think": "1s"}
    assert [fault.at for fault in spec.faults] == [Duration(1.0)]


def test_mistakes_of_flags_are_named_by_their_flag(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("lock: etcd\nstore: valkey\nreaders: -1\n")
    with pytest.raises(UsageError) as caught:
        read_file(
            path,
            {
                ("workers",): 0,
                ("op_timeout",): "x",
                ("lock",): "etcd[nodes=99]",
                ("faults",): ["pause:for=1"],
                ("workload", "options", "keys"): "many",
            },
        )
    assert sorted(str(caught.value).split("\n")) == sorted(
        [
            f"{path}:3:10: readers: found -1; allowed: at least 0",
            "--workers: found 0; allowed: at least 1",
            f"--op-timeout: 'x' {NO_DURATION}",
            "--lock: options.nodes: found 99; allowed: at most 9",
            f"--fault number 1: for: 1 {NO_DURATION}",
            '--keys: found "many"; allowed: a whole number',
        ]
    )


def test_flags_alone_make_a_run_and_say_what_is_missing() -> None:
    spec = from_flags({("lock",): "etcd", ("store",): "valkey"}, default_seed=5)
    assert spec.seed == 5
    with pytest.raises(UsageError) as caught:
        from_flags({("lock",): "etcd"})
    assert str(caught.value) == (
        "--store: missing; it has no default (`winkle list targets` names them)"
    )


def test_plain_data_from_python_is_checked_like_a_file() -> None:
    assert from_values({"lock": "etcd", "store": "valkey", "faults": ("pause",)}).faults
    with pytest.raises(UsageError) as caught:
        from_values({"lock": "etcd", "store": "valkey", "ttl": "2", "wokers": 2})
    assert len(str(caught.value).split("\n")) == 2


def test_a_recorded_run_reads_without_its_targets(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("lock: gone\nstore: ./gone.py:Store[a=1]\nseed: 3\nrecorded: {fence: none}\n")
    spec, recorded = read_recorded(path)
    assert (spec.lock.name, spec.store.options, spec.seed) == ("gone", {"a": 1}, 3)
    assert recorded == {"fence": "none"}
    path.write_text("lock: gone\nseed: x\n")
    with pytest.raises(UsageError, match="store: missing") as caught:
        read_recorded(path)
    assert "seed: found" in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_file(path)


def test_the_published_schema_describes_what_is_accepted() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = run_schema()
    good = {
        "lock": "etcd[nodes=3]",
        "store": {"name": "valkey", "options": {"fenced": True}},
        "faults": ["pause", {"kind": "pause", "for": "2.5leases", "at": "random", "depth": 2}],
        "ttl": "2s",
    }
    jsonschema.validate(good, schema)
    for wrong in ({"ttl": 2}, {"workers": 0}, {"wrokers": 1}, {"backend": "moon"}, {"lock": 5}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**good, **wrong}, schema)

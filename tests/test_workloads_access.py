"""The `access` workload: what a stranger saw, changed or heard of, and runs that prove nothing."""

from typing import Any

import pytest

from harness.generator import Invoke, Wait
from harness.results import Results
from harness.spec import RunSpec, TargetSpec
from harness.verdict import Reason, Verdict
from reports.html import render
from tests.builders import Script
from workloads.access import Access, judge

DENIED = "denied: permission denied"
SPEC = RunSpec(TargetSpec("lock"), TargetSpec("store"), workers=1, readers=1, workload="access")


def story(**foreign: Any) -> Script:
    """w1 writes and reads; r1 uses its own and is denied the rest, unless `foreign` says else."""
    script = Script()
    script.call("w1", "write", 0, 5, value="w1-0")
    script.call("w1", "read", 10, 15, result=foreign.get("seen", "w1-0"))
    script.call("r1", "own", 0, 5, key=None, value="r1-0")
    for at, f, value in (
        (10, "foreign-read", None),
        (20, "foreign-write", "r1-2"),
        (30, "foreign-watch", {"for_s": 0.2}),
    ):
        result = foreign.get(f.partition("-")[2])
        ended = {"fail": DENIED} if result is None else {"result": result}
        script.call("r1", f, at, at + 5, value=value, **ended)
    return script


def verdict(script: Script) -> Verdict:
    return judge(script.evidence())


def test_a_stranger_who_is_refused_each_time_passes() -> None:
    judged = verdict(story())
    assert judged.verdict == "pass"
    assert judged.headline == "Strangers were refused each time: 1 read, 1 write, 1 watch."
    assert [(p.name, p.checked, p.broken) for p in judged.properties] == [
        ("unauthorised-effect", 2, 0),
        ("watch-leak", 1, 0),
    ]


@pytest.mark.parametrize(
    ("foreign", "name", "said"),
    [
        ({"read": ["w1-0"]}, "unauthorised-effect", 'r1, a stranger, was shown ["w1-0"]'),
        ({"write": ["put"]}, "unauthorised-effect", 'r1, a stranger, was let write, by ["put"]'),
        ({"watch": ["w1-0", "w1-2"]}, "watch-leak", "r1, a stranger, was sent 2 events of k0"),
        ({"seen": "r1-2"}, "unauthorised-effect", 'w1 read "r1-2", which r1, a stranger'),
    ],
)
def test_what_got_through_is_found(foreign: dict[str, Any], name: str, said: str) -> None:
    script = story(**foreign)
    (anomaly,) = verdict(script).anomalies
    assert anomaly.name == name
    assert anomaly.sentence.startswith(said)
    assert verdict(script).verdict == "fail"
    results = Results(run="r", command="", began="", duration_s=1.0, verdict=verdict(script))
    page = render(script.evidence(), results)
    assert name.encode() in page


def test_a_watch_that_brings_nothing_and_an_empty_view_leak_nothing() -> None:
    assert verdict(story(watch=[], read=[])).verdict == "pass"


@pytest.mark.parametrize("f", ["write", "own", "foreign-read", "foreign-write", "foreign-watch"])
def test_a_run_in_which_something_never_happened_is_not_judged(f: str) -> None:
    script = story()
    script.marks = [mark for mark in script.marks if mark.f != f]
    judged = verdict(script)
    assert judged.verdict == "unknown"
    assert judged.unknown[0].reason == Reason.VACUOUS
    assert f in judged.unknown[0].text or f == "own"


def test_owners_and_strangers_take_their_turns() -> None:
    owner, stranger = Access(keys=1, watch="50ms").generators(SPEC)
    asked = []
    for generator in (owner, stranger):
        now_ns = 0
        for _ in range(8):
            step, generator = generator.step(None, now_ns)  # noqa: PLW2901 - it is a value
            if isinstance(step, Wait):
                now_ns = step.until_ns
            else:
                assert isinstance(step, Invoke)
                asked.append((step.f, step.value))
    assert asked == [
        ("write", "w1-0"),
        ("read", None),
        ("write", "w1-2"),
        ("read", None),
        ("own", "r1-0"),
        ("foreign-read", None),
        ("foreign-write", "r1-2"),
        ("foreign-watch", {"for_s": 0.05}),
    ]


def test_it_needs_a_store_with_strangers() -> None:
    from targets.etcd import Etcd
    from targets.valkey import Valkey

    plain, users = Etcd(), Etcd(auth=True)
    assert Access().unsuitable(plain, users) is None
    assert "etcd as given has none" in str(Access().unsuitable(plain, plain))
    assert "valkey as given has none" in str(Access().unsuitable(plain, Valkey()))

"""A replay repeats the schedule as it was executed: times, nodes, phases."""

import dataclasses
from pathlib import Path

import pytest

from harness.api import execute
from harness.errors import UsageError
from harness.folder import RunFolder
from harness.replay import replayed, schedule
from harness.runfile import read, to_yaml
from harness.window import Window
from tests.live import NOOP

RUN = f"""
lock: {NOOP}:Noop
store: {NOOP}:Noop
workload: "{NOOP}:Hold[think_ms=10]"
workers: 3
readers: 0
ttl: 200ms
time: 3s
seed: 11
faults:
  - pause:who=holder,at=before-write,for=200ms,count=2
  - pause:who=worker:3,at=random,count=2,for=100ms
"""
# What comes at a phase is long over when the random ones begin, also where all is late.
LIVE = RUN.replace("time: 3s", "time: 7s").replace("seed: 11", "seed: 16")


def window(spec: int, node: str, at: str, requested_ms: int) -> Window:
    return Window(
        spec=spec,
        kind="pause",
        who="holder",
        nodes=(node,) if node else (),
        at=at,
        requested_ns=requested_ms * 1_000_000,
        grade="installed",
    )


def test_each_window_becomes_a_fault_of_its_own() -> None:
    spec = read(RUN)
    windows = [
        window(1, "w3", "1.20 s", 1700),
        window(0, "w2", "before-write", 600),
        window(1, "", "never", 0),
    ]
    made = schedule(spec, windows, main_ns=500_000_000)
    assert [str(fault) for fault in made] == [
        "pause:who=w2,at=before-write,after=100ms,for=200ms,count=1",
        "pause:who=w3,at=1.2s,for=100ms",
    ]


def test_a_window_that_began_late_still_fits() -> None:
    (made,) = schedule(read(RUN), [window(1, "w3", "", 3900)], main_ns=500_000_000)
    assert made.at is not None
    assert made.at.amount == pytest.approx(2.9)


def test_a_schedule_survives_its_run_file() -> None:
    spec = read(RUN)
    made = schedule(spec, [window(0, "w2", "before-write", 600)], main_ns=500_000_000)
    again = dataclasses.replace(spec, faults=made)
    assert read(to_yaml(again)) == again


@pytest.mark.sandbox
def test_a_live_replay(tmp_path: Path) -> None:
    first = execute(read(LIVE), tmp_path / "runs", quiet=True)
    assert first.folder is not None
    again = execute(replayed(first.folder), tmp_path / "runs", quiet=True)
    assert again.folder is not None
    assert (first.exit_code, again.exit_code) == (0, 0)
    was, now = (
        sorted((w.requested_ns, w.nodes, w.op is None) for w in RunFolder(f).windows())
        for f in (first.folder, again.folder)
    )
    assert [w[1:] for w in was] == [w[1:] for w in now]
    start = [RunFolder(f).marks()["main"] for f in (first.folder, again.folder)]
    for (a, *_), (b, *_) in zip(was, now, strict=True):
        later_s = ((b - start[1]) - (a - start[0])) / 1e9
        assert -0.002 <= later_s < 1.5  # never earlier; a busy machine is late


def test_a_run_that_never_began_has_no_schedule(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN)
    with pytest.raises(UsageError, match="no schedule"):
        replayed(tmp_path)

"""Public cases (`C..`) that need a live run: undo that fails, pauses that do not come, flags."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.api import execute
from harness.evidence import Evidence
from harness.history import History
from harness.judge import of_faults
from harness.node import ProcessId, Threads
from harness.runfile import from_values
from harness.site import Site
from harness.spec import FaultSpec
from harness.units import Duration
from harness.verdict import Reason
from harness.window import Window
from nemesis import pause
from tests.live import NOOP
from tests.support_faults import faulted

HERE = Path(__file__).resolve().parent
BROKEN = str(HERE / "support_broken.py")
FLAG = str(HERE / "support_flag.py") + ":FlagLock"


# ---------------------------------------------------- an undo that fails, a cut that leaks


@pytest.mark.sandbox
def test_c18_c19_an_undo_that_fails_is_named_and_stops_no_other(tmp_path: Path) -> None:
    spec = from_values(
        {
            "lock": f"{NOOP}:Noop",
            "store": f"{NOOP}:Noop",
            "workload": f"{NOOP}:Hold[think_ms=10]",
            "ttl": "200ms",
            "time": "1500ms",
            "op_timeout": "100ms",
            "faults": [
                f"{BROKEN}:Stuck:who=holder,at=before-write,for=200ms,count=1",
                f"{BROKEN}:Twice:who=w2,at=300ms,for=200ms",
                f"{BROKEN}:Blind:who=w2,at=300ms,for=200ms",
                "pause:who=w1,at=300ms,for=500ms",
            ],
        }
    )
    result = execute(spec, tmp_path / "runs", quiet=True)
    assert result.folder is not None
    assert result.results is not None
    assert result.results.error is None
    assert result.verdict == "pass"  # what is left over never changes the verdict
    assert result.exit_code == 255  # and is no success
    left = sorted(text.split(": ", 1)[1] for text in result.results.leftover)
    assert left == [
        "1 of 2 equal rules is still there",
        "its undo failed (OSError: [Errno 5] the rule cannot be deleted); a look after that: quiet",
        "the look failed (ValueError: no such table)",
    ]
    lines = (result.folder / "faults.jsonl").read_text().splitlines()
    windows = {window["spec"]: window for window in map(json.loads, lines)}
    assert windows.keys() == {0, 1, 2, 3}
    assert windows[3]["off"]["holds"] is True
    assert windows[3]["grade"] == "installed"
    history = (result.folder / "history.jsonl").read_text().splitlines()
    assert json.loads(history[-1])["f"] == "read"  # the final reads came all the same


def seen(window: Window) -> list[tuple[Reason, str]]:
    spec = FaultSpec("partition", "holder", Duration(1.0), at=Duration(1.0))
    return [(u.reason, u.text) for u in of_faults(Evidence(History([]), windows=[window]), (spec,))]


def test_c15_a_partition_that_lets_old_connections_through_is_not_effective() -> None:
    window = Window(
        spec=0,
        kind="partition",
        who="holder",
        nodes=("w1",),
        at="1 s",
        requested_ns=1,
        grade="not-effective",
        text="w1>etcd1: an old connection passes",
    )
    ((reason, text),) = seen(window)
    assert reason is Reason.FAULT_NOT_EFFECTIVE
    assert text.endswith("never proven to be in force: w1>etcd1: an old connection passes")


def test_a_run_that_stopped_at_a_finding_owes_nobody_a_later_fault() -> None:
    specs = tuple(FaultSpec("pause", "holder", Duration(1.0), at=Duration(at)) for at in (1.0, 9.0))
    window = Window(
        spec=0,
        kind="pause",
        who="holder",
        nodes=("w1",),
        at="1 s",
        requested_ns=1,
        grade="not-effective",
    )
    evidence = Evidence(History([]), windows=[window])
    assert len(of_faults(evidence, specs)) == 2
    (only,) = of_faults(evidence, specs, stopped=True)
    assert str(specs[0]) in only.text


# ---------------------------------------------------------------- a pause that does not come


class Tree:
    """A node whose threads are in given states; it carries out the first `obeys` orders."""

    name = "pg1"

    def __init__(self, states: Sequence[str], obeys: Sequence[int] = ()) -> None:
        self.states = list(states)
        self.obeys = obeys
        self.orders = 0

    def processes(self) -> list[ProcessId]:
        return [ProcessId(pid, 1) for pid in range(len(self.states))]

    def stop(self, owner: str) -> None:
        self.orders += 1
        for thread in self.obeys:
            self.states[thread] = "T"

    def resume(self, owner: str) -> None: ...

    def held(self) -> bool:
        return False

    def threads(self) -> Threads:
        return Threads(len(self.states), self.states.count("T"))


@pytest.mark.parametrize(
    ("obeys", "holds", "text"),
    [
        ([], False, "0 of 3 threads in state T (/proc)"),  # the order is refused
        ([0], False, "1 of 3 threads in state T (/proc)"),  # only the parent stops
        ([0, 1, 2], True, "3 of 3 threads in state T (/proc)"),
    ],
)
def test_c21_a_pause_holds_when_every_thread_of_the_tree_is_stopped(
    monkeypatch: pytest.MonkeyPatch, obeys: list[int], holds: bool, text: str
) -> None:
    # Time goes on with each look, and with nothing else.
    clock = SimpleNamespace(monotonic=itertools.count(0.0, pause._BOUND_S / 5).__next__)
    monkeypatch.setattr(pause, "time", clock)
    tree, fault, site = Tree("SSR", obeys), pause.Pause(), Site({})

    async def freeze() -> tuple[bool | None, str]:
        await fault.start(site, [tree])  # type: ignore[list-item] # a node as far as it goes
        proof = await fault.in_force(site, [tree])  # type: ignore[list-item] # the same
        return proof.holds, proof.text

    assert asyncio.run(freeze()) == (holds, text)
    assert tree.orders >= (1 if holds else 2)  # an order that is not carried out is given again


# ------------------------------------------------- a client that does not notice (C55, C62)


@pytest.mark.sandbox
def test_c62_a_flag_that_outlives_the_session_is_told_with_seconds(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "pause:who=holder,at=before-write,for=2leases,count=1",
        lock=FLAG,
        store=FLAG,
        workload="fencing[rounds=60]",
        ttl="1s",
        time="5s",
        op_timeout="300ms",
    )
    assert run.results.verdict.verdict == "fail"
    assert {"late-loss-notice", "stale-owner-write"} <= run.names
    assert run.names <= {"late-loss-notice", "stale-owner-write", "lost-update"}
    late = next(a for a in run.results.verdict.anomalies if a.name == "late-loss-notice")
    assert late.size_s is not None
    assert 0.5 < late.size_s < 5.0
    assert late.details["stopped_s"] > 0.5  # its sleep is not held against it

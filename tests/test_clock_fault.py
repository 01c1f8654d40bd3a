"""The fault `clock`: on live workers, over others, across restarts, and when it has no effect."""

import asyncio
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.api import execute
from harness.clocks import Glimpse, Moment, Readings
from harness.errors import UsageError
from harness.node import ProcessId
from harness.runfile import from_values
from harness.site import Clocks, ClockSettable, Site
from harness.units import Duration, parse_signed
from harness.vdso.clocks import VdsoClocks
from harness.vdso.halt import FreeReins
from harness.vdso.image import UnreachableError
from nemesis.clock import Clock
from tests.support_clocks import Program, needs_clocks
from tests.support_faults import IDLE, Faulted, lived

# ------------------------------------------------------------------------------- in runs


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Faulted:
    """One run in which each worker has clock faults of another kind."""
    keys = IDLE | {"time": "5s"}
    return lived(
        tmp_path_factory.mktemp("three"),
        "clock:who=w2,at=300ms,for=300ms,every=300ms,clock=both,jump=-10leases",
        "clock:who=w1,at=200ms,for=2s,jump=1h",
        "clock:who=w1,at=700ms,for=200ms,jump=-1h",  # ends within the first
        "clock:who=w1,at=300ms,for=1500ms,clock=monotonic,rate=3",  # the other clock
        "clock:who=w1,at=1500ms,for=2s,jump=2h",  # outlasts the first
        "clock:who=w3,at=200ms,for=3s,jump=1h",
        "kill:who=w3,at=500ms,for=50ms",
        **keys,
    )


@needs_clocks
@pytest.mark.sandbox
def test_a_worker_says_itself_what_it_was_made_to_read(three: Faulted) -> None:
    for window in three.by_spec(0):
        assert window["nodes"] == ["w2"]
        assert window["grade"] == "installed"
    window = next(w for w in three.by_spec(0) if _told(w["on"]) and _told(w["off"]))
    seen = window["on"]["facts"]["w2"]
    assert seen["processes"] == 1
    assert seen["own_code"] == 0
    for off_s in (seen["wall_off_s"], seen["monotonic_off_s"], *seen["told"].values()):
        assert off_s == pytest.approx(-2.0, abs=0.5)
    assert set(seen["told"]) == {"wall", "monotonic"}
    assert "a wall clock (-2 s) that is -2.000 s off (the program itself" in window["on"]["text"]
    after = window["off"]
    assert after["holds"]
    assert after["facts"]["w2"]["own_code"] == 1
    assert after["facts"]["w2"]["told"]["wall"] == pytest.approx(0, abs=0.5)
    assert "by the kernel's own code" in after["text"]
    assert "again" not in after["facts"]


def _told(proof: dict[str, Any]) -> bool:
    """Whether the worker answered in time what its clocks show."""
    return "told" in proof["facts"]["w2"]


@needs_clocks
@pytest.mark.sandbox
def test_a_later_lie_over_an_earlier_one(three: Faulted) -> None:
    early, inner, other, late = (three.by_spec(i)[0] for i in (1, 2, 3, 4))
    assert [w["grade"] for w in (inner, other, late)] == ["installed"] * 3
    assert early["grade"] == "indeterminate"  # when it ended, another lie was told
    assert "another clock fault goes on there" in early["off"]["text"]
    assert all(window["off"]["holds"] for window in (early, inner, other, late))
    assert "kernel's own code" in late["off"]["text"]


@needs_clocks
@pytest.mark.sandbox
def test_a_worker_that_is_started_again_is_lied_to_again_and_the_record_says_when(
    three: Faulted,
) -> None:
    (window,), (killed,) = three.by_spec(5), three.by_spec(6)
    assert killed["grade"] == "installed"
    assert window["grade"] == "installed", window
    ((pid, after_s),) = window["off"]["facts"]["again"]["w3"]
    began, ended = (1e-9 * (killed[at] - window["on_ns"]) for at in ("on_ns", "off_ns"))
    assert began < after_s < ended + 1, "after its death, at the latest soon after it answered"
    assert f"process {pid} after {after_s:.3f} s" in window["off"]["text"]
    assert window["off"]["facts"]["w3"]["own_code"] == 1


@needs_clocks
@pytest.mark.sandbox
def test_speeds_strobes_and_phases(tmp_path: Path) -> None:
    run = lived(
        tmp_path,
        "clock:who=holder,at=before-write,for=100ms,clock=monotonic,rate=0,count=1",
        "clock:who=w2,at=300ms,for=200ms,rate=10",
        "clock:who=w3,at=300ms,for=150ms,every=50ms,jump=1h,strobe=20ms",
        **IDLE | {"time": "4s"},
    )
    assert all(window["grade"] == "installed" for window in run.windows), run.windows
    assert all(window["off"]["holds"] for window in run.windows)
    assert "monotonic clock (frozen)" in run.by_spec(0)[0]["on"]["text"]
    assert "wall clock (at 10 times the true speed)" in run.by_spec(1)[0]["on"]["text"]
    assert len(run.by_spec(2)) >= 3


@needs_clocks
@pytest.mark.sandbox
def test_clocks_of_paused_workers_and_pauses_of_lied_to_workers(tmp_path: Path) -> None:
    run = lived(
        tmp_path,
        "pause:who=w1,at=before-write,for=50ms,every=20ms",
        "pause:who=w2,at=200ms,for=30ms,every=20ms",
        "clock:who=w1,at=200ms,for=30ms,every=10ms,jump=1h",
        "clock:who=w2,at=before-write,for=30ms,every=10ms,clock=both,rate=0.5",
        **IDLE,
    )
    assert {window["spec"] for window in run.windows} == {0, 1, 2, 3}
    assert all(window["grade"] == "installed" for window in run.windows), [
        window for window in run.windows if window["grade"] != "installed"
    ]
    assert all(window["off"]["holds"] for window in run.windows)


@needs_clocks
@pytest.mark.sandbox
def test_what_cannot_be_is_refused_before_anything_is_hit(tmp_path: Path) -> None:
    fault = "clock:who=w1,at=200ms,for=100ms,clock=monotonic,jump=-87000h"
    result = execute(from_values(IDLE | {"faults": [fault]}), tmp_path / "runs", quiet=True)
    assert result.results is not None
    assert "its monotonic clock cannot jump back" in (result.results.error or "")
    assert result.exit_code == 255
    assert not [path for path in (tmp_path / "runs").glob("*/history.jsonl") if path.read_text()]


# ------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("for=1s", "nothing would change"),
        ("for=1s,jump=0s", "nothing would change"),
        ("for=1s,rate=11", "10"),
        ("for=1s,rate=2,strobe=1s", "a strobe needs a jump"),
        ("for=1s,jump=30", "write a number and a unit"),
        ("for=1s,jump=3s,clock=raw", "wall"),
    ],
)
def test_options_that_make_no_sense_are_told(options: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        from_values(IDLE | {"faults": [f"clock:who=w1,at=100ms,{options}"]})


def test_signed_durations() -> None:
    assert parse_signed("-30s") == Duration(-30.0)
    assert parse_signed(" +1.5m ") == Duration(90.0)
    assert parse_signed("-2leases") == Duration(-2.0, in_leases=True)
    assert parse_signed("2leases").seconds(3.0) == 6.0
    assert parse_signed(str(parse_signed("-250ms"))) == Duration(-0.25)
    for wrong in ("--1s", "-", "- -1s", "+1", 3):
        with pytest.raises(ValueError, match="is no duration"):
            parse_signed(wrong)


# ------------------------------------------------------------------------------- without effect


class Place:
    """A node that is one plain process."""

    address = "127.0.0.1"
    data = Path("/nonexistent")

    def __init__(self, name: str, *processes: ProcessId) -> None:
        self.name = name
        self._processes = list(processes)
        self.clocks = VdsoClocks(self.processes, FreeReins())

    def processes(self) -> list[ProcessId]:
        """All of them."""
        return self._processes

    def spawn(self, *_: Any, **__: Any) -> Any:
        """Nothing is started here."""
        raise NotImplementedError


class Says:
    """A witness that asks a program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def told(self, node: str, clocks: Clocks) -> Readings:
        """Return what it answers."""
        before = Moment.now()
        seen = self._program.ask()
        after = Moment.now()
        return Readings(Glimpse(before.wall_ns, round(seen["time"] * 1e9), after.wall_ns))


RAW = """
import ctypes, json, sys
libc, spec = ctypes.CDLL(None), (ctypes.c_int64 * 2)()
print("ready", flush=True)
for line in sys.stdin:
    libc.syscall(228, 0, ctypes.byref(spec))
    print(json.dumps({"time": spec[0] + spec[1] / 1e9}), flush=True)
"""


def proofs(place: Place, witness: Says | None, **options: Any) -> list[Any]:
    site = Site(nodes={place.name: place}, witness=witness)
    assert isinstance(place, ClockSettable)

    async def live() -> list[Any]:
        fault = Clock(**options)
        assert fault.available(site) is None
        await fault.start(site, [place])
        on = await fault.in_force(site, [place])
        await fault.stop(site, [place])
        await fault.stop(site, [place])
        return [on, await fault.gone(site, [place])]

    return asyncio.run(live())


@needs_clocks
def test_a_program_that_asks_the_kernel_itself_is_not_reached_and_that_is_seen() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the number of the system call is that of x86-64")
    with Program(RAW) as program:
        on, off = proofs(Place("n", program.id), Says(program), jump="1h")
        assert on.holds is False
        assert "the program itself, asked for the time, reads a wall clock" in on.text
        assert off.holds
    with Program() as program:
        on, off = proofs(Place("n", program.id), Says(program), jump="1h")
        assert on.holds, on
        assert off.holds


@needs_clocks
def test_a_process_that_cannot_be_lied_to_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise UnreachableError("the kernel does not let us write into process 7")

    with Program() as program:
        monkeypatch.setattr("harness.vdso.memory.Memory.rewrite", refuse)
        on, off = proofs(Place("n", program.id), None, jump="1h")
        assert on.holds is False
        assert "does not let us write" in on.text
        assert off.holds


@needs_clocks
def test_a_node_without_processes_cannot_be_judged() -> None:
    on, off = proofs(Place("n"), None, rate=2.0)
    assert on.holds is None
    assert off.holds


@needs_clocks
def test_a_place_without_the_ability_and_a_machine_without_code_are_refused() -> None:
    site = Site(nodes={"n": object()})  # type: ignore[dict-item] # a node that can do nothing
    assert Clock(jump="1s").available(site) == "the clocks of n cannot be set"

    place = Place("n")
    place.clocks.unavailable = lambda: "no machine code"  # type: ignore[method-assign]
    assert Clock(jump="1s").available(Site(nodes={"n": place})) == "no machine code"


def test_options_of_leases_follow_the_run() -> None:
    lie = Clock(jump="-2leases", rate=0.5, strobe="1leases")._lie(3.0)
    assert (lie.offset_s, lie.rate, lie.strobe_s) == (-6.0, 0.5, 3.0)


def test_the_ledger_names_the_processes() -> None:
    with Program() as program:
        place = Place("n", program.id)
        undo: Mapping[str, Any] = Clock(jump="1s").undo(Site(nodes={"n": place}), [place])
        assert undo["processes"] == [[program.id.pid, program.id.start]]

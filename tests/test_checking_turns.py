"""Keys that are searched side by side: the same verdict, nothing left, never a false pass."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.checking import check_columns, sidebyside, turns
from harness.checking.columns import Columns, from_history
from harness.verdict import Reason, Verdict
from tests import checking_objects as objects
from tests.checking_histories import Act, Made, Shape, history_of, simulate

pytestmark = pytest.mark.once
KEYS = 12
# A check that takes longer than it will live.
HARD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored from outside
from tests.test_checking_turns import hard
from harness.checking import check_columns, turns
turns.PAYS_S, turns.cores = -1.0, lambda: 2
print(check_columns(hard(26), "kv", budget_s=60).verdict)
"""


def mixed(model: str, seed: int, noise: float) -> Columns:
    """Many small keys, of which some are illegal when there is noise."""
    acts: dict[str, tuple[Any, Act]] = {
        "cas": (0, objects.register_act(distinct=False, cas=True)),
        "kv": ("", objects.append_act),
    }
    start, act = acts[model]
    return from_history(history_of(simulate(Shape(seed, 9, 4, 0.15, noise, KEYS), start, act)))


def hard(width: int) -> Columns:
    """Two keys, each with pending appends of even length and a text of odd length."""
    calls = []
    for key in ("x", "y"):
        calls += [Made(i, 300 + i, "append", key, value="a" * (2 * i + 2)) for i in range(width)]
        calls.append(Made(100, 101, "get", key, result="a" * 101))
    return from_history(history_of(calls))


def open_wide(key: str, width: int, *, legal: bool) -> list[Made]:
    """Pending appends in any order, and what is read then: a key that takes some states."""
    calls = [Made(i, 300 + i, "append", key, value="a" * (i + 1)) for i in range(width)]
    whole = width * (width + 1) // 2
    return [*calls, Made(400, 401, "get", key, result="a" * (whole - (not legal)))]


def judged(columns: Columns, model: str = "kv", **options: Any) -> Verdict:
    return check_columns(columns, model, initial=0 if model == "cas" else None, **options)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes of their own in any case; at the end, none of them is left."""
    processes: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            processes.append(self)

    monkeypatch.setattr(turns, "PAYS_S", -1.0)
    monkeypatch.setattr(turns, "cores", lambda: 2)
    monkeypatch.setattr(subprocess, "Popen", Noted)
    yield processes
    assert all(process.returncode is not None for process in processes)


@pytest.mark.parametrize("model", ["cas", "kv"])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_verdict_is_the_same(
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    noise: float,
) -> None:
    columns = mixed(model, 11, noise)
    apart = judged(columns, model)
    count = len(started)
    monkeypatch.setattr(turns, "PAYS_S", float("inf"))
    assert judged(columns, model) == apart
    assert (count, len(started)) == (2, 2)
    assert apart.verdict == ("fail" if noise else "pass")


def test_keys_that_need_more_turns(
    started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second illegal key is the easy one, so it is the one that is told, both ways."""
    monkeypatch.setattr(turns, "_FIRST_STEPS", 50)
    calls = [*open_wide("a", 9, legal=False), *open_wide("b", 9, legal=True)]
    calls += open_wide("c", 3, legal=False)
    columns = from_history(history_of(calls))
    apart = judged(columns)
    assert len(started) == 2
    monkeypatch.setattr(turns, "PAYS_S", float("inf"))
    assert judged(columns) == apart
    assert apart.anomalies[0].key == "c"


def test_what_a_part_of_the_memory_is_not_enough_for(
    started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is judged again with all of it; what that is not enough for is unknown."""
    columns = hard(18)
    verdict = judged(columns, memory_bytes=1 << 17)
    monkeypatch.setattr(turns, "PAYS_S", float("inf"))
    assert verdict == judged(columns, memory_bytes=1 << 17)
    assert [item.reason for item in verdict.unknown] == [Reason.CHECKER_LIMIT] * 2


@pytest.mark.parametrize("killed", [(1,), (0, 1)])
def test_a_key_whose_process_was_killed_is_unknown(
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
    killed: tuple[int, ...],
) -> None:
    """Also the keys that nobody is left to judge; a finding of another key stays."""
    send = sidebyside._send

    def lethal(process: "subprocess.Popen[bytes]", data: bytes) -> bool:
        if any(data.startswith(b"[%d," % number) for number in killed):
            process.kill()
            process.wait()
            return True
        return send(process, data)

    monkeypatch.setattr(sidebyside, "_send", lethal)
    verdict = judged(mixed("kv", 11, 0.0))
    assert verdict.verdict == "unknown"
    assert {item.reason for item in verdict.unknown} == {Reason.CHECKER_LIMIT}
    assert len(verdict.unknown) == (1 if len(killed) == 1 else KEYS)
    assert "the process that judged it ended (-9)" in verdict.headline
    calls = [*open_wide("a", 3, legal=True), *open_wide("b", 3, legal=True)]
    calls += open_wide("c", 3, legal=False)
    verdict = judged(from_history(history_of(calls)))
    assert verdict.verdict == ("fail" if len(killed) == 1 else "unknown")


def test_where_no_process_can_be_started_there_is_still_this_one(
    started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidebyside, "_MODULE", "harness.checking.no_such_module")
    assert judged(mixed("kv", 11, 0.0)).verdict == "pass"
    assert len(started) == 2
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert judged(mixed("kv", 11, 0.0)).verdict == "pass"


def test_a_process_that_does_not_end_in_time_is_killed(
    started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have got a key when the clock jumps to the end of all time."""
    send, sent = sidebyside._send, []

    def noted(process: "subprocess.Popen[bytes]", data: bytes) -> bool:
        sent.append(data)
        return send(process, data)

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return 0.0 if len(sent) < 4 else 1e9

    monkeypatch.setattr(sidebyside, "_send", noted)
    monkeypatch.setattr(sidebyside, "time", Clock)
    verdict = judged(hard(18), budget_s=60.0)
    assert [item.reason for item in verdict.unknown] == [Reason.CHECKER_LIMIT] * 2
    assert "ended (-9)" in verdict.headline


def test_work_for_a_moment_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it does not pay")

    monkeypatch.setattr(turns, "Crew", refuse)
    assert judged(mixed("kv", 11, 0.0)).verdict == "pass"


def children_of(pid: int) -> list[int]:
    """The processes that one has started."""
    listed = [p for p in Path("/proc").iterdir() if p.name.isdigit()]
    found = []
    for path in listed:
        try:
            parent = path.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1]
        except (OSError, IndexError):
            continue
        if int(parent) == pid:
            found.append(int(path.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_check_leaves_no_process(number: signal.Signals) -> None:
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", HARD], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        until = time.monotonic() + 30
        while len(children := children_of(process.pid)) < 2 and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.02)
        assert len(children) == 2
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.read() == b""
    while any(is_alive(child) for child in children):
        assert time.monotonic() < until
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"

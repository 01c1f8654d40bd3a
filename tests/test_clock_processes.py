"""Lying to live processes: at once, to those that come later, never to others, and undone."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import procfs
from harness.clocks import Lie, Moment, Skew
from harness.node import ProcessId
from harness.vdso.clocks import VdsoClocks
from harness.vdso.halt import FreeReins, _places
from harness.vdso.image import UnreachableError, own
from harness.vdso.memory import GoneError, Memory, shares_memory, vdso_address
from tests.live import until
from tests.support_clocks import Program, needs_clocks, process_id

pytestmark = needs_clocks
HOUR = Skew(wall=Lie(3600.0))


def alone(*processes: ProcessId) -> VdsoClocks:
    return VdsoClocks(lambda: [p for p in processes if procfs.alive(p)], FreeReins())


def image(process: ProcessId) -> bytes:
    with Memory(process, own()) as memory:
        return memory.image()


async def soon(look: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.002)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def off(seen: dict[str, Any], clock: str) -> float:
    number = getattr(time, f"CLOCK_{clock}", 5)
    return float(seen[clock]) - time.clock_gettime(number)


def test_a_process_reads_the_lie_at_once_and_the_truth_again() -> None:
    async def test() -> None:
        with Program(threads=4) as program:
            clocks = alone(program.id)
            await clocks.skew("a", Skew(wall=Lie(3600.0), monotonic=Lie(rate=0.0)))
            seen = program.ask()
            for clock in ("REALTIME", "REALTIME_COARSE", "TAI"):
                assert off(seen, clock) == pytest.approx(3600, abs=5), clock
            assert seen["time"] - time.time() == pytest.approx(3600, abs=5)
            assert abs(off(seen, "MONOTONIC_RAW")) < 5
            again = program.ask()
            assert again["MONOTONIC"] == seen["MONOTONIC"]  # frozen to the nanosecond
            assert again["BOOTTIME"] == seen["BOOTTIME"]
            assert again["MONOTONIC_RAW"] > seen["MONOTONIC_RAW"]
            await clocks.true_clocks("a")
            await clocks.true_clocks("a")
            assert image(program.id) == own().true
            seen = program.ask()
            assert all(abs(off(seen, clock)) < 5 for clock in ("REALTIME", "MONOTONIC", "TAI"))

    run(test)


def test_a_changed_lie_writes_its_parameters_only() -> None:
    async def test() -> None:
        with Program() as program:
            clocks = alone(program.id)
            await clocks.skew("a", HOUR)
            first = image(program.id)
            await clocks.skew("a", Skew(wall=Lie(-3600.0)))
            second = image(program.id)
            start = own().blocks_at
            assert first != second
            assert first[:start] == second[:start]
            assert first[start + 128 :] == second[start + 128 :]
            assert program.ask()["time"] - time.time() == pytest.approx(-3600, abs=5)
            await clocks.true_clocks("a")

    run(test)


def test_nobody_else_sees_it() -> None:
    async def test() -> None:
        with Program() as program, Program() as other:
            clocks = alone(program.id)
            await clocks.skew("a", HOUR)
            assert image(other.id) == own().true
            assert abs(other.ask()["time"] - time.time()) < 5
            assert image(process_id(os.getpid())) == own().true
            await clocks.true_clocks("a")

    run(test)


def test_a_forked_child_inherits_the_lie_and_is_undone_too() -> None:
    async def test() -> None:
        with Program() as program:
            here = [program.id]
            clocks = VdsoClocks(lambda: here, FreeReins())
            await clocks.skew("a", HOUR)
            seen = program.ask("fork")
            assert seen["time"] - time.time() == pytest.approx(3600, abs=5)
            child = process_id(seen["pid"])
            try:
                here.append(child)
                await soon(lambda: len(clocks.applied("a")) == 2, "the child to be known")
                assert [one.pid for one in clocks.applied("a")] == [program.id.pid, child.pid]
                await clocks.true_clocks("a")
                assert image(child) == own().true
            finally:
                os.kill(child.pid, signal.SIGKILL)

    run(test)


def test_a_process_that_calls_exec_is_lied_to_again_by_itself() -> None:
    async def test() -> None:
        with Program() as program:
            clocks = alone(program.id)
            since = await clocks.skew("a", HOUR)
            program.order("exec")
            await asyncio.to_thread(program.line)  # the new program is ready
            await soon(lambda: len(clocks.applied("a")) == 2, "the process to be lied to again")
            first, second = clocks.applied("a")
            assert first.pid == second.pid == program.id.pid
            assert first.after_s < second.after_s
            seen = (await clocks.read_clocks())[program.id.pid].wall
            assert seen is not None
            assert seen.fits(Lie(3600.0), since.wall_ns, within_ns=10_000)  # the same lie as before
            assert program.ask()["time"] - time.time() == pytest.approx(3600, abs=5)
            await clocks.true_clocks("a")
            program.order("exec")
            await asyncio.to_thread(program.line)
            assert image(program.id) == own().true

    run(test)


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_stopped_process_is_lied_to_and_stays_stopped(by_itself: bool) -> None:
    async def test() -> None:
        with Program(threads=2) as program:
            if by_itself:
                program.order("stop")
                assert program.line() == "stopping"
            else:
                program.process.send_signal(signal.SIGSTOP)
            await soon(lambda: program.state() == "T", "every thread to stop")
            clocks = alone(program.id)
            await clocks.skew("a", HOUR)
            assert program.state() == "T"
            assert image(program.id) != own().true
            await clocks.skew("a", Skew(wall=Lie(7200.0)))
            await asyncio.sleep(0.05)  # a process that was let go would be running by now
            assert program.state() == "T"
            program.process.send_signal(signal.SIGCONT)
            if by_itself:
                assert program.line() == "going on"
            assert program.ask()["time"] - time.time() == pytest.approx(7200, abs=5)
            await clocks.true_clocks("a")
            assert program.state() != "T"

    run(test)


def test_the_last_lie_counts_clock_by_clock_and_the_one_before_comes_back() -> None:
    async def test() -> None:
        with Program() as program:
            clocks = alone(program.id)
            await clocks.skew("a", Skew(wall=Lie(100.0), monotonic=Lie(50.0)))
            await clocks.skew("b", Skew(wall=Lie(7000.0)))
            assert list(clocks.owners()) == ["a", "b"]
            seen = program.ask()
            assert off(seen, "REALTIME") == pytest.approx(7000, abs=5)
            assert off(seen, "MONOTONIC") == pytest.approx(50, abs=5)
            await clocks.true_clocks("b")
            assert off(program.ask(), "REALTIME") == pytest.approx(100, abs=5)
            await clocks.skew("b", Skew(wall=Lie(7000.0)))
            await clocks.skew("a", Skew(wall=Lie(100.0)))  # told anew, so it is the last
            assert list(clocks.owners()) == ["b", "a"]
            assert off(program.ask(), "REALTIME") == pytest.approx(100, abs=5)
            await clocks.true_clocks("a")
            await clocks.true_clocks("b")
            assert image(program.id) == own().true

    run(test)


def test_a_vdso_that_is_not_ours_is_left_alone_and_named() -> None:
    async def test() -> None:
        with Program() as program:
            at = own().functions["__vdso_time"].start
            with Memory(program.id, own()) as memory:
                os.pwrite(memory._fd, b"\xcc", memory.base + at)
            clocks = alone(program.id)
            await clocks.skew("a", HOUR)
            found = (await clocks.read_clocks())[program.id.pid]
            assert "not ours" in found.trouble
            assert not clocks.applied("a")
            await clocks.true_clocks("a")

    run(test)


def test_a_process_that_ends_is_no_trouble() -> None:
    async def test() -> None:
        with Program() as program:
            gone = program.id
            here = [gone]
            clocks = VdsoClocks(lambda: here, FreeReins())
            await clocks.skew("a", HOUR)
            program.process.kill()
            program.process.wait()
            assert not await clocks.read_clocks()
            await clocks.skew("a", HOUR)
            await clocks.true_clocks("a")
            with pytest.raises(GoneError):
                vdso_address(gone.pid)

    run(test)


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a busy machine time to let a process leave its clock functions."""
    monkeypatch.setattr("harness.vdso.halt._BOUND_S", 60.0)


def test_it_survives_threads_and_signal_handlers_that_read_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every reading is wholly true or wholly the lie, whatever is interrupted where."""
    patient(monkeypatch)
    program = """
import signal, sys, threading, time
RAW = time.CLOCK_MONOTONIC_RAW
start = time.time() - time.clock_gettime(RAW)
bad = []
def look(*_):
    error = time.time() - time.clock_gettime(RAW) - start
    if abs(error) > 5 and abs(error - 3600) > 5 and abs(error - 7200) > 5: bad.append(error)
def loop():
    while True:
        look(); time.sleep(0.0005)
for _ in range(3): threading.Thread(target=loop, daemon=True).start()
signal.signal(signal.SIGALRM, look)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
print("ready", flush=True)
for line in sys.stdin: print(len(bad), flush=True)
"""

    async def test() -> None:
        with Program(program) as running:
            clocks = alone(running.id)
            for _ in range(40):
                await clocks.skew("a", HOUR)
                await clocks.skew("a", Skew(wall=Lie(7200.0)))
                await clocks.true_clocks("a")
                assert not clocks._trouble
            running.order("bad?")
            assert running.line() == "0"

    run(test)


SPIN = """
import sys, threading, time
RAW = time.CLOCK_MONOTONIC_RAW
start = time.time() - time.clock_gettime(RAW)
bad = []
def spin():
    read, raw = time.time, time.clock_gettime
    while True:
        for _ in range(50): read()
        error = read() - raw(RAW) - start
        if abs(error) > 5 and abs(error - 3600) > 5: bad.append(error)
threading.Thread(target=spin, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin: print(len(bad), flush=True)
"""


def test_a_process_that_does_nothing_but_read_clocks_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found inside of its clock functions most of the time, where nothing may be changed."""
    patient(monkeypatch)

    async def test() -> None:
        with Program(SPIN) as program:
            clocks = alone(program.id)
            for _ in range(5):
                await clocks.skew("a", HOUR)
                assert not clocks._trouble
                await clocks.true_clocks("a")
            program.order("bad?")
            assert program.line() == "0"

    run(test)


def test_who_is_never_outside_keeps_our_code_and_is_told_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        with Program() as program:
            clocks = alone(program.id)
            await clocks.skew("a", HOUR)
            monkeypatch.setattr("harness.vdso.image.Vdso.inside", lambda *_: True)
            await clocks.true_clocks("a")
            found = (await clocks.read_clocks())[program.id.pid]
            assert (found.original, found.trouble) == (False, "")
            assert found.wall is not None
            assert found.wall.fits(Lie(), 0, within_ns=10_000)
            assert abs(program.ask()["time"] - time.time()) < 5
            await clocks.skew("a", HOUR)  # and can be lied to again, by its parameters alone
            assert program.ask()["time"] - time.time() == pytest.approx(3600, abs=5)
            monkeypatch.undo()
            await clocks.true_clocks("a")
            assert image(program.id) == own().true

    run(test)


def test_a_process_found_while_others_are_told_the_truth_is_told_it_too() -> None:
    async def test() -> None:
        with Program() as program:
            here = [program.id]
            clocks = VdsoClocks(lambda: list(here), FreeReins())
            await clocks.skew("a", HOUR)
            child = process_id(program.ask("fork")["pid"])
            listings = iter([[program.id]])
            clocks._processes = lambda: next(listings, [program.id, child])
            try:
                await clocks.true_clocks("a")
                assert image(child) == own().true
            finally:
                os.kill(child.pid, signal.SIGKILL)

    run(test)


VFORK = """
#include <unistd.h>
#include <stdio.h>
int main(void) {
    if (vfork() == 0) { puts("ready"); fflush(stdout); pause(); _exit(0); }
    return 0;
}
"""
HANDLER = """
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static void stay(int number) { pause(); }
static void leave(int number) { }
int main(void) {
    struct timespec now;
    signal(SIGUSR1, stay); signal(SIGUSR2, leave); puts("ready"); fflush(stdout);
    for (;;) clock_gettime(CLOCK_REALTIME, &now);
}
"""


@contextmanager
def compiled(folder: Path, text: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A C program that said that it is ready."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, program = folder / "program.c", folder / "program"
    source.write_text(text)
    subprocess.run([compiler, "-O1", "-o", program, source], check=True)
    with subprocess.Popen([program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def test_a_handler_that_interrupted_a_clock_function_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lie_to(process: ProcessId, *, reached: bool) -> None:
        clocks = alone(process)
        await clocks.skew("a", HOUR)
        assert (process not in clocks._trouble) == reached, clocks._trouble
        assert reached or "inside of its clock functions" in clocks._trouble[process]
        await clocks.true_clocks("a")

    def interrupted(process: ProcessId) -> bool:
        with Memory(process, own()) as memory:
            return any(map(own().inside, _places(process.pid, process.pid, memory) or ()))

    with compiled(tmp_path, HANDLER) as program:
        process = process_id(program.pid)
        for _ in range(200):
            program.send_signal(signal.SIGUSR1)
            until(lambda: procfs.thread_states(program.pid)[program.pid] == "S", "the handler")
            if interrupted(process):
                break
            program.send_signal(signal.SIGUSR2)
            until(lambda: procfs.thread_states(program.pid)[program.pid] == "R", "the loop")
        else:
            pytest.fail("no signal came while a clock was read")
        asyncio.run(lie_to(process, reached=False))
        assert image(process) == own().true
        program.send_signal(signal.SIGUSR2)
        patient(monkeypatch)
        asyncio.run(lie_to(process, reached=True))
        assert program.poll() is None


def test_a_child_that_still_shares_its_parents_memory_is_left_alone(tmp_path: Path) -> None:
    async def lie_to(child: ProcessId) -> None:
        clocks = alone(child)
        await clocks.skew("a", HOUR)
        assert not clocks.applied("a")
        assert not await clocks.read_clocks()
        await clocks.true_clocks("a")

    with compiled(tmp_path, VFORK) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        child = process_id(int(children[0]))
        try:
            assert shares_memory(child.pid, own().machine.kcmp)
            assert not shares_memory(parent.pid, own().machine.kcmp)
            asyncio.run(lie_to(child))
            assert image(process_id(parent.pid)) == own().true
        finally:
            os.kill(child.pid, signal.SIGKILL)


def test_a_machine_without_code_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise UnreachableError("no machine code")

    monkeypatch.setattr("harness.vdso.clocks.own", refuse)
    assert alone().unavailable() == "no machine code"


def test_the_moment_of_a_lie_is_now() -> None:
    now = Moment.now()
    assert abs(now.wall_ns - time.time_ns()) < 10**9
    assert abs(now.monotonic_ns - time.monotonic_ns()) < 10**9

"""Holding processes still by tracing them: nothing is lost, and everything goes on as it was."""

import asyncio
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness import procfs
from harness.docker.tracing import Tracing
from harness.process import ProcessId
from harness.vdso.halt import thread_states
from harness.vdso.image import UnreachableError
from harness.vdso.memory import GoneError
from tests.live import until

THREADS = """
import signal, sys, threading, time
def heard(number, frame): print("heard", number, flush=True)
signal.signal(signal.SIGUSR1, heard)
for _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
while True:
    time.sleep(0.001)
"""
BREEDS = """
import threading, time
print("ready", flush=True)
while True:
    threading.Thread(target=time.sleep, args=(0.02,)).start()
"""


TRACER = """
import sys, time
from harness.docker.tracing import Tracing
from harness.process import ProcessId
one, tracing = ProcessId(int(sys.argv[1]), int(sys.argv[2])), Tracing()
tracing.hold(one)
while not tracing.stands(one): pass
print("held", flush=True)
time.sleep(600)
"""


def in_a_loop(test: Callable[[], None]) -> Callable[[], None]:
    """Run a test inside of an event loop, where what is late is tried again."""

    @functools.wraps(test)
    def run() -> None:
        async def inside() -> None:
            test()

        asyncio.run(inside())

    return run


@contextmanager
def program(text: str = THREADS) -> Iterator[tuple[ProcessId, "subprocess.Popen[str]"]]:
    argv = [sys.executable, "-S", "-c", text]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield ProcessId(process.pid, procfs.start_ticks(process.pid) or 0), process
        finally:
            process.kill()


def letters(one: ProcessId) -> set[str]:
    return set(thread_states(one).values())


def held(tracing: Tracing, one: ProcessId) -> None:
    tracing.hold(one)
    until(lambda: tracing.stands(one), "threads that stand still", 10)


@in_a_loop
def test_every_thread_stands_still_and_goes_on() -> None:
    with program() as (one, _):
        tracing = Tracing()
        held(tracing, one)
        assert len(thread_states(one)) == 4
        assert letters(one) == {"t"}
        assert tracing.holding()
        assert tracing.let_go(one)
        assert not tracing.holding()
        until(lambda: letters(one) <= {"S", "R"}, "threads that go on", 10)


@in_a_loop
def test_threads_that_come_meanwhile_are_held_as_well() -> None:
    with program(BREEDS) as (one, _):
        tracing = Tracing()
        for _ in range(20):
            held(tracing, one)
            assert letters(one) == {"t"}
            tracing.let_go(one)
        until(lambda: "t" not in letters(one), "threads that go on", 10)


@in_a_loop
def test_a_signal_that_comes_meanwhile_is_not_lost() -> None:
    with program() as (one, process):
        assert process.stdout is not None
        tracing = Tracing()
        for _ in range(50):
            tracing.hold(one)
            os.kill(one.pid, signal.SIGUSR1)  # before, while or after it is being stopped
            until(lambda: tracing.stands(one), "threads that stand still", 10)
            tracing.let_go(one)
            assert process.stdout.readline() == f"heard {signal.SIGUSR1:d}\n"


@in_a_loop
def test_what_was_stopped_stays_stopped() -> None:
    with program() as (one, _):
        os.kill(one.pid, signal.SIGSTOP)
        until(lambda: letters(one) == {"T"}, "a stop", 10)
        tracing = Tracing()
        held(tracing, one)
        assert not tracing.let_go(one)
        until(lambda: letters(one) == {"T"}, "a stop as before", 10)
        os.kill(one.pid, signal.SIGCONT)
        until(lambda: letters(one) <= {"S", "R"}, "threads that go on", 10)


@in_a_loop
def test_what_is_frozen_is_not_touched() -> None:
    with program() as (one, _):
        os.kill(one.pid, signal.SIGSTOP)  # as still as frozen, for the look of it
        until(lambda: letters(one) == {"T"}, "a stop", 10)
        tracing = Tracing()
        tracing.frozen = True
        tracing.hold(one)
        assert tracing.stands(one)
        assert letters(one) == {"T"}
        tracing.let_go(one)
        assert letters(one) == {"T"}


@in_a_loop
def test_who_is_traced_by_somebody_else_or_gone_is_told() -> None:
    with program() as (one, process):
        first = Tracing()
        held(first, one)
        try:
            with pytest.raises(UnreachableError, match="cannot be traced: Operation not permitted"):
                Tracing().hold(one)
            assert "cannot be traced" in (Tracing().unavailable(one) or "")
        finally:
            first.let_go(one)
        assert Tracing().unavailable(one) is None
        until(lambda: letters(one) <= {"S", "R"}, "threads that go on", 10)
        process.kill()
        process.wait()
        with pytest.raises(GoneError):
            Tracing().hold(one)


def test_when_the_tracer_dies_all_goes_on() -> None:
    with program() as (one, _):
        argv = [sys.executable, "-c", TRACER, str(one.pid), str(one.start)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tracer:
            assert tracer.stdout is not None
            if tracer.stdout.readline() != "held\n":
                pytest.skip("this user may trace nobody but children")
            assert letters(one) == {"t"}
            tracer.kill()
        until(lambda: letters(one) <= {"S", "R"}, "threads that go on", 10)

"""Around a clock change: orders to stop and to go on that cross it, and waits in a worker."""

import asyncio
import time

import pytest

from harness import procfs
from harness.bell import Bell
from harness.clocks import Lie, Skew
from harness.local.orders import Orders
from harness.vdso.clocks import VdsoClocks
from harness.vdso.halt import FreeReins
from tests.live import ROOT, until
from tests.support_clocks import Program, needs_clocks


def test_an_order_to_go_on_waits_for_a_process_that_is_held() -> None:
    with Program() as program:
        orders = Orders(lambda: [program.id])
        orders.hold(program.id)
        until(lambda: program.state() == "T", "a stop")
        orders.resume("somebody")
        assert program.state() == "T"
        assert orders.let_go(program.id)
        until(lambda: program.state() != "T", "it to go on")


def test_a_process_is_not_let_go_while_its_node_is_stopped() -> None:
    with Program() as program:
        orders = Orders(lambda: [program.id])
        orders.hold(program.id)
        orders.stop("pause")
        assert orders.stopped()
        assert not orders.let_go(program.id)
        until(lambda: program.state() == "T", "a stop")
        orders.resume("pause")
        assert not orders.stopped()
        until(lambda: program.state() != "T", "it to go on")


def test_two_orders_to_stop_that_came_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "stop_pending", lambda _: False)
    with Program() as program:
        orders = Orders(lambda: [program.id])
        orders.hold(program.id)
        orders.stop("pause")
        until(lambda: program.state() == "T", "a stop")
        assert not orders.let_go(program.id)
        assert program.state() == "T"


def test_a_pause_that_began_and_ended_while_a_process_was_held_leaves_it_going() -> None:
    with Program() as program:
        orders = Orders(lambda: [program.id])
        orders.hold(program.id)
        until(lambda: program.state() == "T", "a stop")
        orders.stop("pause")
        orders.resume("pause")
        assert orders.let_go(program.id)
        until(lambda: program.state() != "T", "it to go on")


WAITS = """
import queue, sys, threading, time
sys.path.insert(0, "ROOT")
from harness.bell import Bell, rest
RAW = time.CLOCK_MONOTONIC_RAW
waits = {"rest": rest, "bell": Bell().wait, "sleep": time.sleep}
print("ready", flush=True)
for line in sys.stdin:
    began = time.clock_gettime(RAW)
    waits[line.strip()](0.1)
    print(time.clock_gettime(RAW) - began, flush=True)
"""


@needs_clocks
@pytest.mark.parametrize("off_s", [3.0, -3.0])
def test_a_worker_waits_as_long_as_it_wants_whatever_its_clock_says(off_s: float) -> None:
    async def test() -> None:
        with Program(WAITS.replace("ROOT", str(ROOT))) as program:
            clocks = VdsoClocks(lambda: [program.id], FreeReins())
            await clocks.skew("a", Skew(wall=Lie(off_s), monotonic=Lie(off_s)))

            def lasted_s(way: str) -> float:
                program.order(way)
                return float(program.line())

            for way in ("rest", "bell"):
                assert 0.09 <= lasted_s(way) < 3
            # What they are there for; a busy machine makes some waits longer, and none shorter.
            if off_s > 0:
                assert lasted_s("sleep") > off_s
            else:
                assert min(lasted_s("sleep") for _ in range(10)) < 0.1
            await clocks.true_clocks("a")

    asyncio.run(test())


def test_a_bell_rung_before_ends_the_next_wait_and_that_only() -> None:
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    bell.wait()
    began = time.monotonic()
    for _ in range(20):  # what was rung more often than a pipe holds is heard in pieces
        bell.wait(0.02)
    assert time.monotonic() - began >= 0.02

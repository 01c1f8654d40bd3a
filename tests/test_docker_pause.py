"""Pauses in containers: by the freezer, by SIGSTOP, by both, and what else happens meanwhile."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clocks import Lie, Skew
from harness.docker.lab import DockerLab
from harness.docker.node import DockerNode
from harness.docker.stopping import FROZEN
from harness.node import Freezable
from harness.site import Site
from nemesis.pause import Pause
from tests.support_docker import lab, live, needs_engine, until
from tests.support_docker import node as node_of

pytestmark = needs_engine()
HOUR_S = 3600.0
BEAT = """
import sys, threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
while True:
    print(time.time(), flush=True)
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerLab]:
    with lab(tmp_path_factory.mktemp("lab"), "a") as made:
        yield made


class Beating:
    """A program on a node that tells the time, over and over."""

    def __init__(self, node: DockerNode, log: Path, program: str = BEAT) -> None:
        self.log = log
        self.how: list[str] = []
        spawned = node.spawn(["python", "-c", program], log=log)
        spawned.watch(asyncio.get_running_loop(), self.how.append)

    def last(self) -> float:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return float(lines[-2]) if len(lines) > 1 else 0.0

    async def begins(self) -> None:
        await until(self.last, "a beat")

    async def silent(self) -> bytes:
        """Return what was written once no more of it is on its way from the engine."""
        while True:
            written = self.log.read_bytes()
            await asyncio.sleep(0.3)
            if self.log.read_bytes() == written:
                return written

    async def goes_on(self) -> None:
        before = self.last()
        await until(lambda: self.last() > before, "another beat")

    async def ends(self, node: DockerNode) -> None:
        node.kill()
        await until(lambda: self.how, "an end")


def all_stopped(node: DockerNode) -> Callable[[], bool]:
    def look() -> bool:
        threads = node.threads()
        return 0 < threads.total == threads.stopped

    return look


def engine_says_frozen(made: DockerLab, node: DockerNode) -> bool:
    (container,) = node._living
    return bool(made.project.api.inspect_container(container)["State"]["Paused"])


def test_a_pause_is_the_freezers_and_proven_twice(here: DockerLab, tmp_path: Path) -> None:
    node, fault = node_of(here, "a"), Pause()
    site = Site(nodes=here.nodes)
    assert isinstance(node, Freezable)

    async def work() -> None:
        beating = Beating(node, tmp_path / "log")
        await beating.begins()
        await fault.start(site, [node])
        on = await fault.in_force(site, [node])
        assert on.holds, on
        assert on.text == f"2 of 2 threads {FROZEN}"
        assert engine_says_frozen(here, node)
        await fault.stop(site, [node])
        assert (await fault.gone(site, [node])).holds
        assert not engine_says_frozen(here, node)
        await beating.goes_on()
        await beating.ends(node)

    live(work)


def test_signals_are_the_other_way(here: DockerLab, tmp_path: Path) -> None:
    node, fault = node_of(here, "a"), Pause(by="sigstop")
    site = Site(nodes=here.nodes)

    async def work() -> None:
        beating = Beating(node, tmp_path / "log")
        await beating.begins()
        await fault.start(site, [node])
        on = await fault.in_force(site, [node])
        assert on.holds, on
        assert on.text == "2 of 2 threads in state T (/proc)"
        assert not engine_says_frozen(here, node)
        await fault.stop(site, [node])
        assert (await fault.gone(site, [node])).holds
        await beating.ends(node)

    live(work)


@pytest.mark.parametrize("first", ["freezer", "sigstop"])
def test_nothing_goes_on_before_the_last_owner_lets_go(
    here: DockerLab, tmp_path: Path, first: str
) -> None:
    node = node_of(here, "a")
    ways = {"freezer": node.stop, "sigstop": node.stop_by_signal}
    second = "sigstop" if first == "freezer" else "freezer"

    async def work() -> None:
        beating = Beating(node, tmp_path / "log")
        await beating.begins()
        ways[first](first)
        await until(all_stopped(node), "a stop")
        ways[second](second)
        await until(lambda: engine_says_frozen(here, node), "a freeze")
        before = await beating.silent()
        node.resume(first)
        assert node.held()
        await asyncio.sleep(0.1)
        assert all_stopped(node)()
        assert beating.log.read_bytes() == before
        node.resume(second)
        await until(lambda: node.threads().stopped == 0, "a thaw")
        await beating.goes_on()
        await beating.ends(node)

    live(work)


def test_what_is_killed_in_a_freeze_dies_before_it_does_anything(
    here: DockerLab, tmp_path: Path
) -> None:
    node = node_of(here, "a")

    async def work() -> None:
        beating = Beating(node, tmp_path / "log")
        await beating.begins()
        node.stop("pause")
        await until(all_stopped(node), "a stop")
        written = await beating.silent()
        await beating.ends(node)
        assert beating.how == ["signal SIGKILL"]
        assert beating.log.read_bytes() == written
        assert node.held()
        again = Beating(node, tmp_path / "again")  # what starts later is not frozen
        await again.goes_on()
        node.resume("pause")
        await again.goes_on()
        await again.ends(node)

    live(work)


def test_one_that_stopped_itself_is_frozen_and_goes_on(here: DockerLab, tmp_path: Path) -> None:
    node = node_of(here, "a")
    stops = f"import os; print(1); print(1, flush=True); os.kill(os.getpid(), 19)\n{BEAT}"

    async def work() -> None:
        beating = Beating(node, tmp_path / "log", stops)
        await until(lambda: node._living and all_stopped(node)(), "a stop of its own")
        node.stop("pause")
        await until(lambda: engine_says_frozen(here, node), "a freeze")
        assert all_stopped(node)()
        node.resume("pause")
        await beating.goes_on()
        assert node.threads().stopped == 0
        await beating.ends(node)

    live(work)


def test_what_starts_while_a_pause_begins_is_frozen_as_well(
    here: DockerLab, tmp_path: Path
) -> None:
    node, fault = node_of(here, "a"), Pause()
    site = Site(nodes=here.nodes)

    async def work() -> None:
        first = Beating(node, tmp_path / "log")
        await first.begins()
        second = Beating(node, tmp_path / "second", f"{BEAT}\n# another")
        await until(lambda: len(node.processes()) > 1, "a process that the engine still starts")
        await fault.start(site, [node])
        assert (await fault.in_force(site, [node])).holds
        await fault.stop(site, [node])
        await second.goes_on()
        await first.ends(node)
        await second.ends(node)

    live(work)


def test_clocks_are_set_while_all_is_frozen(here: DockerLab, tmp_path: Path) -> None:
    node = node_of(here, "a")

    async def work() -> None:
        beating = Beating(node, tmp_path / "log")
        await beating.begins()
        node.stop("pause")
        await until(all_stopped(node), "a stop")
        await asyncio.sleep(0.05)  # the holder is told a moment after the engine is done
        began = time.monotonic()
        await node.clocks.skew("clock", Skew(wall=Lie(HOUR_S)))
        assert time.monotonic() - began < 4, "it waited for a stop that the engine had made"
        (read,) = (await node.clocks.read_clocks()).values()
        assert read.wall is not None
        assert read.wall.error_s == pytest.approx(HOUR_S, abs=1)
        assert all_stopped(node)()
        node.resume("pause")
        await until(lambda: beating.last() - time.time() > HOUR_S - 60, "a lie after the thaw")
        node.stop("pause")
        await until(all_stopped(node), "a stop")
        await node.clocks.true_clocks("clock")
        assert all_stopped(node)()
        node.resume("pause")
        await until(lambda: abs(beating.last() - time.time()) < 60, "the truth after the thaw")
        await beating.ends(node)

    live(work)


def test_a_lab_with_a_frozen_node_is_closed(tmp_path: Path) -> None:
    with lab(tmp_path, "b") as made:
        node = node_of(made, "b")

        async def work() -> None:
            await Beating(node, tmp_path / "log").begins()
            node.stop("pause")
            await until(all_stopped(node), "a stop")

        asyncio.run(work())
        began = time.monotonic()
    assert time.monotonic() - began < 30

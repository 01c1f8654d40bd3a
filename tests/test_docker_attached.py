"""What is done to a server of somebody else's project, through its sidecar and the engine.

Its image holds etcd and nothing else, statically linked: no shell, no Python.
"""

import asyncio
import email.utils
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clocks import Lie, Skew
from harness.docker.attached import AttachedNode
from harness.docker.lab import DockerLab
from harness.docker.stopping import FROZEN
from harness.node import Freezable, Killable, look_afresh
from harness.site import ClockSettable, DataFolder, Disk, Site
from nemesis.pause import Pause
from tests.support_compose import lab, needs_project
from tests.support_docker import live, until
from tests.support_docker import node as node_of

pytestmark = needs_project
HOUR_S = 3600.0
HOUR = Skew(wall=Lie(HOUR_S))
# The moment at which a server writes its answer is in the answer, as HTTP has it.
DATE = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://{sys.argv[1]}:2379/version", timeout=20).headers["Date"])
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerLab]:
    with lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


def attached(made: DockerLab, name: str) -> AttachedNode:
    found = made.nodes[name]
    assert isinstance(found, AttachedNode)
    return found


class Followed:
    """A server that is followed from now on."""

    def __init__(self, node: AttachedNode, log: Path) -> None:
        self.node = node
        self.ends: list[str] = []
        node.spawn([], log=log).watch(asyncio.get_running_loop(), self.ends.append)

    async def begins(self) -> None:
        await until(self.node.processes, "a process that its sidecar sees")


def last_date(log: Path) -> float:
    return email.utils.parsedate_to_datetime(log.read_text().splitlines()[-1]).timestamp()


async def date_off_s(made: DockerLab, name: str, log: Path) -> float:
    """Return how far the program's own clock is off, as it says itself."""
    how: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    spawned = node_of(made, "w1").spawn(["python", "-c", DATE, name], log=log)
    spawned.watch(asyncio.get_running_loop(), how.set_result)
    ended, off_s = await how, last_date(log) - time.time()
    assert ended == "exit code 0"
    return off_s


def test_it_has_these_abilities_and_no_others(here: DockerLab) -> None:
    node = attached(here, "etcd1")
    found = [
        ability
        for ability in (Freezable, Killable, ClockSettable, Disk, DataFolder)
        if isinstance(node, ability)
    ]
    assert found == [Freezable, Killable, ClockSettable]


@pytest.mark.parametrize(("by", "seen"), [(None, FROZEN), ("sigstop", "in state T (/proc)")])
def test_it_is_stopped_both_ways(here: DockerLab, by: str | None, seen: str) -> None:
    node, fault = attached(here, "etcd2"), Pause(by=by)
    site = Site(nodes=here.nodes)

    async def work() -> None:
        await fault.start(site, [node])
        on = await fault.in_force(site, [node])
        assert on.holds, on
        assert seen in on.text
        assert node.state()["Paused"] == (by is None)
        await fault.stop(site, [node])
        assert (await fault.gone(site, [node])).holds
        assert not node.state()["Paused"]
        for _ in range(10):  # no order comes late
            await fault.start(site, [node])
            await fault.stop(site, [node])
        await look_afresh([node])
        assert node.threads().stopped == 0

    live(work)


def test_its_clock_is_lied_about_and_it_says_so_itself(here: DockerLab, tmp_path: Path) -> None:
    node = attached(here, "etcd3")

    async def work() -> None:
        assert node.clocks.unavailable() is None
        assert abs(await date_off_s(here, "etcd3", tmp_path / "date")) < 60
        since = await node.clocks.skew("me", HOUR)
        (read,) = (await node.clocks.read_clocks()).values()
        assert read.wall is not None
        assert read.wall.fits(HOUR.wall or Lie(), since.wall_ns, within_ns=50_000_000)
        assert abs(await date_off_s(here, "etcd3", tmp_path / "date") - HOUR_S) < 60
        node.stop("pause")
        await until(lambda: node.threads().stopped == node.threads().total, "a freeze")
        await until(lambda: node.state()["Paused"], "the engine's word")
        await asyncio.sleep(0.05)  # the sidecar is told a moment after that
        began = time.monotonic()
        await node.clocks.true_clocks("me")
        assert time.monotonic() - began < 4, "it waited for a stop that the engine had made"
        node.resume("pause")
        await until(lambda: node.threads().stopped == 0, "a thaw")
        assert abs(await date_off_s(here, "etcd3", tmp_path / "date")) < 60
        for _ in range(30):  # it works all the time, with all its threads
            await node.clocks.skew("me", HOUR)
            await node.clocks.true_clocks("me")
        assert abs(await date_off_s(here, "etcd3", tmp_path / "date")) < 60

    live(work)


def test_it_is_killed_while_frozen_and_comes_back_with_its_lie(
    here: DockerLab, tmp_path: Path
) -> None:
    node, log = attached(here, "etcd1"), tmp_path / "etcd1.log"

    async def work() -> None:
        first = Followed(node, log)
        await node.clocks.skew("clock", HOUR)
        at_once = len(node.clocks.applied("clock"))
        assert at_once == 1
        node.stop("pause")
        await until(lambda: node.threads().stopped == node.threads().total, "a freeze")
        node.kill()
        await until(lambda: first.ends, "an end")
        assert first.ends == ["signal SIGKILL"]
        assert node.processes() == []
        assert await node.clocks.read_clocks() == {}
        again = Followed(node, log)
        await again.begins()
        assert not node.state()["Paused"]  # what starts later is not frozen
        assert node.held()
        node.resume("pause")
        await until(lambda: len(node.clocks.applied("clock")) > at_once, "a lie told again")
        (read,) = (await node.clocks.read_clocks()).values()
        assert read.wall is not None
        assert abs(read.wall.error_s - HOUR_S) < 1
        await node.clocks.true_clocks("clock")
        assert node.clocks.owners() == []

    live(work)

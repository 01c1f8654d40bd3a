"""What a holder can do to its node besides stopping and cutting: clocks and data."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clocks import Lie, Skew
from harness.docker.lab import DockerLab
from harness.node import Killable, Pausable
from harness.site import ClockSettable, DataFolder, Disk
from tests.support_docker import lab, live, needs_engine, until
from tests.support_docker import node as node_of

pytestmark = needs_engine()
HOUR = Lie(3600.0)
CLOCK = "import time\nwhile True: print(int(time.time()), flush=True); time.sleep(0.02)"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerLab]:
    with lab(tmp_path_factory.mktemp("lab"), "a") as made:
        yield made


@pytest.mark.parametrize("ability", [Pausable, Killable, ClockSettable, DataFolder, Disk])
def test_a_node_has_the_abilities_that_faults_ask_for(here: DockerLab, ability: type) -> None:
    assert isinstance(node_of(here, "a"), ability)


def test_a_process_is_lied_to_and_told_the_truth_again(here: DockerLab, tmp_path: Path) -> None:
    node, log = node_of(here, "a"), tmp_path / "log"

    def off_s() -> float:
        lines = log.read_text().splitlines()[:-1]
        return float(lines[-1]) - time.time() if lines else 0.0

    async def work() -> None:
        loop = asyncio.get_running_loop()
        how: asyncio.Future[str] = loop.create_future()
        node.spawn(["python", "-c", CLOCK], log=log).watch(loop, how.set_result)
        await until(lambda: log.exists() and log.read_text(), "a time")
        assert node.clocks.unavailable() is None
        since = await node.clocks.skew("me", Skew(wall=HOUR))
        (read,) = (await node.clocks.read_clocks()).values()
        assert read.wall is not None
        assert read.wall.fits(HOUR, since.wall_ns, within_ns=50_000_000)
        assert node.clocks.owners() == ["me"]
        assert len(node.clocks.applied("me")) == 1
        await until(lambda: off_s() > 3500, "a lie in the program's own words")
        await node.clocks.true_clocks("me")
        await until(lambda: off_s() < 10, "the truth in the program's own words")
        node.kill()
        await how

    live(work)


def test_data_is_kept_put_back_and_damaged(here: DockerLab, tmp_path: Path) -> None:
    node = node_of(here, "a")

    async def run(*argv: str) -> str:
        loop = asyncio.get_running_loop()
        how: asyncio.Future[str] = loop.create_future()
        node.spawn(argv, log=tmp_path / "log", cwd=node.data).watch(loop, how.set_result)
        return await how

    async def work() -> None:
        assert await run("sh", "-c", "echo older > file") == "exit code 0"
        node.keep("copy")
        assert node.digest() == node.digest("copy")
        assert await run("sh", "-c", "echo newer > file") == "exit code 0"
        assert node.digest() != node.digest("copy")
        node.put_back("copy", aside="newest")
        assert node.read("file") == b"older\n"
        node.change("file", 2, b"\xff\x00")
        node.cut("file", 5)
        assert node.read("file") == b"ol\xff\x00r"
        assert node.files() == {"file": 5}
        node.put_back("newest")
        assert node.read("file") == b"newer\n"
        node.drop("copy")
        node.put_back(None)
        assert node.files() == {}

    live(work)
    with pytest.raises(FileNotFoundError):
        node.read("file")


def test_a_disk_is_full_until_its_last_owner_lets_go(here: DockerLab, tmp_path: Path) -> None:
    node = node_of(here, "a")

    async def write() -> str:
        loop = asyncio.get_running_loop()
        how: asyncio.Future[str] = loop.create_future()
        argv = ["dd", "if=/dev/zero", "of=big", "bs=64k", "count=1"]
        node.spawn(argv, log=tmp_path / "log", cwd=node.data).watch(loop, how.set_result)
        return await how

    assert node.try_to_write() == ""
    node.fill("one")
    node.fill("two")
    assert node.free_bytes() < 4096
    assert node.try_to_write() == "ENOSPC"
    assert live(write) == "exit code 1"
    assert "No space left on device" in (tmp_path / "log").read_text()
    node.keep("while it is full")
    assert node.try_to_write() == "ENOSPC"
    node.make_whole("one")
    assert node.limited()
    assert node.try_to_write() == "ENOSPC"
    node.make_whole("two")
    assert node.try_to_write() == ""
    assert live(write) == "exit code 0"
    with pytest.raises(OSError, match="not read-only"):
        node.forbid_writes("one")

"""Containers that join a holder: started, stopped, killed, and started again with their data."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.docker.lab import DockerLab
from harness.docker.node import DockerNode
from tests.support_docker import lab, live, needs_engine, until
from tests.support_docker import node as node_of

pytestmark = needs_engine()
TREE = "import os, time; [os.fork() for _ in range(2)]; time.sleep(600)"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerLab]:
    with lab(tmp_path_factory.mktemp("lab"), "a", "b") as made:
        yield made


async def ended(node: DockerNode, argv: list[str], log: Path) -> str:
    """Run a command to its end, and return how it ended."""
    loop = asyncio.get_running_loop()
    how: asyncio.Future[str] = loop.create_future()
    node.spawn(argv, log=log).watch(loop, how.set_result)
    return await how


def test_a_spawn_returns_at_once_and_the_end_is_told(here: DockerLab, tmp_path: Path) -> None:
    node, log = node_of(here, "a"), tmp_path / "log"

    async def work() -> None:
        loop = asyncio.get_running_loop()
        how: asyncio.Future[str] = loop.create_future()
        began = loop.time()
        argv = ["sh", "-c", "echo out; echo err >&2; pwd; echo $WORD; exit 3"]
        spawned = node.spawn(argv, log=log, env={"WORD": "wordy"}, cwd=node.data)
        took_s = loop.time() - began
        spawned.watch(loop, how.set_result)
        assert await how == "exit code 3"
        assert took_s < (loop.time() - began) / 2, "it waited for the process"

    live(work)
    assert set(log.read_text().split()) == {"out", "err", "/winkle/a/data", "wordy"}


def test_pipes_carry_input_and_output_and_the_end_of_input(here: DockerLab, tmp_path: Path) -> None:
    async def work() -> tuple[bytes, str]:
        loop = asyncio.get_running_loop()
        how: asyncio.Future[str] = loop.create_future()
        argv = ["sh", "-c", "cat; echo said >&2"]
        spawned = node_of(here, "a").spawn(argv, log=tmp_path / "log", pipes=True)
        spawned.watch(loop, how.set_result)
        os.write(spawned.stdin, b"x" * 50_000)
        os.close(spawned.stdin)
        told = await how
        with os.fdopen(spawned.stdout, "rb") as out:
            return out.read(), told

    assert live(work) == (b"x" * 50_000, "exit code 0")
    assert (tmp_path / "log").read_text() == "said\n"


def test_a_whole_process_tree_stops_goes_on_and_dies(here: DockerLab, tmp_path: Path) -> None:
    node = node_of(here, "a")

    async def work() -> str:
        loop = asyncio.get_running_loop()
        how: asyncio.Future[str] = loop.create_future()
        node.spawn(["python", "-c", TREE], log=tmp_path / "log").watch(loop, how.set_result)
        await until(lambda: len(node.processes()) == 4, "four processes")
        node.stop("one")
        node.stop("two")
        await until(lambda: node.threads().stopped == 4, "four stopped threads")
        node.resume("one")
        assert node.held()
        assert node.threads().stopped == 4
        node.resume("two")
        await until(lambda: node.threads().stopped == 0, "threads that go on")
        assert not node.held()
        node.stop("one")
        node.kill()
        told = await how
        node.resume("one")
        assert node.processes() == []
        return told

    assert live(work) == "signal SIGKILL"


def test_what_was_killed_starts_again_with_its_data(here: DockerLab, tmp_path: Path) -> None:
    node, log = node_of(here, "b"), tmp_path / "log"
    argv = ["sh", "-c", "echo again >> word; cat word; sleep 600"]

    async def work() -> list[str]:
        said = []
        for _ in range(2):
            loop = asyncio.get_running_loop()
            how: asyncio.Future[str] = loop.create_future()
            log.unlink(missing_ok=True)
            node.spawn(argv, log=log, cwd=node.data).watch(loop, how.set_result)
            await until(lambda: log.exists() and log.read_text(), "a word")
            said.append(log.read_text())
            node.kill()
            await how
        return said

    assert live(work) == ["again\n", "again\nagain\n"]


def test_a_program_of_this_machine_runs_at_its_own_path(here: DockerLab, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho it is $0\n")
    program.chmod(0o755)
    log = tmp_path / "log"
    assert live(lambda: ended(node_of(here, "a"), [str(program)], log)) == "exit code 0"
    assert log.read_text() == f"it is {program}\n"


@pytest.mark.parametrize(
    ("program", "said"),
    [("no-such-program", "executable file not found"), ("/no/such/program", "there is no program")],
)
def test_a_start_that_fails_is_an_end_and_the_log_says_why(
    here: DockerLab, tmp_path: Path, program: str, said: str
) -> None:
    log = tmp_path / "log"
    assert live(lambda: ended(node_of(here, "a"), [program], log)) == "no start at all"
    assert said in log.read_text()


def test_orphans_are_reaped(here: DockerLab, tmp_path: Path) -> None:
    node = node_of(here, "a")
    argv = ["sh", "-c", "(sh -c 'exit 0' &) ; (sleep 0.1 &) ; exit 0"]

    async def work() -> None:
        await ended(node, argv, tmp_path / "log")
        await until(lambda: not node.processes(), "an empty node")

    live(work)

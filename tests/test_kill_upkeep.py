"""Upkeep: who keeps a node down, which ends are told and how, and who is told of a start."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from harness.node import Node, ProcessId, Threads
from harness.servers import Servers
from harness.upkeep import Keeper


class House:
    """A node with one server on it that obeys at once; both sides of `Keeper` in one."""

    name = "s1"

    def __init__(self) -> None:
        self.stopped = False
        self.lives = True
        self.starts = 0
        self.when_ended: Callable[[str, str], None] = lambda _name, _how: None

    # as a node
    def processes(self) -> list[ProcessId]:
        return [ProcessId(1, 1)] if self.lives else []

    def kill(self, *, kindly: bool = False) -> None:
        self.die("signal SIGTERM" if kindly else "signal SIGKILL")

    def die(self, how: str) -> None:
        """End, by itself or on order."""
        self.lives = False
        self.when_ended("s1", how)

    def stop(self, _owner: str) -> None:
        self.stopped = True

    def resume(self, _owner: str) -> None:
        self.stopped = False

    def held(self) -> bool:
        return self.stopped

    def threads(self) -> Threads:
        return Threads(0, 0)

    # as the servers
    def __contains__(self, name: str) -> bool:
        return name == "s1"

    def ended(self, _name: str) -> str | None:
        return None if self.lives else "signal SIGKILL"

    def start_one(self, _name: str, _server: object = None) -> None:
        self.lives = True
        self.starts += 1

    async def missing(self, _name: str) -> str | None:
        return None

    def last_lines(self, _name: str) -> str:
        return "its log is empty"


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def keeper(house: House, told: list[str]) -> Keeper:
    made = Keeper({"s1": cast("Node", house)}, cast("Servers", house))
    made.watch(told.append)
    return made


def play(*steps: Any) -> None:
    async def all_of_them() -> None:
        for step in steps:
            await step

    asyncio.run(all_of_them())


def test_a_node_runs_again_when_the_last_owner_lets_it(house: House, keeper: Keeper) -> None:
    play(keeper.end("a", "s1"), keeper.end("b", "s1"), keeper.start_again("a", "s1"))
    assert keeper.kept_down("s1")
    assert not keeper.running("s1")
    play(keeper.start_again("b", "s1"))
    assert not keeper.kept_down("s1")
    assert house.starts == 1


def test_what_runs_is_not_started_twice(house: House, keeper: Keeper) -> None:
    play(keeper.start_again("a", "s1"))
    assert house.starts == 0


def test_each_start_is_told(keeper: Keeper) -> None:
    started: list[str] = []
    keeper.when_started(started.append)
    play(keeper.end("a", "s1"), keeper.start_again("a", "s1"), keeper.start_again("a", "s1"))
    assert started == ["s1"]


def test_an_end_on_order_is_no_problem(keeper: Keeper, told: list[str]) -> None:
    play(keeper.end("a", "s1"), keeper.start_again("a", "s1"), keeper.end("a", "s1", kindly=True))
    assert not told


def test_an_end_that_nobody_ordered_is_told(house: House, told: list[str], keeper: Keeper) -> None:
    house.die("exit code 1")
    assert told == ["server s1 ended by itself with exit code 1; its log is empty"]


def test_an_excuse_lasts_until_its_owner_starts_the_node(
    house: House, told: list[str], keeper: Keeper
) -> None:
    keeper.excuse("full", "s1")
    house.die("exit code 1")
    assert not told
    play(keeper.start_again("full", "s1"))
    assert house.starts == 1
    house.die("exit code 2")
    assert len(told) == 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for an end; it comes."""
    monkeypatch.setattr("harness.upkeep.LATE_END_S", 30.0)


async def beside(work: Awaitable[None], *later: Callable[[], object]) -> None:
    """Do something, and other things a moment after it began."""
    task = asyncio.ensure_future(work)
    for step in later:
        await asyncio.sleep(0.05)
        step()
    await task


def test_what_is_ending_when_its_excuse_is_over_is_started_again(
    house: House, told: list[str], keeper: Keeper, patient: None
) -> None:
    """From a failed write to the end of a process some time passes, and the fault may end in it."""
    keeper.excuse("full", "s1")
    play(beside(keeper.start_again("full", "s1"), lambda: house.die("exit code 1")))
    assert (house.lives, house.starts, told) == (True, 1, [])
    assert not keeper.excused("s1")


def test_what_is_stopped_when_its_excuse_is_over_may_end_when_it_goes_on(
    house: House, told: list[str], keeper: Keeper, patient: None
) -> None:
    async def story() -> None:
        keeper.excuse("full", "s1")
        house.stop("pause")
        await keeper.start_again("full", "s1")  # the pause is ended by somebody who waits for this
        assert keeper.excused("s1")
        end = lambda: house.die("exit code 1")  # noqa: E731 - told in one line
        await beside(keeper.settle(), lambda: house.resume("pause"), end)

    play(story())
    assert (house.lives, house.starts, told) == (True, 1, [])
    assert not keeper.excused("s1")
    house.die("exit code 2")
    assert len(told) == 1


def test_what_is_stopped_and_kept_down_later_stays_down(house: House, keeper: Keeper) -> None:
    async def story() -> None:
        keeper.excuse("full", "s1")
        house.stop("pause")
        await keeper.start_again("full", "s1")
        await keeper.end("kill", "s1")
        house.resume("pause")
        await keeper.settle()

    play(story())
    assert not house.lives
    assert not keeper.excused("s1")


def test_an_end_after_damage_is_what_the_fault_left(
    house: House, told: list[str], keeper: Keeper
) -> None:
    keeper.blame("s1", "amnesia on s1")
    house.die("exit code 2")
    assert told[0].startswith("leftover: amnesia on s1: server s1 ended by itself")

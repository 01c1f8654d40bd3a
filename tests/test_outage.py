"""What may be said of a node that should be up again, or of a disk that others limit as well."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from harness.node import Threads
from harness.site import Site
from harness.window import Proof
from nemesis import _outage
from nemesis.disk import Limit


def proof(holds: bool | None) -> Proof:
    return Proof(holds=holds, text=str(holds))


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        ([True, True], True),
        ([True, None], None),
        ([None, False], False),
        ([True, False], False),
        ([], False),
    ],
)
def test_one_that_does_not_hold_decides_and_one_that_cannot_tell_leaves_it_open(
    found: list[bool | None], holds: bool | None
) -> None:
    assert _outage.all_hold(map(proof, found)).holds is holds


@dataclass
class House:
    """A node and the upkeep of it in one: what is in the way of its server, if anything."""

    name: str = "s1"
    said: str | None = None
    stopped: bool = False
    down: bool = False
    excuse: bool = False
    refused: str = ""
    free: int = 0
    orders: list[str] = field(default_factory=list)

    async def trouble(self, _node: str) -> str | None:
        return self.said

    def kept_down(self, _node: str) -> bool:
        return self.down

    def excused(self, _node: str) -> bool:
        return self.excuse

    def running(self, _node: str) -> bool:
        return True

    def held(self) -> bool:
        return self.stopped

    def stop(self, _owner: str) -> None:
        self.orders.append("stop")

    def resume(self, _owner: str) -> None:
        self.orders.append("resume")

    def processes(self) -> list[Any]:
        return []

    def threads(self) -> Threads:
        return Threads(0, 0)

    def fill(self, _owner: str) -> None:
        self.orders.append("fill")

    def forbid_writes(self, _owner: str) -> None:
        self.orders.append("forbid")

    def make_whole(self, _owner: str) -> None:
        self.orders.append("whole")

    def limited(self) -> bool:
        return bool(self.refused)

    def free_bytes(self) -> int:
        return self.free

    def try_to_write(self) -> str:
        return self.refused


def site(house: House) -> tuple[Site, list[Any]]:
    return Site({"s1": cast("Any", house)}, upkeep=cast("Any", house)), [house]


@pytest.mark.parametrize(
    ("house", "holds", "words"),
    [
        (House(), True, "s1 runs and answers"),
        (House(said="s1 does not run"), False, "s1 does not run"),
        (House(said="s1 does not run", down=True), True, "another fault keeps s1 down"),
        (House(said="s1 does not answer", stopped=True), True, "another fault stops s1"),
        (House(said="s1 does not run", excuse=True), True, "another fault may have ended s1"),
        (House(stopped=True, excuse=True), True, "s1 runs and answers"),
    ],
)
def test_what_another_fault_does_to_a_server_is_no_leftover_of_this_one(
    house: House, holds: bool, words: str
) -> None:
    seen = asyncio.run(_outage.look_up(*site(house)))
    assert seen.holds is holds
    assert words in seen.text


@pytest.mark.parametrize(
    ("what", "refused", "holds"),
    [
        ("full", "ENOSPC", True),
        ("full", "EROFS", None),
        ("full", "", False),
        ("full", "EIO", False),
        ("read-only", "EROFS", True),
        ("read-only", "ENOSPC", None),
    ],
)
def test_a_disk_that_another_fault_limits_otherwise_tells_nothing(
    what: Any, refused: str, holds: bool | None
) -> None:
    seen = asyncio.run(Limit("disk", what).in_force(*site(House(refused=refused))))
    assert seen.holds is holds


def test_a_disk_that_another_fault_limits_still_says_nothing_of_its_server() -> None:
    house = House(said="s1 does not run", refused="ENOSPC")
    assert asyncio.run(Limit("disk", "full").gone(*site(house))).holds
    house.refused = ""
    assert not asyncio.run(Limit("disk", "full").gone(*site(house))).holds

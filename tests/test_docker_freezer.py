"""The freezer asks an engine again that did not do what it was told."""

from typing import Any

from docker.errors import APIError

from harness.docker.freezer import Freezer
from tests.support_docker import live, until


class Engine:
    """Refuses the first orders to let go on."""

    def __init__(self, refusals: int) -> None:
        self.paused = False
        self.refusals = refusals
        self.asked = 0

    def pause(self, container: str) -> None:
        self.paused = True

    def unpause(self, container: str) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise APIError("the engine is busy")
        self.paused = False

    def inspect_container(self, container: str) -> dict[str, Any]:
        return {"State": {"Paused": self.paused}}


def test_a_thaw_that_the_engine_did_not_do_is_ordered_again() -> None:
    engine = Engine(refusals=2)

    async def work() -> None:
        freezer = Freezer(engine, "x", lambda: ["c"], lambda _: None)
        freezer.freeze()
        await until(lambda: engine.paused, "a freeze")
        freezer.thaw()
        await until(lambda: not engine.paused and not freezer.frozen(), "a thaw")

    live(work)
    assert engine.asked == 3

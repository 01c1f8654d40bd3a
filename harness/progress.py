"""Progress of a run on standard error: a live line on a terminal, plain lines elsewhere."""

import asyncio
import sys
from typing import TYPE_CHECKING, Protocol

from harness.clock import Clock
from harness.spec import RunSpec
from harness.terminal import colourful, err

if TYPE_CHECKING:
    from harness.controller import Controller
    from harness.nemesis import Nemesis

_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.25


class _Status(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def update(self, status: str) -> None: ...


class Progress:
    """Tells what the run is doing: step, operations a second, faults in force."""

    def __init__(self, spec: RunSpec, *, quiet: bool) -> None:
        self._spec = spec
        self._quiet = quiet
        self._live: _Status | None = None
        if not quiet and colourful(sys.stderr):
            from rich.console import Console

            self._live = Console(stderr=True, highlight=False).status("")
            self._live.start()

    def step(self, text: str) -> None:
        """Tell the step that begins."""
        if self._live is not None:
            self._live.update(text)
        elif not self._quiet:
            err(f"… {text}")

    async def watch(self, controller: "Controller", nemesis: "Nemesis", until_ns: int) -> None:
        """Tell how the main phase goes, until cancelled."""
        every_s = _LIVE_EVERY_S if self._live is not None else _PLAIN_EVERY_S
        last = 0
        while True:
            self.step(line(controller, nemesis, until_ns, every_s, last))
            last = completed(controller)
            await asyncio.sleep(every_s)

    def close(self) -> None:
        """Clear the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def completed(controller: "Controller") -> int:
    """How many operations have ended."""
    counts = controller.counts
    return counts.ok + counts.fail + counts.info


def line(
    controller: "Controller", nemesis: "Nemesis", until_ns: int, every_s: float, last: int
) -> str:
    """Return the progress line of the main phase."""
    clock: Clock = controller.clock
    left_s = max(0.0, (until_ns - clock.now_ns()) / 1e9)
    counts = controller.counts
    rate = (completed(controller) - last) / every_s
    faults = ", ".join(nemesis.force.shown()) or "none"
    seen = "" if controller.sighting is None else f"; seen: {controller.sighting.name}"
    return (
        f"main phase, {left_s:.0f} s left: {rate:.0f} ops/s "
        f"(ok {counts.ok}, fail {counts.fail}, info {counts.info}); faults in force: {faults}{seen}"
    )

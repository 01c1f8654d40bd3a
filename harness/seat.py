"""A worker as the controller keeps it: its lanes, its generator, and what it believes.

A seat outlives its worker.  A worker that was ended on order and started again takes its seat
under new process numbers in both lanes: it is a new process, which knows of no lock, and what the
old one had open may still happen.
"""

import asyncio
from dataclasses import dataclass, field

from harness.crew import Worker
from harness.generator import Forgetful, Generator
from harness.op import Op
from harness.protocol import ClockRead, ReadClock
from harness.text import tail


@dataclass
class Lane:
    """A sequence of processes, one after the other: an `info` retires a process, not its lane.

    `awaited` is set when the open operation ends.
    """

    process: int
    open: Op | None = None
    op_id: int = -1
    awaited: "asyncio.Future[Op] | None" = None


@dataclass
class Seat:
    """A worker with its lanes and its generator.

    `ready`: the worker is connected and takes operations; `hired`: it was ready once, so that its
    failure no longer is one of the set-up.  `ordered`: its end was ordered, so the generator waits
    for it to be started again, and then goes on after the operation `last`.
    """

    worker: Worker
    main: Lane
    renewal: Lane
    generator: Generator | None = None
    timer: asyncio.TimerHandle | None = None
    ready: bool = False
    hired: bool = False
    ordered: bool = False
    last: Op | None = None
    believes: dict[str, int | None] = field(default_factory=dict)
    clocks_asked: "dict[int, asyncio.Future[ClockRead]]" = field(default_factory=dict)

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        """The main lane and the renewal lane."""
        return self.main, self.renewal

    def cancel_timer(self) -> None:
        """No longer wait for the time at which the generator wanted to go on."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def park(self, last: Op | None) -> None:
        """Keep the generator until the worker comes again; one that can forgets its locks."""
        self.cancel_timer()
        going: object = self.generator
        self.last = last
        if isinstance(going, Forgetful):
            self.generator, self.last = going.forget(), None

    async def ask_clock(self, timeout_s: float) -> ClockRead | None:
        """Ask the worker what time it has; None when it cannot tell, or is frozen."""
        if not self.ready or "clock" not in self.worker.abilities:
            return None
        number = max(self.clocks_asked, default=-1) + 1
        asked = self.clocks_asked[number] = asyncio.get_running_loop().create_future()
        self.worker.send(ReadClock(id=number))
        try:
            return await asyncio.wait_for(asked, timeout_s)
        except TimeoutError:
            return None  # its answer may come late, so the number stays taken

    def clock_read(self, message: ClockRead) -> None:
        """Take the answer to `ask_clock`."""
        asked = self.clocks_asked.pop(message.id, None)
        if asked is not None and not asked.done():
            asked.set_result(message)

    def last_words(self) -> str:
        """The last lines of the worker's log."""
        try:
            return tail(self.worker.log.read_bytes())
        except OSError:
            return ""

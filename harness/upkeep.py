"""What lives on the nodes of a run: ended on order, started again, and missed when it dies.

An end that nobody ordered is a problem of the run, told with the last lines of the log: a system
under test that crashed cannot be judged as if it had run.  Two faults excuse it: one that is in
force there (a server may well end when its disk is full), and one that left something behind (a
server that finds an older copy of its data may end minutes later).

A server takes a moment to end, some 0.1 s from a failed write to the last breath of an interpreter.
So when an excuse is over, what lives is watched a little longer, and started again if it ends.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from harness.hire import Crew
from harness.node import Killable, Node, Pausable, look_afresh
from harness.note import LEFTOVER
from harness.servers import Servers
from harness.target import Server

END_S = 10.0
GRACE_S = 5.0
START_AGAIN_S = 30.0
KNOCK_S = 0.5
LATE_END_S = 1.0
_LOOK_S = 0.0005
_POLL_S = 0.01
_OWNER = "upkeep"


class Keeper:
    """The upkeep of one run; see the ability `Upkeep` in `harness.site`.

    `crew` is set when the workers are hired.  Until `watch` nothing is reported.
    """

    def __init__(self, nodes: Mapping[str, Node], servers: Servers) -> None:
        self._nodes = nodes
        self._servers = servers
        self.crew: Crew | None = None
        self._down: defaultdict[str, set[str]] = defaultdict(set)
        self._excused: defaultdict[str, set[str]] = defaultdict(set)
        self._blamed: dict[str, str] = {}
        self._started: list[Callable[[str], None]] = []
        self._later: list[asyncio.Task[None]] = []

    def watch(self, report: Callable[[str], None]) -> None:
        """From now on, report every end of a server that nobody ordered or excused."""

        def ended(name: str, how: str) -> None:
            if self._down[name] or self._excused[name]:
                return
            fault = self._blamed.get(name)
            said = f"server {name} ended by itself with {how}; {self._servers.last_lines(name)}"
            report(f"{LEFTOVER}{fault}: {said}" if fault else said)

        self._servers.when_ended = ended

    # ------------------------------------------------------------------- orders

    async def end(self, owner: str, node: str, *, kindly: bool = False) -> None:
        """Kill everything on a node, and wait until it is gone or 10 s are over."""
        place = self._nodes[node]
        assert isinstance(place, Killable)
        self._down[node].add(owner)
        if self.crew is not None and node not in self._servers:
            self.crew.order_end(node)
        if kindly:
            place.kill(kindly=True)
            # A stopped process takes no SIGTERM before it goes on; supervisors do the same.
            if isinstance(place, Pausable) and not self._held(node):
                place.resume(_OWNER)
            await self._await_end(node, GRACE_S, lambda: None)
        await self._await_end(node, END_S, place.kill)

    async def _await_end(self, node: str, bound_s: float, order: Callable[[], None]) -> None:
        deadline = time.monotonic() + bound_s
        while await self._lives_now(node) and time.monotonic() < deadline:
            order()
            await asyncio.sleep(_LOOK_S)

    async def _lives_now(self, node: str) -> bool:
        await look_afresh([self._nodes[node]])
        return self._lives(node)

    def _lives(self, node: str) -> bool:
        """Whether anything runs there, or its end was not told yet."""
        if node in self._servers:
            return self.running(node) or self._servers.ended(node) is None
        return self.running(node) or (self.crew is not None and self.crew.alive(node))

    async def start_again(self, owner: str, node: str, server: Server | None = None) -> None:
        """Start what ran there, and wait until it answers, ends, or 30 s are over."""
        self._down[node].discard(owner)
        if owner in self._excused[node] and await self._lives_now(node):
            if self._held(node):  # it cannot end before it goes on, and that is not ours to order
                self._later.append(asyncio.create_task(self._outlast(owner, node)))
                return
            await self._await_end(node, LATE_END_S, lambda: None)
        await self._start_if_gone(node, server)
        self._excused[node].discard(owner)

    async def _outlast(self, owner: str, node: str) -> None:
        """Watch what is stopped now from when it goes on, and end its excuse then."""
        while self._held(node):  # noqa: ASYNC110 - a node tells nobody that it goes on
            await asyncio.sleep(_POLL_S)
        await self._await_end(node, LATE_END_S, lambda: None)
        await self._start_if_gone(node, None)
        self._excused[node].discard(owner)

    async def settle(self) -> None:
        """Wait, when nothing is stopped any more, until no excuse lasts or 31 s are over."""
        if self._later:
            done, _ = await asyncio.wait(self._later, timeout=LATE_END_S + START_AGAIN_S)
            for task in done:
                task.result()

    async def _start_if_gone(self, node: str, server: Server | None) -> None:
        if self._down[node] or await self._lives_now(node) or self._down[node]:
            return
        self._excused[node].add(_OWNER)  # an end at the start is told by who ordered it
        self._start(node, server)
        await self._await_answer(node)
        self._excused[node].discard(_OWNER)

    def _start(self, node: str, server: Server | None) -> None:
        if node in self._servers:
            self._servers.start_one(node, server)
        elif self.crew is not None:
            self.crew.start_one(node)
        for tell in self._started:
            tell(node)

    async def _await_answer(self, node: str) -> None:
        deadline = time.monotonic() + START_AGAIN_S
        while await self._lives_now(node) and time.monotonic() < deadline:
            if await self._missing(node) is None:
                return
            await asyncio.sleep(_POLL_S)

    def _held(self, node: str) -> bool:
        """Whether a fault stops what runs there."""
        place = self._nodes[node]
        return isinstance(place, Pausable) and place.held()

    def excuse(self, owner: str, node: str) -> None:
        """Until `start_again` of this owner, an end by itself is no problem of the run."""
        self._excused[node].add(owner)

    def blame(self, node: str, fault: str) -> None:
        """From now on, an end by itself is what `fault` left behind."""
        self._blamed[node] = fault

    def when_started(self, tell: Callable[[str], None]) -> None:
        """Call `tell(node)` as soon as something was started again on a node."""
        self._started.append(tell)

    # -------------------------------------------------------------------- looks

    def kept_down(self, node: str) -> bool:
        """Whether any owner keeps the node down now."""
        return bool(self._down[node])

    def excused(self, node: str) -> bool:
        """Whether what runs there may end by itself now."""
        return bool(self._excused[node])

    def running(self, node: str) -> bool:
        """Whether any process lives there."""
        return bool(self._nodes[node].processes())

    async def knock(self, node: str) -> str:
        """Connect to the server's port from a place that no fault cuts off."""
        if node not in self._servers:
            return "no port"
        return await self._servers.knock(node, KNOCK_S)

    async def trouble(self, node: str) -> str | None:
        """Return None when what belongs there runs and answers, else why not, with its log."""
        await look_afresh([self._nodes[node]])
        missing = await self._missing(node) if self.running(node) else f"{node} does not run"
        if missing is None:
            return None
        if node in self._servers:
            how = self._servers.ended(node)
            ended = f" (it ended with {how})" if how else ""
            return f"{missing}{ended}; {self._servers.last_lines(node)}"
        return f"{missing}; {self.crew.last_lines(node)}" if self.crew else missing

    async def _missing(self, node: str) -> str | None:
        if node in self._servers:
            return await self._servers.missing(node)
        return self.crew.missing(node) if self.crew else None

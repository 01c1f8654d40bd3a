"""What is in force now, and the care that overlapping windows need.

Two windows may hold one node: it is released by the last of them.  Orders to one node are given one
after the other, else the stop of a beginning window and the resume of an ending one fight.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from harness.fault import Fault
from harness.node import Node
from harness.trap import Traps
from harness.window import Proof

_WAKE_S = 10.0
_GONE_S = 2.0
_LOOK_S = 0.0005


class Force:
    """The faults in force, by kind and node.  `resume(worker)` orders a worker to go on."""

    def __init__(self, traps: Traps, resume: Callable[[str], None]) -> None:
        self._traps = traps
        self._resume = resume
        self._counts: Counter[tuple[str, str]] = Counter()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def shown(self) -> list[str]:
        """Return the faults in force as people read them."""
        return [f"{kind} {node}" for (kind, node), n in sorted(self._counts.items()) if n > 0]

    def enter(self, fault: Fault, nodes: Sequence[Node]) -> None:
        """Count a window that begins; each must come to `undo` once."""
        for node in nodes:
            self._counts[(fault.name, node.name)] += 1

    async def start(self, fault: Fault, nodes: Sequence[Node]) -> Proof:
        """Make a fault true and return what the probe sees."""
        async with self._alone(nodes):
            await fault.start(nodes)
            return await fault.in_force(nodes)

    async def undo(self, fault: Fault, nodes: Sequence[Node]) -> Proof:
        """End a window: undo it on every node that no other window holds, and look."""
        async with self._alone(nodes):
            for node in nodes:
                self._counts[(fault.name, node.name)] -= 1
            free = [node for node in nodes if not self._held(fault, node)]
            if not free:
                return Proof(holds=True, text="another window of this fault goes on there")
            await fault.stop(free)
            await self.wake(free)
            return await self._gone(fault, free)

    async def _gone(self, fault: Fault, nodes: Sequence[Node]) -> Proof:
        """Look until nothing is left; a worker that stopped itself anew belongs to a new window."""
        deadline = time.monotonic() + _GONE_S
        while True:
            proof = await fault.gone(nodes)
            if proof.holds or time.monotonic() > deadline:
                return proof
            if any(self._held(fault, node) for node in nodes):
                return Proof(holds=True, text="another window of this fault began there meanwhile")
            await asyncio.sleep(_LOOK_S)

    def _held(self, fault: Fault, node: Node) -> bool:
        return self._counts[(fault.name, node.name)] > 0

    async def wake(self, nodes: Sequence[Node]) -> None:
        """Resume workers that stopped themselves until they say that they go on.

        A worker announces its stop before it carries it out.  A stop from outside may come in
        between: resumed once, the worker then stops itself, and must be resumed once more.
        """
        deadline = time.monotonic() + _WAKE_S
        for node in nodes:
            while node.name in self._traps.asleep and time.monotonic() < deadline:
                self._resume(node.name)
                await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def _alone(self, nodes: Sequence[Node]) -> AsyncIterator[None]:
        """Give orders to these nodes alone; always taken in one order, so nobody waits for ever."""
        async with AsyncExitStack() as stack:
            for name in sorted(node.name for node in nodes):
                await stack.enter_async_context(self._locks[name])
            yield

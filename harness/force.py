"""What is in force now, and the care that overlapping windows need.

Orders to one node are given one after the other, else the stop of a beginning window and the resume
of an ending one fight.  Which of several windows holds what is the business of each ability (it is
given an owner); here is what concerns the order in time.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from harness.fault import Fault
from harness.node import Node, Pausable, look_afresh
from harness.site import Site
from harness.trap import Traps
from harness.window import Proof

_WAKE_S = 10.0
_GONE_S = 2.0
_LOOK_S = 0.0005
_WAKER = "wake"


class Force:
    """The faults in force, by kind and node."""

    def __init__(self, traps: Traps, site: Site) -> None:
        self._traps = traps
        self._site = site
        self._counts: Counter[tuple[str, str]] = Counter()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def shown(self) -> list[str]:
        """Return the faults in force as people read them."""
        return [f"{kind} {node}" for (kind, node), n in sorted(self._counts.items()) if n > 0]

    async def start(self, fault: Fault, nodes: Sequence[Node], claim: str | None = None) -> Proof:
        """Make a fault true and return what the probe sees; each must come to `undo` once.

        A worker that stopped itself to be hit at a phase (`claim` names it) goes on, unless being
        stopped is the fault.
        """
        async with self._alone(nodes):
            for node in nodes:
                self._counts[(fault.name, node.name)] += 1
            try:
                await fault.start(self._site, nodes)
            finally:
                if claim is not None:
                    self._traps.claimed[claim] -= 1
            await self.wake(nodes)
            return await fault.in_force(self._site, nodes)

    async def look(self, fault: Fault, nodes: Sequence[Node]) -> Proof:
        """Return what the probe sees now."""
        return await fault.in_force(self._site, nodes)

    async def undo(self, fault: Fault, nodes: Sequence[Node]) -> Proof:
        """Undo a fault and return what the probe sees; what raises is a proof of its own.

        An undo that fails must not keep the nodes asleep, nor any other fault in force.
        """
        async with self._alone(nodes):
            for node in nodes:
                self._counts[(fault.name, node.name)] -= 1
            failed = None
            try:
                await fault.stop(self._site, nodes)
            except Exception as error:  # noqa: BLE001 - told as a leftover, whatever it is
                failed = f"its undo failed ({type(error).__name__}: {error})"
            await self.wake(nodes)
            proof = await self._gone(fault, nodes)
        if failed is None:
            return proof
        text = f"{failed}; a look after that: {proof.text}"
        return Proof(holds=False, text=text, facts=proof.facts)

    async def _gone(self, fault: Fault, nodes: Sequence[Node]) -> Proof:
        """Look until nothing is left, bounded: what was ordered may take its time."""
        deadline = time.monotonic() + _GONE_S
        while True:
            try:
                proof = await fault.gone(self._site, nodes)
            except Exception as error:  # noqa: BLE001 - what cannot be seen gone is a leftover
                return Proof(holds=False, text=f"the look failed ({type(error).__name__}: {error})")
            if proof.holds or time.monotonic() > deadline:
                return proof
            if any(self._traps.claimed[node.name] > 0 for node in nodes):
                return Proof(holds=True, text="another window begins there")
            await asyncio.sleep(_LOOK_S)

    async def wake(self, nodes: Sequence[Node]) -> None:
        """Resume workers that stopped themselves until they say that they go on.

        A worker announces its stop before it carries it out.  A stop from outside may come in
        between: resumed once, the worker then stops itself, and must be resumed once more.  A node
        that a fault stops, or is about to, is left alone.
        """
        deadline = time.monotonic() + _WAKE_S
        for node in nodes:
            while self._traps.asleep[node.name] > 0 and time.monotonic() < deadline:
                if not isinstance(node, Pausable) or node.held():
                    break
                if self._traps.claimed[node.name] > 0:
                    break
                node.resume(_WAKER)
                await look_afresh([node])  # on another machine an order takes its time
                await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def _alone(self, nodes: Sequence[Node]) -> AsyncIterator[None]:
        """Give orders to these nodes alone; always taken in one order, so nobody waits for ever."""
        async with AsyncExitStack() as stack:
            for name in sorted(node.name for node in nodes):
                await stack.enter_async_context(self._locks[name])
            yield

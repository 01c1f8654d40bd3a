"""Pause: the whole process tree of a node is stopped, and later goes on as if nothing had happened.

This is what a long garbage collection, a suspended virtual machine, a debugger or a starved CPU
does to a lock holder or a server.  It attacks the belief that a lease which was valid a moment ago
is valid now.  A stop is asynchronous, so the kernel is asked until every thread is stopped; a
process that was forked meanwhile is found by the next look.

Containers are frozen whole by the engine's freezer, which no process of theirs can notice or
resist; everywhere, and in containers by name, each process is stopped by SIGSTOP.  Whichever it is,
the kernel goes on for what is stopped: connections acknowledge data, and timers expire.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.cast import Cast
from harness.mistakes import Mistake
from harness.node import Freezable, Node, Pausable, Threads, look_afresh, on_this_machine
from harness.site import Site
from harness.window import Proof

_BOUND_S = 2.0
_LOOK_S = 0.0005


class Pause:
    """Stop every process of the node (SIGSTOP, or the freezer of a container), and continue it."""

    name = "pause"

    class Options(BaseModel):
        """Options of the fault `pause`."""

        model_config = ConfigDict(extra="forbid")

        by: Literal["freezer", "sigstop"] | None = Field(
            None,
            description="freezer (of a container, all at once) or sigstop (to every process); "
            "what is not said is the freezer in containers and sigstop elsewhere",
        )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._owner = f"pause {id(self)}"

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return what is wrong when there is no freezer where the run lives."""
        if self.options.by != "freezer" or cast.backend == "docker":
            return None
        text = "found freezer, which only containers have (backend: docker); allowed: sigstop"
        return Mistake(("by",), text)

    def available(self, site: Site) -> str | None:
        """Return None when the processes can be stopped as asked, else why not."""
        for name, node in site.at_risk.items():
            if not isinstance(node, Pausable):
                return f"the processes of {name} cannot be stopped"
            if self.options.by == "freezer" and not isinstance(node, Freezable):
                return f"{name} has no freezer"
        return None

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name the processes to continue."""
        processes = [[p.pid, p.start] for p in on_this_machine(nodes)]
        return {"what": "resume", "processes": processes}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Stop, and look until every thread is stopped or 2 s are over."""
        await _until(_pausable(nodes), self._stop, stopped=True)

    def _stop(self, node: Pausable) -> None:
        if self.options.by == "sigstop" and isinstance(node, Freezable):
            node.stop_by_signal(self._owner)
        else:
            node.stop(self._owner)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look at the state of every thread."""
        await look_afresh(nodes)
        threads = _threads(_pausable(nodes))
        text = f"{threads.stopped} of {threads.total} threads {threads.seen}"
        return Proof(
            holds=0 < threads.total == threads.stopped,
            text=text if threads.total else "no process lives there",
            facts={"threads": threads.total, "stopped": threads.stopped},
        )

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Continue, and look until no thread is stopped or 2 s are over."""
        for node in _pausable(nodes):
            node.resume(self._owner)
        free = [node for node in _pausable(nodes) if not node.held()]
        await _until(free, lambda node: node.resume(self._owner), stopped=False)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look at the state of every thread of the nodes that no other window stops."""
        free = [node for node in _pausable(nodes) if not node.held()]
        if not free:
            return Proof(holds=True, text="another pause goes on there")
        await look_afresh(free)
        threads = _threads(free)
        return Proof(
            holds=threads.stopped == 0,
            text=f"{threads.total - threads.stopped} of {threads.total} threads go on",
            facts={"threads": threads.total, "stopped": threads.stopped},
        )


def _pausable(nodes: Sequence[Node]) -> list[Pausable]:
    return [node for node in nodes if isinstance(node, Pausable)]


def _threads(nodes: Sequence[Pausable]) -> Threads:
    looks = [node.threads() for node in nodes]
    return Threads(
        sum(look.total for look in looks), sum(look.stopped for look in looks), looks[0].seen
    )


async def _until(
    nodes: Sequence[Pausable], order: Callable[[Pausable], None], *, stopped: bool
) -> None:
    """Give the order to each node until the kernel shows that it is carried out, bounded."""
    deadline = time.monotonic() + _BOUND_S
    pending = list(nodes)
    while pending and time.monotonic() < deadline:
        for node in pending:
            order(node)
        await look_afresh(pending)
        pending = [node for node in pending if not _carried_out(node, stopped=stopped)]
        if pending:
            await asyncio.sleep(_LOOK_S)


def _carried_out(node: Pausable, *, stopped: bool) -> bool:
    threads = node.threads()
    return threads.stopped == (threads.total if stopped else 0)

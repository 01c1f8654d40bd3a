"""Pause: the whole process tree of a node is stopped, and later goes on as if nothing had happened.

This is what a long garbage collection, a suspended virtual machine, a debugger or a starved CPU
does to a lock holder or a server.  It attacks the belief that a lease which was valid a moment ago
is valid now.  SIGSTOP is asynchronous, so the kernel is asked until every thread is in state T; a
process that was forked meanwhile is found by the next look.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness import procfs
from harness.node import Node, Pausable
from harness.site import Site
from harness.window import Proof

_BOUND_S = 2.0
_LOOK_S = 0.0005


class Pause:
    """Stop every process of the node (SIGSTOP), and continue it (SIGCONT)."""

    name = "pause"

    class Options(BaseModel):
        """A pause has no options of its own."""

        model_config = ConfigDict(extra="forbid")

    def __init__(self) -> None:
        self._owner = f"pause {id(self)}"

    def available(self, site: Site) -> str | None:
        """Return None when every node's processes can be stopped, else why not."""
        deaf = [name for name, node in site.nodes.items() if not isinstance(node, Pausable)]
        return f"the processes of {', '.join(deaf)} cannot be stopped" if deaf else None

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name the processes to continue."""
        processes = [[p.pid, p.start] for node in nodes for p in node.processes()]
        return {"what": "resume", "processes": processes}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Stop, and look until every thread is stopped or 2 s are over."""
        await _until(_pausable(nodes), lambda node: node.stop(self._owner), stopped=True)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look at the state of every thread."""
        states = _states(_pausable(nodes))
        stopped = sum(state == procfs.STOPPED for state in states.values())
        text = f"{stopped} of {len(states)} threads in state T (/proc)"
        return Proof(
            holds=stopped == len(states) if states else False,
            text=text if states else "no process lives there",
            facts={"threads": len(states), "stopped": stopped},
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
        states = _states(free)
        stopped = sum(state == procfs.STOPPED for state in states.values())
        return Proof(
            holds=stopped == 0,
            text=f"{len(states) - stopped} of {len(states)} threads go on (/proc)",
            facts={"threads": len(states), "stopped": stopped},
        )


def _pausable(nodes: Sequence[Node]) -> list[Pausable]:
    return [node for node in nodes if isinstance(node, Pausable)]


def _states(nodes: Sequence[Pausable]) -> dict[int, str]:
    states: dict[int, str] = {}
    for node in nodes:
        states.update(node.thread_states())
    return states


async def _until(
    nodes: Sequence[Pausable], order: Callable[[Pausable], None], *, stopped: bool
) -> None:
    """Give the order to each node until the kernel shows that it is carried out, bounded."""
    deadline = time.monotonic() + _BOUND_S
    pending = list(nodes)
    while pending and time.monotonic() < deadline:
        for node in pending:
            order(node)
        pending = [node for node in pending if not _carried_out(node, stopped=stopped)]
        if pending:
            await asyncio.sleep(_LOOK_S)


def _carried_out(node: Pausable, *, stopped: bool) -> bool:
    states = node.thread_states().values()
    return all((state == procfs.STOPPED) == stopped for state in states)

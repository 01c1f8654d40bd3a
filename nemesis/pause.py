"""Pause: the whole process tree of a node is stopped, and later goes on as if nothing had happened.

This is what a long garbage collection, a suspended virtual machine, a debugger or a starved CPU
does to a lock holder or a server.  It attacks the belief that a lease which was valid a moment ago
is valid now.  SIGSTOP is asynchronous, so the kernel is asked until every thread is in state T; a
process that was forked meanwhile is found by the next look.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness import procfs
from harness.node import Node, Pausable
from harness.window import Proof

_BOUND_S = 2.0
_LOOK_S = 0.0005


class Pause:
    """Stop every process of the node (SIGSTOP), and continue it (SIGCONT)."""

    name = "pause"

    class Options(BaseModel):
        """A pause has no options of its own."""

        model_config = ConfigDict(extra="forbid")

    def available(self, node: Node) -> str | None:
        """Return None when the node's processes can be stopped, else why not."""
        return None if isinstance(node, Pausable) else f"{node.name} cannot stop its processes"

    def undo(self, node: Node) -> dict[str, Any]:
        """Name the processes to continue."""
        return {"what": "resume", "processes": [[p.pid, p.start] for p in node.processes()]}

    async def start(self, nodes: Sequence[Node]) -> None:
        """Stop, and look until every thread is stopped or 2 s are over."""
        await _until(nodes, order_stop=True)

    async def in_force(self, nodes: Sequence[Node]) -> Proof:
        """Look at the state of every thread."""
        states = _states(nodes)
        stopped = sum(state == procfs.STOPPED for state in states.values())
        text = f"{stopped} of {len(states)} threads in state T (/proc)"
        return Proof(
            holds=stopped == len(states) if states else False,
            text=text if states else "no process lives there",
            facts={"threads": len(states), "stopped": stopped},
        )

    async def stop(self, nodes: Sequence[Node]) -> None:
        """Continue, and look until no thread is stopped or 2 s are over."""
        await _until(nodes, order_stop=False)

    async def gone(self, nodes: Sequence[Node]) -> Proof:
        """Look at the state of every thread."""
        states = _states(nodes)
        stopped = sum(state == procfs.STOPPED for state in states.values())
        return Proof(
            holds=stopped == 0,
            text=f"{len(states) - stopped} of {len(states)} threads go on (/proc)",
            facts={"threads": len(states), "stopped": stopped},
        )


def _pausable(nodes: Sequence[Node]) -> list[Pausable]:
    return [node for node in nodes if isinstance(node, Pausable)]


def _states(nodes: Sequence[Node]) -> dict[int, str]:
    states: dict[int, str] = {}
    for node in _pausable(nodes):
        states.update(node.thread_states())
    return states


async def _until(nodes: Sequence[Node], *, order_stop: bool) -> None:
    """Give the order to each node until the kernel shows that it is carried out, bounded."""
    deadline = time.monotonic() + _BOUND_S
    pending = _pausable(nodes)
    while pending and time.monotonic() < deadline:
        for node in pending:
            if order_stop:
                node.stop()
            else:
                node.resume()
        pending = [node for node in pending if not _carried_out(node, order_stop=order_stop)]
        if pending:
            await asyncio.sleep(_LOOK_S)


def _carried_out(node: Pausable, *, order_stop: bool) -> bool:
    states = node.thread_states().values()
    return all((state == procfs.STOPPED) == order_stop for state in states)

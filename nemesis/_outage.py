"""Nodes on which nothing runs for a while: what kill, disk, amnesia and membership have in common.

That a node is down is seen in /proc and by a connection from another network namespace: nothing
lives there, and nobody accepts.  That it is up again is seen by the same two looks.
"""

import asyncio
from collections.abc import Sequence

from harness.node import Killable, Node
from harness.site import Site, Upkeep
from harness.target import Server
from harness.window import Proof


def lacks_upkeep(site: Site) -> str | None:
    """Return why nothing can be ended and started again here, None when it can."""
    if site.upkeep is None:
        return "nothing can be started again here"
    safe = [name for name, node in site.nodes.items() if not isinstance(node, Killable)]
    return f"the processes of {', '.join(safe)} cannot be killed" if safe else None


def upkeep_of(site: Site) -> Upkeep:
    """Return the upkeep of a place that has it."""
    assert site.upkeep is not None
    return site.upkeep


async def end(site: Site, owner: str, nodes: Sequence[Node], *, kindly: bool = False) -> None:
    """End everything on the nodes, all at once."""
    upkeep = upkeep_of(site)
    await asyncio.gather(*(upkeep.end(owner, node.name, kindly=kindly) for node in nodes))


async def start_again(
    site: Site, owner: str, nodes: Sequence[Node], server: Server | None = None
) -> None:
    """Start what ran on the nodes, all at once."""
    upkeep = upkeep_of(site)
    await asyncio.gather(*(upkeep.start_again(owner, node.name, server) for node in nodes))


async def look_down(site: Site, nodes: Sequence[Node]) -> Proof:
    """Look whether nothing lives on the nodes and nobody accepts there."""
    upkeep = upkeep_of(site)
    living = {node.name: len(node.processes()) for node in nodes}
    knocks = dict(
        zip(living, await asyncio.gather(*(upkeep.knock(name) for name in living)), strict=True)
    )
    down = not any(living.values()) and "accepted" not in knocks.values()
    told = ", ".join(
        f"{name}: {number or 'no'} process{'' if number == 1 else 'es'} (/proc), "
        f"connection {knocks[name]}"
        for name, number in living.items()
    )
    facts = {"processes": sum(living.values()), "connections": knocks}
    return Proof(holds=down, text=told.replace("connection no port", "it has no port"), facts=facts)


async def look_up(site: Site, nodes: Sequence[Node]) -> Proof:
    """Look whether what belongs on the nodes runs and answers, where no other fault ended it."""
    upkeep = upkeep_of(site)
    free = [node.name for node in nodes if not upkeep.kept_down(node.name)]
    if not free:
        return Proof(holds=True, text="another fault keeps it down")
    troubles = await asyncio.gather(*(upkeep.trouble(name) for name in free))
    said = "; ".join(trouble for trouble in troubles if trouble)
    return Proof(holds=not said, text=said or f"{', '.join(free)} runs and answers")

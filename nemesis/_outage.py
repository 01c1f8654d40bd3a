"""Nodes on which nothing runs for a while: what kill, disk, amnesia and membership have in common.

That a node is down is seen in /proc and by a connection from another network namespace: nothing
lives there, and nobody accepts.  That it is up again is seen by the same two looks.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from harness.cast import Cast
from harness.mistakes import Mistake, show
from harness.node import Killable, Node, Pausable, look_afresh
from harness.site import DataFolder, Site, Upkeep
from harness.target import Server
from harness.window import Proof


def lacks_upkeep(site: Site) -> str | None:
    """Return why nothing can be ended and started again here, None when it can."""
    if site.upkeep is None:
        return "nothing can be started again here"
    safe = [name for name, node in site.at_risk.items() if not isinstance(node, Killable)]
    return f"the processes of {', '.join(safe)} cannot be killed" if safe else None


def lacks_data(cast: Cast) -> Mistake | None:
    """Return a mistake when whose data is meant has none, or keeps it where nobody else comes.

    Workers keep no data, so they lose none; that of a compose file's server lies in its container.
    """
    if not cast.may_be_hit & set(cast.servers):
        allowed = "allowed: store, all, or another server"
        return Mistake(("who",), f"found {show(cast.who)}; workers keep no data; {allowed}")
    return keeps_its_data(cast)


def keeps_its_data(cast: Cast) -> Mistake | None:
    """Return a mistake when a server that a compose file brings up may be meant."""
    theirs = sorted(cast.may_be_hit & set(cast.attached))
    if not theirs:
        return None
    text = (
        f"found {show(cast.who)}, but the compose file brings up {', '.join(theirs)}, whose data"
        " lies in the container's own folders and volumes, where no fault can reach it; allowed: a"
        " server that winkle starts"
    )
    return Mistake(("who",), text)


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
    await look_afresh(nodes)
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
    """Look whether what belongs on the nodes runs and answers, where no other fault hinders it."""
    proofs = await asyncio.gather(*(_look_up(site, node) for node in nodes))
    return all_hold(proofs)


async def _look_up(site: Site, node: Node) -> Proof:
    upkeep = upkeep_of(site)
    if upkeep.kept_down(node.name):
        return Proof(holds=True, text=f"another fault keeps {node.name} down")
    trouble = await upkeep.trouble(node.name)
    if trouble is None:
        return Proof(holds=True, text=f"{node.name} runs and answers")
    if isinstance(node, Pausable) and node.held():
        return Proof(holds=True, text=f"another fault stops {node.name}")
    if upkeep.excused(node.name):
        return Proof(holds=True, text=f"another fault may have ended {node.name}: {trouble}")
    return Proof(holds=False, text=trouble)


async def start_on_changed_data(
    site: Site, owner: str, node: Node, fault: str, newest: str
) -> str | None:
    """Start a node on data that a fault changed, and return why that failed, None if it did not.

    A server may refuse such data, and is right to; then it gets the copy `newest` of what it had
    before, and is started once more.  One that answered and ends later keeps what it has, since
    what it promised meanwhile must not be taken from it as well: its end is what `fault` left.
    """
    assert isinstance(node, DataFolder)
    upkeep = upkeep_of(site)
    upkeep.blame(node.name, fault)
    await upkeep.start_again(owner, node.name)
    refusal = None if upkeep.kept_down(node.name) else await upkeep.trouble(node.name)
    if refusal is not None:
        await upkeep.end(owner, node.name)
        await asyncio.to_thread(node.put_back, newest)
        await upkeep.start_again(owner, node.name)
    await asyncio.to_thread(node.drop, newest)
    return refusal


def refused(refusals: Mapping[str, str]) -> list[Proof]:
    """Tell of each server that did not start on changed data; the whole text is in the facts."""
    return [
        Proof(
            holds=True,
            text=f"{name} did not start on that, so it got back what it had; "
            f"its last word: {_last_line(said)}",
            facts={"refused": said},
        )
        for name, said in refusals.items()
    ]


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1].strip()


def all_hold(proofs: Iterable[Proof]) -> Proof:
    """Return the proof that all of these hold; one that cannot tell leaves it open."""
    listed = list(proofs)
    found = [proof.holds for proof in listed]
    sure = None if None in found else bool(found)
    return Proof(
        holds=False if False in found else sure,
        text="; ".join(proof.text for proof in listed),
        facts={key: value for proof in listed for key, value in proof.facts.items()},
    )

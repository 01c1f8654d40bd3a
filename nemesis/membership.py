"""Membership: a member leaves the cluster, another takes its place, or one joins that never comes.

Changing who belongs to a cluster is the rarest thing that it does, and majorities are counted anew
by each change.  A removed member does not come back with what it knew: whoever returns is a new
member with an empty data folder.  An added member that never starts makes the majority larger, and
the servers no more: one failure less is survived.  The fault is undone when the cluster agrees that
it has its old size again.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness import target as systems
from harness.cast import Cast
from harness.mistakes import Mistake, show
from harness.node import Node
from harness.site import DataFolder, Site
from harness.target import Cluster
from harness.window import Proof
from nemesis import _outage

MEMBERS_MIN = 3
ASK_S = 15.0
_ASK_AGAIN_S = 0.25


class Membership:
    """Remove, replace or add a member of the lock service's cluster."""

    name = "membership"

    class Options(BaseModel):
        """Options of the fault `membership`."""

        model_config = ConfigDict(extra="forbid")

        what: Literal["remove", "replace", "add"] = Field(
            "remove",
            description="out for the window, a new one in its place at once, or one more that "
            "never comes",
        )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._owner = f"membership {id(self)}"
        self._identities: Mapping[str, str] = {}
        self._said: dict[str, str] = {}

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return None when the target can change its members and has three or more, else why."""
        lock: object = cast.lock
        name, count = cast.lock.name, len(cast.lock_servers)
        if not isinstance(lock, systems.Membership):
            return Mistake(("kind",), f"found {self.name}, but {name} cannot change its members")
        if count < MEMBERS_MIN:
            needed = f"{MEMBERS_MIN} members or more, to lose one and go on"
            return Mistake(
                ("kind",), f"found {self.name}, which needs {needed}; {name} has {count}"
            )
        if not any(set(names) & set(cast.lock_servers) for names in cast.meant):
            text = f"found {show(cast.who)}, which is no member of {name}"
            return Mistake(("who",), f"{text}; allowed: leader, follower, server:N")
        return _outage.keeps_its_data(cast)

    def available(self, site: Site) -> str | None:
        """Return None when the data of a member can be deleted here, else why not."""
        members = [site.at_risk[name] for name in site.lock_servers if name in site.at_risk]
        if not all(isinstance(node, DataFolder) for node in members):
            return "the data of a removed member cannot be deleted here"
        return _outage.lacks_upkeep(site)

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name the members."""
        return {"what": "restore the members", "nodes": [node.name for node in nodes]}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Change the members, one after the other, as far as the cluster agrees."""
        target, cluster = _agreeing(site)
        self._said.clear()
        self._identities = await asyncio.to_thread(target.members, cluster)
        for node in _members(nodes, cluster):
            if self.options.what == "add":
                await self._ask(node, lambda name: target.add_member(cluster, _new(name)))
                continue
            await self._take_out(site, node)
            if self.options.what == "replace" and node.name not in self._said:
                await self._take_in(site, node)

    async def _take_out(self, site: Site, node: Node) -> None:
        """Remove a member, and end it: it is to know nothing when a member comes back."""
        target, cluster = _agreeing(site)
        # A removed member may end by itself before it is told to.
        _outage.upkeep_of(site).excuse(self._owner, node.name)
        await self._ask(node, lambda name: target.remove_member(cluster, name))
        if node.name not in self._said:
            await _outage.end(site, self._owner, [node])

    async def _take_in(self, site: Site, node: Node) -> None:
        """Announce a member in the place of the old one, and start it on an empty folder."""
        target, cluster = _agreeing(site)
        assert isinstance(node, DataFolder)
        await asyncio.to_thread(node.put_back, None)
        await self._ask(node, lambda name: target.add_member(cluster, name))
        await _outage.start_again(site, self._owner, [node], target.joining(node.name))

    async def _ask(self, node: Node, change: Callable[[str], str | None]) -> None:
        """Ask for a change until the cluster agrees or 15 s are over; keep what was said last."""
        deadline = time.monotonic() + ASK_S
        while (said := await asyncio.to_thread(change, node.name)) is not None:
            self._said[node.name] = said
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(_ASK_AGAIN_S)
        self._said.pop(node.name, None)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Let the cluster list its members, and look at the processes."""
        now = await self._list(site)
        names = [node.name for node in _members(nodes, _agreeing(site)[1])]
        if not names:
            return Proof(holds=False, text="no member of the cluster was meant")
        match self.options.what:
            case "add":
                return self._proof(now, holds=len(now) == len(self._identities) + 1)
            case "remove":
                listed = self._proof(now, holds=bool(now) and not any(n in now for n in names))
                return _outage.all_hold([listed, await _outage.look_down(site, nodes)])
            case _:
                new = all(n in now and now[n] != self._identities.get(n) for n in names)
                listed = self._proof(now, holds=new)
                return _outage.all_hold([listed, await _outage.look_up(site, nodes)])

    async def _list(self, site: Site) -> Mapping[str, str]:
        target, cluster = _agreeing(site)
        return await asyncio.to_thread(target.members, cluster)

    def _proof(self, now: Mapping[str, str], *, holds: bool) -> Proof:
        refused = "".join(f"; {name}: {said}" for name, said in self._said.items())
        before = ", ".join(sorted(self._identities)) or "unknown"
        text = f"members {', '.join(sorted(now)) or 'unknown'}, before {before}{refused}"
        return Proof(holds=holds, text=text, facts={"members": dict(now)})

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Go back to the old size: a new member in place of a lost one, none that never came."""
        target, cluster = _agreeing(site)
        for node in _members(nodes, cluster):
            if self.options.what == "add":
                await self._ask(node, lambda name: target.remove_member(cluster, _new(name)))
            elif _outage.upkeep_of(site).kept_down(node.name):
                await self._take_in(site, node)
            else:  # it was never taken out, or is in again
                await _outage.start_again(site, self._owner, [node])

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Let the cluster list its members, and look whether all of them run."""
        now = await self._list(site)
        whole = self._proof(now, holds=set(now) == {p.name for p in _agreeing(site)[1].places})
        return _outage.all_hold([whole, await _outage.look_up(site, nodes)])


def _agreeing(site: Site) -> tuple[systems.Membership, Cluster]:
    target: object = site.target
    assert isinstance(target, systems.Membership)
    assert site.cluster is not None
    return target, site.cluster


def _members(nodes: Sequence[Node], cluster: Cluster) -> list[Node]:
    known = {place.name for place in cluster.places}
    return [node for node in nodes if node.name in known]


def _new(name: str) -> str:
    """The name of a member that nobody ever starts."""
    return f"{name}-new"

"""Disk: a node's disk is full or read-only for a while, or a file on it changes behind its server.

A full disk attacks what a server does with a write that fails: it may refuse, or end, and be
started again when there is room; an acknowledgement of what was not written is the bug.  Linux
makes no file system read-only while a file on it is open for writing, so the server is killed and
finds its disk read-only when it starts, as after a crash on a bad disk.  A server that ends in the
window is started again at its end.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness import site as places
from harness.cast import Cast
from harness.mistakes import Mistake
from harness.node import Node, look_afresh
from harness.site import DataFolder, Site
from harness.window import Proof
from nemesis import _outage
from nemesis._damage import Damage

_ERRORS = {"full": "ENOSPC", "read-only": "EROFS"}


class Disk:
    """Fill the node's disk, make it read-only, flip a bit of a file, or cut off a file's tail."""

    name = "disk"

    class Options(BaseModel):
        """Options of the fault `disk`; for `flip` and `truncate` the server is down meanwhile."""

        model_config = ConfigDict(extra="forbid")

        what: Literal["full", "read-only", "flip", "truncate"] = Field(
            "full", description="no room, no writing, one bit of a file flipped, or its tail gone"
        )
        pattern: str = Field(
            "*", min_length=1, description="flip, truncate: the largest file that matches"
        )
        bytes: int = Field(64, ge=1, description="truncate: how much is cut off")

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._way = self._chosen(f"disk {id(self)}")

    def _chosen(self, owner: str) -> "Limit | Damage":
        what = self.options.what
        if what == "full" or what == "read-only":  # noqa: PLR1714 - narrows the type, `in` does not
            return Limit(owner, what)
        return Damage(owner, what, self.options.pattern, self.options.bytes)

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return None when a server may be meant whose data is within reach, else what is wrong."""
        if self.options.what == "read-only" and cast.backend == "docker":
            text = (
                "found read-only; allowed in containers: full, flip, truncate (to mount a disk anew"
                " takes a right over all mounts of the engine's machine, SYS_ADMIN)"
            )
            return Mistake(("what",), text)
        return _outage.lacks_data(cast)

    def available(self, site: Site) -> str | None:
        """Return None when every node has what is to be limited or changed, else why not."""
        limits = self.options.what in _ERRORS
        needed: Any = places.Disk if limits else DataFolder
        lacking = [name for name, node in site.at_risk.items() if not isinstance(node, needed)]
        if lacking:
            what = "disk of its own" if limits else "data folder that can be reached"
            return f"{', '.join(lacking)} has no {what}"
        return _outage.lacks_upkeep(site)

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name the disks."""
        return {"what": "make the disk whole", "nodes": [node.name for node in nodes]}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Limit or damage the disk."""
        await self._way.start(site, nodes)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Try to write, or look at the file."""
        return await self._way.in_force(site, nodes)

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Make the disk whole, and start what ended."""
        await self._way.stop(site, nodes)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Try to write, and look whether the servers answer."""
        return await self._way.gone(site, nodes)


class Limit:
    """No room, or no writing: the probe is a process that tries to write."""

    def __init__(self, owner: str, what: Literal["full", "read-only"]) -> None:
        self._owner = owner
        self._excuse = f"{owner} excuse"
        self._what = what

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Take the room, or end the servers and start them on a read-only disk."""
        for node in nodes:
            _outage.upkeep_of(site).excuse(self._excuse, node.name)
        if self._what == "full":
            for node in nodes:
                await asyncio.to_thread(_disk(node).fill, self._owner)
            return
        await _outage.end(site, self._owner, nodes)
        for node in nodes:
            await asyncio.to_thread(_disk(node).forbid_writes, self._owner)
        await _outage.start_again(site, self._owner, nodes)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Try to write a block on each disk."""
        return _outage.all_hold([await self._try(site, node) for node in nodes])

    async def _try(self, site: Site, node: Node) -> Proof:
        wanted = _ERRORS[self._what]
        error = await asyncio.to_thread(_disk(node).try_to_write)
        free = await asyncio.to_thread(_disk(node).free_bytes)
        said = f"a write failed with {error}" if error else "a write went through"
        await look_afresh([node])
        runs = _outage.upkeep_of(site).running(node.name)
        ended = "" if runs else f"; what ran on {node.name} has ended"
        # A disk that another fault has made read-only says nothing of its room.
        holds = None if error in _ERRORS.values() and error != wanted else error == wanted
        return Proof(
            holds=holds,
            text=f"{node.name}: {said}, {free:,} bytes free{ended}",
            facts={"error": error, "free_bytes": free, "runs": runs},
        )

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Give room and writing back, and start what ended."""
        for node in nodes:
            await asyncio.to_thread(_disk(node).make_whole, self._owner)
        await _outage.start_again(site, self._excuse, nodes)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Try to write on each disk that no other fault limits, and look at its server."""
        proofs = [await self._healed(node) for node in nodes]
        whole = [node for node in nodes if not _disk(node).limited()]
        up = [await _outage.look_up(site, whole)] if whole else []
        return _outage.all_hold([*proofs, *up])

    async def _healed(self, node: Node) -> Proof:
        if _disk(node).limited():
            return Proof(holds=True, text=f"another fault limits the disk of {node.name}")
        error = await asyncio.to_thread(_disk(node).try_to_write)
        text = f"{node.name}: a write {f'failed with {error}' if error else 'goes through'}"
        return Proof(holds=not error, text=text)


def _disk(node: Node) -> places.Disk:
    assert isinstance(node, places.Disk)
    return node

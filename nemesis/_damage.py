"""Damage: a file is changed while its server is down, as a disk does that lost or bent a write.

A server may find the damage when it starts, and refuse: that is the right answer.  It then gets its
data back whole, so that it can be started, and the refusal is told.  A server that starts with the
damage keeps it: what it makes of it is its own doing.  Zeros at the end of a file do not count:
they are room that was allocated before it was needed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from harness.node import Node
from harness.rng import below, stream
from harness.site import DataFolder, Site
from harness.window import Proof
from nemesis import _outage


@dataclass(frozen=True)
class Wound:
    """One place of a file: what stood at `offset` before, and what stands there now."""

    path: str
    offset: int
    before: bytes
    after: bytes

    def shows(self, content: bytes) -> bool:
        """Whether a file's content has the wound."""
        return content[self.offset : self.offset + len(self.before)] == self.after

    def __str__(self) -> str:
        if self.after:
            bent = f"{self.before.hex()} to {self.after.hex()}"
            return f"byte {self.offset:,} of {self.path} changed from {bent}"
        return f"the last {len(self.before):,} bytes of {self.path} cut off, at {self.offset:,}"


class Damage:
    """Flip a bit of a file, or cut off its tail, and start the server again on that."""

    def __init__(
        self, owner: str, what: Literal["flip", "truncate"], pattern: str, tail_bytes: int
    ) -> None:
        self._owner = owner
        self._newest = f"{owner} newest"
        self._what = what
        self._pattern = pattern
        self._tail_bytes = tail_bytes
        self._draws = 0
        self._wounds: dict[str, Wound | None] = {}
        self._refusals: dict[str, str] = {}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """End everything on the nodes, and change a file of each."""
        self._refusals.clear()
        await _outage.end(site, self._owner, nodes)
        for node in nodes:
            start = stream(site.seed, f"disk {self._what} {node.name} {self._pattern}")
            self._wounds[node.name] = await asyncio.to_thread(self._wound, node, start)

    def _wound(self, node: Node, start: int) -> Wound | None:
        """Change the largest file that matches; return how, None when nothing is written there."""
        assert isinstance(node, DataFolder)
        sizes = {name: n for name, n in node.files().items() if fnmatchcase(name, self._pattern)}
        path = max(sizes, key=lambda name: (sizes[name], name), default="")
        written = node.read(path).rstrip(b"\0") if path else b""
        if not written:
            return None
        node.keep(self._newest)
        if self._what == "truncate":
            offset = max(0, len(written) - self._tail_bytes)
            node.cut(path, offset)
            return Wound(path, offset, written[offset:], b"")
        bit = below(start, self._draws, 8 * len(written))
        self._draws += 1
        before = written[bit // 8]
        wound = Wound(path, bit // 8, bytes([before]), bytes([before ^ 1 << bit % 8]))
        node.change(path, wound.offset, wound.after)
        return wound

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look that nothing runs and what the file holds now."""
        down = await _outage.look_down(site, nodes)
        wounded = [await asyncio.to_thread(self._look, node) for node in nodes]
        return _outage.all_hold([down, *wounded])

    def _look(self, node: Node) -> Proof:
        assert isinstance(node, DataFolder)
        wound = self._wounds.get(node.name)
        if wound is None:
            text = f"{node.name}: no file that matches {self._pattern!r} has anything in it"
            return Proof(holds=False, text=text)
        facts = {"path": wound.path, "offset": wound.offset, "bytes": len(wound.before)}
        return Proof(
            holds=wound.shows(node.read(wound.path)), text=f"{node.name}: {wound}", facts=facts
        )

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Start again; where the damage is refused, give the data back and start once more."""
        await asyncio.gather(*(self._stop(site, node) for node in nodes))

    async def _stop(self, site: Site, node: Node) -> None:
        wound = self._wounds.pop(node.name, None)
        if wound is None:
            await _outage.start_again(site, self._owner, [node])
            return
        fault = f"disk {self._what} on {node.name} ({wound})"
        refusal = await _outage.start_on_changed_data(site, self._owner, node, fault, self._newest)
        if refusal is not None:
            self._refusals[node.name] = refusal

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look whether it runs and answers; tell what it said against the damage."""
        up = await _outage.look_up(site, nodes)
        return _outage.all_hold([up, *_outage.refused(self._refusals)])

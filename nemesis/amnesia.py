"""Amnesia: a node comes back with an older copy of its data, or with none.

This is the general form of "acknowledged before it was on the disk": a power cut that loses what
was written but not synced, a disk that was restored from a snapshot, a virtual machine that was
rolled back, a container whose volume was not the one it should be.  It attacks every promise that
must outlive a restart: the highest token, the last vote, an acknowledged write.  The copy is taken
while everything on the node is stopped, so it is what a crash at that instant would have left.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from harness.cast import Cast
from harness.mistakes import Mistake
from harness.node import Node, Pausable, look_afresh
from harness.site import DataFolder, Site
from harness.units import parse_seconds
from harness.window import Proof
from nemesis import _outage
from nemesis.pause import Pause

AGE_S_MAX = 600.0
_COPY, _NEWEST = "older", "newest"
_NOTHING_RAN = Proof(holds=True, text="nothing ran there")


@dataclass(frozen=True)
class Copy:
    """A copy of a data folder: its hash, when it was taken, and whether all was stopped then."""

    digest: str
    taken: float
    stopped: Proof


class Amnesia:
    """Kill every process of the node, and start it again with an older copy of its data."""

    name = "amnesia"

    class Options(BaseModel):
        """Options of the fault `amnesia`; the window is the time in which the node is dead."""

        model_config = ConfigDict(extra="forbid", validate_default=True)

        age: Annotated[
            float,
            BeforeValidator(parse_seconds),
            Field(gt=0, le=AGE_S_MAX),
            WithJsonSchema({"type": "string", "description": "how old the copy is at the kill"}),
        ] = "1s"  # type: ignore[assignment] # validated like any other input
        empty: bool = Field(default=False, description="come back with no data at all")

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._owner = f"amnesia {id(self)}"
        self._copies: dict[str, Copy] = {}
        self._killed = 0.0
        self._refusals: dict[str, str] = {}

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return None when a server may be meant whose data is within reach, else what is wrong."""
        return _outage.lacks_data(cast)

    def available(self, site: Site) -> str | None:
        """Return None when data can be copied and put back on every node, else why not."""
        for name, node in site.at_risk.items():
            if not isinstance(node, DataFolder):
                return f"the data of {name} cannot be copied"
            if not isinstance(node, Pausable):
                return f"{name} cannot be stopped while its data is copied"
        return _outage.lacks_upkeep(site)

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name what is to be started again."""
        return {"what": "start again", "nodes": [node.name for node in nodes]}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Copy, let it run on for the age of the copy, kill it, and put the copy back."""
        self._refusals.clear()
        if not self.options.empty:
            began = time.monotonic()
            await self._copy(site, nodes)
            await asyncio.sleep(max(0.0, began + self.options.age - time.monotonic()))
        await _outage.end(site, self._owner, nodes)
        self._killed = time.monotonic()
        copy = None if self.options.empty else self._named(_COPY)
        for folder in _folders(nodes):
            await asyncio.to_thread(folder.put_back, copy, aside=self._named(_NEWEST))

    async def _copy(self, site: Site, nodes: Sequence[Node]) -> None:
        """Stop everything for an instant, copy, let it go on, and look what was copied."""
        pause = Pause()
        await pause.start(site, nodes)
        try:
            await look_afresh(nodes)
            lives = any(node.processes() for node in nodes)
            stopped = await pause.in_force(site, nodes) if lives else _NOTHING_RAN
            taken = time.monotonic()
            for folder in _folders(nodes):
                await asyncio.to_thread(folder.keep, self._named(_COPY))
        finally:
            await pause.stop(site, nodes)
        for node, folder in zip(nodes, _folders(nodes), strict=True):
            digest = await asyncio.to_thread(folder.digest, self._named(_COPY))
            self._copies[node.name] = Copy(digest, taken, stopped)

    def _named(self, what: str) -> str:
        return f"{self._owner} {what}"

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look that nothing runs, and at all that lies in the folder."""
        down = await _outage.look_down(site, nodes)
        old = [await asyncio.to_thread(self._look, node) for node in nodes]
        return _outage.all_hold([down, *old])

    def _look(self, node: Node) -> Proof:
        assert isinstance(node, DataFolder)
        if self.options.empty:
            count = len(node.files())
            return Proof(holds=count == 0, text=f"{node.name}: {count} files in its data folder")
        copy = self._copies[node.name]
        same = node.digest() == copy.digest
        age_s = self._killed - copy.taken
        verb = "is" if same else "is not"
        text = (
            f"{node.name}: its data {verb} the copy taken {age_s:.2f} s before the kill "
            f"(SHA-256 {copy.digest[:12]}), while {copy.stopped.text}"
        )
        return Proof(holds=same and copy.stopped.holds, text=text, facts={"age_s": age_s})

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Start again; where the older data is refused, give the newest back."""
        await asyncio.gather(*(self._stop(site, node) for node in nodes))

    async def _stop(self, site: Site, node: Node) -> None:
        assert isinstance(node, DataFolder)
        refusal = await _outage.start_on_changed_data(
            site, self._owner, node, f"amnesia on {node.name}", self._named(_NEWEST)
        )
        if refusal is not None:
            self._refusals[node.name] = refusal
        await asyncio.to_thread(node.drop, self._named(_COPY))

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look whether it runs and answers; tell what it said against the older data."""
        up = await _outage.look_up(site, nodes)
        return _outage.all_hold([up, *_outage.refused(self._refusals)])


def _folders(nodes: Sequence[Node]) -> list[DataFolder]:
    return [node for node in nodes if isinstance(node, DataFolder)]

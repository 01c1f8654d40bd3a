"""Kill: everything on the node ends at once, and is started again later with its data.

This is a crash, an out-of-memory kill, a deployment.  It attacks what was acknowledged before it
was written down: a fence that lives in memory only, a lease that a restart forgets.  The kernel
tells every peer at once, with a reset; the page cache survives, so what was written but not synced
is not lost.  A power cut is silent: the node is cut off first and killed then, so that its peers
hear nothing, and it is connected again before it starts.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.node import Node
from harness.site import Pair, Site
from harness.window import Proof
from nemesis import _outage


class Kill:
    """Kill every process of the node (SIGKILL), and start it again with its data."""

    name = "kill"

    class Options(BaseModel):
        """Options of the fault `kill`; the window is the time in which the node is dead."""

        model_config = ConfigDict(extra="forbid")

        signal: Literal["KILL", "TERM"] = Field(
            "KILL", description="KILL, or TERM and after 5 s KILL, as a supervisor does"
        )
        restart: bool = Field(default=True, description="start it again when the window ends")
        power: bool = Field(
            default=False, description="cut it off first, so that peers see silence and no reset"
        )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._owner = f"kill {id(self)}"

    def available(self, site: Site) -> str | None:
        """Return None when nodes can be killed and started (and cut off), else why not."""
        if self.options.power:
            if site.network is None:
                return "power: nothing can be cut off here"
            if reason := site.network.unavailable():
                return f"power: {reason}"
        return _outage.lacks_upkeep(site)

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name what is to be started again."""
        return {"what": "start again", "nodes": [node.name for node in nodes]}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Cut off if asked, end everything, and wait until it is gone."""
        if self.options.power and site.network is not None:
            await site.network.cut(self._owner, _around(site, nodes))
        await _outage.end(site, self._owner, nodes, kindly=self.options.signal == "TERM")

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look for processes, for somebody who accepts, and for packets that get out."""
        down = await _outage.look_down(site, nodes)
        if not self.options.power or site.network is None:
            return down
        passes = await site.network.passes(_around(site, nodes))
        heard = [f"{a} to {b}" for (a, b), passage in passes.items() if not passage.nothing]
        silence = f"packets pass from {', '.join(heard)}" if heard else "its peers hear nothing"
        text = f"{down.text}; {silence}"
        return Proof(holds=down.holds and not heard, text=text, facts=down.facts)

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Connect, start again, and wait until it answers."""
        if self.options.power and site.network is not None:
            await site.network.mend(self._owner)
        if self.options.restart:
            await _outage.start_again(site, self._owner, nodes)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look whether it runs and answers, unless it was to stay dead."""
        if not self.options.restart:
            return Proof(holds=True, text="it was not to be started again")
        return await _outage.look_up(site, nodes)


def _around(site: Site, nodes: Sequence[Node]) -> list[Pair]:
    """Return every pair of one of the nodes with any other, in both directions."""
    names = {node.name for node in nodes}
    others = [(name, other) for name in names for other in site.nodes if other != name]
    return sorted({pair for a, b in others for pair in ((a, b), (b, a))})

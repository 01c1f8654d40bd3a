"""What a kind of fault must be able to do.

A fault says what must be true of some nodes and proves it with a probe that does not use the
mechanism it checks.  It is undone as often as asked: `stop` may come twice, or without `start`.
Triggers, lengths, roles, the ledger and the record are the nemesis's business (`harness.nemesis`).
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from harness.cast import Cast
from harness.mistakes import Mistake
from harness.node import Node
from harness.site import Site
from harness.window import Proof


@runtime_checkable
class Fault(Protocol):
    """One kind of fault; made by its factory from the options of the kind: `factory(**options)`.

    There is one object for each fault of the schedule; its windows never overlap each other, but
    they may overlap those of other objects, on the same nodes too: abilities take an owner for
    that.
    """

    name: str

    def available(self, site: Site) -> str | None:
        """Return None when this place can take the fault, else the reason why not."""
        ...

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Return what the undo ledger must name so that this fault can be undone without us."""
        ...

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Make it true, and wait, bounded in time, until it is."""
        ...

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Return what the probe sees while the fault should be in force."""
        ...

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Order it undone, and wait, bounded in time, until it is."""
        ...

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Return what the probe sees after `stop`: `holds` True means that nothing is left."""
        ...


@runtime_checkable
class Choosy(Protocol):
    """Ability of a fault: know from the description of a run that it cannot be done there."""

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return what is wrong, at a key of the fault (`kind`, `who` or an option), else None."""
        ...

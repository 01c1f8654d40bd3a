"""What a kind of fault must be able to do.

A fault says what must be true of some nodes and proves it with a probe that does not use the
mechanism it checks.  It is undone as often as asked: `stop` may come twice, or without `start`.
Triggers, lengths, roles, the ledger and the record are the nemesis's business (`harness.nemesis`).
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from harness.node import Node
from harness.window import Proof


@runtime_checkable
class Fault(Protocol):
    """One kind of fault; made by its factory from the options of the kind: `factory(**options)`."""

    name: str

    def available(self, node: Node) -> str | None:
        """Return None when this node can take the fault, else the reason why not."""
        ...

    def undo(self, node: Node) -> dict[str, Any]:
        """Return what the undo ledger must name so that this fault can be undone without us."""
        ...

    async def start(self, nodes: Sequence[Node]) -> None:
        """Make it true, and wait, bounded in time, until it is."""
        ...

    async def in_force(self, nodes: Sequence[Node]) -> Proof:
        """Return what the probe sees while the fault should be in force."""
        ...

    async def stop(self, nodes: Sequence[Node]) -> None:
        """Order it undone, and wait, bounded in time, until it is."""
        ...

    async def gone(self, nodes: Sequence[Node]) -> Proof:
        """Return what the probe sees after `stop`: `holds` True means that nothing is left."""
        ...

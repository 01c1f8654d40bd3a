"""Faults that break their promises: the undo of one fails, one stays, one cannot be seen gone."""

from collections.abc import Sequence
from typing import Any

from harness.node import Node
from harness.site import Site
from harness.window import Proof


class Quiet:
    """A fault that is in force because it says so, and does nothing."""

    name = "quiet"

    def available(self, site: Site) -> str | None:
        """Work everywhere."""
        return None

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Need nothing."""
        return {"what": "nothing"}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Do nothing."""

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Say yes."""
        return Proof(holds=True, text="quiet")

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Do nothing."""

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Say yes."""
        return Proof(holds=True, text="quiet")


class Stuck(Quiet):
    """Its undo raises."""

    name = "stuck"

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Fail."""
        raise OSError(5, "the rule cannot be deleted")


class Twice(Quiet):
    """It was applied twice and removed once (C18)."""

    name = "twice"

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Find a rule."""
        return Proof(holds=False, text="1 of 2 equal rules is still there")


class Blind(Quiet):
    """Nobody can see whether it is gone."""

    name = "blind"

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Fail."""
        raise ValueError("no such table")

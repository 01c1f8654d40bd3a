"""Which links are bad by whose order, on any backend.

What several owners want of one pair adds up.  A link counts as bad from the order on, and until it
is good again: in between nobody may expect anything of it.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from harness.shape import Shape, together
from harness.site import Pair

_Orders = dict[str, tuple[frozenset[Pair], Shape]]


class Shaping(ABC):
    """The part of `harness.site.Links` that is the same everywhere."""

    def __init__(self) -> None:
        self._alone = asyncio.Lock()
        self._orders: _Orders = {}

    @abstractmethod
    async def _tell(self, bad: Mapping[Pair, Shape]) -> None:
        """Make these pairs bad, and no others.  Raises OSError, HarnessError."""

    async def shape(self, owner: str, pairs: Iterable[Pair], shape: Shape) -> None:
        """Make pairs bad; see `harness.site.Links`.  Raises OSError, and then nothing changed."""
        async with self._alone:
            orders = self._orders
            self._orders = {**orders, owner: (frozenset(pairs), shape)}
            try:
                await self._tell(self.shaped_now())
            except OSError:
                with contextlib.suppress(OSError):  # what failed may fail again
                    await self._tell(_united(orders))
                self._orders = orders
                raise

    async def unshape(self, owner: str) -> None:
        """Undo the shaping of an owner, and deliver what is held.  Raises OSError."""
        async with self._alone:
            if owner not in self._orders:
                return
            left = {name: order for name, order in self._orders.items() if name != owner}
            try:
                await self._tell(_united(left))
            finally:
                self._orders = left

    def shaped_now(self, but: str | None = None) -> Mapping[Pair, Shape]:
        """All pairs that any owner has ordered bad, with all that was ordered; `but` one owner."""
        return _united({owner: o for owner, o in self._orders.items() if owner != but})


def _united(orders: Mapping[str, tuple[frozenset[Pair], Shape]]) -> dict[Pair, Shape]:
    wanted: dict[Pair, list[Shape]] = {}
    for pairs, shape in orders.values():
        for pair in pairs:
            wanted.setdefault(pair, []).append(shape)
    return {pair: together(shapes) for pair, shapes in wanted.items()}

"""What is cut by whose order, on any backend.

All cuts of all owners add up; a silent one outdoes one that tells.  What is ordered counts as cut
from the order on, and what is mended until that is done: in between nobody may expect that a packet
passes.  No change happens in the middle of a look.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.site import Pair, Passage

_CHANGES_KEPT = 1000


@dataclass(frozen=True)
class Order:
    """What one owner wants cut."""

    pairs: frozenset[Pair]
    reject: bool


class Prober(Protocol):
    """Sends between nodes; one look at a time."""

    async def prepare(self, links: Iterable[frozenset[str]]) -> None:
        """Open connections on links that are about to be cut, as far as something passes there."""
        ...

    async def look(
        self, pairs: Sequence[Pair], cut: Collection[Pair], wait_s: float
    ) -> Mapping[Pair, Passage]:
        """Send over each pair, wait as long as something is missing, and say what arrived.

        `cut` is what is meant to be cut now.
        """
        ...


async def nothing_held(pairs: frozenset[Pair]) -> None:
    """Do nothing: no packet is held back anywhere."""


class Cutting(ABC):
    """The part of `harness.site.Network` that is the same everywhere."""

    def __init__(
        self,
        look_s: float,
        forget: Callable[[frozenset[Pair]], Awaitable[None]] = nothing_held,
    ) -> None:
        """`look_s` is how long a look waits for what may not arrive.

        `forget(pairs)` is told what was newly cut: what is under way there must not arrive.
        """
        self._look_s = look_s
        self._forget = forget
        self._alone = asyncio.Lock()
        self._orders: dict[str, Order] = {}
        self._changes: deque[tuple[float, frozenset[Pair]]] = deque(maxlen=_CHANGES_KEPT)

    @abstractmethod
    def _prober(self) -> Prober:
        """Return what sends."""

    @abstractmethod
    async def _tell(self, silent: frozenset[Pair], told: frozenset[Pair]) -> None:
        """Cut these pairs, silently or so that senders are told, and no others.  Raises OSError."""

    async def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        """Cut; see `harness.site.Network`.  Raises OSError, and then nothing changed."""
        wanted = frozenset(pairs)
        async with self._alone:
            orders, before = self._orders, self.cut_now()
            links = {frozenset(p) for p in wanted} - {frozenset(p) for p in before}
            await self._prober().prepare(links)
            self._note({**orders, owner: Order(wanted, reject)})
            try:
                await self._tell(*self._sides())
                await self._forget(self.cut_now() - before)
            except OSError:
                with contextlib.suppress(OSError):  # what failed may fail again
                    await self._tell(*_sides(orders))
                self._note(orders)
                raise

    async def mend(self, owner: str) -> None:
        """Undo the cut of an owner.  Raises OSError; what can be mended is mended then, too."""
        async with self._alone:
            left = {name: order for name, order in self._orders.items() if name != owner}
            try:
                await self._tell(*_sides(left))
            finally:
                self._note(left)

    def cut_now(self) -> frozenset[Pair]:
        """All pairs that any owner cuts."""
        return frozenset[Pair]().union(*(order.pairs for order in self._orders.values()))

    def cut_since(self, since_s: float) -> frozenset[Pair]:
        """All pairs that were cut at any time since the monotonic clock showed `since_s`."""
        changed = [pairs for at_s, pairs in self._changes if at_s >= since_s]
        return self.cut_now().union(*changed)

    async def passes(self, pairs: Sequence[Pair], more_s: float = 0.0) -> Mapping[Pair, Passage]:
        """Send over pairs and return what arrived."""
        async with self._alone:
            return await self._prober().look(pairs, self.cut_now(), self._look_s + more_s)

    def _sides(self) -> tuple[frozenset[Pair], frozenset[Pair]]:
        """Return what is to be cut silently, and where senders are to be told."""
        return _sides(self._orders)

    def _note(self, orders: dict[str, Order]) -> None:
        before = self.cut_now()
        self._orders = orders
        self._changes.append((time.monotonic(), before ^ self.cut_now()))


def _sides(orders: Mapping[str, Order]) -> tuple[frozenset[Pair], frozenset[Pair]]:
    silent = frozenset(p for order in orders.values() if not order.reject for p in order.pairs)
    told = frozenset(p for order in orders.values() if order.reject for p in order.pairs)
    return silent, told - silent

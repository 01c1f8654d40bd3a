"""Bad links of a run: each holder makes bad what its node sends to some of the others.

They are measured by bursts of datagrams from holder to holder.  All of them have one clock, that of
the engine's machine.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from harness.docker.holder import ANSWER_S, Holder
from harness.docker.telling import Standing
from harness.shape import Shape
from harness.shaping import Shaping
from harness.site import Burst, Pair


class BadLinks(Shaping):
    """The links of a run; see `harness.site.Links`."""

    def __init__(self, holders: Mapping[str, Holder], seed: int) -> None:
        super().__init__()
        self._holders = holders
        self._seed = str(seed)
        self._standing = Standing(holders, "shape", ([],))
        self._rounds = itertools.count(1)
        self._able = False
        self._measuring = asyncio.Lock()

    def unavailable(self) -> str | None:
        """Return None when links can be made bad here, else why not: all holders try at once."""
        if self._able:
            return None
        try:
            for holder in self._holders.values():
                holder.ask("can_shape", self._seed)
        except OSError as error:
            return f"the engine's kernel cannot redirect packets: {error.strerror or error}"
        self._able = True
        return None

    async def forget(self, pairs: frozenset[Pair]) -> None:
        """Lose what is held of pairs that were cut."""
        lost: dict[str, list[list[str]]] = {}
        for pair in sorted(pairs & self.shaped_now().keys()):
            lost.setdefault(pair[0], []).append(self._addresses(pair))
        await asyncio.gather(
            *(self._holders[n].request("forget", each) for n, each in lost.items())
        )

    async def renew(self, name: str) -> bool:
        """Tell all again, because the network of a node began anew; say if links of it are bad.

        Raises OSError.
        """
        async with self._alone:
            bad = self.shaped_now()
            if self._able:
                await self._holders[name].request("can_shape", self._seed)
                await self._standing.tell(self._holders, self._lines(bad))
            return any(name in pair for pair in bad)

    async def measure(
        self, pairs: Sequence[Pair], count: int, size_bytes: int, gap_s: float, wait_s: float
    ) -> Mapping[Pair, Burst]:
        """Send a burst over each pair and return what became of it."""
        async with self._measuring:  # a holder has one end for one burst
            return await self._measure(pairs, count, size_bytes, gap_s, wait_s)

    async def _measure(
        self, pairs: Sequence[Pair], count: int, size_bytes: int, gap_s: float, wait_s: float
    ) -> Mapping[Pair, Burst]:
        number = next(self._rounds)
        inward: dict[str, list[int]] = {}
        outward: dict[str, list[tuple[int, str]]] = {}
        for index, (near, far) in enumerate(pairs):
            inward.setdefault(far, []).append(index)
            outward.setdefault(near, []).append((index, far))
        ports = await self._each(inward, "listen", {n: (number, inward[n]) for n in inward})
        last_s = ANSWER_S + count * gap_s + wait_s
        sends = {
            name: (
                number,
                [[i, self._holders[far].address, ports[far]] for i, far in to if ports[far]],
                *(count, size_bytes, gap_s),
            )
            for name, to in outward.items()
        }
        await self._each(outward, "burst", sends, last_s)
        waits = {n: (count, size_bytes, count * len(inward[n]), wait_s) for n in inward}
        told = await self._each(inward, "arrived", waits, last_s)
        found = {int(i): burst for each in told.values() for i, burst in (each or {}).items()}
        nothing = asdict(Burst(count, None, None, None, count, 0, 0, None))
        return {
            pair: msgspec.convert(found.get(index, nothing), Burst)
            for index, pair in enumerate(pairs)
        }

    async def _each(
        self,
        names: Mapping[str, Any],
        call: str,
        arguments: Mapping[str, tuple[Any, ...]],
        bound_s: float = ANSWER_S,
    ) -> dict[str, Any]:
        """Ask holders, all at once.  Raises OSError."""
        asked = (self._holders[n].request(call, *arguments[n], bound_s=bound_s) for n in names)
        return dict(zip(names, await asyncio.gather(*asked), strict=True))

    async def _tell(self, bad: Mapping[Pair, Shape]) -> None:
        """Bring all holders from what they make bad now to this."""
        await self._standing.bring(self._lines(bad))

    def _lines(self, bad: Mapping[Pair, Shape]) -> dict[str, tuple[list[list[Any]]]]:
        lines: dict[str, tuple[list[list[Any]]]] = {name: ([],) for name in self._holders}
        for pair in sorted(bad):
            lines[pair[0]][0].append([*self._addresses(pair), asdict(bad[pair])])
        return lines

    def _addresses(self, pair: Pair) -> list[str]:
        return [self._holders[name].address for name in pair]

"""What really gets through between nodes: datagrams, old connections, and new ones.

A rule that is in the kernel proves nothing, so every look sends: a datagram, a byte on a connection
that stood before the cut, and a request for a new connection.  Holders send and receive; what
arrives is told as it arrives.  That nothing arrives is believed when a later datagram from the hub,
which no cut concerns, has reached the same node.

TCP sends again what was not acknowledged, later and later.  So a link that is about to be cut gets
two connections: one to be tried during the cut, and one that is silent until the cut is over.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.docker.holder import Event, Holder
from harness.site import Pair, Passage

LINKS_MAX = 32  # that are tried with connections; all others by datagrams alone
_CONNECT_S = 0.1
_MEANT_S = 0.5
_SLICE_S = 0.01
Link = frozenset[str]
_Try = tuple[str, Pair]


@dataclass
class Reserve:
    """The old connections of a link, by number: for the cut, and for after it."""

    during: int
    after: int
    joined: int = 0

    @property
    def whole(self) -> bool:
        """Whether both ends of both stand."""
        return self.joined == 2


class Prober:
    """Lets holders send to each other; one look at a time."""

    def __init__(self, holders: Mapping[str, Holder], hub: Holder) -> None:
        self._holders = holders
        self._hub = hub
        self._numbers = itertools.count(1)
        self._connections = itertools.count(1)
        self._reserves: dict[Link, Reserve] = {}
        self._look: _Look | None = None
        self._joined = asyncio.Event()
        self._listening = False

    def _listen(self) -> None:
        """Hear what holders tell, in the event loop that runs now."""
        if self._listening:
            return
        self._listening = True
        loop = asyncio.get_running_loop()
        for name, holder in self._holders.items():
            holder.on_event = partial(self._tell, loop, name)

    def _tell(self, loop: asyncio.AbstractEventLoop, name: str, event: Event) -> None:
        """Bring an event from a holder's thread into the loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._heard, name, event)

    def _heard(self, name: str, event: Event) -> None:
        if event["event"] == "joined":
            for reserve in self._reserves.values():
                reserve.joined += event["connection"] in (reserve.during, reserve.after)
            self._joined.set()
        elif self._look is not None:
            self._look.heard(name, event)

    async def prepare(self, links: Iterable[Link]) -> None:
        """Open connections on links that are about to be cut, as far as something passes there."""
        self._listen()
        opening: dict[str, list[list[Any]]] = {}
        closing: list[int] = []
        made: list[Reserve] = []
        for link in list(links)[:LINKS_MAX]:
            near, far = sorted(link)
            if old := self._reserves.get(link):
                closing += [old.during, old.after]
            reserve = Reserve(next(self._connections), next(self._connections))
            self._reserves[link] = reserve
            made.append(reserve)
            for number in (reserve.during, reserve.after):
                opening.setdefault(near, []).append([number, *self._holders[far].connections])
        if not made:
            return
        if closing:
            for holder in self._holders.values():
                holder.order("close", closing)
        await asyncio.gather(
            *(self._holders[name].request("open", wanted) for name, wanted in opening.items())
        )
        await _until(self._joined, lambda: all(reserve.whole for reserve in made), _CONNECT_S)

    def forget(self, name: str) -> None:
        """Expect nothing of the connections of a node: they ended with its network."""
        self._reserves = {
            link: reserve for link, reserve in self._reserves.items() if name not in link
        }

    async def look(
        self, pairs: Sequence[Pair], cut: Collection[Pair], wait_s: float
    ) -> dict[Pair, Passage]:
        """Send over each pair, wait as long as something is missing, and say what arrived.

        `cut` is what is meant to be cut now: where only the way back is cut, TCP says nothing
        about the way there.
        """
        self._listen()
        links = _spread(pairs)
        old: dict[Pair, int] = {}
        for pair in pairs:
            reserve = self._reserves.get(frozenset(pair))
            if reserve is not None and reserve.whole and frozenset(pair) in links:
                is_cut = pair in cut or pair[::-1] in cut
                old[pair] = reserve.during if is_cut else reserve.after
        look = self._look = _Look(pairs, cut, next(self._numbers), old, links)
        try:
            await self._send(look)
            await look.wait(wait_s)
        finally:
            self._look = None
        return {pair: look.passage(pair) for pair in pairs}

    async def _send(self, look: "_Look") -> None:
        """Let all senders send, and then the hub."""
        tries: dict[str, list[list[Any]]] = {}
        for index, (kind, (near, far)) in enumerate(look.tries):
            there = self._holders[far]
            where: list[Any] = [*there.connections]
            if kind in ("datagram", "control"):
                where = [*there.datagrams]
            elif kind == "old":
                where = [look.old[(near, far)]]
            sender = "" if kind == "control" else near
            sent = "datagram" if kind == "control" else kind
            tries.setdefault(sender, []).append([index, sent, *where])
        from_hub = tries.pop("", [])
        await asyncio.gather(
            *(self._holders[n].request("send", look.number, wanted) for n, wanted in tries.items())
        )
        look.sent_s = time.monotonic()
        await self._hub.request("send", look.number, from_hub)


async def _until(happened: asyncio.Event, done: Callable[[], bool], bound_s: float) -> bool:
    """Wait so long; time in which nothing ran here is not counted.

    After such a stall the clock is looked at before what the holders told meanwhile.
    """
    while not done() and bound_s > 0:
        slice_s, began = min(bound_s, _SLICE_S), time.monotonic()
        happened.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(slice_s):
                await happened.wait()
        bound_s -= min(slice_s, time.monotonic() - began)
    return done()


def _spread(pairs: Sequence[Pair]) -> set[Link]:
    """Return the links of pairs, at most LINKS_MAX, spread evenly."""
    links = list(dict.fromkeys(frozenset(pair) for pair in pairs))
    return {links[i * len(links) // LINKS_MAX] for i in range(LINKS_MAX)} if links else set()


class _Look:
    """One round of sending, and what came of it; `missing` are the tries without any answer."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        cut: Collection[Pair],
        number: int,
        old: Mapping[Pair, int],
        links: Collection[Link],
    ) -> None:
        self.number = number
        self.old = old
        self.sent_s = 0.0
        self._cut = cut
        self._new = {pair for pair in pairs if frozenset(pair) in links}
        receivers = sorted({far for _, far in pairs})
        self.tries: list[_Try] = [
            *(("datagram", pair) for pair in pairs),
            *(("old", pair) for pair in old),
            *(("new", pair) for pair in pairs if pair in self._new),
            *(("control", (name, name)) for name in receivers),
        ]
        self._missing = set(self.tries)
        self._refused: set[Pair] = set()
        self._happened = asyncio.Event()

    def heard(self, name: str, event: Event) -> None:
        """Take what a holder told."""
        match event["event"]:
            case "datagram" | "connected" | "refused":
                number, index = event["at"]
                if number == self.number:
                    self._answered(event["event"], self.tries[index])
            case "byte" | "reset":
                for pair, connection in self.old.items():
                    if connection != event["connection"]:
                        continue
                    if event["event"] == "byte" and pair[1] == name:
                        self._missing.discard(("old", pair))
                    elif event["event"] == "reset" and pair[0] == name:
                        self._refused.add(pair)
        self._happened.set()

    def _answered(self, how: str, what: _Try) -> None:
        if how == "refused":
            self._refused.add(what[1])
        else:
            self._missing.discard(what)

    async def wait(self, wait_s: float) -> None:
        """Wait for everything; then, longer, for what is meant to pass."""
        if not await _until(self._happened, lambda: not self._missing, wait_s):
            meant = {(kind, pair) for kind, pair in self._missing if self._is_meant(kind, pair)}
            await _until(self._happened, lambda: not meant & self._missing, _MEANT_S)

    def _is_meant(self, kind: str, pair: Pair) -> bool:
        return pair not in self._cut and (
            kind in ("datagram", "control") or pair[::-1] not in self._cut
        )

    def passage(self, pair: Pair) -> Passage:
        """Return what is known of a pair."""
        datagram = ("datagram", pair) not in self._missing
        if pair not in self._cut and pair[::-1] in self._cut:
            return Passage(datagram=datagram, sent_s=self.sent_s)
        return Passage(
            datagram=datagram,
            old=("old", pair) not in self._missing if pair in self.old else None,
            new=("new", pair) not in self._missing if pair in self._new else None,
            refused=pair in self._refused,
            sent_s=self.sent_s,
        )

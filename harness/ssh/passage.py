"""What really gets through between hosts, found by sending; the agents send and receive.

Each look sends a datagram over every pair, a byte on a connection that stood before any cut, and a
request for a new connection.  The agents are asked what arrived until nothing is missing, or the
time is up.  That nothing arrives is believed of a host that answers: it has looked before it did.

A connection that was used during a cut comes back only with TCP's next retransmission.  So before
each cut two are opened for every link of it: one for looks while it lasts, one for looks after it.
"""

import asyncio
import itertools
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.site import Pair, Passage
from harness.ssh.node import SshNode
from harness.ssh.station import Station

_OPEN_S = 0.5
_MEANT_S = 0.5
_POLL_S = 0.002
_FRESH = 2

Link = frozenset[str]


@dataclass
class Old:
    """The old connections of a link, by name: unused ones, and the one for the cut of now."""

    unused: list[str] = field(default_factory=list)
    during: str | None = None


class Prober:
    """Sends between nodes; one look at a time."""

    def __init__(self, nodes: Mapping[str, SshNode]) -> None:
        self._nodes = nodes
        self._ports: dict[str, tuple[int, int]] = {}
        self._old: dict[Link, Old] = {}
        self._names = itertools.count(1)
        self._rounds = itertools.count(1)

    async def prepare(self, links: Iterable[Link]) -> None:
        """Open connections on links that are about to be cut."""
        listed = list(links)
        await self.open_posts({name for link in listed for name in link})
        opening: dict[str, Link] = {}
        orders = []
        for link in listed:
            near, far = sorted(link)
            await self._forget(link)
            for name in (f"old {next(self._names)}" for _ in range(_FRESH)):
                opening[name] = link
                to = self.end(far, 1)
                orders.append(self._look(near, "link", name=name, to=to))
        await asyncio.gather(*orders)
        deadline = time.monotonic() + _OPEN_S
        while opening:
            asked_s = time.monotonic()
            standing = await self._standing({name for link in opening.values() for name in link})
            for name, link in list(opening.items()):
                if all(name in standing[node] for node in link):
                    self._old.setdefault(link, Old()).unused.append(name)
                    del opening[name]
            if asked_s > deadline:
                break
            await asyncio.sleep(_POLL_S)

    async def open_posts(self, names: Iterable[str]) -> None:
        """Have a post on the host of each of these nodes."""
        for name in sorted(set(names) - self._ports.keys()):
            node = self._nodes[name]
            answer = node.station.link.tell("post", address=node.address)
            datagrams, connections = await asyncio.wrap_future(answer)
            self._ports[name] = (datagrams, connections)

    def end(self, name: str, kind: int) -> tuple[str, int]:
        """Return the address and port of a node's post: 0 for datagrams, 1 for connections."""
        return (self._nodes[name].address, self._ports[name][kind])

    async def _look(self, node: str, method: str, **arguments: Any) -> Any:
        link = self._nodes[node].station.link
        return await asyncio.wrap_future(link.tell("look", method=method, arguments=arguments))

    async def _standing(self, nodes: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return which old connections stand at each node, with the bytes that came."""
        names = sorted(nodes)
        seen = await asyncio.gather(*(self._look(name, "seen") for name in names))
        return {name: each["links"] for name, each in zip(names, seen, strict=True)}

    async def _forget(self, link: Link) -> None:
        """Give up what connections a link has: they may have been used during a cut."""
        old = self._old.pop(link, None)
        if old is not None:
            names = [*old.unused, *([old.during] if old.during else [])]
            await asyncio.gather(*(self._look(node, "drop", names=names) for node in link))

    def _pick(self, pair: Pair, cut: Collection[Pair]) -> str | None:
        """Return the old connection to try on a pair; while its link is cut, one and the same."""
        old = self._old.get(frozenset(pair))
        if old is None:
            return None
        if pair in cut or pair[::-1] in cut:
            if old.during is None and old.unused:
                old.during = old.unused.pop()
            return old.during
        return old.unused[-1] if old.unused else None

    async def look(
        self, pairs: Sequence[Pair], cut: Collection[Pair], wait_s: float
    ) -> dict[Pair, Passage]:
        """Send over each pair, wait as long as something is missing, and say what arrived.

        `cut` is what is meant to be cut now: where only the way back is, TCP says nothing about the
        way there.
        """
        names = {name for pair in pairs for name in pair}
        await self.open_posts(names)
        links = {pair: name for pair in pairs if (name := self._pick(pair, cut)) is not None}
        before = await self._standing(names)
        links = {
            pair: name for pair, name in links.items() if all(name in before[end] for end in pair)
        }
        look = _Look(pairs, cut, links, before)
        # One post a host: nodes that share one share its answers.
        hosts = {self._nodes[name].station: name for name in sorted(names)}
        number = next(self._rounds)
        await asyncio.gather(*(self._look(n, "begin", number=number) for n in hosts.values()))
        await asyncio.gather(*(self._send(s, n, look) for s, n in hosts.items()))
        look.sent_s = time.monotonic()
        while True:
            await asyncio.sleep(_POLL_S)
            asked_s = time.monotonic()
            seen = await asyncio.gather(*(self._look(n, "seen") for n in hosts.values()))
            for station, each in zip(hosts, seen, strict=True):
                look.take({n for n in names if self._nodes[n].station is station}, each)
            if not look.goes_on(asked_s, wait_s):
                break
        return {pair: look.passage(pair) for pair in pairs}

    async def _send(self, station: Station, name: str, look: "_Look") -> None:
        mine = [
            (i, pair)
            for i, pair in enumerate(look.pairs)
            if self._nodes[pair[0]].station is station
        ]
        await self._look(
            name,
            "send",
            datagrams=[(i, *self.end(b, 0)) for i, (_, b) in mine],
            connects=[(i, *self.end(b, 1)) for i, (_, b) in mine],
            links=sorted({look.links[pair] for _, pair in mine if pair in look.links}),
        )


class _Look:
    """One round of sending, and what came of it."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        cut: Collection[Pair],
        links: Mapping[Pair, str],
        before: Mapping[str, Mapping[str, int]],
    ) -> None:
        self.pairs = pairs
        self.links = links
        self.sent_s = time.monotonic()
        self._cut = cut
        self._before = before
        self._got: set[tuple[str, Pair]] = set()

    def take(self, nodes: Collection[str], seen: Mapping[str, Any]) -> None:
        """Take what the agent of these nodes has seen."""
        for key in seen["datagrams"]:
            self._got.add(("datagram", self.pairs[key]))
        for key in seen["connected"]:
            self._got.add(("new", self.pairs[key]))
        for pair, name in self.links.items():
            came = seen["links"].get(name, 0) if pair[1] in nodes else 0
            if came > self._before[pair[1]][name]:
                self._got.add(("old", pair))

    def goes_on(self, asked_s: float, wait_s: float) -> bool:
        """Whether something is missing for which there was time when the agents were asked last.

        What is meant to pass has more time.  The last answer was asked for when the time was up, so
        what arrived while nothing ran here is not missed.
        """
        waited_s = asked_s - self.sent_s
        missing = [(what, pair) for what, pair in self._tries() if (what, pair) not in self._got]
        if waited_s < wait_s:
            return bool(missing)
        meant = [pair for what, pair in missing if self._is_meant(what, pair)]
        return bool(meant) and waited_s < wait_s + _MEANT_S

    def _tries(self) -> Iterable[tuple[str, Pair]]:
        for pair in self.pairs:
            yield "datagram", pair
            yield "new", pair
            if pair in self.links:
                yield "old", pair

    def _is_meant(self, what: str, pair: Pair) -> bool:
        return pair not in self._cut and (what == "datagram" or pair[::-1] not in self._cut)

    def passage(self, pair: Pair) -> Passage:
        """Return what is known of a pair."""
        datagram = ("datagram", pair) in self._got
        if pair not in self._cut and pair[::-1] in self._cut:
            return Passage(datagram=datagram, sent_s=self.sent_s)
        return Passage(
            datagram=datagram,
            old=("old", pair) in self._got if pair in self.links else None,
            new=("new", pair) in self._got,
            sent_s=self.sent_s,
        )

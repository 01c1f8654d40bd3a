"""Bad links between hosts: packets are late, lost, doubled, or out of order where they leave.

Each sender's agent has the packets for some other hosts handed over by the kernel, and sends them
on when and as often as the shape of the link says.  A cut is decided behind it, by the receiver.

A link is one between hosts: nodes that share a host share its links, so as with cuts a node needs
one of its own, and the controller's machine has no bad links.  Bursts are measured between clocks
of two machines: how far they are apart is asked of both before and after each burst, and known as
exactly as the quickest answer was quick.
"""

import asyncio
import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.local.burst import QUIET_S, outcome
from harness.shape import Shape
from harness.shaping import Shaping
from harness.site import Burst, Pair
from harness.ssh.hosting import Hosting
from harness.ssh.passage import Prober
from harness.ssh.station import Station

_POLL_S = 0.01
_ASKED = 5


class SshLinks(Shaping):
    """The links of a run; see `harness.site.Links`."""

    def __init__(self, hosting: Hosting, prober: Prober, seed: int) -> None:
        super().__init__()
        self._hosting = hosting
        self._nodes = hosting.nodes
        self._prober = prober
        self._seed = seed
        self._in_force: dict[Station, dict[str, Any]] = {}
        self._rounds = itertools.count(1)
        self._measuring = asyncio.Lock()

    def unavailable(self) -> str | None:
        """Return None when links can be made bad, else why not, found by trying on each host."""
        free = self._hosting.free()
        if not free:
            return "no node has a host of its own whose links could be made bad"
        for station in free:
            if ":" in station.host.known_as:
                return f"host {station.host.name} is known by an IPv6 address: no bad links there"
            if why := station.link.ask("can_shape"):
                return f"host {station.host.name} cannot have bad links: {why}"
        return None

    async def _tell(self, bad: Mapping[Pair, Shape]) -> None:
        """Bring the hosts from what they make bad now to this."""
        for name in sorted({name for pair in bad for name in pair}):
            if why := self._hosting.bound(name):
                raise OSError(why)
        wanted: dict[Station, dict[str, Any]] = {station: {} for station in self._in_force}
        for a, b in sorted(bad):
            station, to = self._nodes[a].station, self._nodes[b].address
            wanted.setdefault(station, {})[to] = [asdict(bad[(a, b)]), f"{self._seed} {a} {b}"]
        changed = {s: links for s, links in wanted.items() if links != self._in_force.get(s)}
        answers = [s.link.tell("shape", links=links) for s, links in changed.items()]
        done = await asyncio.gather(*map(asyncio.wrap_future, answers), return_exceptions=True)
        for (station, links), result in zip(changed.items(), done, strict=True):
            if not isinstance(result, BaseException):
                self._in_force[station] = links
        for result in done:
            if isinstance(result, BaseException):
                raise result

    async def forget(self, pairs: frozenset[Pair]) -> None:
        """Lose what is held of pairs that were cut."""
        lost: dict[Station, list[str]] = {}
        for a, b in sorted(pairs & self.shaped_now().keys()):
            lost.setdefault(self._nodes[a].station, []).append(self._nodes[b].address)
        answers = [s.link.tell("forget", receivers=each) for s, each in lost.items()]
        await asyncio.gather(*map(asyncio.wrap_future, answers))

    # ------------------------------------------------------------------ measure

    async def measure(
        self, pairs: Sequence[Pair], count: int, size_bytes: int, gap_s: float, wait_s: float
    ) -> Mapping[Pair, Burst]:
        """Send a burst over each pair and return what became of it."""
        async with self._measuring:
            return await self._measure(pairs, count, size_bytes, gap_s, wait_s)

    async def _measure(
        self, pairs: Sequence[Pair], count: int, size_bytes: int, gap_s: float, wait_s: float
    ) -> Mapping[Pair, Burst]:
        await self._prober.open_posts({name for pair in pairs for name in pair})
        stations = {self._nodes[name].station for pair in pairs for name in pair}
        number = next(self._rounds)
        await self._all(stations, "expect", number=number)
        before = await self._clocks(stations)
        sends: dict[Station, list[tuple[int, str, int]]] = {}
        for key, (a, b) in enumerate(pairs):
            sends.setdefault(self._nodes[a].station, []).append((key, *self._prober.end(b, 0)))
        orders = {"number": number, "count": count, "size_bytes": size_bytes, "gap_s": gap_s}
        sent = [s.link.tell("burst", to=to, **orders) for s, to in sends.items()]
        await asyncio.gather(*map(asyncio.wrap_future, sent))
        await self._await_all(stations, count * len(pairs), wait_s)
        clocks = {s: min(before[s], after) for s, after in (await self._clocks(stations)).items()}
        arrived = await self._all(stations, "arrived", whole=True)
        found: dict[int, list[tuple[int, float, float]]] = {key: [] for key in range(len(pairs))}
        for station, each in zip(stations, arrived, strict=True):
            for key, i, sent_s, got_s in each:
                sender = self._nodes[pairs[key][0]].station
                left_s, came_s = sent_s - clocks[sender][1], got_s - clocks[station][1]
                found[key].append((i, left_s, came_s))
        return {pair: outcome(count, size_bytes, found[key]) for key, pair in enumerate(pairs)}

    async def _await_all(self, stations: Collection[Station], whole: int, wait_s: float) -> None:
        """Wait until all have come, or so long; and a little for doubles."""
        last_s = time.monotonic() + wait_s
        while time.monotonic() < last_s:
            if sum(await self._all(stations, "arrived", whole=False)) >= whole:
                break
            await asyncio.sleep(_POLL_S)
        await asyncio.sleep(max(0.0, min(last_s - time.monotonic(), QUIET_S)))

    async def _all(self, stations: Collection[Station], method: str, **arguments: Any) -> list[Any]:
        answers = [s.link.tell("look", method=method, arguments=arguments) for s in stations]
        return await asyncio.gather(*map(asyncio.wrap_future, answers))

    async def _clocks(self, stations: Collection[Station]) -> dict[Station, tuple[float, float]]:
        """Return how long each host's quickest answer took, and how far its clock is ahead."""
        found = await asyncio.gather(*map(_clock, stations))
        return dict(zip(stations, found, strict=True))


async def _clock(station: Station) -> tuple[float, float]:
    best = (float("inf"), 0.0)
    for _ in range(_ASKED):
        asked_s = time.monotonic()
        said = await asyncio.wrap_future(station.link.tell("now"))
        took_s = time.monotonic() - asked_s
        best = min(best, (took_s, said["monotonic_ns"] / 1e9 - asked_s - took_s / 2))
    return best

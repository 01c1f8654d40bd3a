"""What the programs themselves say of the time: the second proof of a clock fault.

A worker reads its clocks on request, and some servers tell their time to whoever asks.  Both use
their own calls, so a program that does not read its clock where the fault put the lie is found out.
"""

import asyncio
from collections.abc import Iterable, Mapping

from harness.clocks import Glimpse, Readings
from harness.seat import Seat
from harness.site import Clocks
from harness.target import Cluster, Place, ServerTime, Target, TellsTime

_WORKER_S = 0.2


class ProgramWitness:
    """Asks the workers and servers of one run; `seats` is set once there are workers."""

    def __init__(self, parts: Iterable[tuple[Target, Cluster]]) -> None:
        self.seats: Mapping[str, Seat] = {}
        self._servers: dict[str, tuple[TellsTime, Place]] = {
            place.name: (target, place)
            for target, cluster in parts
            if isinstance(target, TellsTime)
            for place in cluster.places
        }

    async def told(self, node: str, clocks: Clocks) -> Readings | None:
        """Return what the program on a node answers, None when it cannot or does not."""
        if node in self.seats:
            return await _worker(self.seats[node], clocks)
        if node in self._servers:
            return await _server(*self._servers[node], clocks)
        return None


async def _worker(seat: Seat, clocks: Clocks) -> Readings | None:
    before = await clocks.now()
    read = await seat.ask_clock(_WORKER_S)
    after = await clocks.now()
    if read is None:
        return None
    return Readings(
        Glimpse(before.wall_ns, read.wall_ns, after.wall_ns),
        Glimpse(before.monotonic_ns, read.monotonic_ns, after.monotonic_ns),
    )


async def _server(target: TellsTime, place: Place, clocks: Clocks) -> Readings | None:
    before = await clocks.now()
    said: ServerTime | None = await asyncio.to_thread(target.server_time, place)
    after = await clocks.now()
    if said is None:
        return None
    seen_ns, grain_ns = round(said.time_s * 1e9), round(said.grain_s * 1e9)
    return Readings(wall=Glimpse(before.wall_ns, seen_ns, after.wall_ns, grain_ns))

"""The packet engine of a holder: it makes bad what its node sends.

Packets are taken on their way out, so what their receiver cuts is cut, however late they are.  The
engine is a thread: as a process it would be one of the node's, and be paused or killed with it.
"""

import asyncio
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.local import engine


def ways_out() -> list[tuple[int, int, str]]:
    """Return network, mask and interface of every route here, the narrowest first."""
    rows = [row.split() for row in Path("/proc/net/route").read_text().splitlines()[1:]]
    ways = [(int(row[1], 16), int(row[7], 16), row[0]) for row in rows]
    return sorted(ways, key=lambda way: way[1].bit_count(), reverse=True)


def way_out(address: bytes) -> str:
    """Return the interface towards an address.  Raises OSError where no route leads there."""
    number = int.from_bytes(address, "little")
    for network, mask, interface in ways_out():
        if number & mask == network:
            return interface
    raise OSError(f"no route leads to {socket.inet_ntoa(address)}")


class Shaper:
    """The engine of this network namespace; needs NET_ADMIN and NET_RAW."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._orders: int | None = None
        self._answers: deque[asyncio.Future[None]] = deque()
        self._thread: threading.Thread | None = None
        self._seed = ""

    def prepare(self, seed: str) -> None:
        """Start the engine, if it does not run.  Raises OSError where the kernel cannot."""
        self._seed = seed
        if self._orders is not None:
            return
        ways = ways_out()
        if not ways:
            raise OSError("no route leads anywhere")
        receiver = ways[0][0].to_bytes(4, "little")
        tap = engine.tried(sorted({way[2] for way in ways}), way_out, receiver)
        orders, self._orders = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(
            target=engine.serve,
            args=(tap, seed, orders, self._answered),
            name="engine",
            daemon=True,
        )
        self._thread.start()

    async def shape(self, lines: Sequence[Sequence[Any]]) -> None:
        """Make each `[from, to, shape]` bad from now on, and nothing else.  Raises OSError."""
        if lines or self._orders is not None:
            self.prepare(self._seed)
            await self._ask({"lines": lines})

    async def forget(self, pairs: Sequence[Sequence[str]]) -> None:
        """Lose what is held of pairs."""
        if self._orders is not None:
            await self._ask({"forget": pairs})

    async def remove(self) -> None:
        """Deliver what is held, and leave all packets to the kernel."""
        if self._orders is None or self._thread is None:
            return
        orders, self._orders = self._orders, None
        os.close(orders)
        await asyncio.to_thread(self._thread.join)

    async def _ask(self, order: Mapping[str, Any]) -> None:
        assert self._orders is not None
        answer: asyncio.Future[None] = self._loop.create_future()
        self._answers.append(answer)
        data = memoryview(json.dumps(order).encode() + b"\n")
        while data:
            data = data[os.write(self._orders, data) :]
        await answer

    def _answered(self, said: Mapping[str, str]) -> None:
        self._loop.call_soon_threadsafe(partial(self._settle, said.get("error")))

    def _settle(self, complaint: str | None) -> None:
        answer = self._answers.popleft()
        if answer.cancelled():
            return
        if complaint is None:
            answer.set_result(None)
        else:
            answer.set_exception(OSError(complaint))

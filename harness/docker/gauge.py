"""A node's end of a burst of datagrams, by which links are measured; see `harness.local.burst`."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial

from harness.local.burst import QUIET_S, Arrivals, stamped
from harness.local.post import RECEIVE_BUFFER_BYTES
from harness.site import Burst

_Where = tuple[int, str, int]


class Gauge:
    """One burst at a time: `listen` where it is received, then `send`, then `arrived`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._receiver: socket.socket | None = None
        self._arrivals = Arrivals(0, [])
        self._came = asyncio.Event()

    def listen(self, number: int, indexes: Sequence[int]) -> int:
        """Take in what comes over pairs, by index; return the port."""
        self._close()
        receiver = self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("", 0))
        receiver.setblocking(False)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._arrivals = Arrivals(number, indexes)
        self._loop.add_reader(receiver, self._receive)
        return int(receiver.getsockname()[1])

    def _receive(self) -> None:
        assert self._receiver is not None
        self._arrivals.take(self._receiver)
        self._came.set()

    async def send(
        self, number: int, to: Sequence[_Where], count: int, size_bytes: int, gap_s: float
    ) -> None:
        """Send over pairs, each `[index, address, port]`."""
        work = partial(_send, number, to, count, size_bytes, gap_s)
        await self._loop.run_in_executor(None, work)

    async def arrived(
        self, count: int, size_bytes: int, whole: int, wait_s: float
    ) -> Mapping[int, Burst]:
        """Wait until `whole` datagrams came, or so long, and a little for doubles; then close."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._arrivals.count() < whole:
                    self._came.clear()
                    await self._came.wait()
                await asyncio.sleep(QUIET_S)
        self._close()
        return self._arrivals.told(count, size_bytes)

    def _close(self) -> None:
        if self._receiver is not None:
            self._loop.remove_reader(self._receiver)
            self._receiver.close()
            self._receiver = None


def _send(number: int, to: Sequence[_Where], count: int, size_bytes: int, gap_s: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        began = time.monotonic()
        for i in range(count):
            for index, *where in to:
                with contextlib.suppress(OSError):  # one that is not taken is as good as lost
                    sender.sendto(stamped(number, index, i, size_bytes), tuple(where))
            time.sleep(max(0.0, began + (i + 1) * gap_s - time.monotonic()))

"""The proxies of a run on hosts: one process, on the host where all workers live.

A trick is meant for the next messages of any worker, so one process must see the messages of all.
It runs with the workers' Python, in a place of its own, so a fault that hits a worker does not hit
it; what it sends on goes the way that the worker's own packets would go.
"""

import asyncio
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness import proxies
from harness.errors import HarnessError
from harness.middle import as_record
from harness.ssh import node as nodes
from harness.ssh.node import SshNode
from harness.target import Place
from harness.trick import Hit, Part, Trick

_ROOM = "proxies"
_ARGV = (nodes.PYTHON, "-P", "-m", "harness.ssh.between")
_ANSWER_S = 30.0  # the first order waits for an interpreter to start there


class Proxies(proxies.Proxies):
    """See `harness.backend.Proxying`."""

    def __init__(
        self,
        lodged: Mapping[str, SshNode],
        workers: Sequence[str],
        places: Mapping[Part, Sequence[Place]],
        log: Path,
    ) -> None:
        super().__init__(workers, places)
        self._nodes = lodged
        self._log = log
        self._line: Line | None = None

    def unavailable(self, part: Part) -> str | None:
        """Return None when a proxy can stand before each server of a part, else why not."""
        hosts = sorted({self._nodes[worker].station.host.name for worker in self._workers})
        if len(hosts) > 1:
            return (
                f"the workers live on {', '.join(hosts)}: a trick is meant for the next messages of"
                " any of them, which only one host can count"
            )
        return super().unavailable(part)

    async def open(self) -> None:
        """Begin to take connections, if a fault asked for any.  Raises OSError."""
        if self._parts:
            place = nodes.make(self._nodes[self._workers[0]].station, _ROOM)
            self._line = Line(place, self._log)
        await super().open()

    async def _ask(self, call: str, *arguments: Any) -> Any:
        assert self._line is not None, "opened"
        return await self._line.ask(call, *arguments)

    async def _stand(self, worker: str, place: Place, part: Part) -> proxies.Address:
        address, port = await self._ask(
            "stand", worker, place.name, part, place.address, place.port
        )
        return str(address), int(port)

    async def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        """Play a trick on the next messages; see `harness.site.Messages`."""
        await self._ask("arm", owner, as_record(trick), list(nodes))

    async def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt."""
        await self._ask("disarm", owner)

    async def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far to the messages that an owner meant."""
        return msgspec.convert(await self._ask("hits", owner), list[Hit])


class Line:
    """Orders to the process that has the proxies, and its answers, in the event loop."""

    def __init__(self, place: SshNode, log: Path) -> None:
        """Start it.  Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._unread = b""
        self._ended: str | None = None
        self._child = place.spawn(_ARGV, log=log, pipes=True)
        self._child.watch(self._loop, self._end)
        os.set_blocking(self._child.stdout, False)
        self._loop.add_reader(self._child.stdout, self._read)

    async def ask(self, call: str, *arguments: Any) -> Any:
        """Give an order and return its answer.  Raises HarnessError, TimeoutError."""
        if self._ended is not None:
            raise HarnessError(self._ended)
        number = next(self._numbers)
        answer = self._waiting[number] = self._loop.create_future()
        order = {"id": number, "call": call, "args": arguments}
        os.write(self._child.stdin, msgspec.json.encode(order) + b"\n")
        async with asyncio.timeout(_ANSWER_S):
            return await answer

    def _read(self) -> None:
        data = os.read(self._child.stdout, 1 << 16)
        if not data:
            self._loop.remove_reader(self._child.stdout)
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            said = msgspec.json.decode(line)
            answer = self._waiting.pop(said["id"])
            if answer.done():
                continue
            if "error" in said:
                answer.set_exception(HarnessError(f"the proxies: {said['error']}"))
            else:
                answer.set_result(said["value"])

    def _end(self, how: str) -> None:
        self._ended = f"the proxies ended with {how}"
        self._loop.remove_reader(self._child.stdout)
        for fd in (self._child.stdin, self._child.stdout):
            os.close(fd)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(HarnessError(self._ended))

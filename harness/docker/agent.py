"""`python -m harness.docker.agent`: the first process of a holder container.

The containers of a node join its network and its process space, so it sees all their processes as
a process of an ordinary machine sees its neighbours, and needs nothing of the machine below.  One
order comes as one JSON line on standard input and is answered in kind; what happens by itself is
told the same way.  At the end of its input it ends, and the kernel then ends every process of the
node.  After five seconds without a line the harness is taken for stuck: what was ordered is undone.
"""

import asyncio
import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness import procfs
from harness.clocks import Applied, Moment, Readings, Skew
from harness.docker.mail import Mail
from harness.docker.rules import Rules
from harness.docker.volume import Volume
from harness.local.orders import Orders
from harness.node import ProcessId
from harness.vdso.clocks import VdsoClocks

SILENCE_S = 5.0
_LINE_BYTES = 1 << 20


def processes() -> list[ProcessId]:
    """Return all processes of the node but this one, which is the first of its space."""
    found = []
    for pid in procfs.pids():
        start = procfs.start_ticks(pid) if pid != os.getpid() else None
        if start is not None and procfs.alive(ProcessId(pid, start)):
            found.append(ProcessId(pid, start))
    return found


class Agent:
    """What can be ordered, by name: every public method."""

    def __init__(self, root: Path | None) -> None:
        self._orders = Orders(processes)
        self._owners: set[str] = set()
        self._rules = Rules()
        self._mail = Mail(tell)
        self._clocks = VdsoClocks(processes, self._orders)
        self._volume = None if root is None else Volume(root)

    def hello(self) -> dict[str, int]:
        """Return the ports at which probes are taken."""
        return self._mail.ports()

    def beat(self) -> None:
        """Do nothing: that the line came is what counts."""

    # ---------------------------------------------------------------- processes

    def processes(self) -> list[tuple[int, int]]:
        """Return pid and start time of every process of the node."""
        return [(process.pid, process.start) for process in processes()]

    def thread_states(self) -> dict[int, str]:
        """Return the kernel's state letter of every thread."""
        states: dict[int, str] = {}
        for process in processes():
            states.update(procfs.thread_states(process.pid))
        return states

    def frozen_threads(self) -> tuple[int, int]:
        """Return how many threads the node has, and how many of them look frozen."""
        looks = [look for p in processes() for look in procfs.frozen_threads(p.pid)]
        return len(looks), sum(looks)

    def signal(self, number: int) -> None:
        """Send a signal to every process."""
        self._orders.signal(signal.Signals(number))

    def stop(self, owner: str) -> None:
        """Order every process to stop."""
        self._owners.add(owner)
        self._orders.stop(owner)

    def resume(self, owner: str) -> None:
        """Order every process to go on, unless another owner still stops the node."""
        self._owners.discard(owner)
        self._orders.resume(owner)

    # ------------------------------------------------------------------ network

    def can_cut(self, reject: bool) -> None:
        """Do nothing where packets can be stopped (and refused).  Raises OSError."""
        self._rules.prepare()
        if reject:
            self._rules.prepare_refusal()

    def cut(self, silent: Sequence[str], told: Sequence[str]) -> None:
        """Stop what comes from some addresses, refuse what goes to others, and nothing else."""
        self._rules.cut(silent, told)

    def stopped_packets(self) -> int:
        """Return how many packets were stopped."""
        return self._rules.stopped_packets()

    def send(self, number: int, tries: Sequence[Sequence[Any]]) -> None:
        """Send what a look needs; see `harness.docker.mail`."""
        self._mail.send(number, tries)

    def open(self, links: Sequence[Sequence[Any]]) -> None:
        """Open connections that a later cut will be tried with."""
        self._mail.open(links)

    def close(self, connections: Sequence[int]) -> None:
        """Close connections."""
        self._mail.close(connections)

    async def reach(self, address: str, port: int, bound_s: float) -> str:
        """Connect to a port, and say how that ended."""
        try:
            async with asyncio.timeout(bound_s):
                _, writer = await asyncio.open_connection(address, port)
        except TimeoutError:
            return "silent"
        except OSError:
            return "refused"
        writer.close()
        return "accepted"

    # ----------------------------------------------------------- clocks and data

    def clocks_unavailable(self) -> str | None:
        """Return why no clock can be set here."""
        return self._clocks.unavailable()

    async def skew(self, owner: str, skew: Mapping[str, Any]) -> Moment:
        """Lie to every process about the time."""
        return await self._clocks.skew(owner, msgspec.convert(skew, Skew))

    async def true_clocks(self, owner: str) -> None:
        """Take an owner's lie back."""
        await self._clocks.true_clocks(owner)

    def clock_owners(self) -> Sequence[str]:
        """Return who lies here now."""
        return self._clocks.owners()

    def applied(self, owner: str) -> Sequence[Applied]:
        """Return the processes that were lied to."""
        return self._clocks.applied(owner)

    async def read_clocks(self) -> Mapping[int, Readings]:
        """Return what each process reads."""
        return await self._clocks.read_clocks()

    def data(self, call: str, arguments: Sequence[Any]) -> Any:
        """Do something with the data folder, or a copy of it."""
        if self._volume is None:
            raise FileNotFoundError(errno.ENOENT, "this node has no data volume")
        return self._volume.carry_out(call, arguments)

    # --------------------------------------------------------------------- heal

    async def heal(self) -> None:
        """Undo everything that was ordered."""
        self._rules.remove()
        if self._volume is not None:
            self._volume.make_room()
        for owner in list(self._owners):
            self.resume(owner)
        for owner in self._clocks.owners():
            await self._clocks.true_clocks(owner)


def tell(event: dict[str, Any]) -> None:
    """Write one line."""
    data = memoryview(msgspec.json.encode(event) + b"\n")
    while data:
        data = data[os.write(1, data) :]


class Line:
    """The harness's end: orders in, answers out, and a clock that hears silence."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._input = b""
        self._heard_s = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()

    def read(self) -> None:
        """Take what came."""
        data = os.read(0, 1 << 16)
        self._heard_s = time.monotonic()
        if not data or len(self._input) > _LINE_BYTES:
            self.ended.set()
            return
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            self._take(msgspec.json.decode(line))

    def _take(self, order: dict[str, Any]) -> None:
        number = int(order["id"])
        try:
            call: Callable[..., Any] = getattr(self._agent, order["call"])
            result = call(*order["args"])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            self._answer(number, error)
            return
        if asyncio.iscoroutine(result):
            task = asyncio.create_task(self._later(number, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._answer(number, result)

    async def _later(self, number: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await work
        except Exception as error:  # noqa: BLE001 - the same
            result = error
        self._answer(number, result)

    def _answer(self, number: int, result: Any) -> None:
        if isinstance(result, OSError):
            tell({"id": number, "errno": result.errno or 0, "error": result.strerror or "failed"})
        elif isinstance(result, Exception):
            tell({"id": number, "error": f"{type(result).__name__}: {result}"})
        elif number:
            tell({"id": number, "value": result})

    async def listen_for_silence(self) -> None:
        """Undo everything once the harness has been silent for too long, until it speaks again."""
        healed_s = 0.0
        while True:
            await asyncio.sleep(SILENCE_S / 5)
            silent = time.monotonic() - self._heard_s > SILENCE_S
            if silent and healed_s != self._heard_s:
                healed_s = self._heard_s
                await self._agent.heal()
                tell({"event": "healed"})


def reap() -> None:
    """Take the ends of orphans, whose new parent is the first process of their space."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


async def main() -> None:
    """Serve until the end of input."""
    agent = Agent(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    line = Line(agent)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCHLD, reap)
    loop.add_reader(0, line.read)
    silence = asyncio.create_task(line.listen_for_silence())
    tell({"event": "hello", **agent.hello()})
    await line.ended.wait()
    silence.cancel()
    await agent.heal()


if __name__ == "__main__":
    asyncio.run(main())

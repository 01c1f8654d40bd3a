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
from typing import TYPE_CHECKING, Any

import msgspec

from harness import procfs
from harness.clocks import Applied, Moment, Readings, Skew
from harness.docker.door import Door
from harness.docker.gauge import Gauge
from harness.docker.mail import Mail
from harness.docker.project import SILENCE_S
from harness.docker.rules import Rules
from harness.docker.shaper import Shaper
from harness.docker.tracing import Tracing
from harness.docker.volume import Volume
from harness.local.orders import Orders
from harness.node import ProcessId
from harness.site import Burst
from harness.trick import Hit
from harness.vdso.clocks import VdsoClocks

if TYPE_CHECKING:
    from harness.middle import Middle

FIRST = 1
_LOOK_S = 0.0005
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
        self._shaper = Shaper()
        self._gauge = Gauge()
        self._door: Door | None = None
        self._proxies: Middle | None = None
        self._mail = Mail(tell)
        # Beside somebody else's first process, which takes no signal to stop from in here.
        self._tracing = Tracing() if os.getpid() != FIRST else None
        self._clocks = VdsoClocks(processes, self._tracing or self._orders)
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

    def stopped_threads(self) -> tuple[int, int, int]:
        """Return how many threads there are, how many are stopped, and are that or look frozen."""
        here = processes()
        states = [state for p in here for state in procfs.thread_states(p.pid).values()]
        still = [look for p in here for look in procfs.still_threads(p.pid)]
        return len(states), states.count(procfs.STOPPED), sum(still)

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

    async def frozen(self, frozen: bool) -> None:
        """Take note that the engine froze all processes, or thaws them when this is answered."""
        reins = self._tracing or self._orders
        while not frozen and reins.holding():  # noqa: ASYNC110 - for a millisecond, and seldom
            await asyncio.sleep(_LOOK_S)
        reins.frozen = frozen

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

    def can_shape(self, seed: str) -> None:
        """Do nothing where links can be made bad; `seed` says by which chance.  Raises OSError."""
        self._shaper.prepare(seed)

    async def shape(self, lines: Sequence[Sequence[Any]]) -> None:
        """Make bad what goes from here over some pairs of addresses, and nothing else."""
        await self._shaper.shape(lines)

    async def forget(self, pairs: Sequence[Sequence[str]]) -> None:
        """Lose what is held of some pairs of addresses."""
        await self._shaper.forget(pairs)

    def listen(self, number: int, indexes: Sequence[int]) -> int:
        """Take in a burst of datagrams; return the port."""
        return self._gauge.listen(number, indexes)

    async def burst(self, *what: Any) -> None:
        """Send a burst of datagrams; see `harness.docker.gauge`."""
        await self._gauge.send(*what)

    async def arrived(self, *what: Any) -> Mapping[int, Burst]:
        """Return what became of a burst of datagrams."""
        return await self._gauge.arrived(*what)

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

    # ----------------------------------------------------------------- messages

    def door(self, name: str) -> None:
        """Hand out sockets of this network to the other holders.  Raises OSError."""
        if self._door is None:
            self._door = Door(name)

    @property
    def _middle(self) -> "Middle":
        """The proxies: in the hub alone, and only where a message is to be lost."""
        from harness.docker.door import from_door
        from harness.middle import Middle

        if self._proxies is None:
            self._proxies = Middle(from_door)
        return self._proxies

    async def stand(self, *where: Any) -> tuple[str, int]:
        """Let a proxy stand between a worker and a server; return where on the worker."""
        return await self._middle.stand(*where)

    def arm(self, owner: str, trick: Mapping[str, Any], nodes: Sequence[str]) -> None:
        """Play a trick on the next messages."""
        self._middle.arm(owner, trick, nodes)

    def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt."""
        self._middle.disarm(owner)

    def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far to the messages that an owner meant."""
        return self._middle.hits(owner)

    # ----------------------------------------------------------- clocks and data

    def clocks_unavailable(self) -> str | None:
        """Return why no clock can be set here."""
        why = self._clocks.unavailable()
        if why is None and self._tracing is not None:
            first = ProcessId(FIRST, procfs.start_ticks(FIRST) or 0)
            return self._tracing.unavailable(first)
        return why

    async def skew(
        self, owner: str, skew: Mapping[str, Any], since: Mapping[str, Any] | None = None
    ) -> Moment:
        """Lie to every process about the time."""
        then = None if since is None else msgspec.convert(since, Moment)
        return await self._clocks.skew(owner, msgspec.convert(skew, Skew), then)

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
        """Undo everything that was ordered; what fails keeps nothing else from being undone.

        Raises the last failure, once all was tried.
        """
        async with contextlib.AsyncExitStack() as steps:  # carried out from the last one on
            for owner in self._clocks.owners():
                steps.push_async_callback(self._clocks.true_clocks, owner)
            steps.callback(self._let_go)
            if self._volume is not None:
                steps.callback(self._volume.make_room)
            steps.push_async_callback(self._shaper.remove)
            if self._proxies is not None:
                steps.callback(self._proxies.heal)
            steps.callback(self._rules.remove)

    def _let_go(self) -> None:
        reins = self._tracing or self._orders
        if self._owners or reins.frozen:  # who froze them thaws them; some may be stopped besides
            reins.frozen = False
            self._owners.clear()
            self._orders.resume_all()


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
                try:
                    await self._agent.heal()
                except OSError as error:  # the next silence must be heard all the same
                    sys.stderr.write(f"not all is undone: {error}\n")
                else:
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
    if os.getpid() == FIRST:
        loop.add_signal_handler(signal.SIGCHLD, reap)
    loop.add_reader(0, line.read)
    silence = asyncio.create_task(line.listen_for_silence())
    tell({"event": "hello", **agent.hello()})
    await line.ended.wait()
    silence.cancel()
    await agent.heal()


if __name__ == "__main__":
    asyncio.run(main())

"""Orders in, answers out, and the lease: one event loop in one thread.

An order is a JSON object with a number `id`, what to `do`, and arguments; its answer bears the same
number and either a `value` or an `error`.  What happens by itself, output of a process or its end,
is told as an `event`.  Every line that comes extends the lease.  Clocks that stand still while a
machine sleeps do not count silence, so CLOCK_BOOTTIME is read.

Orders are carried out in the order in which they come.  None may take long, for the heartbeat waits
behind it.  Those on data folders, which may, are answered later by a thread of their own, and those
on clocks when they are done: all that is written into processes is written in this one loop.
"""

import asyncio
import contextlib
import json
import os
import queue
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from harness.ssh.agent import clocks, rooms
from harness.ssh.agent.chain import Means
from harness.ssh.agent.children import Children
from harness.ssh.agent.cuts import Cuts
from harness.ssh.agent.disks import Disks, error_text
from harness.ssh.agent.links import Links
from harness.ssh.agent.place import Place
from harness.ssh.agent.post import Post

_READ_BYTES = 1 << 18
_FULL_BYTES = 1 << 20  # of what waits to be sent; then no more output is read


class Agent:
    """All that is done on this host for one run."""

    def __init__(self, options: dict[str, Any], means: Means) -> None:
        """`options` as in `main`.  Raises OSError."""
        self._means = means
        self._lease_s = float(options["lease_s"])
        self._selector = selectors.DefaultSelector()
        self._input = b""
        self._output = bytearray()
        self._late: queue.SimpleQueue[tuple[int, Any, str]] = queue.SimpleQueue()
        self._places: dict[str, Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._children = Children(self._selector, self._event)
        controller = options["controller"].split()
        self._cuts = Cuts(means.table, controller, self._lease_s)
        self._links = Links(means.table, controller, self._lease_s)
        self._disks = Disks(means, options["data"])
        self._post: Post | None = None
        self._heard_s = _now_s()
        self._over = asyncio.Event()
        self._bell, self._ring = socket.socketpair()

    async def serve(self) -> None:
        """Do what is asked for until input ends, or nothing comes for as long as the lease."""
        for end in (self._bell, self._ring):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ring.fileno(), warn_on_full_buffer=False)
        for fd in (0, 1):
            os.set_blocking(fd, False)
        self._selector.register(0, selectors.EVENT_READ, self._read)
        self._selector.register(self._bell, selectors.EVENT_READ, self._rung)
        means = self._means
        own = self._disks.own
        self._event(
            "ready",
            "",
            means=means.kind,
            reason=means.reason,
            own_disks=own,
            kernel=" ".join(os.uname()[i] for i in (0, 2, 4)),
            monotonic_s=time.monotonic(),
        )
        self._flush()
        asyncio.get_event_loop().add_reader(self._selector.fileno(), self._step)
        while not self._over.is_set():
            left_s = self._heard_s + self._lease_s - _now_s()
            if left_s <= 0:
                sys.stderr.write(f"nothing was heard for {self._lease_s:g} s: the agent ends\n")
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._over.wait(), left_s)

    def _step(self) -> None:
        """Do what has become possible."""
        for key, _ in self._selector.select(0):
            key.data()
        self._flush()

    # ------------------------------------------------------------ in and out

    def _read(self) -> None:
        try:
            data = os.read(0, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._over.set()
            return
        self._heard_s = _now_s()
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _say(self, record: dict[str, Any]) -> None:
        self._output += json.dumps(record, ensure_ascii=False).encode() + b"\n"

    def _event(self, kind: str, child: str, **facts: Any) -> None:
        self._say(dict(facts, event=kind, child=child))

    def _flush(self) -> None:
        try:
            while self._output:
                del self._output[: os.write(1, self._output)]
        except BlockingIOError:
            if 1 not in self._selector.get_map():
                self._selector.register(1, selectors.EVENT_WRITE, lambda: None)
        except OSError:
            self._over.set()
        if not self._output and 1 in self._selector.get_map():
            self._selector.unregister(1)
        self._children.quiet(wanted=len(self._output) > _FULL_BYTES)

    def _rung(self) -> None:
        """A child has ended, or the thread of the data folders has an answer."""
        with contextlib.suppress(BlockingIOError):
            while self._bell.recv(4096):
                pass
        self._children.reap()
        with contextlib.suppress(queue.Empty):
            while True:
                self._answer(*self._late.get_nowait())

    # --------------------------------------------------------------- orders

    def _obey(self, order: dict[str, Any]) -> None:
        number, what = order.pop("id"), order.pop("do")
        try:
            if what in ("disk", "knock"):
                getattr(self, f"_{what}")(number, **order)
                return
            if what == "clock":
                self._later(number, self._places[order.pop("room")].clocks.do(**order))
                return
            if what == "burst":
                assert self._post is not None, "it was opened first"
                self._later(number, self._post.burst(**order))
                return
            if what == "can_lie":
                self._later(number, clocks.unavailable())
                return
            do: Callable[..., Any] = getattr(self, f"do_{what}")
            self._answer(number, do(**order), "")
        except OSError as error:
            self._answer(number, None, error_text(error))
        except Exception as error:  # noqa: BLE001 - one order that fails must not end the others
            self._answer(number, None, f"0 {type(error).__name__}: {error}")

    def _answer(self, number: int, value: Any, error: str) -> None:
        self._say({"id": number, "error": error} if error else {"id": number, "value": value})

    def do_beat(self) -> None:
        """Answer, and renew what has a time limit."""
        self._cuts.renew()
        self._links.renew()

    def do_end(self) -> None:
        """End, when this was answered."""
        self._over.set()

    def do_room(self, name: str) -> str:
        """Make the place of a node; return the path of its data folder."""
        path = self._disks.add(name)
        self._places[name] = Place(rooms.make(self._means, name))
        return path

    def do_spawn(
        self, room: str, child: str, argv: list[str], env: dict[str, str], cwd: Any, *, pipes: bool
    ) -> None:
        """Start a process."""
        self._children.spawn(self._places[room].room, child, argv, env, cwd, pipes=pipes)

    def do_input(self, child: str, data: str) -> None:
        """Give a process input."""
        self._children.write(child, data.encode("latin-1"))

    def do_close_input(self, child: str) -> None:
        """End the input of a process."""
        self._children.close_input(child)

    def do_kill(self, child: str) -> None:
        """Kill a single process."""
        self._children.kill(child, signal.SIGKILL)

    def do_seen(self, room: str) -> dict[str, Any]:
        """Return what lives in a room, and in which states."""
        return self._places[room].seen()

    def do_signal(self, room: str, number: int) -> None:
        """Signal all that lives in a room."""
        self._places[room].orders.signal(signal.Signals(number))

    def do_stop(self, room: str, owner: str) -> None:
        """Stop all that lives in a room."""
        self._places[room].orders.stop(owner)

    def do_resume(self, room: str, owner: str) -> None:
        """Let all go on that lives in a room, unless another owner still stops it."""
        self._places[room].orders.resume(owner)

    def do_now(self) -> dict[str, int]:
        """Return this moment by the clocks of this host."""
        return clocks.now()

    def _later(self, number: int, work: Coroutine[Any, Any, Any]) -> None:
        """Answer an order when its work is done."""

        async def done() -> None:
            try:
                self._answer(number, await work, "")
            except OSError as error:
                self._answer(number, None, error_text(error))
            except Exception as error:  # noqa: BLE001 - as above
                self._answer(number, None, f"0 {type(error).__name__}: {error}")
            self._flush()

        task = asyncio.ensure_future(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _disk(self, number: int, node: str, method: str, arguments: dict[str, Any]) -> None:
        """Do something to a data folder, in the thread that does it."""

        def answer(value: Any, error: str) -> None:
            self._answer_late(number, value, error)

        self._disks.do(node, method, arguments, answer)

    def _answer_late(self, number: int, value: Any, error: str) -> None:
        """Give an answer from another thread."""
        self._late.put((number, value, error))
        with contextlib.suppress(BlockingIOError):
            self._ring.send(b"\0")

    def do_can_cut(self) -> str:
        """Return why no packets can be stopped here, empty when they can."""
        return self._cuts.unavailable()

    def do_cut(self, addresses: list[str]) -> None:
        """Let nothing in from these addresses, and from no others."""
        if error := self._cuts.cut(addresses):
            raise OSError(error)

    def do_can_shape(self) -> str:
        """Return why no link can be made bad here, empty when it can."""
        return self._links.unavailable()

    def do_shape(self, links: dict[str, Any]) -> None:
        """Let the links to these receivers be bad, and no others."""
        if error := self._links.shape(links):
            raise OSError(error)

    def do_forget(self, receivers: list[str]) -> None:
        """Lose what is on the way to these receivers."""
        self._links.forget(receivers)

    def do_stopped(self) -> int:
        """Return how many packets were stopped."""
        return self._cuts.stopped_packets()

    def _knock(self, number: int, address: str, port: int, bound_s: float) -> None:
        """Connect to a port in a thread of its own: a silent one takes all of the time."""

        def knock() -> None:
            try:
                socket.create_connection((address, port), timeout=bound_s).close()
            except socket.timeout:  # noqa: UP041 - no TimeoutError before Python 3.10
                self._answer_late(number, "silent", "")
            except OSError:
                self._answer_late(number, "refused", "")
            else:
                self._answer_late(number, "accepted", "")

        threading.Thread(target=knock, daemon=True).start()

    def do_post(self, address: str) -> list[int]:
        """Open the sockets for looks; return the ports for datagrams and for connections."""
        if self._post is None:
            self._post = Post(address)
            self._selector.register(self._post.selector, selectors.EVENT_READ, self._post.step)
        return self._post.ports

    def do_look(self, method: str, arguments: dict[str, Any]) -> Any:
        """Do a part of a look; see `Post`."""
        if method not in ("link", "drop", "begin", "send", "seen", "expect", "arrived"):
            raise OSError(f"no such part of a look: {method}")
        return getattr(self._post, method)(**arguments)


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

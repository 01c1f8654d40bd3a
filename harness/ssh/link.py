"""Orders to one agent and its answers, with a heartbeat and a deadline.

TCP does not tell that a peer is frozen: its kernel goes on acknowledging.  So the controller sends
a beat every second and judges by the answers alone: when none has come for as long as the deadline,
the host is lost.  From then on every order fails at once, for the agent, wherever it is, ends what
it started when its own lease runs out; a host that comes back has nothing left to go on with.

Two threads: one reads, judges, and never waits for anything else; the other writes, and may block
when the way is full.
"""

import contextlib
import json
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from harness.errors import HostLostError
from harness.ssh.carrier import END_S, Carrier
from harness.text import Lines, tail

_LOOK_S = 0.05
_READ_BYTES = 1 << 16
_END_S = 2.0
BEAT_S = 1.0


class Link:
    """The agent of one host, from `open` to `close`.

    `silence_s` is the deadline.  `on_event(record)` and `on_lost(why)` are called in the reading
    thread, and must not wait.  `poll()` is called there at least every 50 ms.
    """

    def __init__(self, name: str, carrier: Carrier, silence_s: float) -> None:
        self.name = name
        self.lost: str | None = None
        self.on_event: Callable[[dict[str, Any]], None] = lambda _: None
        self.on_lost: Callable[[str], None] = lambda _: None
        self.poll: Callable[[], None] = lambda: None
        self._carrier = carrier
        self._silence_s = silence_s
        self._heard_s = self._looked_s = time.monotonic()
        self._numbers = 0
        self._waiting: dict[int, Future[Any]] = {}
        self._guard = threading.Lock()
        self._queue: deque[dict[str, Any]] = deque()
        self._bell_r, self._bell_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._inputs: dict[int, str] = {}
        self._ready: Future[dict[str, Any]] = Future()
        self._closing = False
        self._next_beat_s = 0.0
        self._threads = [
            threading.Thread(target=work, name=f"{name} {work.__name__}", daemon=True)
            for work in (self._read, self._write)
        ]

    def open(self, start: bytes, wait_s: float) -> dict[str, Any]:
        """Send the agent itself and return what it says first.  Raises HostLostError."""
        try:
            self._carrier.send(start)
        except OSError as error:
            why = f"no agent could be started ({error.strerror or error})"
            raise HostLostError(self._text(why)) from error
        for thread in self._threads:
            thread.start()
        try:
            return self._ready.result(wait_s)
        except TimeoutError:
            self._lose(f"the agent did not start within {wait_s:g} s")
            raise HostLostError(self.lost) from None

    # ------------------------------------------------------------------- orders

    def tell(self, do: str, **what: Any) -> "Future[Any]":
        """Give an order and return its answer to come; OSError or HostLostError when it fails."""
        answer: Future[Any] = Future()
        with self._guard:
            if self.lost is not None:
                answer.set_exception(HostLostError(self.lost))
                return answer
            self._numbers += 1
            self._waiting[self._numbers] = answer
            self._queue.append({"id": self._numbers, "do": do, **what})
        self._ring()
        return answer

    def ask(self, do: str, **what: Any) -> Any:
        """Give an order and wait for its answer.  Raises OSError, HostLostError."""
        return self.tell(do, **what).result()

    def feed(self, child: str, fd: int) -> None:
        """From now on, send a process what comes out of a pipe; the end of it ends its input."""
        self._inputs[fd] = child
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._bell_w, b"\0")

    # ------------------------------------------------------------------ writing

    def _write(self) -> None:
        try:
            while self.lost is None:
                self._send()
                ready = select.select([self._bell_r, *self._inputs], [], [], BEAT_S)[0]
                for fd in ready:
                    if fd == self._bell_r:
                        os.read(fd, _READ_BYTES)
                    else:
                        self._pump(fd)
                self._beat_if_due()
        except (OSError, ValueError) as error:
            self._lose(self._broken(error))

    def _send(self) -> None:
        with self._guard:
            lines = [json.dumps(order).encode() + b"\n" for order in self._queue]
            self._queue.clear()
        if lines:
            self._carrier.send(b"".join(lines))

    def _pump(self, fd: int) -> None:
        child = self._inputs[fd]
        if data := os.read(fd, _READ_BYTES):
            self.tell("input", child=child, data=data.decode("latin-1"))
            return
        del self._inputs[fd]
        os.close(fd)
        self.tell("close_input", child=child)

    def _beat_if_due(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + BEAT_S
            self.tell("beat")

    # ------------------------------------------------------------------ reading

    def _read(self) -> None:
        lines = Lines()
        try:
            while self.lost is None:
                try:
                    data = self._carrier.receive(_LOOK_S)
                except TimeoutError:
                    self._judge()
                else:
                    if not data:
                        self._lose(self._ended())
                        return
                    self._heard_s = time.monotonic()
                    for line in lines.take(data):
                        self._take(json.loads(line))
                self.poll()
                self._looked_s = time.monotonic()
        except (OSError, ValueError) as error:
            self._lose(self._broken(error))
        finally:
            if self._closing:
                self._carrier.await_end()
            # Also when it is lost: a host that comes back must find nobody at the other end.
            self._carrier.close()

    def _judge(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s > BEAT_S:
            self._heard_s = now_s  # it was we who were stopped: what came meanwhile is read first
        silent_s = now_s - self._heard_s
        if silent_s > self._silence_s and self._ready.done() and not self._closing:
            self._lose(
                f"nothing was heard of it for {silent_s:.1f} s: it is cut off or frozen, or so slow"
                " that it is no host for a run"
            )

    def _take(self, record: dict[str, Any]) -> None:
        if "event" in record:
            if record["event"] == "ready":
                self._ready.set_result(record)
            else:
                self.on_event(record)
            return
        with self._guard:
            answer = self._waiting.pop(record["id"], None)
        if answer is None:
            return
        if "error" in record:
            number, _, text = record["error"].partition(" ")
            text = f"host {self.name}: {text}"
            answer.set_exception(OSError(int(number), text) if int(number) else OSError(text))
        else:
            answer.set_result(record["value"])

    # ---------------------------------------------------------------------- end

    def _lose(self, why: str) -> None:
        text = self._text(why) if self.lost is None else ""
        with self._guard:
            if self.lost is not None:
                return
            self.lost = text
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set_exception(HostLostError(text))
        if not self._ready.done():
            self._ready.set_exception(HostLostError(text))
        self._ring()
        if not self._closing:
            self.on_lost(f"host {self.name}: {why}")

    def _ended(self) -> str:
        return "the agent ended" if self._closing else "the connection ended"

    def _broken(self, error: Exception) -> str:
        """Say what an error means; an end is one, whether it is met in writing or in reading."""
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            return self._ended()
        return f"the connection broke ({error or type(error).__name__})"

    def _text(self, why: str) -> str:
        said = tail(self._carrier.complaints().encode())
        return f"host {self.name}: {why}" + (f"; the last that it said:\n{said}" if said else "")

    def close(self) -> None:
        """End the agent and all that it started, and wait until it has ended, bounded."""
        with self._guard:
            alive = self.lost is None and self._ready.done()
        self._closing = True
        if alive:
            with contextlib.suppress(OSError, TimeoutError):
                self.tell("end").result(_END_S)
                self._threads[0].join(2 * END_S)  # it ends with the agent, which clears up before
        self._lose("it was closed")
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(2 * END_S)
        if not started:
            self._carrier.close()
        for fd in (self._bell_r, self._bell_w, *self._inputs):
            os.close(fd)
        self._inputs = {}

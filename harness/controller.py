"""The controller: one event loop that owns the clock, the seed and the history.

It sends one operation at a time to each lane of each worker, after the invocation is on disk, and
writes down what comes back.  A worker has two lanes: the main one runs its generator; on the other
the worker renews leases on its own account, after asking, so that the record of a renewal's
invocation is never later than its call.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.clock import Clock
from harness.crew import Worker
from harness.errors import HarnessError
from harness.generator import Done as Finished
from harness.generator import Generator, Invoke, Wait
from harness.history import HistoryWriter
from harness.monitor import Monitor, Sighting
from harness.note import Note
from harness.op import Op
from harness.protocol import (
    Ask,
    Belief,
    ClockRead,
    Done,
    Failed,
    FromWorker,
    Go,
    Phase,
    Ready,
    SendOp,
)
from harness.seat import Lane, Seat
from harness.trap import Trap, Traps

_ASKABLE = frozenset({"renew", "keep"})


@dataclass
class Counts:
    """How completed operations ended, for the progress line."""

    ok: int = 0
    fail: int = 0
    info: int = 0


class Controller:
    """Runs generators against workers and records what happens."""

    def __init__(
        self,
        clock: Clock,
        history: HistoryWriter,
        note: Callable[[Note], None],
        traps: Traps,
    ) -> None:
        self.clock = clock
        self.seats: dict[str, Seat] = {}
        self.counts = Counts()
        self.traps = traps
        self.when_done: Callable[[Op, Op], None] = lambda _asked, _done: None
        self.sighting: Sighting | None = None
        self.when_sighted: Callable[[Sighting], None] = lambda _: None
        self._monitor = Monitor()
        self._history = history
        self._note = note
        self._loop = asyncio.get_running_loop()
        self._stride = 0
        self._until_ns = 0
        self._idle = asyncio.Event()
        self._all_ready = asyncio.Event()
        self.broken: asyncio.Future[None] = self._loop.create_future()

    # ------------------------------------------------------------------ workers

    def admit(self, workers: list[Worker]) -> None:
        """Give each worker its seat; process numbers follow the order of the list."""
        total = len(workers)
        self._stride = 2 * total
        for i, worker in enumerate(workers):
            self.seats[worker.name] = Seat(worker, Lane(i), Lane(total + i))

    def order_end(self, name: str) -> None:
        """Expect the end of a worker: it is no problem, and its generator waits for it."""
        self.seats[name].ordered = True
        self._monitor.gone(name)

    def seat_again(self, worker: Worker) -> None:
        """Give a worker that is started again its seat; it goes on as soon as it is ready."""
        seat = self.seats[worker.name]
        seat.worker, seat.ready, seat.ordered = worker, False, False

    async def all_ready(self, timeout_s: float) -> None:
        """Wait until each worker is connected.  Raises HarnessError that names who is not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._unless_broken(self._all_ready.wait())
        except TimeoutError:
            late = [name for name, seat in self.seats.items() if not seat.ready]
            raise HarnessError(
                f"no word from worker {', '.join(late)} within {timeout_s:g} s"
            ) from None

    async def run(self, generators: Mapping[str, Generator], until_ns: int) -> None:
        """Run generators until they are done or the time is over; open operations may remain."""
        self._until_ns = until_ns
        self._idle.clear()
        for name, generator in generators.items():
            seat = self.seats[name]
            if seat.worker.alive and seat.main.open is None:
                seat.generator = generator
        for seat in list(self.seats.values()):
            self._guard(self._advance, seat, None)
        self._check_idle()
        left_s = (until_ns - self.clock.now_ns()) / 1e9
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                await self._unless_broken(self._idle.wait())
        except TimeoutError:
            pass
        finally:
            for seat in self.seats.values():
                self._retire_generator(seat)

    async def drain(self, timeout_s: float) -> list[str]:
        """Wait until no operation of a main lane is open; return the workers that are late."""
        deadline_ns = self.clock.now_ns() + int(timeout_s * 1e9)
        while late := [name for name, seat in self.seats.items() if seat.main.open is not None]:
            if self.clock.now_ns() >= deadline_ns:
                return late
            await asyncio.sleep(0.005)
        return []

    def perform(self, name: str, step: Invoke) -> "tuple[int, asyncio.Future[Op]] | None":
        """Send one operation that no generator asked for; return its place, and its end to come.

        None when the worker is not there, or has an operation open.
        """
        seat = self.seats[name]
        if not seat.ready or seat.main.open is not None:
            return None
        self._send(seat, step, None)
        seat.main.awaited = self._loop.create_future()
        return seat.main.op_id, seat.main.awaited

    def dismiss(self) -> None:
        """Let all workers go: what they say from now on is not recorded."""
        for seat in self.seats.values():
            seat.worker.dismiss()

    async def _unless_broken(self, wish: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(wish)
        try:
            waited: set[asyncio.Future[Any]] = {task, self.broken}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self.broken.done():
                self.broken.result()
        finally:
            task.cancel()

    # -------------------------------------------------------------------- lanes

    def _advance(self, seat: Seat, last: Op | None) -> None:
        """Ask the generator what is next, and do it."""
        now_ns = self.clock.now_ns()
        if seat.generator is None or seat.main.open is not None or not seat.ready:
            return
        if now_ns >= self._until_ns:
            self._retire_generator(seat)
            return
        step, seat.generator = seat.generator.step(last, now_ns)
        match step:
            case Invoke():
                self._invoke(seat, step)
            case Wait():
                delay_s = max(0.0, (step.until_ns - now_ns) / 1e9)
                seat.timer = self._loop.call_later(delay_s, self._guard, self._advance, seat, None)
            case Finished():
                self._retire_generator(seat)

    def _retire_generator(self, seat: Seat) -> None:
        seat.generator = None
        seat.cancel_timer()
        self._check_idle()

    def _check_idle(self) -> None:
        if all(seat.generator is None for seat in self.seats.values()):
            self._idle.set()

    def _invoke(self, seat: Seat, step: Invoke) -> None:
        self._send(seat, step, self.traps.spring(seat.worker.name, step.f))

    def _send(self, seat: Seat, step: Invoke, trap: Trap | None) -> None:
        name = seat.worker.name
        op_id = self._open(seat.main, name, step.f, step.key, step.value, step.token)
        seat.worker.send(
            SendOp(
                id=op_id,
                f=step.f,
                key=step.key,
                value=step.value,
                token=step.token,
                stop_at=_stop_at(seat, trap, op_id),
            )
        )

    def _open(
        self, lane: Lane, worker: str, f: str, key: str | None, value: object, token: int | None
    ) -> int:
        lane.open = Op(
            process=lane.process,
            type="invoke",
            f=f,
            key=key,
            value=value,
            token=token,
            time_ns=self.clock.now_ns(),
            worker=worker,
        )
        lane.op_id = self._history.append(lane.open)
        self._look(lane.open, lane.op_id)
        return lane.op_id

    def _close(self, lane: Lane, done: Done) -> Op:
        opened = lane.open
        assert opened is not None
        op = Op(
            process=opened.process,
            type=done.result,
            f=opened.f,
            key=opened.key,
            value=done.value,
            token=done.token,
            time_ns=self.clock.now_ns(),
            error=done.error,
            worker=opened.worker,
        )
        self._look(op, self._history.append(op))
        lane.open = None
        if done.result == "info":
            lane.process += self._stride
        setattr(self.counts, done.result, getattr(self.counts, done.result) + 1)
        self.traps.over(lane.op_id, done.result)
        if lane.awaited is not None:
            lane.awaited.set_result(op)  # whoever gave up waiting did not cancel it
            lane.awaited = None
        self.when_done(opened, op)
        return op

    def _look(self, op: Op, index: int) -> None:
        """Let the monitors see an op; the first thing that they see to be wrong is told."""
        sighting = self._monitor.step(op, index)
        if sighting is not None and self.sighting is None:
            self.sighting = sighting
            self.when_sighted(sighting)

    # ----------------------------------------------------------------- messages

    def heard(self, worker: Worker, message: FromWorker) -> None:
        """Take a message of a worker."""
        self._guard(self._heard, self.seats[worker.name], message)

    def _heard(self, seat: Seat, message: FromWorker) -> None:
        match message:
            case Done():
                self._done(seat, message)
            case Ask():
                self._asked(seat, message)
            case Phase():
                self._phase(seat, message)
            case Belief():
                self._belief(seat, message)
            case Ready():
                self._ready(seat, message)
            case ClockRead():
                seat.clock_read(message)
            case Failed():
                self._fail(seat, f"it failed: {message.error}")

    def _ready(self, seat: Seat, message: Ready) -> None:
        seat.ready = seat.hired = True
        seat.worker.abilities = frozenset(message.abilities)
        if all(s.ready for s in self.seats.values()):
            self._all_ready.set()
        self._advance(seat, seat.last)  # where its generator waited for it

    def _done(self, seat: Seat, message: Done) -> None:
        if seat.main.open is not None and seat.main.op_id == message.id:
            self._advance(seat, self._close(seat.main, message))
        elif seat.renewal.open is not None and seat.renewal.op_id == message.id:
            self._close(seat.renewal, message)
        else:
            self._problem(seat, f"it answered op #{message.id}, which is not open")

    def _asked(self, seat: Seat, message: Ask) -> None:
        name = seat.worker.name
        if message.f not in _ASKABLE or seat.renewal.open is not None:
            self._problem(seat, f"it asked for {message.f} out of turn")
            return
        trap = self.traps.spring(name, message.f)
        op_id = self._open(seat.renewal, name, message.f, message.key, None, message.token)
        seat.worker.send(Go(id=op_id, ask=message.ask, stop_at=_stop_at(seat, trap, op_id)))

    def _phase(self, seat: Seat, message: Phase) -> None:
        now_ns = self.clock.now_ns()
        self._note(
            Note(
                time_ns=now_ns,
                worker=seat.worker.name,
                kind="phase",
                phase=message.phase,
                key=message.key,
                token=message.token,
                op=message.id,
                stopped=message.stopping,
                resumed=message.resumed,
            )
        )
        self.traps.passed(seat.worker.name, message, now_ns)

    def _belief(self, seat: Seat, message: Belief) -> None:
        if message.holds:
            seat.believes[message.key] = message.token
        else:
            seat.believes.pop(message.key, None)
        self._note(
            Note(
                time_ns=self.clock.now_ns(),
                worker=seat.worker.name,
                kind="belief",
                key=message.key,
                token=message.token,
                holds=message.holds,
                left_s=message.left_s,
                why=message.why,
            )
        )

    # ------------------------------------------------------------------ trouble

    def ended(self, worker: Worker, why: str) -> None:
        """Take the end of a worker: what it had open stays unknown."""
        self._guard(self._ended, self.seats[worker.name], why)

    def _ended(self, seat: Seat, why: str) -> None:
        last = self._vacate(seat, why)
        if seat.ordered:
            seat.park(last)
            return
        self._retire_generator(seat)
        self._fail(seat, why)

    def _vacate(self, seat: Seat, why: str) -> Op | None:
        """Take leave of a process: its successor gets new numbers, and holds nothing."""
        last = None
        for lane in seat.lanes:
            if lane.open is None:
                lane.process += self._stride
                continue
            done = Done(id=lane.op_id, result="info", error=f"the worker: {why}")
            op = self._close(lane, done)
            last = op if lane is seat.main else last
        for key, token in list(seat.believes.items()):
            self._belief(seat, Belief(key=key, token=token, holds=False, why=f"the worker: {why}"))
        seat.ready = False
        self._monitor.gone(seat.worker.name)
        self.traps.asleep.pop(seat.worker.name, None)
        return last

    def _problem(self, seat: Seat, why: str) -> None:
        self._note(
            Note(
                time_ns=self.clock.now_ns(),
                worker=seat.worker.name,
                kind="problem",
                why=_told(seat, why),
            )
        )

    def _fail(self, seat: Seat, why: str) -> None:
        """A worker that never got ready ends the run; a later failure is a problem of the run."""
        if seat.hired:
            self._problem(seat, why)
        else:
            self._break(HarnessError(_told(seat, why)))

    def _break(self, error: Exception) -> None:
        if not self.broken.done():
            self.broken.set_exception(error)

    def _guard(self, function: Callable[..., None], *arguments: object) -> None:
        """Run a step; what it raises ends the run instead of vanishing in the event loop."""
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the run
            self._break(error)

    # -------------------------------------------------------------------- roles

    def workers_that(self, role: Literal["holder", "waiter"]) -> list[str]:
        """Return the workers that now believe that they hold a lock, or that compete and do not."""
        held = {name for name, seat in self.seats.items() if seat.believes}
        if role == "holder":
            return [name for name in self.seats if name in held]
        competing = {n for n, s in self.seats.items() if s.main.open and s.main.open.f == "acquire"}
        waiting = [
            name
            for name, seat in self.seats.items()
            if seat.ready and name not in held and (name in competing or seat.generator is not None)
        ]
        return sorted(waiting, key=lambda name: name not in competing)


def _stop_at(seat: Seat, trap: Trap | None, op_id: int) -> str | None:
    """Note the operation that a trap goes out with; return the order, if the worker knows it."""
    if trap is None:
        return None
    trap.op = op_id
    return trap.phase if "stop_at" in seat.worker.abilities else None


def _told(seat: Seat, why: str) -> str:
    said = seat.last_words()
    return f"worker {seat.worker.name}: {why}" + (f"; its last words:\n{said}" if said else "")

"""A lock service, a register and sleepy workers, simulated: runs with a truth that is known.

One event loop over a heap of times drives the workload's own generators.  Messages are delayed,
some are lost or arrive seconds later, and workers are frozen at random times and just after their
lease check.  Beside that workers are killed and started again or cut off from the lock, and the
lock server is paused, or killed and started again, after which every lease that was not given back
has its full TTL once more.  The lock is a correct lease lock with growing tokens, and frees at once
what a killed worker held where it goes by sessions.  The register takes every write (`none`),
refuses lower tokens (`checked`), or asks the lock (`guarded`).  With `checked` and `guarded`
nothing is wrong, whatever happens, unless the lock has a bug.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from harness.evidence import Evidence
from harness.generator import Done, Generator, Invoke, Wait
from harness.history import History
from harness.note import Note
from harness.op import Op, OpType
from harness.spec import RunSpec, TargetSpec
from harness.target import Accept
from harness.window import Proof, Window
from workloads.fencing import Fencing

S = 1_000_000_000
# What a lock may do wrong: keep what was released until the lease ends, never end a lease, give
# back `ok` for renewals that change nothing, or end a lease when its holder is cut off.
Bug = Literal["", "keeps", "endless", "idle renewals", "no session"]
TIMEOUT_NS = S


@dataclass
class Lock:
    """A correct lease lock for one key."""

    token: int = 0
    until_ns: int = -1
    released: bool = True

    def holds(self, token: int | None, now_ns: int) -> bool:
        """Whether that grant is in force."""
        return token == self.token and now_ns < self.until_ns


@dataclass
class Register:
    """One key of the resource."""

    value: Any = None
    token: int | None = None
    highest: int = 0


@dataclass
class Seat:
    """A worker: its generator, its lanes' process numbers, its lease, and when it wakes up."""

    name: str
    main: int
    renewal: int
    generator: Generator | None = None
    busy: Invoke | None = None
    renewing: Invoke | None = None
    frozen_ns: int = 0
    cut_ns: int = 0
    life: int = 0
    dead: bool = False
    grant: tuple[str, int] | None = None
    deadline_ns: int = 0


@dataclass
class World:
    """The simulation; all times in nanoseconds."""

    spec: RunSpec
    fence: str
    tokens: bool
    trouble: float
    sessions: bool = False
    bug: Bug = ""
    rnd: random.Random = field(init=False)
    now_ns: int = 0
    heap: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    order: int = 0
    ops: list[Op] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    log: list[Accept] = field(default_factory=list)
    locks: dict[str, Lock] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    seats: list[Seat] = field(default_factory=list)
    handles: dict[tuple[str, str], int] = field(default_factory=dict)
    lock_away_ns: int = 0
    lock_down: bool = False

    def __post_init__(self) -> None:
        self.rnd = random.Random(self.spec.seed)  # noqa: S311 - a simulation
        names = self.spec.worker_names()
        self.seats = [Seat(name, i, len(names) + i) for i, name in enumerate(names)]

    # -------------------------------------------------------------------- time

    def at(self, time_ns: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        self.order += 1
        heapq.heappush(self.heap, (round(max(time_ns, self.now_ns)), self.order, action))

    def awake(self, seat: Seat, time_ns: float, action: Callable[[], None]) -> None:
        """Do something in a worker at a time, or as soon as it is awake, unless it was killed."""
        life = seat.life

        def attempt() -> None:
            if seat.life != life:
                return
            if self.now_ns < seat.frozen_ns:
                self.at(seat.frozen_ns, attempt)
            else:
                action()

        self.at(time_ns, attempt)

    def run_until(self, end_ns: int) -> None:
        """Let time pass."""
        while self.heap and self.heap[0][0] <= end_ns:
            self.now_ns, _, action = heapq.heappop(self.heap)
            action()
        self.now_ns = end_ns

    def delay(self) -> float:
        """A message's time under way."""
        return self.rnd.expovariate(1 / 800_000)

    def freeze(self, seat: Seat) -> None:
        """Stop a worker for half a lease to three."""
        if self.now_ns < seat.frozen_ns:
            return
        seat.frozen_ns = self.now_ns + self.some_leases()
        self.window("pause", seat.name, seat.frozen_ns)

    def some_leases(self) -> int:
        """Half a lease to three."""
        return round(self.rnd.uniform(0.5, 3.0) * self.spec.ttl_s * S)

    def window(self, kind: str, node: str, until_ns: int, cut: Sequence[str] = ()) -> None:
        """Record a fault that begins now."""
        self.windows.append(
            Window(
                spec=0,
                kind=kind,
                who="holder",
                nodes=(node,),
                at="lease-checked",
                requested_ns=self.now_ns,
                on_ns=self.now_ns,
                heal_ns=until_ns,
                off_ns=until_ns,
                grade="installed",
                on=Proof(holds=True, text="", facts={"cut": list(cut)} if cut else {}),
            )
        )

    # --------------------------------------------------------------- controller

    def begin(self, generators: Sequence[Generator]) -> None:
        """Give every worker its generator."""
        for seat, generator in zip(self.seats, generators, strict=True):
            seat.generator = generator
            if seat.busy is None:
                self.advance(seat, None)

    def advance(self, seat: Seat, last: Op | None, only: Generator | None = None) -> None:
        """Ask a worker's generator what is next, if it is still the one that asked to wait."""
        if seat.generator is None or seat.busy is not None or seat.dead:
            return
        if only is not None and seat.generator is not only:
            return
        step, seat.generator = seat.generator.step(last, self.now_ns)
        mine = seat.generator
        if isinstance(step, Wait):
            self.at(step.until_ns, lambda: self.advance(seat, None, only=mine))
        elif isinstance(step, Done):
            seat.generator = None
        else:
            seat.busy = step
            self.record(seat, "main", "invoke", step)
            self.send(seat, "main", step)

    def record(
        self,
        seat: Seat,
        lane: str,
        kind: OpType,
        step: Invoke,
        value: Any = None,
        token: int | None = None,
        error: str | None = None,
    ) -> Op:
        """Append to the history."""
        process = seat.main if lane == "main" else seat.renewal
        if kind == "invoke":
            value, token = step.value, step.token
        op = Op(
            process=process,
            type=kind,
            f=step.f,
            key=step.key,
            value=value,
            token=token if self.tokens or step.f == "read" else None,
            time_ns=self.now_ns,
            error=error,
            worker=seat.name,
        )
        self.ops.append(op)
        if kind == "info":
            stride = 2 * len(self.seats)
            seat.main += stride if lane == "main" else 0
            seat.renewal += 0 if lane == "main" else stride
        return op

    # ------------------------------------------------------------------- worker

    def send(self, seat: Seat, lane: str, step: Invoke) -> None:
        """Carry an operation to the server and the answer back, or lose one of the two."""
        state = {"open": True, "answered": False}
        life = seat.life
        to_lock = step.f not in ("read", "write")

        def complete(kind: OpType, value: Any, token: int | None, error: str | None) -> None:
            if not state["open"] or seat.life != life:
                return
            state["open"] = False
            self.learn(seat, step, kind, value, token)
            op = self.record(seat, lane, kind, step, value, token, error)
            if lane == "main":
                seat.busy = None
                self.advance(seat, op)
            else:
                seat.renewing = None

        def execute() -> None:
            if to_lock and self.now_ns < self.lock_away_ns:
                if not self.lock_down:
                    self.at(self.lock_away_ns, execute)  # it sits in the server's socket
                return
            kind, value, token, error = self.serve(step)
            if luck < self.trouble or (to_lock and self.now_ns < seat.cut_ns):
                return  # the answer is lost
            self.awake(seat, self.now_ns + self.delay(), lambda: think(kind, value, token, error))

        def think(kind: OpType, value: Any, token: int | None, error: str | None) -> None:
            state["answered"] = True
            if step.f == "check" and seat.life == life and value != {"held": False}:
                if self.rnd.random() < 0.1:
                    self.freeze(seat)
                self.awake(seat, self.now_ns + 20e6, lambda: complete(kind, value, token, error))
            else:
                complete(kind, value, token, error)

        def give_up() -> None:
            if not state["answered"]:
                complete("info", None, None, "?")

        luck = self.rnd.random()
        late = 0.0
        if luck < self.trouble:
            late = self.rnd.choice([0.0, self.rnd.uniform(0, 5 * S), float("inf")])
        if step.f == "release" and (seat.grant is None or seat.grant[0] != step.key):
            error = "no-effect: it knows that it lost it"
            self.awake(seat, self.now_ns, lambda: complete("fail", None, None, error))
            return
        if step.f not in ("acquire", "read") and step.token is None:
            assert step.key is not None  # a lock without tokens: the client keeps a handle
            step = replace(step, token=self.handles[seat.name, step.key])

        def leave() -> None:
            if late != float("inf") and not (to_lock and self.now_ns < seat.cut_ns):
                self.at(self.now_ns + self.delay() + late, execute)
            self.awake(seat, self.now_ns + TIMEOUT_NS, give_up)

        self.awake(seat, self.now_ns + self.delay() / 4, leave)

    def learn(self, seat: Seat, step: Invoke, kind: OpType, value: Any, token: int | None) -> None:
        """Keep the worker's belief about its lease up to date."""
        ttl_ns = round(self.spec.ttl_s * S)
        if step.f == "acquire" and kind == "ok" and step.key and token is not None:
            seat.grant, seat.deadline_ns = (step.key, token), self.now_ns + ttl_ns
            self.handles[seat.name, step.key] = token
            self.believe(seat, holds=True)
            self.awake(seat, self.now_ns + ttl_ns / 3, lambda: self.renew(seat, token))
        elif step.f == "renew" and kind == "ok" and seat.grant and step.token == seat.grant[1]:
            seat.deadline_ns = self.now_ns + ttl_ns
            self.believe(seat, holds=True)
        elif seat.grant and step.token == seat.grant[1]:
            refused = kind == "fail" or (step.f == "check" and value == {"held": False})
            if step.f == "release" or refused:
                self.lose(seat)

    def renew(self, seat: Seat, token: int) -> None:
        """Renew now and again until the lease is lost or over."""
        if seat.grant is None or seat.grant[1] != token:
            return
        if self.now_ns >= seat.deadline_ns:
            self.lose(seat)
            return
        step = Invoke("renew", seat.grant[0], None, token)
        if seat.renewing is None:
            seat.renewing = step
            self.record(seat, "renewal", "invoke", step)
            self.send(seat, "renewal", step)
        pause = min(self.spec.ttl_s * S / 3, seat.deadline_ns - self.now_ns)
        self.awake(seat, self.now_ns + pause, lambda: self.renew(seat, token))

    def lose(self, seat: Seat) -> None:
        """Note that the lease is over."""
        self.believe(seat, holds=False)
        seat.grant = None

    def believe(self, seat: Seat, *, holds: bool) -> None:
        """Report a belief."""
        assert seat.grant is not None
        key, token = seat.grant
        tells = holds and self.spec.seed % 2 == 0  # some clients know no end of their lease
        left_s = (seat.deadline_ns - self.now_ns) / S if tells else None
        self.notes.append(
            Note(
                time_ns=self.now_ns,
                worker=seat.name,
                kind="belief",
                key=key,
                token=token if self.tokens else None,
                holds=holds,
                left_s=left_s,
            )
        )

    # ------------------------------------------------------------------ servers

    def serve(self, step: Invoke) -> tuple[OpType, Any, int | None, str | None]:
        """Do what is asked, atomically, now."""
        assert step.key is not None
        lock = self.locks.setdefault(step.key, Lock())
        ttl_ns = round(self.spec.ttl_s * S)
        token = step.token
        if step.f == "acquire":
            if self.now_ns < lock.until_ns:
                return "fail", None, None, "held"
            lock.token, lock.until_ns = lock.token + 1, self.now_ns + ttl_ns
            if self.bug == "endless":
                lock.until_ns += 3600 * S
            lock.released = False
            return "ok", {"ttl_s": self.spec.ttl_s}, lock.token, None
        if step.f == "read":
            register = self.registers.setdefault(step.key, Register())
            return "ok", register.value, register.token if self.tokens else None, None
        if step.f == "write":
            return self.write(step, token, lock)
        holds = lock.holds(token, self.now_ns)
        if step.f == "check":
            return "ok", {"held": holds}, None, None
        if not holds:
            return "fail", None, None, "not-holder"
        if step.f == "renew" and self.bug != "idle renewals":
            lock.until_ns = max(lock.until_ns, self.now_ns + ttl_ns)
        elif step.f == "release" and self.bug != "keeps":
            lock.until_ns = self.now_ns
        lock.released = step.f == "release"
        return "ok", None, None, None

    def write(
        self, step: Invoke, token: int | None, lock: Lock
    ) -> tuple[OpType, Any, int | None, str | None]:
        """Write to the register, if its fence lets it."""
        assert step.key is not None
        assert token is not None
        register = self.registers.setdefault(step.key, Register())
        allowed = {
            "none": True,
            "checked": token >= register.highest,
            "guarded": lock.holds(token, self.now_ns),
        }[self.fence]
        highest = max(register.highest, token if allowed else 0)
        shown = token if self.tokens else None
        self.log.append(Accept(step.key, step.value, shown, allowed, highest))
        if not allowed:
            return "fail", None, None, "fenced" if self.fence == "checked" else "not-holder"
        over = {"over": {"value": register.value, "token": register.token}}
        told = over if register.value is not None and step.value.endswith(("3", "7")) else None
        register.value, register.token, register.highest = step.value, shown, highest
        return "ok", told, None, None


def simulate(
    seed: int,
    *,
    fence: str = "checked",
    tokens: bool = True,
    sessions: bool = False,
    bug: Bug = "",
    faults: Sequence[Callable[[World], None]] = (),
    trouble: float = 0.02,
    time_s: float = 20.0,
    ttl_s: float = 2.0,
    **options: Any,
) -> Evidence:
    """Return the evidence of a simulated run; `trouble` is the share of messages that are lost.

    Beside pauses of workers up to four of the `faults` begin at random times.
    """
    spec = RunSpec(TargetSpec("lock"), TargetSpec("store"), seed=seed, ttl_s=ttl_s, time_s=time_s)
    workload = Fencing(**options)
    world = World(spec, fence, tokens, trouble, sessions, bug)
    world.begin(workload.generators(spec))
    for _ in range(world.rnd.randrange(4)):
        at_ns = world.rnd.uniform(0.1, 0.8) * time_s * S
        world.at(at_ns, partial(world.freeze, world.rnd.choice(world.seats)))
    for _ in range(world.rnd.randrange(1, 5) if faults else 0):
        at_ns = world.rnd.uniform(0.1, 0.8) * time_s * S
        world.at(at_ns, partial(world.rnd.choice(faults), world))
    world.run_until(round(time_s * S))
    for seat in world.seats:
        seat.generator = None
    world.run_until(round((time_s + 4 * ttl_s) * S))
    final_ns = world.now_ns
    world.begin(workload.final(spec))
    world.run_until(final_ns + round((spec.progress_s + 5) * S))
    return Evidence(
        history=History(world.ops),
        spec=spec,
        notes=world.notes,
        windows=world.windows,
        store_log=world.log,
        fence=fence,
        final_ns=final_ns,
        end_ns=world.now_ns,
        servers={"lock": ["lock1"], "store": ["store1"]},
    )

"""The nemesis: carries out the schedule of faults, with proof, and undoes each of them.

Every fault runs as a task of its own with a random stream of its own, so that adding one does not
move another.  For each window: resolve who it is, write the undo ledger, make it true, look with an
independent probe, wait, look again, undo, look again, write the record.  The record is written also
when the fault had no effect, and when it was never triggered.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.clock import Clock
from harness.controller import Controller
from harness.errors import HarnessError, HostLostError
from harness.fault import Fault
from harness.force import Force
from harness.ledger import Ledger
from harness.node import Node
from harness.rng import stream, uniform
from harness.roles import Roles
from harness.site import Site
from harness.spec import FaultSpec, RunSpec
from harness.trap import Reached, Trap, Traps
from harness.window import Grade, Proof, Window

_POLL_S = 0.02
_AGAIN_S = 0.02
_WARM_UP_LEASES = 0.25


@dataclass
class Begun:
    """A window that was begun: its nodes, ledger entries, and what is known so far."""

    nodes: list[Node]
    at: str
    requested_ns: int
    entry: int
    op: int | None = None
    claim: str | None = None
    on_ns: int | None = None
    on: Proof | None = None


class Nemesis:
    """Runs the faults of one run.  `record` receives each window when it is over."""

    def __init__(
        self,
        spec: RunSpec,
        faults: Sequence[Fault],
        controller: Controller,
        roles: Roles,
        site: Site,
        ledger: Ledger,
        clock: Clock,
        record: Callable[[Window], None],
    ) -> None:
        self._spec = spec
        self._faults = faults
        self._controller = controller
        self._traps: Traps = controller.traps
        self._traps.orphan = self._orphan
        self._roles = roles
        self._ledger = ledger
        self._clock = clock
        self._record = record
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._trap_entries: dict[tuple[int, str], int] = {}
        self._site = site
        self.force = Force(controller.traps, site)
        self.leftovers: list[str] = []
        self._began_ns = 0

    def begin(self) -> None:
        """Start all faults; times count from now."""
        self._began_ns = self._clock.now_ns()
        for i, fault_spec in enumerate(self._spec.faults):
            self._tasks.append(asyncio.create_task(self._carry_out(i, fault_spec)))

    async def end(self) -> None:
        """Undo everything, and wait until it is undone.  Raises what a fault raised, once."""
        self._ending.set()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        if errors:
            raise HarnessError(f"a fault failed: {errors[0]}") from errors[0]

    # ----------------------------------------------------------------- schedule

    async def _carry_out(self, index: int, spec: FaultSpec) -> None:
        begun = 0
        if spec.random_count is not None:
            for at_s in self._random_times(index, spec):
                begun += await self._at_time(index, spec, at_s)
        else:
            while not self._ending.is_set() and begun < (spec.count or 1_000_000):
                fired = await self._once(index, spec, first=begun == 0)
                begun += fired
                if not fired or not self._comes_again(spec) or await self._rest(spec):
                    break
        if begun == 0:
            self._never(index, spec)

    def _comes_again(self, spec: FaultSpec) -> bool:
        return spec.every is not None or spec.phase is not None

    async def _rest(self, spec: FaultSpec) -> bool:
        """Wait between two windows (one lease if nothing is said); return whether all ends."""
        pause_s = spec.every.seconds(self._spec.ttl_s) if spec.every else self._spec.ttl_s
        return await self._ends_within(pause_s)

    def _random_times(self, index: int, spec: FaultSpec) -> list[float]:
        """Return the random times of a fault: a pure function of seed and index."""
        start = stream(self._spec.seed, f"fault-{index}")
        last_s = self._spec.time_s - spec.length.seconds(self._spec.ttl_s)
        count = spec.random_count or 0
        return sorted(uniform(start, n, 0.0, max(0.0, last_s)) for n in range(count))

    async def _once(self, index: int, spec: FaultSpec, *, first: bool) -> int:
        if spec.phase is not None:
            return await self._at_phase(index, spec)
        at_s = spec.at.seconds(self._spec.ttl_s) if spec.at and first else self._elapsed_s()
        return await self._at_time(index, spec, at_s)

    async def _at_time(self, index: int, spec: FaultSpec, at_s: float) -> int:
        """Begin at a time of the main phase; return 1 if the fault came to a window."""
        if await self._ends_within(at_s - self._elapsed_s()):
            return 0
        nodes = await self._await_nodes(spec)
        if not nodes or not self._fits(spec):
            return 0
        await self._window(index, spec, self._begin_window(index, nodes, f"{at_s:.2f} s"))
        return 1

    async def _await_nodes(self, spec: FaultSpec) -> list[Node]:
        """Wait until the role is played by somebody (there may be no holder just now)."""
        while not (nodes := await self._roles.nodes(spec.who)):
            if await self._ends_within(_POLL_S):
                return []
        return nodes

    async def _at_phase(self, index: int, spec: FaultSpec) -> int:
        ttl_s = self._spec.ttl_s
        after_s = spec.after.seconds(ttl_s) if spec.after else _WARM_UP_LEASES * ttl_s
        if await self._ends_within(after_s - self._elapsed_s()) or not self._fits(spec):
            return 0
        loop = asyncio.get_running_loop()
        assert spec.phase is not None
        trap = Trap(
            phase=spec.phase,
            fits=lambda worker: self._roles.fits(spec.who, worker),
            before=lambda worker: self._before(index, worker),
            after=lambda worker: self._after(index, worker),
            reached=loop.create_future(),
        )
        self._traps.lay(trap)
        last_s = self._spec.time_s - self._length_s(spec) - self._elapsed_s()
        ending = asyncio.create_task(self._ending.wait())
        waited: set[asyncio.Future[Any]] = {trap.reached, ending}
        await asyncio.wait(waited, timeout=max(0, last_s), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not trap.reached.done():
            self._traps.lift(trap)
            return 0
        await self._phase_window(index, spec, trap.reached.result())
        return 1

    async def _phase_window(self, index: int, spec: FaultSpec, reached: Reached) -> None:
        node = self._roles.node(reached.worker)
        entry = self._trap_entries.pop((index, reached.worker))
        begun = Begun(
            [node],
            spec.phase or "",
            reached.time_ns,
            entry,
            op=reached.op,
            claim=reached.worker if reached.stopped else None,
        )
        await self._window(index, spec, begun)

    # ------------------------------------------------------------------ windows

    def _begin_window(self, index: int, nodes: list[Node], at: str) -> Begun:
        entry = self._enter(index, nodes)
        return Begun(nodes, at, self._clock.now_ns(), entry)

    def _enter(self, index: int, nodes: Sequence[Node]) -> int:
        """Write the undo ledger, before anything is done."""
        names = ",".join(node.name for node in nodes)
        undo = self._faults[index].undo(self._site, nodes)
        return self._ledger.add(self._spec.faults[index].kind, names, undo)

    async def _window(self, index: int, spec: FaultSpec, begun: Begun) -> None:
        fault = self._faults[index]
        still: Proof | None = None
        try:
            begun.on = await self.force.start(fault, begun.nodes, begun.claim)
            begun.on_ns = self._seen_ns(begun.on)
            await self._last(fault, spec, begun)
            still = await self.force.look(fault, begun.nodes)
        except HostLostError as error:
            still = Proof(holds=None, text=str(error).partition("\n")[0])
        finally:
            heal_ns = self._clock.now_ns()
            off = await self._undo(fault, spec, begun)
            self._record(self._closed(index, spec, begun, still, heal_ns, off))

    async def _last(self, fault: Fault, spec: FaultSpec, begun: Begun) -> None:
        """Wait for the length of a window; what could not be told yet is looked at again.

        Some faults show only when something comes by, like a message that is to be lost.
        """
        until_s = self._elapsed_s() + self._length_s(spec)
        while begun.on is not None and begun.on.holds is None:
            left_s = until_s - self._elapsed_s()
            if left_s <= 0 or await self._ends_within(min(_AGAIN_S, left_s)):
                return
            begun.on = await self.force.look(fault, begun.nodes)
            begun.on_ns = self._seen_ns(begun.on)
        await self._ends_within(until_s - self._elapsed_s())

    async def _undo(self, fault: Fault, spec: FaultSpec, begun: Begun) -> Proof:
        proof = await self.force.undo(fault, begun.nodes)
        if proof.holds:
            self._ledger.done(begun.entry)
        else:
            names = ", ".join(node.name for node in begun.nodes)
            self.leftovers.append(f"{spec.kind} on {names}: {proof.text}")
        return proof

    def _closed(
        self,
        index: int,
        spec: FaultSpec,
        begun: Begun,
        still: Proof | None,
        heal_ns: int,
        off: Proof,
    ) -> Window:
        proofs = [begun.on, still]
        grade: Grade = "indeterminate"
        text = ""
        if any(proof is not None and proof.holds is False for proof in proofs):
            grade = "not-effective"
            text = "; ".join(p.text for p in proofs if p is not None and p.holds is False)
        elif all(proof is not None and proof.holds for proof in proofs):
            grade = "installed"
        else:
            text = "; ".join(p.text for p in proofs if p is not None and p.holds is None)
        return Window(
            spec=index,
            kind=spec.kind,
            who=spec.who,
            nodes=tuple(node.name for node in begun.nodes),
            at=begun.at,
            op=begun.op,
            requested_ns=begun.requested_ns,
            on_ns=begun.on_ns,
            heal_ns=heal_ns,
            off_ns=self._seen_ns(off),
            grade=grade,
            on=begun.on,
            off=off,
            text=text,
        )

    def _seen_ns(self, proof: Proof) -> int | None:
        """Return when a probe saw what it was to see, None when it did not."""
        return self._clock.now_ns() - round(proof.age_s * 1e9) if proof.holds else None

    def _never(self, index: int, spec: FaultSpec) -> None:
        text = f"never triggered: no {spec.who} came to {spec.trigger} in time"
        why = self._roles.why_nobody(spec.who)
        self._record(
            Window(
                spec=index,
                kind=spec.kind,
                who=spec.who,
                nodes=(),
                at=spec.trigger,
                requested_ns=self._began_ns,
                grade="not-effective",
                text=f"{text}: {why}" if why else text,
            )
        )

    # -------------------------------------------------------------------- traps

    def _before(self, index: int, worker: str) -> None:
        node = self._roles.node(worker)
        self._trap_entries[(index, worker)] = self._enter(index, [node])

    def _after(self, index: int, worker: str) -> None:
        entry = self._trap_entries.pop((index, worker), None)
        if entry is not None:
            self._ledger.done(entry)

    def _orphan(self, worker: str) -> None:
        """A worker stopped itself for a trap that was lifted: let it go on at once."""
        self._tasks.append(asyncio.create_task(self.force.wake([self._roles.node(worker)])))
        for key in [key for key in self._trap_entries if key[1] == worker]:
            self._ledger.done(self._trap_entries.pop(key))

    # --------------------------------------------------------------------- time

    def _elapsed_s(self) -> float:
        return (self._clock.now_ns() - self._began_ns) / 1e9

    def _length_s(self, spec: FaultSpec) -> float:
        return spec.length.seconds(self._spec.ttl_s)

    def _fits(self, spec: FaultSpec) -> bool:
        """Whether a whole window still fits into the main phase."""
        return self._elapsed_s() + self._length_s(spec) <= self._spec.time_s

    async def _ends_within(self, seconds: float) -> bool:
        """Wait; return whether the run's main phase ended meanwhile."""
        if self._ending.is_set() or seconds <= 0:
            return self._ending.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return False
        return True

"""Keeping the processes of one place lied to: those there now, and those that come.

A child that is forked inherits the lie.  A process that calls exec, or is started anew, has a
fresh and true vDSO: as long as a lie is told here, the processes are looked at every 20 ms and
whoever has the truth is lied to as well, with the same parameters, so that all clocks of the place
agree.  All of it happens on the event loop: nothing is written while a child of ours is between
fork and exec.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.clocks import Applied, Lie, Moment, Readings, Skew
from harness.process import ProcessId
from harness.vdso import trial
from harness.vdso.halt import Reins, Step, change
from harness.vdso.image import UnreachableError, blocks, own
from harness.vdso.memory import (
    GoneError,
    Memory,
    same_time_namespace,
    shares_memory,
    vdso_address,
)

_LOOK_S = 0.02


@dataclass
class Told:
    """One owner's lie: since when, and to whom it was told."""

    skew: Skew
    since: Moment
    applied: list[Applied] = field(default_factory=list)


class VdsoClocks:
    """Lies to the processes that `processes` names, now and later: `harness.site.Clocks`."""

    def __init__(self, processes: Callable[[], list[ProcessId]], reins: Reins) -> None:
        self._processes = processes
        self._reins = reins
        self._told: dict[str, Told] = {}
        self._known: dict[ProcessId, tuple[int, bytes]] = {}
        self._trouble: dict[ProcessId, str] = {}
        self._sweeping = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    def unavailable(self) -> str | None:
        """Return why no clock can be set on this machine, None when it can."""
        try:
            own()
        except UnreachableError as error:
            return str(error)
        return None

    def up_s(self) -> float:
        """Return what this machine's monotonic clock shows."""
        return time.monotonic()

    async def now(self) -> Moment:
        """Return this moment."""
        return Moment.now()

    async def skew(self, owner: str, skew: Skew, since: "Moment | None" = None) -> Moment:
        """Lie to every process, and return the moment from which the lie counts.

        That is now, unless the same was told before, to processes that are no more.
        """
        self._told.pop(owner, None)  # told anew, it comes over all others
        told = self._told[owner] = Told(skew, since or Moment.now())
        await self._sweep()
        if self._watch is None:
            self._watch = asyncio.create_task(self._keep())
        return told.since

    async def true_clocks(self, owner: str) -> None:
        """Take an owner's lie back; with the last one every process has its true vDSO again."""
        self._told.pop(owner, None)
        if not self._told and self._watch is not None:
            self._watch.cancel()
            self._watch = None
        await self._sweep()

    def owners(self) -> Sequence[str]:
        """Return who lies here now; for each clock the last one that says something counts."""
        return list(self._told)

    def applied(self, owner: str) -> Sequence[Applied]:
        """Return the processes that this owner's lie was told to, as it happened."""
        told = self._told.get(owner)
        return () if told is None else tuple(told.applied)

    async def read_clocks(self) -> Mapping[int, Readings]:
        """Read the clocks of every process, by running its own code; see `harness.vdso.trial`."""
        found: dict[int, Readings] = {}
        vdso = own()
        for process in self._processes():
            try:
                if shares_memory(process.pid, vdso.machine.kcmp):
                    continue  # until it calls exec, its clocks are its parent's
                with Memory(process, vdso) as memory:
                    seen = trial.read(vdso, memory.image())
                found[process.pid] = replace(seen, trouble=self._trouble.get(process, ""))
            except GoneError:
                continue
            except UnreachableError as error:
                found[process.pid] = Readings(trouble=self._trouble.get(process) or str(error))
        return found

    # -------------------------------------------------------------------- sweeps

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._sweep()

    async def _sweep(self) -> None:
        """Give every process what it should have, until nobody new is found.

        A process may fork while others are being changed: its child is found by the next look.
        """
        async with self._sweeping:
            wanted = self._wanted()
            tried: set[ProcessId] = set()
            while todo := self._due(wanted) - tried:
                for process in todo:
                    await self._bring(process, wanted)
                tried |= todo

    def _wanted(self) -> bytes:
        """Return the vDSO that every process should have now."""
        lies: dict[str, tuple[Lie, Moment]] = {}
        for told in self._told.values():
            for clock in ("wall", "monotonic"):
                lie: Lie | None = getattr(told.skew, clock)
                if lie is not None:
                    lies[clock] = (lie, told.since)
        vdso = own()
        if not lies:
            return vdso.true
        return vdso.lying(blocks(lies.get("wall"), lies.get("monotonic")))

    def _due(self, wanted: bytes) -> set[ProcessId]:
        """Return the processes that may lack what they should have; forget those that ended."""
        here = set(self._processes())
        self._known = {process: it for process, it in self._known.items() if process in here}
        self._trouble = {process: it for process, it in self._trouble.items() if process in here}
        return {process for process in here if self._is_due(process, wanted)}

    def _is_due(self, process: ProcessId, wanted: bytes) -> bool:
        """Whether it was never looked at, called exec, or should have another vDSO now."""
        try:
            return self._known.get(process) != (vdso_address(process.pid), wanted)
        except GoneError:
            return False
        except UnreachableError as error:
            self._trouble[process] = str(error)
            return False

    async def _bring(self, process: ProcessId, wanted: bytes) -> None:
        """Give one process its vDSO; what stands in the way is kept for the proof."""
        began = time.perf_counter()
        try:
            if shares_memory(process.pid, own().machine.kcmp):
                return  # it will call exec or end, and be found anew
            with Memory(process, own()) as memory:
                await self._change(process, memory, wanted)
                self._known[process] = (memory.base, wanted)
        except GoneError:
            return
        except UnreachableError as error:
            self._trouble[process] = str(error)
            return
        self._trouble.pop(process, None)
        self._note(process.pid, began)

    async def _change(self, process: ProcessId, memory: Memory, wanted: bytes) -> None:
        vdso = own()
        if not same_time_namespace(process.pid):
            raise UnreachableError(f"process {process.pid} lives in another time namespace")
        now = memory.image()
        if now == vdso.true:
            steps = [Step(wanted, vdso.inside)]
        elif not vdso.lies(now):
            raise UnreachableError(f"process {process.pid} has a vDSO that is not ours")
        elif wanted == vdso.true:
            # A process that reads clocks all the time may keep our code, but not the lie.
            told_truth = vdso.lying(blocks(None, None))
            steps = [Step(wanted, vdso.inside), Step(told_truth, vdso.half_read)]
        else:
            steps = [Step(wanted, vdso.half_read)]
        await change(process, memory, now, steps, self._reins)

    def _note(self, pid: int, began: float) -> None:
        took_ms = round((time.perf_counter() - began) * 1000, 3)
        now_ns = time.monotonic_ns()
        for told in self._told.values():
            after_s = round((now_ns - told.since.monotonic_ns) / 1e9, 3)
            told.applied.append(Applied(pid, after_s, took_ms))

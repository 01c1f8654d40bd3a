"""Clock: the processes of a node read a wrong time, each for itself; the machine's clock is true.

A clock that jumps is a correction after drift, a leap second handled badly, a virtual machine that
was moved; one that runs at another speed is a bad oscillator or a time service that slews.  It
attacks every decision that compares two clocks: a lease whose end is a date (Valkey, Redis), a
lease that two machines count for themselves, a timestamp taken for an order.

The code with which a process reads clocks is exchanged, in the running process, unmodified and
statically linked ones included (`harness.vdso` says how).  The wall clock (date) and the monotonic
clock (time-outs, leases in etcd) lie apart from each other; CLOCK_MONOTONIC_RAW and the CPU clocks
stay true.  What the kernel does by itself keeps to the truth: a sleep or a time-out of a given
length lasts its real length, and one set to a point in time is compared with the true clock.
Programs that look at the clock again after they wake (Go's timers, leases) follow the lie.

A process that is started or calls exec during the window is lied to again within some 20 ms, and
the record says when.  At the end every process reads the true time at once, so a clock that ran
ahead jumps back: also the monotonic one, which no kernel would do, and which may break a program
that relies on it.

The proof runs, for each process, the very code that the process itself executes to read a clock,
as it lies in its memory, on this machine's processor, between two readings of the true clock; and
where the program can be asked (a worker; a server that tells its time) its own answer must agree.
A program that reads its clock otherwise (by the raw system call) is told from that answer only.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from harness.cast import Cast
from harness.clocks import Lie, Moment, Skew
from harness.mistakes import Mistake
from harness.node import Node, on_this_machine
from harness.site import ClockSettable, Site
from harness.units import Duration, parse_duration, parse_signed
from harness.vdso.machines import MACHINES
from harness.window import Proof
from nemesis._clock_looks import LINES, Look, compare

_BOUND_S = 0.25
_LOOK_S = 0.005
_JUMP_MAX_S = 10 * 365 * 86400.0
_STROBE_MIN_S = 0.001


def _text(description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": description})


class Clock:
    """Let the processes of the node read a wrong time: a jump, another speed, or both."""

    name = "clock"

    class Options(BaseModel):
        """Options of the fault `clock`: give a jump, a rate, or both."""

        model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

        clock: Literal["wall", "monotonic", "both"] = Field(
            "wall", description="the date, or the clock of time-outs and leases, or both"
        )
        jump: Annotated[
            Duration | None,
            BeforeValidator(parse_signed),
            _text("how far it jumps at once, like 30s, -30s or 2leases"),
        ] = None
        rate: float = Field(
            1.0, ge=0, le=10, description="how fast it runs: 0 frozen, 1 true, 2 double"
        )
        strobe: Annotated[
            Duration | None,
            BeforeValidator(parse_duration),
            _text("jump forth and back with this period"),
        ] = None

        @model_validator(mode="after")
        def _something_changes(self) -> Self:
            jumps = self.jump is not None and self.jump.amount != 0
            if not jumps and self.rate == 1.0:
                raise ValueError("nothing would change: give a jump (2leases, -30s) or a rate")
            if not jumps and self.strobe is not None:
                raise ValueError("a strobe needs a jump to make forth and back")
            return self

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._owner = f"clock {id(self)}"
        self._since: dict[str, Moment] = {}
        self._at_once: dict[str, int] = {}
        self._again: dict[str, list[tuple[int, float]]] = {}

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return None when the processor is one of ours and the lie is one of a clock."""
        lie = self._lie(cast.ttl_s)
        if cast.machine not in (None, *MACHINES):
            text = f"found clock, which this processor ({cast.machine}) cannot do"
            return Mistake(("kind",), f"{text}; it needs {', '.join(MACHINES)}")
        if abs(lie.offset_s) > _JUMP_MAX_S:
            return Mistake(("jump",), f"found {self.options.jump}; allowed: ten years at most")
        if self.options.strobe and lie.strobe_s < _STROBE_MIN_S:
            return Mistake(("strobe",), f"found {self.options.strobe}; allowed: 1ms or more")
        return None

    def available(self, site: Site) -> str | None:
        """Return None when the clocks of every node can be set as asked, else why not."""
        for name, node in site.at_risk.items():
            if not isinstance(node, ClockSettable):
                return f"the clocks of {name} cannot be set"
            if reason := node.clocks.unavailable():
                return reason
            if reason := self._below_zero(node.clocks.up_s(), site.ttl_s):
                return reason
        return None

    def _below_zero(self, up_s: float, ttl_s: float) -> str | None:
        """Return why the monotonic clock of a machine cannot jump so far back."""
        lie = self._lie(ttl_s)
        if self.options.clock == "wall" or up_s + lie.offset_s >= 0:
            return None
        return (
            f"the machine has been up for {up_s:.0f} s, so its monotonic clock cannot jump "
            f"back {-lie.offset_s:g} s: it would be below zero"
        )

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name the processes that need the true time again."""
        processes = [[p.pid, p.start] for p in on_this_machine(nodes)]
        return {"what": "true clocks", "processes": processes}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Lie to every process; what stands in the way of one is said by the proof."""
        lie = self._lie(site.ttl_s)
        both = self.options.clock == "both"
        skew = Skew(
            wall=lie if both or self.options.clock == "wall" else None,
            monotonic=lie if both or self.options.clock == "monotonic" else None,
        )
        self._again.clear()
        settable = _settable(nodes)
        moments = await asyncio.gather(*(n.clocks.skew(self._owner, skew) for _, n in settable))
        for (name, node), since in zip(settable, moments, strict=True):
            self._since[name] = since
            self._at_once[name] = len(node.clocks.applied(self._owner))

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Run the code of each process and ask the programs; a newcomer is given a moment."""
        deadline = time.monotonic() + _BOUND_S
        lie = self._lie(site.ttl_s)
        while True:
            looks = {
                name: await self._look(site, name, node, lie) for name, node in _settable(nodes)
            }
            if False not in [look.holds for look in looks.values()] or time.monotonic() > deadline:
                return _proof(looks)
            await asyncio.sleep(_LOOK_S)

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Give every process its true code back."""
        for name, node in _settable(nodes):
            told = node.clocks.applied(self._owner)[self._at_once.get(name, 0) :]
            self._again.setdefault(name, []).extend((one.pid, one.after_s) for one in told)
            await node.clocks.true_clocks(self._owner)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look whether every process has its true code again, and ask the programs."""
        looks = {name: await self._look_true(site, name, node) for name, node in _settable(nodes)}
        proof = _proof(looks)
        again = {name: told for name, told in self._again.items() if told}
        if not again:
            return proof
        said = "; ".join(f"{name}: {_told_again(told)}" for name, told in again.items())
        return Proof(
            holds=proof.holds, text=f"{proof.text}; {said}", facts=proof.facts | {"again": again}
        )

    # --------------------------------------------------------------------- looks

    def _lie(self, ttl_s: float) -> Lie:
        jump, strobe = self.options.jump, self.options.strobe
        return Lie(
            offset_s=jump.seconds(ttl_s) if jump else 0.0,
            rate=self.options.rate,
            strobe_s=strobe.seconds(ttl_s) if strobe else 0.0,
        )

    async def _look(self, site: Site, name: str, node: ClockSettable, lie: Lie) -> Look:
        since = self._since[name]
        clocks = [clock for clock in LINES if self.options.clock in (clock, "both")]
        lies = {clock: (lie, int(getattr(since, LINES[clock]))) for clock in clocks}
        look = await compare(site, name, node, lies)
        if look.holds is False and node.clocks.owners()[-1:] != [self._owner]:
            return Look(None, f"another clock fault came over it: {look.text}", look.facts)
        applied = node.clocks.applied(self._owner)
        look.facts["took_ms"] = max((one.took_ms for one in applied), default=0.0)
        return look

    async def _look_true(self, site: Site, name: str, node: ClockSettable) -> Look:
        if node.clocks.owners():
            return Look(True, "another clock fault goes on there")
        look = await compare(site, name, node, {clock: (Lie(), 0) for clock in LINES})
        if look.holds is None:
            return Look(True, "no process lives there")
        own, count = look.facts["own_code"], look.facts["processes"]
        kept = "the kernel's own code" if own == count else "code of ours, which tells the truth"
        return Look(look.holds, f"{look.text}, by {kept}", look.facts)


def _settable(nodes: Sequence[Node]) -> list[tuple[str, ClockSettable]]:
    return [(node.name, node) for node in nodes if isinstance(node, ClockSettable)]


def _told_again(told: Sequence[tuple[int, float]]) -> str:
    listed = ", ".join(f"process {pid} after {after_s:.3f} s" for pid, after_s in told)
    return f"lied to again during the window: {listed}"


def _proof(looks: dict[str, Look]) -> Proof:
    """Put the looks at all nodes together: one that does not hold decides."""
    all_hold = [look.holds for look in looks.values()]
    holds: bool | None = None if None in all_hold else True
    return Proof(
        holds=False if False in all_hold else holds,
        text="; ".join(f"{name}: {look.text}" for name, look in looks.items()),
        facts={name: look.facts for name, look in looks.items()},
    )

"""What is seen of the clocks of a node: by running its processes' code, and by asking its program.

A reading counts as right when it lies between what the lie makes of the true time just before and
of that just after.
"""

from dataclasses import dataclass, field
from typing import Any

from harness.clocks import Glimpse, Lie, Readings
from harness.site import ClockSettable, Site

_CODE_NS = 10_000
_ANSWER_NS = 2_000_000
# Each clock, and the line of true time that it is compared with.
LINES = {"wall": "wall_ns", "monotonic": "monotonic_ns"}


@dataclass
class Look:
    """What was seen on one node: `holds` as in a proof."""

    holds: bool | None
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


async def compare(
    site: Site, name: str, node: ClockSettable, lies: dict[str, tuple[Lie, int]]
) -> Look:
    """Compare what the processes of a node read with what they should, given the lies."""
    found = await node.clocks.read_clocks()
    if not found:
        return Look(None, "no process lives there now, so nothing reads a clock")
    own = sum(read.original for read in found.values())
    facts: dict[str, Any] = {"processes": len(found), "own_code": own}
    wrong = [text for pid, read in found.items() if (text := _wrong(f"process {pid}", read, lies))]
    first = next(iter(found.values()))
    for clock in lies:
        facts[f"{clock}_off_s"] = _off_s(first, clock)
    told = None if site.witness is None else await site.witness.told(name, node.clocks)
    if told is not None:
        facts["told"] = {clock: off for clock in lies if (off := _off_s(told, clock)) is not None}
        if text := _wrong("the program itself, asked for the time,", told, lies, _ANSWER_NS):
            wrong.append(text)
    if wrong:
        return Look(holds=False, text="; ".join(wrong), facts=facts)
    return Look(holds=True, text=_right(len(found), first, told, lies), facts=facts)


def _wrong(
    who: str, read: Readings, lies: dict[str, tuple[Lie, int]], within_ns: int = _CODE_NS
) -> str:
    """Say in what a reading is not as it should be; nothing when it is."""
    if read.trouble:
        return read.trouble
    for clock, (lie, since_ns) in lies.items():
        glimpse: Glimpse | None = getattr(read, clock)
        if glimpse is not None and not glimpse.fits(lie, since_ns, within_ns):
            return f"{who} reads a {clock} clock that is {glimpse.error_s:+.3f} s off"
    return ""


def _off_s(read: Readings, clock: str) -> float | None:
    glimpse: Glimpse | None = getattr(read, clock)
    return None if glimpse is None else round(glimpse.error_s, 6)


def _right(
    count: int, first: Readings, told: Readings | None, lies: dict[str, tuple[Lie, int]]
) -> str:
    parts = []
    for clock in lies:
        off_s, own_s = _off_s(first, clock), None if told is None else _off_s(told, clock)
        said = "" if own_s is None else f" (the program itself says {own_s:+.3f} s)"
        parts.append(f"a {clock} clock ({lies[clock][0]}) that is {off_s:+.3f} s off{said}")
    who = "1 process reads" if count == 1 else f"{count} processes read"
    return f"{who} {', '.join(parts)}"

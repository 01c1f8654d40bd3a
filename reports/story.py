"""The finding told in numbered lines, one moment a line, each with the ops that prove it.

The story is also the text alternative of the picture: every number in the picture is a line here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.history import Call
from harness.verdict import Anomaly
from harness.window import Window
from reports import rules
from reports.phrase import describe
from reports.reading import Reading
from reports.takeover import Takeover, belief_at
from reports.text import at, clean, count, lasting

MAX_LINES = 24
_MAX_FAULT_LINES = 8


@dataclass(frozen=True)
class Line:
    """One moment: `time_ns` None for what has no single time; `ops` are op numbers to link."""

    time_ns: int | None
    text: str
    ops: tuple[int, ...] = ()
    decisive: bool = False
    number: int = 0


@dataclass(frozen=True)
class Story:
    """Lines in order of time, why this breaks the property, and what would have prevented it."""

    lines: Sequence[Line]
    why: str
    prevention: str

    @property
    def moments(self) -> Sequence[Line]:
        """The lines that have a time, and so a place in the picture."""
        return [line for line in self.lines if line.time_ns is not None]


def ops_of(call: Call) -> tuple[int, ...]:
    """The op numbers of a call: its invocation and its completion, if any."""
    return (call.index,) if call.ret_index is None else (call.index, call.ret_index)


def tell(lines: Iterable[Line], why: str, prevention: str) -> Story:
    """Make a story of lines in any order: sorted by time, numbered, and safe to show."""
    timed = sorted(
        lines, key=lambda line: (line.time_ns is None, line.time_ns or 0, line.decisive)
    )[:MAX_LINES]
    numbered = [replace(line, number=i + 1, text=clean(line.text)) for i, line in enumerate(timed)]
    return Story(numbered, clean(why), clean(prevention))


def fault_lines(
    reading: Reading, since_ns: int, until_ns: int, scene: Takeover | None
) -> Iterable[Line]:
    """The faults that were in force between two times: when each began and when it was undone.

    Those on the old owner of `scene` come first, since few are told; what befell workers that play
    no part in it is not told at all.
    """
    shown = [w for w in reading.evidence.windows if _overlaps(w, since_ns, until_ns)]
    if scene is not None:
        cast = {scene.late.worker} | ({scene.newer.worker} if scene.newer else set())
        apart = set(reading.workers) - cast
        shown = [w for w in shown if not apart.issuperset(w.nodes)]
        shown.sort(key=lambda window: scene.late.worker not in window.nodes)
    if len(shown) > _MAX_FAULT_LINES // 2:
        more = len(shown) - _MAX_FAULT_LINES // 2
        yield Line(None, f"{count(more, 'more fault')} of this time: see the table of faults.")
    for window in shown[: _MAX_FAULT_LINES // 2]:
        begin_ns = window.on_ns if window.on_ns is not None else window.requested_ns
        ops = () if window.op is None else (window.op,)
        # A fault that is older than the scene is told at its beginning, so that the picture does
        # not have to go back to it.
        yield Line(max(begin_ns, since_ns), _fault_begins(window, reading), ops)
        end_ns = _end_ns(window)
        if end_ns is not None and end_ns <= until_ns:
            yield Line(end_ns, _fault_ends(window, (begin_ns, end_ns), reading, scene))


def _overlaps(window: Window, since_ns: int, until_ns: int) -> bool:
    begin_ns = window.on_ns if window.on_ns is not None else window.requested_ns
    end_ns = _end_ns(window)
    if not window.nodes:
        return False
    return begin_ns <= until_ns and (end_ns is None or end_ns >= since_ns)


def _end_ns(window: Window) -> int | None:
    """When the undo was ordered: from there on the fault is no longer certain."""
    return window.heal_ns if window.heal_ns is not None else window.off_ns


def _freezes(window: Window, reading: Reading) -> bool:
    return any(w is window for node in window.nodes for _, _, w in reading.frozen(node))


def _fault_begins(window: Window, reading: Reading) -> str:
    nodes = clean(", ".join(window.nodes))
    if _freezes(window, reading):
        return f"Fault: {nodes} is frozen. It runs no code and notices nothing until it wakes."
    grade = "" if window.grade == "installed" else f" ({window.grade.replace('-', ' ')})"
    return f"Fault: {clean(window.kind)} on {nodes} begins{grade}."


def _fault_ends(
    window: Window, force_ns: tuple[int, int], reading: Reading, scene: Takeover | None
) -> str:
    nodes, off_ns = clean(", ".join(window.nodes)), force_ns[1]
    after = lasting(off_ns - force_ns[0])
    if not _freezes(window, reading):
        return f"The fault {clean(window.kind)} on {nodes} ends after {after}."
    still = ""
    if scene is not None and scene.late.worker in window.nodes:
        belief = belief_at(reading, scene, off_ns)
        if belief is not None and scene.lease_end_ns is not None and off_ns > scene.lease_end_ns:
            still = " It still takes itself for the owner."
    return f"{nodes} wakes up after {after}.{still}"


def calls_of(anomaly: Anomaly, reading: Reading) -> Sequence[Call]:
    """The calls that prove a finding, each once, in the checker's order."""
    found = {c.index: c for index in anomaly.ops if (c := reading.call(index)) is not None}
    return list(found.values())


def generic_story(anomaly: Anomaly, reading: Reading) -> Story:
    """Tell a finding of any name by the calls that prove it; the last of them is the wrong one."""
    calls = calls_of(anomaly, reading)
    shown = [*calls[: MAX_LINES - _MAX_FAULT_LINES - 3], *calls[-1:]]
    lines = [
        Line(reading.done_ns(c), describe(c), ops_of(c), decisive=c is calls[-1])
        for c in {c.index: c for c in shown}.values()
    ]
    if calls:
        since_ns = min(c.call_ns for c in calls)
        lines += fault_lines(reading, since_ns, max(reading.done_ns(c) for c in calls), None)
    if len(calls) > len(shown):
        lines.append(
            Line(None, f"{len(calls) - len(shown)} more calls of this finding are not told.")
        )
    return tell(
        lines,
        f"{rules.must(anomaly.name)} {clean(anomaly.sentence)}".strip(),
        rules.cure(anomaly.name),
    )


def when(line: Line) -> str:
    """The time of a line for people."""
    return "" if line.time_ns is None else at(line.time_ns)

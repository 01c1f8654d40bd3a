"""What workers said that they believed, and what is known of them beside their operations.

A belief begins with the first word of a worker that it holds a lock and ends with its word that it
does not, with its own release or next acquire, or with its last sign of life.  A client that says
how long it has left has said when its belief ends, unless its clock was tampered with.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from harness.evidence import Evidence
from harness.note import Note
from harness.window import Window
from workloads._grants import Grant
from workloads._trace import Trace
from workloads._words import count, length

STOPPING = ("pause", "freeze", "stop")


@dataclass(frozen=True)
class Belief:
    """`grant`'s worker believed to hold it from `since_ns` to `until_ns`."""

    grant: Grant
    since_ns: int
    until_ns: float


@dataclass(frozen=True)
class Watch:
    """What is known of the workers beside their operations: words, stops, and signs of life."""

    notes: Mapping[tuple[str, str | None], Sequence[Note]]
    stops: Mapping[str, Sequence[tuple[int, int]]]
    skewed: frozenset[str]
    alive_ns: Mapping[str, int]


def watch(evidence: Evidence) -> Watch:
    """Sort notes and windows of a run by worker."""
    notes: dict[tuple[str, str | None], list[Note]] = {}
    alive_ns: dict[str, int] = {}
    for op in evidence.history.ops:
        if op.type in ("ok", "fail"):  # the controller alone may ask, and give up
            alive_ns[op.worker or str(op.process)] = op.time_ns
    for note in evidence.notes:
        if note.worker is not None:
            alive_ns[note.worker] = max(alive_ns.get(note.worker, 0), note.time_ns)
            if note.kind == "belief":
                notes.setdefault((note.worker, note.key), []).append(note)
    stops: dict[str, list[tuple[int, int]]] = {}
    skewed: set[str] = set()
    for window in evidence.windows:
        if window.kind.startswith("clock"):
            skewed.update(window.nodes)
        for node in window.nodes:
            span = _stopped(window, evidence.history.end_ns)
            if span is not None:
                stops.setdefault(node, []).append(span)
    return Watch(notes, stops, frozenset(skewed), alive_ns)


def _stopped(window: Window, end_ns: int) -> tuple[int, int] | None:
    if not window.kind.startswith(STOPPING) or window.grade != "installed" or window.on_ns is None:
        return None
    return window.on_ns, window.off_ns or window.heal_ns or end_ns


def beliefs(trace: Trace, watched: Watch) -> list[Belief]:
    """Return what each holder said that it believed, one for each grant with a word about it."""
    own: dict[str, list[Grant]] = {}
    for grant in trace.grants:
        own.setdefault(grant.worker, []).append(grant)
    listed = []
    for worker, grants in own.items():
        said: dict[int, list[Note]] = {}
        asked = [grant.acquire.call_ns for grant in grants]
        latest: dict[int | None, Grant] = {}
        place = 0
        for note in watched.notes.get((worker, trace.key), ()):
            while place < len(grants) and asked[place] <= note.time_ns:
                latest[grants[place].token] = latest[None] = grants[place]
                place += 1
            about = latest.get(note.token) if trace.tokens else latest.get(None)
            if about is not None:
                said.setdefault(about.acquire.index, []).append(note)
        for grant in grants:
            belief = _belief(grant, said.get(grant.acquire.index, ()), watched)
            if belief is not None:
                listed.append(belief)
    return listed


def _belief(grant: Grant, notes: Iterable[Note], watched: Watch) -> Belief | None:
    since: Note | None = None
    last: Note | None = None  # the last word that said yes
    until_ns = inf
    for note in notes:
        if note.holds:
            since, last, until_ns = since or note, note, inf
        elif note.holds is False and until_ns == inf:
            until_ns = note.time_ns
    if since is None or last is None:
        return None
    if until_ns == inf:  # it never said that it lost it: until its last sign of life
        until_ns = watched.alive_ns[grant.worker]
    until_ns = min(until_ns, grant.left_ns)
    if last.left_s is not None and grant.worker not in watched.skewed:
        # It said itself when its belief would end, by a clock that is known to be right.
        until_ns = min(until_ns, last.time_ns + last.left_s * 1e9)
    return Belief(grant, since.time_ns, until_ns)


def belief_notes(trace: Trace, held: Sequence[Belief]) -> list[str]:
    """Say where two workers believed at once that they held a lock: no finding by itself."""
    spans = sorted(held, key=lambda belief: belief.since_ns)
    times, longest = 0, 0.0
    last: Belief | None = None
    for belief in spans:
        if last is not None and last.grant.worker != belief.grant.worker:
            both_ns = min(last.until_ns, belief.until_ns) - belief.since_ns
            times += both_ns > 0
            longest = max(longest, both_ns)
        if last is None or belief.until_ns > last.until_ns:
            last = belief
    if not times:
        return []
    said = f"{count(times, 'time')}, for {length(longest)} at most; that is no fault by itself"
    return [f"Two workers believed at once that they held {trace.key}: {said}."]

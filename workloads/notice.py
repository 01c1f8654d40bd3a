"""`late-loss-notice`: an owner went on believing in a lock that somebody else had by then.

A holder can know by itself when its lease ends: the TTL after its last acknowledged renewal.  It is
late when it still believed longer than that, and a margin, while a later owner had been granted the
lock.  Time in which its node was provably stopped does not count: a frozen process cannot notice
anything, and one that finds out promptly when it wakes up did nothing wrong.

The margin is one renewal period of a usual client (a third of the TTL), because a client without a
timer of its own learns of a loss by its next renewal; and at least half a second, because a loaded
machine delays a thread that long.

What a worker believed is what it said.  A lease check that the service answered with `held` counts
too; a write does not, since it is the harness that asks for it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from harness.evidence import Evidence
from harness.note import Note
from harness.verdict import Anomaly
from harness.window import Window
from workloads._grants import Grant
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import count, done_ns, instant, length

NAME = "late-loss-notice"
STOPPING = ("pause", "freeze", "stop")
SLACK_NS = 500_000_000


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


def late_notices(trace: Trace, held: Sequence[Belief], watched: Watch) -> Result:
    """Return the property; every grant that was superseded while somebody spoke of it is a case."""
    until_ns = {belief.grant.acquire.index: belief.until_ns for belief in held}
    for call in trace.of("check"):
        grant = trace.grant_of(call)
        if grant is None or call.outcome != "ok" or not _said_held(call.value, call.result):
            continue
        index = grant.acquire.index
        until_ns[index] = max(until_ns.get(index, 0), call.call_ns)
    takers = _Takers(trace)
    checked = 0
    anomalies = []
    for grant in trace.grants:
        until = until_ns.get(grant.acquire.index)
        taker = takers.after(grant)
        if until is None or taker is None:
            continue
        checked += 1
        anomaly = _judge(trace, grant, until, taker, watched)
        if anomaly is not None:
            anomalies.append(anomaly)
    note = "" if held else "no worker said what it believed"
    return found(NAME, checked, anomalies, note)


def _said_held(asked: object, answer: object) -> bool:
    """Whether the service was asked and said yes."""
    return (
        isinstance(asked, dict)
        and asked.get("ask") is True
        and isinstance(answer, dict)
        and answer.get("held") is True
    )


class _Takers:
    """For each grant the first later one to another worker."""

    def __init__(self, trace: Trace) -> None:
        self._grants = sorted(trace.grants, key=lambda grant: grant.level)
        self._levels = [grant.level for grant in self._grants]
        first: list[Grant] = []  # from the end: the earliest, and the earliest of another worker
        self._best: list[tuple[Grant, ...]] = [()]
        for grant in reversed(self._grants):
            ranked = sorted([grant, *first], key=lambda g: g.start_ns)
            first = ranked[:1] + [g for g in ranked if g.worker != ranked[0].worker][:1]
            self._best.append(tuple(first))
        self._best.reverse()

    def after(self, grant: Grant) -> Grant | None:
        """The earliest grant of a higher level to somebody else."""
        best = self._best[bisect_right(self._levels, grant.level)]
        return next((other for other in best if other.worker != grant.worker), None)


def _judge(
    trace: Trace, grant: Grant, until_ns: float, taker: Grant, watched: Watch
) -> Anomaly | None:
    if grant.ttl_ns is None or until_ns <= taker.start_ns:
        return None
    renewed = max([grant.start_ns, *(done_ns(call) for call in grant.renewals)])
    due_ns = renewed + grant.ttl_ns
    stopped_ns = _overlap(watched.stops.get(grant.worker, ()), due_ns, until_ns)
    late_ns = until_ns - due_ns - stopped_ns
    if late_ns <= max(SLACK_NS, grant.ttl_ns / 3):
        return None
    slept = f" (the {length(stopped_ns)} in which it was stopped apart)" if stopped_ns else ""
    return Anomaly(
        name=NAME,
        sentence=(
            f"{grant.worker} still believed at {instant(until_ns)} that it held {trace.key},"
            f" {length(late_ns)} after its lease had run out{slept}; {taker.worker} held it from"
            f" {instant(taker.start_ns)} on."
        ),
        ops=(
            grant.acquire.index,
            *(call.index for call in grant.renewals[-1:]),
            taker.acquire.index,
        ),
        time_ns=round(until_ns),
        key=trace.key,
        size_s=late_ns / 1e9,
        details={
            "grant": grant.acquire.index,
            "next_grant": taker.acquire.index,
            "worker": grant.worker,
            "due_ns": due_ns,
            "believed_until_ns": round(until_ns),
            "stopped_s": stopped_ns / 1e9,
        },
    )


def _overlap(spans: Iterable[tuple[int, int]], start_ns: float, end_ns: float) -> float:
    """How much of [start, end] the spans cover together."""
    covered, reached = 0.0, start_ns
    for on_ns, off_ns in sorted(spans):
        low, high = max(on_ns, reached), min(off_ns, end_ns)
        if high > low:
            covered += high - low
            reached = high
    return covered


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
    return [
        f"Two workers believed at once that they held {trace.key}: {count(times, 'time')}, at most"
        f" {length(longest)}.  That alone is no fault; what the resource accepted is."
    ]

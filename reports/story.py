"""The finding told in numbered lines, one moment a line, each with the ops that prove it.

The story is also the text alternative of the picture: every number in the picture is a line here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.history import Call
from harness.verdict import Anomaly
from harness.window import Window
from reports import rules
from reports.phrase import describe, outcome_words, with_token
from reports.reading import Belief, Reading, member
from reports.takeover import Takeover
from reports.text import at, clean, count, lasting, quoted

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
    """Lines in order of time, then why this breaks the property and what would have prevented it."""

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


def _story(lines: Iterable[Line], why: str, prevention: str) -> Story:
    timed = sorted(
        lines, key=lambda line: (line.time_ns is None, line.time_ns or 0, line.decisive)
    )[:MAX_LINES]
    numbered = [
        replace(line, number=i + 1, text=clean(line.text)) for i, line in enumerate(timed)
    ]
    return Story(numbered, clean(why), clean(prevention))


def takeover_story(scene: Takeover, reading: Reading, anomaly: Anomaly | None) -> Story:
    """Tell a stale write, accepted (a finding) or refused (what a good resource does)."""
    lines = [
        *_stale_owner(scene, reading),
        *_faults(reading, scene.stale.start_ns, reading.done_ns(scene.late), scene),
        *_lease_end(scene, reading),
        *_new_owner(scene, reading),
        _late_write(scene, reading),
        *_afterwards(scene, reading),
    ]
    return _story(lines, _why(scene, reading, anomaly), _prevention(scene, reading, anomaly))


def _stale_owner(scene: Takeover, reading: Reading) -> Iterable[Line]:
    stale, worker = scene.stale, scene.stale.worker
    ttl = ""
    if stale.lease_end_ns is not None:
        extended_ns = max([stale.call.call_ns, *(c.call_ns for c in stale.renewals)])
        ttl = f" The lease lasts {lasting(stale.lease_end_ns - extended_ns)} unless it is renewed."
    yield Line(
        stale.start_ns,
        f"{worker} gets the lock {show_key(scene)} {with_token(stale.token)}.{ttl}",
        ops_of(stale.call),
    )
    renewals = [c for c in stale.renewals if c.call_ns < scene.late.call_ns]
    if renewals:
        times = "once" if len(renewals) == 1 else f"for the last of {len(renewals)} times"
        yield Line(
            reading.done_ns(renewals[-1]), f"{worker} renews its lease {times}.", ops_of(renewals[-1])
        )
    own = accepted_writes(reading, scene, worker, stale.start_ns, scene.late.call_ns)
    if own:
        yield Line(
            reading.done_ns(own[-1]),
            f"{worker} is the owner and has written {count(len(own), 'time')}; the resource accepted it.",
            ops_of(own[-1]),
        )
    yield from _check(scene, reading)


def _check(scene: Takeover, reading: Reading) -> Iterable[Line]:
    checks = [
        c
        for c in reading.of("check", scene.key)
        if c.worker == scene.late.worker
        and scene.stale.start_ns <= c.call_ns < scene.late.call_ns
        and c.outcome == "ok"
        and member(c.result, "held") is not False
    ]
    if not checks:
        return
    last = checks[-1]
    passed = [
        note.time_ns
        for note in reading.evidence.notes
        if note.op == last.index and note.phase == "lease-checked"
    ]
    asked = member(last.result, "held") is True
    text = "asks whether it still holds the lock: yes. Its next step is to write."
    yield Line(
        passed[0] if passed else last.call_ns,
        f"{last.worker} {text if asked else 'is about to write, without asking again.'}",
        ops_of(last),
    )


def accepted_writes(
    reading: Reading, scene: Takeover, worker: str, since_ns: int, until_ns: int
) -> list[Call]:
    """The writes of a worker that were accepted between two times."""
    return [
        c
        for c in reading.of("write", scene.key)
        if c.worker == worker
        and c.outcome == "ok"
        and c.call_ns >= since_ns
        and c.ret_ns is not None
        and c.ret_ns <= until_ns
        and c.index != scene.late.index
    ]


def _faults(
    reading: Reading, since_ns: int, until_ns: int, scene: Takeover | None
) -> Iterable[Line]:
    shown = [w for w in reading.evidence.windows if _overlaps(w, since_ns, until_ns)]
    if scene is not None:
        shown.sort(key=lambda window: scene.late.worker not in window.nodes)
    for window in shown[: _MAX_FAULT_LINES // 2]:
        begin_ns = window.on_ns if window.on_ns is not None else window.requested_ns
        yield Line(begin_ns, _fault_begins(window, reading), () if window.op is None else (window.op,))
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


def belief_at(reading: Reading, scene: Takeover, time_ns: int) -> Belief | None:
    """What the old owner believed at a time: the hold that covers it, if any."""
    last = _last_belief(reading, scene, time_ns)
    return last if last is not None and (last.end_ns is None or last.end_ns > time_ns) else None


def _last_belief(reading: Reading, scene: Takeover, time_ns: int) -> Belief | None:
    found = reading.beliefs(scene.late.worker, scene.key)
    begun = [b for b in found if scene.stale.call.call_ns <= b.start_ns <= time_ns]
    return begun[-1] if begun else None


def _lease_end(scene: Takeover, reading: Reading) -> Iterable[Line]:
    end_ns, worker = scene.lease_end_ns, scene.stale.worker
    if end_ns is None or end_ns >= reading.done_ns(scene.late):
        return
    if any(on_ns <= end_ns <= off_ns for on_ns, off_ns, _ in reading.frozen(worker)):
        known = f"{worker} is frozen and cannot notice."
    elif belief_at(reading, scene, end_ns):
        known = f"{worker} does not know it yet."
    else:
        known = ""
    yield Line(end_ns, f"The lease of {worker} ends. {known}".rstrip())


def _new_owner(scene: Takeover, reading: Reading) -> Iterable[Line]:
    newer = scene.newer
    if newer is None:
        return
    worker = newer.worker
    yield Line(
        newer.start_ns,
        f"{worker} gets the lock {with_token(newer.token)}. From here on {worker} is the owner.",
        ops_of(newer.call),
    )
    if scene.first is None:
        return
    first_ns = reading.done_ns(scene.first)
    yield Line(
        first_ns,
        f"{scene.first.worker} writes {quoted(scene.first.value)} {with_token(scene.first.token)}; "
        "the resource accepts it.",
        ops_of(scene.first),
    )
    more = accepted_writes(reading, scene, worker, first_ns, scene.late.call_ns)
    if more:
        yield Line(
            reading.done_ns(more[-1]),
            f"{worker} has written {count(len(more), 'more time')} by now, the last time "
            f"{quoted(more[-1].value)}; each was accepted.",
            ops_of(more[-1]),
        )


def _late_write(scene: Takeover, reading: Reading) -> Line:
    late = scene.late
    done_ns = reading.done_ns(late)
    text = f"{late.worker} writes {quoted(late.value)} {with_token(late.token)}"
    if scene.refused:
        text += f". The resource refuses it: {clean(late.error or 'no reason given', 200)}."
    elif late.outcome == "ok":
        text += f", and the resource accepts it{_although(scene, reading)}."
    else:
        text += f". The answer is unknown ({outcome_words(late)}), but it took effect{_although(scene, reading)}."
    over = member(late.result, "over")
    if over is not None and not scene.refused:
        value, token = member(over, "value"), member(over, "token")
        token = token if isinstance(token, int) else None
        text += f" By its own answer it overwrote {quoted(value)}, written {with_token(token)}."
    return Line(done_ns, text, ops_of(late), decisive=True)


def _although(scene: Takeover, reading: Reading) -> str:
    late, first = scene.late, scene.first
    if first is None:
        return " after the lock had a new owner"
    after = lasting(max(0, reading.done_ns(late) - reading.done_ns(first)))
    if first.token is not None and late.token is not None and first.token > late.token:
        return f", {after} after it first accepted the higher token {first.token}"
    return f", {after} after it first accepted a write of the new owner {first.worker}"


def _afterwards(scene: Takeover, reading: Reading) -> Iterable[Line]:
    done_ns = reading.done_ns(scene.late)
    belief = _last_belief(reading, scene, done_ns)
    worker = scene.late.worker
    if belief is not None and belief.end_ns is not None:
        gap = lasting(abs(belief.end_ns - done_ns))
        why = f" ({clean(belief.why, 120)})" if belief.why else ""
        learnt = f"{worker} learns that it is no longer the owner{why}"
        if belief.end_ns < done_ns:
            yield Line(belief.end_ns, f"{learnt}, but its write is already on its way.")
        else:
            yield Line(belief.end_ns, f"{learnt}, {gap} after the write.")
    if scene.lost:
        yield Line(
            None,
            f"{count(len(scene.lost), 'acknowledged write')} of the new owner "
            f"{'is' if len(scene.lost) == 1 else 'are'} gone: "
            f"{', '.join(quoted(c.value) for c in scene.lost[:5])}{' …' if len(scene.lost) > 5 else ''}.",
            tuple(c.index for c in scene.lost[:5]),
        )
    last = final_read(reading, scene.key)
    if last is not None and not scene.refused and last.call_ns > done_ns:
        same = last.result == scene.late.value
        text = "still holds the late write" if same else "was written again by later owners; it holds"
        yield Line(
            reading.done_ns(last),
            f"At the end of the run {show_key(scene)} {text} {quoted(last.result)} "
            f"({with_token(last.result_token)}).",
            ops_of(last),
        )


def final_read(reading: Reading, key: str | None) -> Call | None:
    """The first successful read of a key after all faults were healed."""
    final_ns = reading.evidence.final_ns
    if final_ns is None:
        return None
    return next(
        (c for c in reading.of("read", key) if c.call_ns >= final_ns and c.outcome == "ok"), None
    )


def show_key(scene: Takeover) -> str:
    """The name of the lock and of what it protects."""
    return quoted(scene.key) if scene.key is not None else "of this run"


def _why(scene: Takeover, reading: Reading, anomaly: Anomaly | None) -> str:
    late, first = scene.late, scene.first
    if scene.refused:
        seen = "" if first is None or first.token is None else f" It had seen token {first.token}."
        return (
            f"{late.worker} was no longer the owner, and the resource did not take its write.{seen} "
            "Nothing of the new owner was touched."
        )
    name = anomaly.name if anomaly is not None else "stale-owner-write"
    must = rules.must(name) or rules.must("stale-owner-write")
    told = "the new owner had written before it"
    if first is not None and first.token is not None and late.token is not None:
        told = f"token {late.token} was accepted after token {first.token}"
    accepted = rules.why_accepted(name, reading.evidence.fence)
    return f"{must} Here {told}. {accepted}"


def _prevention(scene: Takeover, reading: Reading, anomaly: Anomaly | None) -> str:
    if scene.refused:
        return "Nothing is to be done: this is the behaviour that the lock alone cannot give."
    return rules.prevention(anomaly.name if anomaly else "", reading.evidence.fence)


def calls_of(anomaly: Anomaly, reading: Reading) -> Sequence[Call]:
    """The calls that prove a finding, each once, in the checker's order."""
    found = {c.index: c for index in anomaly.ops if (c := reading.call(index)) is not None}
    return list(found.values())


def generic_story(anomaly: Anomaly, reading: Reading) -> Story:
    """Tell a finding of any name by the calls that prove it; the last of them is the wrong one."""
    calls = calls_of(anomaly, reading)
    shown = [*calls[: MAX_LINES - _MAX_FAULT_LINES - 2], *calls[-1:]]
    lines = [
        Line(reading.done_ns(c), describe(c), ops_of(c), decisive=c is calls[-1])
        for c in {c.index: c for c in shown}.values()
    ]
    if calls:
        since_ns = min(c.call_ns for c in calls)
        lines += _faults(reading, since_ns, max(reading.done_ns(c) for c in calls), None)
    if len(calls) > len(shown):
        lines.append(Line(None, f"{len(calls) - len(shown)} more calls of this finding are not told."))
    return _story(
        lines,
        f"{rules.must(anomaly.name)} {clean(anomaly.sentence)}".strip(),
        rules.cure(anomaly.name),
    )


def when(line: Line) -> str:
    """The time of a line for people."""
    return "" if line.time_ns is None else at(line.time_ns)

"""A stale write told moment by moment: accepted, or refused as a good resource does.

The order of the telling is the order of the events: the old owner gets the lock and sleeps, the
lease ends, the new owner writes, the old one wakes and writes.  One line is decisive: the late
write.
"""

from collections.abc import Iterable

from harness.verdict import Anomaly
from reports import rules
from reports.phrase import outcome_words, refusal_words, with_token
from reports.reading import RELEASED, Reading, member
from reports.story import Line, Story, fault_lines, ops_of, tell
from reports.takeover import Takeover, accepted_writes, belief_at, last_belief, newer_writes
from reports.text import clean, count, lasting, listing, quoted, who

_MAX_LOST = 5


def takeover_story(scene: Takeover, reading: Reading, anomaly: Anomaly | None) -> Story:
    """Tell a stale write, accepted (a finding) or refused (what a good resource does)."""
    lines = [
        *_stale_owner(scene, reading),
        *fault_lines(reading, scene.stale.start_ns, reading.done_ns(scene.late), scene),
        *_lease_end(scene, reading),
        *_new_owner(scene, reading),
        _late_write(scene, reading),
        *_afterwards(scene, reading),
    ]
    return tell(lines, _why(scene, reading, anomaly), _prevention(scene, reading, anomaly))


def _stale_owner(scene: Takeover, reading: Reading) -> Iterable[Line]:
    stale, worker = scene.stale, scene.stale.worker
    name = who(worker)
    ttl = ""
    if stale.lease_end_ns is not None:
        extended_ns = max([stale.call.call_ns, *(c.call_ns for c in stale.renewals)])
        ttl = f" The lease lasts {lasting(stale.lease_end_ns - extended_ns)} unless it is renewed."
    yield Line(
        stale.start_ns,
        f"{name} gets the lock {show_key(scene)} {with_token(stale.token)}.{ttl}",
        ops_of(stale.call),
    )
    renewals = [c for c in stale.renewals if c.call_ns < scene.late.call_ns]
    if renewals:
        times = "once" if len(renewals) == 1 else f"for the last of {len(renewals)} times"
        yield Line(
            reading.done_ns(renewals[-1]), f"{name} renews its lease {times}.", ops_of(renewals[-1])
        )
    own = accepted_writes(reading, scene, worker, stale.start_ns, scene.late.call_ns)
    if own:
        yield Line(
            reading.done_ns(own[-1]),
            f"{name} is the owner and has written {_times(len(own))}; that was accepted.",
            ops_of(own[-1]),
        )
    yield from _check(scene, reading, reading.done_ns(own[-1]) if own else stale.start_ns)


def _check(scene: Takeover, reading: Reading, since_ns: int) -> Iterable[Line]:
    """The last look at the lock before the late write: what the old owner acted on."""
    checks = [
        c
        for c in reading.of("check", scene.key)
        if c.worker == scene.late.worker
        and since_ns <= c.call_ns < scene.late.call_ns
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
        f"{who(last.worker)} {text if asked else 'is about to write, without asking again.'}",
        ops_of(last),
    )


def _lease_end(scene: Takeover, reading: Reading) -> Iterable[Line]:
    end_ns, worker = scene.lease_end_ns, scene.stale.worker
    name = who(worker)
    if end_ns is None or end_ns >= reading.done_ns(scene.late):
        return
    if any(on_ns <= end_ns <= off_ns for on_ns, off_ns, _ in reading.frozen(worker)):
        known = f"{name} is frozen and cannot notice."
    elif belief_at(reading, scene, end_ns):
        known = f"{name} does not know it yet."
    else:
        known = ""
    yield Line(end_ns, f"The lease of {name} ends. {known}".rstrip())


def _new_owner(scene: Takeover, reading: Reading) -> Iterable[Line]:
    newer = scene.newer
    if newer is None:
        return
    name = who(newer.worker)
    yield Line(
        newer.start_ns,
        f"{name} gets the lock {with_token(newer.token)}. Now {name} is the owner.",
        ops_of(newer.call),
    )
    if scene.first is None:
        return
    first, first_ns = scene.first, reading.done_ns(scene.first)
    text = f"{who(first.worker)} writes {quoted(first.value)} {with_token(first.token)}"
    yield Line(first_ns, f"{text}; the resource accepts it.", ops_of(first))
    more = newer_writes(reading, scene, first_ns)
    if more:
        last = more[-1]
        names = listing([who(name) for name in dict.fromkeys(c.worker for c in more)])
        text = f"Since then {names} wrote {count(len(more), 'more time')}, always accepted"
        value = f"{quoted(last.value)} {with_token(last.token)}"
        yield Line(reading.done_ns(last), f"{text}; the last one is {value}.", ops_of(last))


def _late_write(scene: Takeover, reading: Reading) -> Line:
    late = scene.late
    done_ns = reading.done_ns(late)
    text = f"{who(late.worker)} writes {quoted(late.value)} {with_token(late.token)}"
    although = _although(scene, reading)
    if scene.refused:
        text += f". The resource refuses it: {refusal_words(late)}."
    elif late.outcome == "ok":
        text += f", and the resource accepts it{although}."
    else:
        text += f". No certain answer came ({outcome_words(late)}), but it took effect{although}."
    over = member(late.result, "over")
    if over is not None and not scene.refused:
        value, token = member(over, "value"), member(over, "token")
        token = token if isinstance(token, int) else None
        text += f" By its own answer it overwrote {quoted(value)}, written {with_token(token)}."
    return Line(done_ns, text, ops_of(late), decisive=True)


def _although(scene: Takeover, reading: Reading) -> str:
    late, first = scene.late, scene.first
    if first is None:
        return "" if scene.newer is None else " after the lock had a new owner"
    after = lasting(max(0, reading.done_ns(late) - reading.done_ns(first)))
    if first.token is not None and late.token is not None and first.token > late.token:
        return f", {after} after it first accepted the higher token {first.token}"
    return f", {after} after it first accepted a write of the new owner {who(first.worker)}"


def _afterwards(scene: Takeover, reading: Reading) -> Iterable[Line]:
    done_ns = reading.done_ns(scene.late)
    belief = last_belief(reading, scene, done_ns)
    worker = who(scene.late.worker)
    if belief is not None and belief.end_ns is not None and belief.why != RELEASED:
        gap = lasting(abs(belief.end_ns - done_ns))
        why = f" ({clean(belief.why, 120)})" if belief.why else ""
        learnt = f"{worker} learns that it is no longer the owner{why}"
        if belief.end_ns < done_ns:
            yield Line(belief.end_ns, f"{learnt}, but its write is already on its way.")
        else:
            yield Line(belief.end_ns, f"{learnt}, {gap} after the write.")
    if scene.lost:
        told = ", ".join(quoted(c.value) for c in scene.lost[:_MAX_LOST])
        more = " and more" if len(scene.lost) > _MAX_LOST else ""
        lost = count(len(scene.lost), "acknowledged write")
        # A nanosecond later, so that the consequence is told after its cause.
        ops = tuple(c.index for c in scene.lost[:_MAX_LOST])
        yield Line(done_ns + 1, f"Lost: {lost} of newer owners, {told}{more}.", ops)
    last = reading.final_read(scene.key)
    if last is not None and not scene.refused and last.call_ns > done_ns:
        same = last.result == scene.late.value
        text = (
            "still holds the late write" if same else "was written again by later owners; it holds"
        )
        yield Line(
            reading.done_ns(last),
            f"At the end of the run {show_key(scene)} {text} {quoted(last.result)} "
            f"({with_token(last.result_token)}).",
            ops_of(last),
        )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def show_key(scene: Takeover) -> str:
    """The name of the lock and of what it protects."""
    return quoted(scene.key) if scene.key is not None else "of this run"


def _why(scene: Takeover, reading: Reading, anomaly: Anomaly | None) -> str:
    late, first = scene.late, scene.first
    if scene.refused:
        seen = "" if first is None or first.token is None else f" It had seen token {first.token}."
        name = who(late.worker)
        told = f"{name} was no longer the owner, and the resource did not take its write.{seen}"
        return f"{told} Nothing of the new owner was touched."
    name = anomaly.name if anomaly is not None else "stale-owner-write"
    must = rules.must(name) or rules.must("stale-owner-write")
    told = clean(anomaly.sentence) if anomaly is not None else ""
    if first is not None:
        told = "Here the new owner had written before."
        if first.token is not None and late.token is not None:
            told = f"Here token {late.token} was accepted after token {first.token}."
    return f"{must} {told} {rules.why_accepted(name, reading.evidence.fence)}"


def _prevention(scene: Takeover, reading: Reading, anomaly: Anomaly | None) -> str:
    if scene.refused:
        return "Nothing is to be done: this is the behaviour that the lock alone cannot give."
    return rules.prevention(anomaly.name if anomaly else "", reading.evidence.fence)

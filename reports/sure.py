"""Why the reader may believe a page: the clock, the order, the faults, and what is not known.

A finding that rests on a guess convinces nobody.  So each page says what stamps the history, what
makes the order of two events certain, which faults were proven and how, which outcomes are unknown
and whether the finding depends on them, and what was not observed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from harness.history import Call
from harness.verdict import Anomaly
from harness.window import Window
from reports.phrase import with_token
from reports.reading import NOT_MINE, Reading, refusal
from reports.story import calls_of
from reports.takeover import Takeover
from reports.text import at, clean, count, lasting, listing

Point = tuple[str, str]

_CLOCK = (
    "Every time on this page comes from one monotonic clock, the controller's: when it sent a "
    "request and when it got the answer. Workers and servers stamp nothing, so a wrong clock on "
    "any of them cannot shift what is shown here."
)
_ORDER = {
    "over": "The resource itself said, in the same atomic step as the late write, what it "
    "overwrote. No clock is needed for that.",
    "store-log": "The resource's own log lists the late write after the write of the newer owner. "
    "No clock is needed for that.",
    "read": "A read that ended before the late write began had already returned what the newer "
    "owner wrote: the resource had accepted it by then.",
}
_BELIEFS = "What workers believed explains a run. No finding rests on it."


def points(reading: Reading, anomaly: Anomaly | None, scene: Takeover | None) -> Sequence[Point]:
    """The grounds of the verdict, each with a short name."""
    found: list[Point] = [("One clock", _CLOCK)]
    if scene is not None and not scene.refused:
        found += _order(scene)
    found.append(("Faults", _faults(reading.evidence.windows)))
    if reading.malformed is not None:
        reason = clean(str(reading.malformed), 300)
        found.append(("The history", f"It breaks the rules of a history: {reason}."))
    if reading.calls:
        found.append(("What was tried", _at_stake(reading)))
        found.append(("Unknown outcomes", _unknown_outcomes(reading, anomaly, scene)))
    if scene is not None:
        found += _lease(reading, scene)
    if anomaly is not None and not anomaly.certain:
        text = "The ops alone leave another reading; the sentence of the finding names it."
        found.append(("Another reading", text))
    if missing := "; ".join(_missing(reading)):
        found.append(("Not observed", f"{missing[0].upper()}{missing[1:]}."))
    found.append(("Not proof", _BELIEFS))
    return found


def _order(scene: Takeover) -> Iterable[Point]:
    late, first = scene.late, scene.first
    said = _ORDER.get(scene.proof or "")
    if said is not None:
        yield "The order", said
    if first is not None and first.ret_ns is not None and first.precedes(late):
        gap = lasting(late.call_ns - first.ret_ns)
        text = (
            f"The write {with_token(first.token)} was answered at {at(first.ret_ns)}. The write "
            f"{with_token(late.token)} was sent {gap} later, at {at(late.call_ns)}. They do not "
            "overlap, so the resource took them in this order."
        )
        yield "The order" if said is None else "And the order of the calls", text


def _faults(windows: Sequence[Window]) -> str:
    if not windows:
        return "No fault was injected in this run."
    proven = [w for w in windows if w.grade == "installed"]
    undone = [w for w in proven if w.off is not None and w.off.holds]
    text = (
        f"{len(proven):,} of {count(len(windows), 'fault')} proven to be in force by a probe that "
        f"does not use the mechanism of the fault; {len(undone):,} proven to be gone again."
    )
    if proven and proven[0].on is not None:
        text += f" For the first, the probe saw: {clean(proven[0].on.text, 300)}."
    return text


def _at_stake(reading: Reading) -> str:
    grants = sum(c.f == "acquire" and c.outcome == "ok" for c in reading.calls)
    writes = sum(c.f == "write" and c.outcome == "ok" for c in reading.calls)
    refused = sum(c.f == "write" and refusal(c) in NOT_MINE for c in reading.calls)
    freezes = sum(len(reading.frozen(worker)) for worker in reading.workers)
    return (
        f"{count(grants, 'grant')} of a lock, {count(writes, 'accepted write')}, "
        f"{count(refused, 'write')} refused because the writer was no longer the owner. "
        f"Workers frozen, with proof: {count(freezes, 'time')}."
    )


def _unknown_outcomes(reading: Reading, anomaly: Anomaly | None, scene: Takeover | None) -> str:
    unknown = [c for c in reading.calls if c.outcome in ("info", "open")]
    if not unknown:
        return f"None: all {len(reading.calls):,} calls have a certain outcome."
    kinds = sorted(Counter(c.f for c in unknown).items())
    text = (
        f"{len(unknown):,} of {count(len(reading.calls), 'call')} ended without a certain outcome "
        f"({listing([f'{n:,} {clean(f, 40)}' for f, n in kinds[:6]])}); each was taken to have "
        "happened, or not, whichever speaks for the system."
    )
    if anomaly is None:
        return text
    used = {c.index for c in [*calls_of(anomaly, reading), *_cast(scene)]}
    depends = [f"#{c.index}" for c in unknown if c.index in used]
    if not depends:
        return f"{text} The finding uses none of them: it holds whichever way they went."
    return f"{text} The finding names {listing(depends[:5])} of them; other ops show their effect."


def _cast(scene: Takeover | None) -> Sequence[Call]:
    if scene is None:
        return ()
    newer = scene.newer.call if scene.newer else None
    return [c for c in (scene.stale.call, scene.late, newer, scene.first) if c is not None]


def _lease(reading: Reading, scene: Takeover) -> Iterable[Point]:
    end_ns, grant = scene.lease_end_ns, scene.stale
    if end_ns is None or scene.stale_ns is None or scene.stale_ns[0] != end_ns:
        return
    last = max([grant.call, *grant.renewals], key=lambda call: call.call_ns)
    spread = lasting(reading.done_ns(last) - last.call_ns)
    text = (
        f"Counted from when the last successful {last.f} was sent; the service may have started to "
        f"count up to {spread} later. This changes the length of the stale window by so much, and "
        "nothing else."
    )
    yield "End of the lease", text


def _missing(reading: Reading) -> Iterable[str]:
    evidence = reading.evidence
    if evidence.store_log is None:
        yield "the resource keeps no log of its own that the run could read"
    if not any(note.kind == "belief" for note in evidence.notes):
        yield "no worker reported its belief: what pictures show is concluded from its operations"
    if evidence.final_ns is None:
        yield "the run never came to the final reads"
    if evidence.history.cut:
        yield "the history ends in the middle of a line and was judged up to there"

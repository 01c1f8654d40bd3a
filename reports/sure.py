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
from reports.reading import Reading
from reports.story import calls_of
from reports.takeover import Takeover
from reports.text import at, clean, count, lasting, listing, quoted

Point = tuple[str, str]


def points(
    reading: Reading, anomaly: Anomaly | None, scene: Takeover | None
) -> Sequence[Point]:
    """The grounds of the verdict, each with a short name."""
    found = [_clock()]
    if scene is not None and not scene.refused:
        found += _order(reading, scene)
    found += _faults(reading.evidence.windows)
    if reading.calls:
        found.append(_unknown_outcomes(reading, anomaly, scene))
    if scene is not None:
        found += _lease(reading, scene)
    if anomaly is not None and not anomaly.certain:
        found.append(("Another reading", "The ops alone leave another reading; the finding names it."))
    found += _missing(reading)
    return found


def _clock() -> Point:
    return (
        "One clock",
        "Every time on this page comes from one monotonic clock, the controller's: when it sent a "
        "request and when it got the answer. Workers and servers stamp nothing, so a wrong clock on "
        "any of them cannot shift what is shown here.",
    )


def _order(reading: Reading, scene: Takeover) -> Iterable[Point]:
    late, first = scene.late, scene.first
    if scene.proof == "over":
        yield (
            "The order",
            "The resource itself said, in the same atomic step as the late write, what it overwrote. "
            "No clock is needed for that.",
        )
    elif scene.proof == "store-log":
        yield (
            "The order",
            "The resource's own log lists the late write after the write of the newer owner. No clock "
            "is needed for that.",
        )
    elif scene.proof == "read":
        yield (
            "The order",
            "A read that ended before the late write began had already returned the newer owner's "
            "value: the resource had accepted it by then.",
        )
    if first is not None and first.precedes(late):
        gap = lasting(late.call_ns - (first.ret_ns or 0))
        yield (
            "The order" if scene.proof in (None, "order") else "And the order of the calls",
            f"The write {with_token(first.token)} was answered at {at(first.ret_ns or 0)}. The write "
            f"{with_token(late.token)} was sent {gap} later, at {at(late.call_ns)}. They do not overlap, "
            "so the resource took them in this order.",
        )


def _faults(windows: Sequence[Window]) -> Iterable[Point]:
    if not windows:
        yield "Faults", "No fault was injected in this run."
        return
    proven = [w for w in windows if w.grade == "installed"]
    undone = [w for w in proven if w.off is not None and w.off.holds]
    text = (
        f"{len(proven)} of {count(len(windows), 'fault')} proven to be in force by a probe that does not "
        f"use the mechanism of the fault; {len(undone)} proven to be gone again."
    )
    if proven and proven[0].on is not None:
        text += f" For the first, the probe saw: {clean(proven[0].on.text, 300)}"
    yield "Faults", text


def _unknown_outcomes(reading: Reading, anomaly: Anomaly | None, scene: Takeover | None) -> Point:
    unknown = [c for c in reading.calls if c.outcome in ("info", "open")]
    if not unknown:
        return "Unknown outcomes", f"None: all {len(reading.calls):,} calls have a certain outcome."
    kinds = listing([f"{n:,} {clean(f, 40)}" for f, n in sorted(Counter(c.f for c in unknown).items())])
    text = (
        f"{len(unknown):,} of {count(len(reading.calls), 'call')} ended without a certain outcome "
        f"({kinds}); each was taken to have happened, or not, whichever speaks for the system."
    )
    if anomaly is None:
        return "Unknown outcomes", text
    used = {c.index: c for c in [*calls_of(anomaly, reading), *_cast(scene)]}
    depends = [c for c in unknown if c.index in used]
    if not depends:
        return "Unknown outcomes", f"{text} The finding uses none of them: it holds whichever way they went."
    numbers = listing([f"#{c.index}" for c in depends[:5]])
    return "Unknown outcomes", f"{text} The finding names {numbers} of them, and other ops show their effect."


def _cast(scene: Takeover | None) -> Sequence[Call]:
    if scene is None:
        return ()
    calls = [scene.stale.call, scene.late, scene.newer.call if scene.newer else None, scene.first]
    return [call for call in calls if call is not None]


def _lease(reading: Reading, scene: Takeover) -> Iterable[Point]:
    end_ns, grant = scene.lease_end_ns, scene.stale
    if end_ns is None or scene.stale_ns is None or scene.stale_ns[0] != end_ns:
        return
    last = max([grant.call, *grant.renewals], key=lambda call: call.call_ns)
    spread = lasting(reading.done_ns(last) - last.call_ns)
    yield (
        "End of the lease",
        f"Counted from when the last {'renewal' if last.f == 'renew' else 'acquire'} that succeeded was "
        f"sent; the service may have started {spread} later at most. This changes the length of "
        "the stale window by so much and nothing else.",
    )


def _missing(reading: Reading) -> Iterable[Point]:
    evidence = reading.evidence
    missing = []
    if evidence.store_log is None:
        missing.append("the resource keeps no log of its own that the run could read")
    if not any(note.kind == "belief" for note in evidence.notes):
        missing.append("no worker reported its belief: what the pictures show is concluded from its operations")
    if evidence.final_ns is None:
        missing.append("the run never came to the final reads")
    if evidence.history.cut:
        missing.append("the history ends in the middle of a line and was judged up to there")
    missing += [
        f"a problem during the run{_where(p.worker, p.time_ns)}: {clean(p.text, 200)}"
        for p in evidence.problems[:5]
    ]
    if missing:
        text = "; ".join(missing)
        yield "Not observed", f"{text[0].upper()}{text[1:]}."
    yield (
        "Not proof",
        "What workers believed explains a run. No finding rests on it.",
    )


def _where(worker: str | None, time_ns: int | None) -> str:
    who = "" if worker is None else f" at {quoted(worker)}"
    return who if time_ns is None else f"{who} ({at(time_ns)})"


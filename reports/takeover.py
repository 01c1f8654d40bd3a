"""The scene that this project is about: one owner slept, the next took over, the first wrote.

A checker names the calls of a stale write in `Anomaly.details`; what it leaves out is looked up in
the history.  The same scene with the write refused is what a good resource shows, and it is told
with the same words on a passing page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.history import Call
from harness.verdict import Anomaly
from reports.reading import NOT_MINE, Belief, Grant, Reading, refusal

STALE = ("stale-owner-write", "lost-update", "forgotten-fence")
PROOFS = ("order", "over", "store-log", "read")


@dataclass(frozen=True)
class Takeover:
    """Who held, who took over, and what the first owner wrote afterwards.

    `stale`, `newer`: the grants of the old and the new owner; `late`: the old owner's write;
    `first`: an accepted write of the new owner before it; `lease_end_ns`: the end of the old
    owner's lease, at the earliest; `stale_ns`: from when its writes were stale to when it sent one.
    """

    key: str | None
    stale: Grant
    late: Call
    newer: Grant | None
    first: Call | None
    lease_end_ns: int | None
    stale_ns: tuple[int, int] | None
    lost: tuple[Call, ...] = ()
    proof: str | None = None

    @property
    def refused(self) -> bool:
        """Whether the resource refused the late write."""
        return self.late.outcome == "fail"


def takeover_of(anomaly: Anomaly, reading: Reading) -> Takeover | None:
    """The scene of a finding; None when it is no stale write, or the history does not show one."""
    details = anomaly.details
    late = reading.call(details.get("stale_write"))
    if late is None and anomaly.name in STALE:
        late = next(
            (c for i in reversed(anomaly.ops) if (c := reading.call(i)) and c.f == "write"), None
        )
    if late is None:
        return None
    stale = _granted(reading, details.get("stale_grant")) or _grant_of_write(reading, late)
    if stale is None:
        return None
    newer = _granted(reading, details.get("newer_grant")) or _next_owner(reading, stale, late)
    first = reading.call(details.get("newer_write")) or _first_write(reading, newer, late)
    end_ns = details.get("lease_end_ns")
    lease_end_ns = end_ns if isinstance(end_ns, int) else stale.lease_end_ns
    proof = details.get("proof")
    return Takeover(
        key=late.key,
        stale=stale,
        late=late,
        newer=newer,
        first=first,
        lease_end_ns=lease_end_ns,
        stale_ns=_stale_ns(reading, late, newer, lease_end_ns),
        lost=_lost(reading, details.get("lost")),
        proof=proof if proof in PROOFS else None,
    )


def refused_takeover(reading: Reading) -> Takeover | None:
    """The first stale write that the resource refused, with the takeover before it."""
    for late in reading.calls:
        if late.f != "write" or refusal(late) not in NOT_MINE:
            continue
        stale = _grant_of_write(reading, late)
        newer = None if stale is None else _next_owner(reading, stale, late)
        if stale is None or newer is None or newer.worker == late.worker:
            continue
        return Takeover(
            key=late.key,
            stale=stale,
            late=late,
            newer=newer,
            first=_first_write(reading, newer, late),
            lease_end_ns=stale.lease_end_ns,
            stale_ns=_stale_ns(reading, late, newer, stale.lease_end_ns),
        )
    return None


def _granted(reading: Reading, index: object) -> Grant | None:
    call = reading.call(index)
    if call is None or call.f != "acquire":
        return None
    return next((g for g in reading.grants(call.key) if g.call.index == call.index), None)


def _grant_of_write(reading: Reading, write: Call) -> Grant | None:
    """The grant under which a write was made: by its token, else the worker's latest."""
    own = [
        g
        for g in reading.grants(write.key)
        if g.worker == write.worker and g.start_ns <= write.call_ns
    ]
    same = [g for g in own if g.token == write.token]
    best = same or own
    return best[-1] if best else None


def _next_owner(reading: Reading, stale: Grant, late: Call) -> Grant | None:
    """The first grant to somebody else after the stale one, if possible one that then wrote."""
    done_ns = reading.done_ns(late)
    later = [
        g
        for g in reading.grants(late.key)
        if stale.start_ns < g.start_ns < done_ns and g.worker != stale.worker
    ]
    wrote = [g for g in later if _first_write(reading, g, late)]
    best = wrote or later
    return best[0] if best else None


def _first_write(reading: Reading, newer: Grant | None, late: Call) -> Call | None:
    if newer is None:
        return None
    for call in reading.of("write", late.key):
        if call.call_ns >= late.call_ns:
            return None
        mine = call.worker == newer.worker and call.call_ns >= newer.start_ns
        if mine and call.outcome == "ok" and call.ret_ns is not None and call.ret_ns < late.call_ns:
            return call
    return None


def _stale_ns(
    reading: Reading, late: Call, newer: Grant | None, lease_end_ns: int | None
) -> tuple[int, int] | None:
    """From the end of the lease, or from the next grant if that came first, to the late write."""
    begin_ns = lease_end_ns
    if begin_ns is None or begin_ns >= late.call_ns:
        begin_ns = newer.start_ns if newer is not None else None
    if begin_ns is None:
        return None
    end_ns = late.call_ns if begin_ns < late.call_ns else reading.done_ns(late)
    return (begin_ns, end_ns) if begin_ns < end_ns else None


def _lost(reading: Reading, indexes: object) -> tuple[Call, ...]:
    if not isinstance(indexes, Sequence) or isinstance(indexes, str):
        return ()
    return tuple(call for index in indexes if (call := reading.call(index)) is not None)


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


def current_owner(reading: Reading, scene: Takeover) -> Grant | None:
    """Whose the lock was when the late write was sent; the next owner where nobody's it was."""
    held = [
        g
        for g in reading.grants(scene.key)
        if scene.stale.start_ns < g.start_ns <= scene.late.call_ns
    ]
    return held[-1] if held else scene.newer


def newer_writes(reading: Reading, scene: Takeover, since_ns: int) -> list[Call]:
    """The accepted writes of others between a time and the late write, in the order of answers."""
    found = [
        c
        for c in reading.of("write", scene.key)
        if c.worker != scene.late.worker
        and c.ret_ns is not None
        and c.outcome == "ok"
        and since_ns <= c.call_ns
        and c.ret_ns <= scene.late.call_ns
    ]
    return sorted(found, key=reading.done_ns)


def belief_at(reading: Reading, scene: Takeover, time_ns: int) -> Belief | None:
    """What the old owner believed at a time: the hold that covers it, if any."""
    last = last_belief(reading, scene, time_ns)
    return last if last is not None and (last.end_ns is None or last.end_ns > time_ns) else None


def last_belief(reading: Reading, scene: Takeover, time_ns: int) -> Belief | None:
    """The latest time before `time_ns` in which the old owner took itself for the holder."""
    found = reading.beliefs(scene.late.worker, scene.key)
    begun = [b for b in found if scene.stale.call.call_ns <= b.start_ns <= time_ns]
    return begun[-1] if begun else None

"""`unearned-hold`: a client behaves as the holder although its acquire was not granted.

The answer to its last acquire was a refusal, or is not known, and after that answer the client
says that it holds the lock: as its belief, as a check that it answers with yes, or by renewing on
its own account.  A word about an earlier grant that it really had is late, not unearned, and is
judged elsewhere; a write proves nothing, since it is the harness that asks for it.

A grant to a worker that queued is unearned when no moment is left at which it could have been made:
until the service called the worker's lease ended, somebody else certainly held the lock, and from
then on there was no lease to grant it to.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from harness.history import Call
from harness.op import Op
from harness.verdict import Anomaly
from workloads._beliefs import Watch
from workloads._grants import Grant
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import done_ns, instant, made_up, said_held
from workloads.granting import dead_waiters

NAME = "unearned-hold"


@dataclass(frozen=True)
class Word:
    """A worker acts as the holder; `op` is the index of the operation, None for a belief."""

    worker: str
    time_ns: int
    token: int | None
    what: str
    op: int | None = None


def unearned_holds(trace: Trace, watched: Watch, ops: Sequence[Op]) -> Result:
    """Return the property; an acquire that was not granted is a case, and at most one finding."""
    tries: dict[str, list[Call]] = {}
    for call in trace.of("acquire"):
        tries.setdefault(call.worker, []).append(call)
    refused = sum(call.outcome in ("fail", "info") for call in trace.of("acquire"))
    earned_ns = _asked_ns(trace)
    first = {
        grant.acquire.index: _dead_waiter(trace, grant, holder)
        for grant, holder in dead_waiters(trace.grants)
    }
    for word in sorted(_words(trace, watched), key=lambda word: word.time_ns):
        mine = tries.get(word.worker, [])
        place = bisect_right(mine, word.time_ns, key=lambda call: call.call_ns)
        if not place:
            continue
        last = mine[place - 1]
        if last.outcome not in ("fail", "info") or last.ret_index is None:
            continue
        answered = ops[last.ret_index]
        earned = earned_ns.get((word.worker, word.token), inf) <= word.time_ns
        # What comes after the end of a record that was cut may be about a grant that it lacks.
        if answered.time_ns < word.time_ns <= ops[-1].time_ns and not earned:
            first.setdefault(last.index, _anomaly(trace, last, answered, word))
    queued = sum(grant.lost is not None for grant in trace.grants)
    return found(NAME, refused + queued, first.values())


def _dead_waiter(trace: Trace, grant: Grant, holder: Grant) -> Anomaly:
    assert grant.lost is not None
    return Anomaly(
        name=NAME,
        sentence=(
            f"{grant.worker} was granted {trace.key} at {instant(grant.start_ns)}, although the"
            f" service had said at {instant(done_ns(grant.lost))} that its lease had ended while it"
            f" queued; {holder.worker} certainly held {trace.key} all that time."
        ),
        ops=(holder.acquire.index, grant.lost.index, grant.acquire.index),
        time_ns=grant.start_ns,
        key=trace.key,
        size_s=(grant.start_ns - done_ns(grant.lost)) / 1e9,
        details={
            "acquire": grant.acquire.index,
            "worker": grant.worker,
            "holder": holder.worker,
            "lost": grant.lost.index,
        },
    )


def _words(trace: Trace, watched: Watch) -> Iterable[Word]:
    for (worker, key), notes in watched.notes.items():
        if key == trace.key:
            for note in notes:
                if note.holds:
                    yield Word(worker, note.time_ns, note.token, "it said that it held it")
    for call in trace.of("check"):
        if call.outcome == "ok" and said_held(call):
            what = "it answered a check with yes"
            yield Word(call.worker, call.call_ns, call.token, what, call.index)
    for call in trace.of("renew"):
        if not made_up(call):
            yield Word(call.worker, call.call_ns, call.token, "it renewed it", call.index)


def _asked_ns(trace: Trace) -> dict[tuple[str, int | None], int]:
    """When each worker asked for what it was granted, by token, and first of all by None."""
    asked_ns: dict[tuple[str, int | None], int] = {}
    for grant in trace.grants if trace.tokens else ():
        for token in (grant.token, None):
            whose = (grant.worker, token)
            asked_ns[whose] = min(asked_ns.get(whose, grant.acquire.call_ns), grant.acquire.call_ns)
    return asked_ns


def _anomaly(trace: Trace, last: Call, answered: Op, word: Word) -> Anomaly:
    said = last.error or "no answer"
    return Anomaly(
        name=NAME,
        sentence=(
            f"{word.worker} acted as the holder of {trace.key} at {instant(word.time_ns)}"
            f" ({word.what}), although its acquire had ended at {instant(answered.time_ns)} without"
            f" a grant: {said}."
        ),
        ops=(last.index,) if word.op is None else (last.index, word.op),
        time_ns=word.time_ns,
        key=trace.key,
        details={"acquire": last.index, "worker": word.worker, "what": word.what},
    )

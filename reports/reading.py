"""The evidence as a reader of the report needs it: who held, who believed what, who was frozen.

Everything here is said by the history, the notes or the fault windows; nothing is judged again.  A
lease is *certainly alive* until its TTL has passed since the last successful acquire or renewal was
sent: the service started counting then at the earliest, so it cannot have ended before.  A history
that breaks the rules has no calls; the report then shows its raw ops.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.errors import MalformedHistoryError
from harness.evidence import Evidence
from harness.history import Call
from harness.note import Note
from harness.window import Window

FREEZING = ("pause", "freeze", "stop")
RELEASED = "released"  # how a worker says that it gave the lock back itself
NOT_MINE = ("not-holder", "fenced")


@dataclass(frozen=True)
class Grant:
    """A lock as it was granted: `start_ns` is the answer of the acquire.

    `lease_end_ns` is when the lease ends at the earliest, None when no TTL is known; `end_ns` is
    when the grant was over as far as the history tells (released, or lease end).
    """

    call: Call
    start_ns: int
    lease_end_ns: int | None
    end_ns: int | None
    renewals: tuple[Call, ...]
    release: Call | None

    @property
    def worker(self) -> str:
        """The worker that got it."""
        return self.call.worker

    @property
    def token(self) -> int | None:
        """The fencing token that came with it."""
        return self.call.result_token


@dataclass(frozen=True)
class Belief:
    """A time in which a worker took itself for the holder; `end_ns` None: it never learned.

    `token` is the token that it thought valid, `why` what ended the belief, `told` whether the
    worker reported it itself or it is concluded from its operations.
    """

    start_ns: int
    end_ns: int | None
    token: int | None
    why: str | None
    told: bool


class Reading:
    """Indexes over one evidence, made once for a page."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.malformed: MalformedHistoryError | None = None
        self.calls: tuple[Call, ...] = ()
        try:
            self.calls = evidence.history.calls
        except MalformedHistoryError as error:
            self.malformed = error

    @cached_property
    def _by_index(self) -> dict[int, Call]:
        found = {call.index: call for call in self.calls}
        found |= {call.ret_index: call for call in self.calls if call.ret_index is not None}
        return found

    def call(self, index: object) -> Call | None:
        """The call that the op at `index` begins or completes; None when there is no such op."""
        if isinstance(index, int) and not isinstance(index, bool):
            return self._by_index.get(index)
        return None

    @cached_property
    def _by_key(self) -> dict[tuple[str, str | None], list[Call]]:
        found: dict[tuple[str, str | None], list[Call]] = defaultdict(list)
        for call in self.calls:
            found[call.f, call.key].append(call)
        return found

    def of(self, f: str, key: str | None) -> Sequence[Call]:
        """The calls of one function on one key, in the order of their invocations."""
        return self._by_key.get((f, key), ())

    def done_ns(self, call: Call) -> int:
        """When the answer to a call came, whatever it was; the end of the run when none came."""
        if call.ret_index is None:
            return self.evidence.history.end_ns
        return self.evidence.history.ops[call.ret_index].time_ns

    @cached_property
    def workers(self) -> tuple[str, ...]:
        """All workers, in the order in which they first act."""
        return tuple(dict.fromkeys(call.worker for call in self.calls))

    @cached_property
    def _grants(self) -> dict[str | None, tuple[Grant, ...]]:
        found: dict[str | None, list[Grant]] = defaultdict(list)
        won = [c for c in self.calls if c.f == "acquire" and c.outcome == "ok"]
        following = _following(won)
        for call in won:
            found[call.key].append(self._grant(call, following.get(call.index)))
        return {
            key: tuple(sorted(grants, key=lambda grant: grant.start_ns))
            for key, grants in found.items()
        }

    def grants(self, key: str | None) -> Sequence[Grant]:
        """The grants of one lock, in the order in which they were answered."""
        return self._grants.get(key, ())

    def _grant(self, call: Call, until_ns: int | None) -> Grant:
        start_ns = self.done_ns(call)
        renewals = [c for c in self._own("renew", call, until_ns) if c.outcome == "ok"]
        releases = [c for c in self._own("release", call, until_ns) if c.outcome != "fail"]
        release = releases[0] if releases else None
        ttl_s = self._ttl_s(call)
        extended_ns = max([call.call_ns, *(c.call_ns for c in renewals)])
        lease_end_ns = None if ttl_s is None else extended_ns + round(ttl_s * 1e9)
        end_ns = lease_end_ns
        if release is not None and release.ret_ns is not None:
            end_ns = release.ret_ns if end_ns is None else min(end_ns, release.ret_ns)
        return Grant(call, start_ns, lease_end_ns, end_ns, tuple(renewals), release)

    def _own(self, f: str, acquire: Call, until_ns: int | None) -> Iterable[Call]:
        """Calls of the same worker on the same lock between this acquire and its next one."""
        whose = (f, acquire.key, acquire.worker)
        calls, starts = self._of_worker.get(whose, []), self._starts.get(whose, [])
        low = bisect_left(starts, self.done_ns(acquire))
        high = len(calls) if until_ns is None else bisect_left(starts, until_ns)
        return calls[low:high]

    @cached_property
    def _of_worker(self) -> dict[tuple[str, str | None, str], list[Call]]:
        found: dict[tuple[str, str | None, str], list[Call]] = defaultdict(list)
        for call in self.calls:
            found[call.f, call.key, call.worker].append(call)
        return found

    @cached_property
    def _starts(self) -> dict[tuple[str, str | None, str], list[int]]:
        return {whose: [c.call_ns for c in calls] for whose, calls in self._of_worker.items()}

    def _ttl_s(self, acquire: Call) -> float | None:
        for value in (acquire.result, acquire.value):
            ttl_s = value.get("ttl_s") if isinstance(value, dict) else None
            if isinstance(ttl_s, int | float) and not isinstance(ttl_s, bool) and 0 < ttl_s < 1e9:
                return float(ttl_s)
        return self.evidence.spec.ttl_s if self.evidence.spec else None

    def grant_of(self, worker: str, key: str | None, time_ns: int) -> Grant | None:
        """The latest grant of a lock to a worker that was answered by `time_ns`."""
        grants = [g for g in self.grants(key) if g.worker == worker and g.start_ns <= time_ns]
        return grants[-1] if grants else None

    def owner_of(self, key: str | None, token: object) -> Grant | None:
        """The grant of a lock that came with this token; None when none did."""
        if token is None:
            return None
        return next((g for g in self.grants(key) if g.token == token), None)

    def beliefs(self, worker: str, key: str | None) -> Sequence[Belief]:
        """When a worker took itself for the holder: as it reported, else as its operations say."""
        notes = [n for n in self._belief_notes.get(worker, ()) if n.key in (key, None)]
        return _told(notes) if notes else tuple(self._concluded(worker, key))

    @cached_property
    def _belief_notes(self) -> dict[str, list[Note]]:
        found: dict[str, list[Note]] = defaultdict(list)
        for note in self.evidence.notes:
            if note.kind == "belief" and note.worker is not None:
                found[note.worker].append(note)
        return found

    def _concluded(self, worker: str, key: str | None) -> Iterable[Belief]:
        for grant in self.grants(key):
            if grant.worker != worker:
                continue
            ends = [(grant.release.call_ns, RELEASED)] if grant.release else []
            ends += self._news_of_loss(worker, key, grant.start_ns)[:1]
            end = min(ends, default=None)
            end_ns, why = end if end is not None else (None, None)
            yield Belief(grant.start_ns, end_ns, grant.token, why, told=False)

    def _news_of_loss(self, worker: str, key: str | None, since_ns: int) -> list[tuple[int, str]]:
        news: list[tuple[int, str]] = []
        for f in ("renew", "write", "release", "check"):
            news += [
                (call.ret_ns, f"its {f} was refused")
                for call in self._of_worker.get((f, key, worker), ())
                if call.call_ns >= since_ns and call.ret_ns is not None and tells_loss(call)
            ]
        return sorted(news)

    def frozen(self, worker: str) -> Sequence[tuple[int, int, Window]]:
        """The times in which a worker was certainly frozen, with the fault that did it.

        A worker may wake as soon as that is ordered, so the time until it was seen awake is not in.
        """
        end_ns = self.evidence.history.end_ns
        return [
            (window.on_ns, window.heal_ns or window.off_ns or end_ns, window)
            for window in self.evidence.windows
            if worker in window.nodes
            and window.kind.startswith(FREEZING)
            and window.grade == "installed"
            and window.on_ns is not None
        ]

    def final_read(self, key: str | None) -> Call | None:
        """The first successful read of a key after all faults were healed."""
        final_ns = self.evidence.final_ns
        if final_ns is None:
            return None
        reads = (c for c in self.of("read", key) if c.call_ns >= final_ns and c.outcome == "ok")
        return next(reads, None)

    def ops_between(self, start_ns: int, end_ns: int) -> range:
        """The indexes of the ops of a time span, both ends included."""
        times = self._times
        return range(bisect_left(times, start_ns), bisect_right(times, end_ns))

    @cached_property
    def _times(self) -> list[int]:
        ops = self.evidence.history.ops
        return [op.time_ns for op in ops] if self.malformed is None else []


def _following(won: Sequence[Call]) -> dict[int, int]:
    """For each acquire, when the same worker next acquired the same lock."""
    latest: dict[tuple[str | None, str], int] = {}
    found: dict[int, int] = {}
    for call in reversed(won):
        whose = (call.key, call.worker)
        if whose in latest:
            found[call.index] = latest[whose]
        latest[whose] = call.call_ns
    return found


def _told(notes: Sequence[Note]) -> Sequence[Belief]:
    found: list[Belief] = []
    since: Note | None = None
    for note in notes:
        if since is not None and (not note.holds or note.token != since.token):
            found.append(Belief(since.time_ns, note.time_ns, since.token, note.why, told=True))
            since = None
        if note.holds and since is None:
            since = note
    if since is not None:
        found.append(Belief(since.time_ns, None, since.token, None, told=True))
    return found


def refusal(call: Call) -> str | None:
    """The code word of a refusal (`held`, `not-holder`, `fenced`), None for every other outcome."""
    if call.outcome != "fail" or not call.error:
        return None
    return call.error.split(":")[0].strip()


def tells_loss(call: Call) -> bool:
    """Whether the answer to a call tells its worker that it does not hold the lock."""
    if call.f == "check" and call.outcome == "ok":
        return isinstance(call.result, dict) and call.result.get("held") is False
    return refusal(call) in NOT_MINE


def member(value: Any, name: str) -> Any:
    """A member of a recorded object, None when the value is no object or lacks it."""
    return value.get(name) if isinstance(value, dict) else None

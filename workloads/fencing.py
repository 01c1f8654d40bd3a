"""The `fencing` workload: leases, a protected register a key, and owners that may be asleep.

The property in prose: once the resource has served an owner, it must never again obey an older one.
In logic: for accepted writes a and b of one key, token(a) < token(b) implies that a took effect
before b, and no read shows a's value after b took effect.

Contenders take a lock, read, check their lease, think and write with their fencing token; a fault
puts them to sleep between check and write.  Whether the resource or the lock service lied is told
from the history alone; each promise that can be broken is a small checker in a file of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from harness.evidence import Evidence
from harness.generator import Generator
from harness.rng import stream
from harness.spec import RunSpec
from harness.target import Queueing, Target
from harness.units import parse_seconds
from harness.verdict import Verdict, decide
from workloads._beliefs import Watch, belief_notes, beliefs, watch
from workloads._clusters import gather
from workloads._contender import Contender, Plan, Reader
from workloads._faults import Unrest, killed, unrest
from workloads._final import FinalContender, FinalReader
from workloads._owners import judge_order
from workloads._result import Result, as_property, total
from workloads._storelog import KeyLog, log_aborted, log_lost, log_notes, split_log
from workloads._telling import gravest_first, headline
from workloads._trace import Book, Trace, read_traces
from workloads._words import count
from workloads.forgery import forged_tokens
from workloads.granting import grant_faults
from workloads.lost import losses, lost_updates
from workloads.minority import Reach, minority_grants, reach
from workloads.notice import late_notices
from workloads.odd_reads import odd_reads
from workloads.premature import premature_expiries
from workloads.progress import no_progress
from workloads.refusals import refused_newest
from workloads.stale import stale_writes
from workloads.stale_reads import stale_reads
from workloads.substance import Tally, add, margins, stats, tally, vacuous
from workloads.unearned import unearned_holds
from workloads.zombie import zombie_leases


def _rounds(value: object) -> tuple[int, int]:
    """Read `5..15`, `8` or 8.  Raises ValueError with what is allowed."""
    low, _, high = str(value).partition("..")
    if not low.isdecimal() or not (high or low).isdecimal():
        raise ValueError(f"{value!r} is no number of rounds: write 8, or a range like 5..15")
    span = int(low), int(high or low)
    if not 1 <= span[0] <= span[1] <= 1_000_000:
        raise ValueError(f"{value!r}: the range must grow and begin at 1 or more")
    return span


def _maybe_seconds(value: object) -> float | None:
    return None if value is None else parse_seconds(value)


def _text(description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": description})


class Fencing:
    """Owners of leases write to a register with their fencing tokens; see the module."""

    name = "fencing"

    class Options(BaseModel):
        """Options of the workload `fencing`."""

        model_config = ConfigDict(extra="forbid", validate_default=True)

        keys: int = Field(1, ge=1, le=1000, description="locks and registers, k0 and so on")
        think: Annotated[
            float,
            BeforeValidator(parse_seconds),
            _text("time between the lease check and the write"),
        ] = "20ms"  # type: ignore[assignment] # validated like any other input
        rate: float = Field(20.0, gt=0, le=1e6, description="rounds per second, at most")
        rounds: Annotated[
            tuple[int, int], BeforeValidator(_rounds), _text("rounds a hold, 8 or 5..15")
        ] = "5..15"  # type: ignore[assignment] # validated like any other input
        check: bool = Field(default=True, description="ask the service before each write")
        retry: Annotated[
            float, BeforeValidator(parse_seconds), _text("pause between tries to acquire")
        ] = "50ms"  # type: ignore[assignment] # validated like any other input
        wait: Annotated[
            float | None,
            BeforeValidator(_maybe_seconds),
            _text("queue for the lock so long, in the service, instead of trying again"),
        ] = None

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    def generators(self, spec: RunSpec) -> Sequence[Generator]:
        """Contenders for the first workers, readers for the rest."""
        names = spec.worker_names()
        period_ns = round(1e9 / self.options.rate)
        contenders = [Contender(self._plan(spec, name)) for name in names[: spec.workers]]
        readers = [Reader(self._keys(), period_ns) for _ in names[spec.workers :]]
        return [*contenders, *readers]

    def final(self, spec: RunSpec) -> Sequence[Generator]:
        """Contenders show that locks are granted again; then every worker reads every key."""
        names = spec.worker_names()
        bound_ns = round(spec.progress_s * 1e9)
        contenders = [
            FinalContender(self._plan(spec, name), bound_ns) for name in names[: spec.workers]
        ]
        retry_ns = round(self.options.retry * 1e9)
        readers = [FinalReader(self._keys(), retry_ns) for _ in names[spec.workers :]]
        return [*contenders, *readers]

    def unsuitable(self, lock: Target, store: Target) -> str | None:
        """Return why workers cannot do with these targets what the options say."""
        if self.options.wait is None or (isinstance(lock, Queueing) and lock.queues):
            return None
        return f"wait needs a lock for which one can queue, and {lock.name} as given is none"

    def check(self, evidence: Evidence) -> Verdict:
        """Judge a run by its evidence; raises MalformedHistoryError."""
        return judge(evidence)

    def _keys(self) -> tuple[str, ...]:
        return tuple(f"k{i}" for i in range(self.options.keys))

    def _plan(self, spec: RunSpec, worker: str) -> Plan:
        think_ms = self.options.think * 1000
        return Plan(
            worker=worker,
            stream=stream(spec.seed, f"fencing/{worker}"),
            keys=self._keys(),
            ttl_s=spec.ttl_s,
            think_ms=int(think_ms) if think_ms.is_integer() else think_ms,
            period_ns=round(1e9 / self.options.rate),
            rounds=self.options.rounds,
            ask=self.options.check,
            retry_ns=round(self.options.retry * 1e9),
            wait_s=self.options.wait,
            time_ns=round(spec.time_s * 1e9),
        )


_FENCES = {
    "none": "The resource takes every write, whatever its token.",
    "checked": "The resource refuses a token lower than the highest that it has seen.",
    "guarded": "The resource accepts a write only while the lock service calls its token current.",
}


@dataclass(frozen=True)
class _Known:
    """What is known beside the history, of workers, of servers, and of who could talk to whom."""

    watched: Watch
    unrest: Unrest
    reached: Reach


@dataclass(frozen=True)
class _Judged:
    """What was found on one key."""

    results: tuple[Result, ...]
    notes: tuple[str, ...]
    tally: Tally
    lost: int


def judge(evidence: Evidence) -> Verdict:
    """Judge by all checkers of the workload.  Raises MalformedHistoryError."""
    book = read_traces(evidence.history, killed(evidence))
    acked = sum(write.call.outcome == "ok" for trace in book.traces for write in trace.writes)
    logs = split_log(evidence.store_log, book.traces)
    known = _Known(watch(evidence), unrest(evidence), reach(evidence))
    judged = [_key(trace, logs[trace.key], known, evidence, acked) for trace in book.traces]
    listed = [result for one in judged for result in one.results]
    results = total([*listed, no_progress(evidence, book.traces)])
    summed = add([one.tally for one in judged])
    lost = sum(one.lost for one in judged)
    anomalies = gravest_first(a for result in results.values() for a in result.anomalies)
    unknown = (*book.unknown, *vacuous(book.traces, summed, evidence))
    outcome = decide(anomalies, unknown)
    return Verdict(
        verdict=outcome,
        headline=headline(outcome, anomalies, unknown, summed),
        anomalies=anomalies,
        unknown=unknown,
        properties=tuple(as_property(result) for result in results.values()),
        stats=stats(book.traces, summed, lost),
        margins=margins(summed, lost, acked),
        notes=(*_notes(evidence, book, summed), *(note for one in judged for note in one.notes)),
    )


def _key(trace: Trace, log: KeyLog, known: _Known, evidence: Evidence, acked: int) -> _Judged:
    seen = gather(trace, log.accepted)
    order = judge_order(trace, seen, log, evidence.fence)
    lost = losses(trace, seen, order.stale)
    held = beliefs(trace, known.watched)
    zombies, told = zombie_leases(trace, known.unrest)
    accepted = sum(cluster.write is not None for cluster in seen.clusters)
    whole = evidence.final_ns is not None and not evidence.history.cut
    results = [
        *stale_writes(trace, order.stale, lost, accepted, acked),
        lost_updates(trace, order.stale, lost, acked),
        *grant_faults(trace),
        minority_grants(trace, known.reached),
        premature_expiries(trace),
        unearned_holds(trace, known.watched, evidence.history.ops),
        zombies,
        forged_tokens(trace),
        *odd_reads(trace, seen, log_aborted(trace, log)),
        *stale_reads(trace, seen, order.late, evidence.final_ns),
        log_lost(trace, seen, log, whole=whole),
        refused_newest(trace, log),
        late_notices(trace, held, known.watched),
    ]
    return _Judged(
        tuple(results),
        (*belief_notes(trace, held), *told, *log_notes(trace, seen, log)),
        tally(trace, seen, order),
        sum(len(gone) for gone in lost.values()),
    )


def _notes(evidence: Evidence, book: Book, summed: Tally) -> list[str]:
    """Observations about the run as a whole."""
    notes = [_FENCES[evidence.fence]] if evidence.fence in _FENCES else []
    if evidence.history.cut:
        notes.append("The history ends in the middle of a line: it is judged up to there.")
    if evidence.final_ns is None and (evidence.spec is not None or evidence.windows):
        notes.append("The run never came to its final reads: it is judged up to where it ended.")
    if summed.late_effects:
        notes.append(
            f"{count(summed.late_effects, 'write')} with unknown outcome took effect all the same."
        )
    if book.foreign:
        listed = ", ".join(f"{f} ({number})" for f, number in sorted(book.foreign.items()))
        notes.append(f"Operations that this workload does not know were left out: {listed}.")
    return notes

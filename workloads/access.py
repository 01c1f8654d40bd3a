"""The `access` workload: workers use their keys, and a stranger with a user of his own tries to.

The property in prose: nobody sees, changes or hears of a key without the permission for it.  In
logic: no operation of the stranger on the workers' keys ends in `ok` with an effect, no read shows
a value that he wrote, and no event of theirs reaches his watches.

Contenders write and read registers; readers are strangers, who read, write and watch the same keys
in every way that the client knows, also while the workers write and while faults are in force.  In
between they use a key of their own: a user who can do nothing at all would prove nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from harness.evidence import Evidence
from harness.generator import Generator, Invoke, Step, Wait
from harness.history import Call
from harness.op import Op
from harness.spec import RunSpec
from harness.target import HasStrangers, Target
from harness.units import parse_seconds
from harness.verdict import Anomaly, Reason, Unknown, Verdict, decide
from workloads._final import FinalReader
from workloads._result import as_property, found
from workloads._words import count, done_ns, instant, refusal, show

EFFECT, LEAK = "unauthorised-effect", "watch-leak"
_FOREIGN = ("foreign-read", "foreign-write", "foreign-watch")
_TURNS = ("own", *_FOREIGN)


class Access:
    """Strangers read, write and watch what workers use; see the module."""

    name = "access"

    class Options(BaseModel):
        """Options of the workload `access`."""

        model_config = ConfigDict(extra="forbid", validate_default=True)

        keys: int = Field(2, ge=1, le=1000, description="registers, k0 and so on")
        rate: float = Field(20.0, gt=0, le=1e6, description="operations a second a worker, at most")
        watch: Annotated[
            float,
            BeforeValidator(parse_seconds),
            WithJsonSchema({"type": "string", "description": "how long each watch is left open"}),
        ] = "200ms"  # type: ignore[assignment] # validated like any other input

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    def unsuitable(self, lock: Target, store: Target) -> str | None:
        """Return why these targets have no strangers, None when the store has."""
        if isinstance(store, HasStrangers) and store.has_strangers:
            return None
        return f"it needs a store with users, and {store.name} as given has none (etcd[auth=true])"

    def generators(self, spec: RunSpec) -> Sequence[Generator]:
        """Owners for the workers, strangers for the readers."""
        keys, period_ns = self._keys(), round(1e9 / self.options.rate)
        names = spec.worker_names()
        owners = [Owner(name, keys, period_ns) for name in names[: spec.workers]]
        strangers = [
            Stranger(name, keys, period_ns, self.options.watch) for name in names[spec.workers :]
        ]
        return [*owners, *strangers]

    def final(self, spec: RunSpec) -> Sequence[Generator]:
        """Everybody reads with a worker's permission what is there in the end."""
        return [FinalReader(self._keys(), 50_000_000) for _ in spec.worker_names()]

    def check(self, evidence: Evidence) -> Verdict:
        """Judge a run by its evidence; raises MalformedHistoryError."""
        return judge(evidence)

    def _keys(self) -> tuple[str, ...]:
        return tuple(f"k{i}" for i in range(self.options.keys))


@dataclass(frozen=True)
class Owner:
    """A worker that writes and reads in turn; `n` counts its operations."""

    worker: str
    keys: tuple[str, ...]
    period_ns: int
    n: int = 0
    next_ns: int = 0

    def step(self, last: Op | None, now_ns: int) -> "tuple[Step, Owner]":
        """Go on at the next time."""
        if now_ns < self.next_ns:
            return Wait(self.next_ns), self
        going = replace(self, n=self.n + 1, next_ns=now_ns + self.period_ns)
        key = self.keys[self.n // 2 % len(self.keys)]
        if self.n % 2:
            return Invoke("read", key), going
        return Invoke("write", key, f"{self.worker}-{self.n}"), going


@dataclass(frozen=True)
class Stranger:
    """A worker that tries what it may not do, and in between what it may; `n` counts the turns."""

    worker: str
    keys: tuple[str, ...]
    period_ns: int
    watch_s: float
    n: int = 0
    next_ns: int = 0

    def step(self, last: Op | None, now_ns: int) -> "tuple[Step, Stranger]":
        """Go on at the next time."""
        if now_ns < self.next_ns:
            return Wait(self.next_ns), self
        going = replace(self, n=self.n + 1, next_ns=now_ns + self.period_ns)
        f = _TURNS[self.n % len(_TURNS)]
        key = self.keys[self.n // len(_TURNS) % len(self.keys)]
        mine = f"{self.worker}-{self.n}"
        match f:
            case "own":
                return Invoke(f, None, mine), going
            case "foreign-write":
                return Invoke(f, key, mine), going
            case "foreign-watch":
                return Invoke(f, key, {"for_s": self.watch_s}), going
        return Invoke(f, key), going


def judge(evidence: Evidence) -> Verdict:
    """Judge by the answers alone.  Raises MalformedHistoryError."""
    calls = evidence.history.calls
    foreign = [call for call in calls if call.f in _FOREIGN]
    leaks = [_leak(call) for call in foreign if call.f == "foreign-watch" and _brought(call)]
    watches = sum(call.f == "foreign-watch" for call in foreign)
    results = [
        found(EFFECT, len(foreign) - watches, _effects(calls)),
        found(LEAK, watches, leaks),
    ]
    anomalies = tuple(
        sorted((a for r in results for a in r.anomalies), key=lambda anomaly: anomaly.time_ns)
    )
    unknown = _vacuous(calls, evidence)
    outcome = decide(anomalies, unknown)
    refused = Counter(call.f for call in foreign if refusal(call) == "denied")
    told = ", ".join(count(refused[f], f.removeprefix("foreign-"), _MANY[f]) for f in _FOREIGN)
    headline = f"Strangers were refused each time: {told}."
    if outcome == "fail":
        headline = anomalies[0].sentence
    elif outcome == "unknown":
        headline = f"Not judged. {unknown[0].text}"
    operations = {
        f: dict(Counter(call.outcome for call in calls if call.f == f))
        for f in sorted({call.f for call in calls})
    }
    return Verdict(
        verdict=outcome,
        headline=headline,
        anomalies=anomalies,
        unknown=tuple(unknown),
        properties=tuple(as_property(result) for result in results),
        stats={"operations": operations, "denied": dict(refused)},
    )


_MANY = {"foreign-read": "reads", "foreign-write": "writes", "foreign-watch": "watches"}


def _effects(calls: Sequence[Call]) -> Iterable[Anomaly]:
    """What a stranger was shown or let do, and what of his was seen by others."""
    tried = {show(call.value): call for call in calls if call.f == "foreign-write"}
    told = set()
    for call in calls:
        if call.f in ("foreign-read", "foreign-write") and _brought(call):
            what = "was shown" if call.f == "foreign-read" else "was let write, by"
            told.add(call.index)
            yield _effect(call, f"{call.worker}, a stranger, {what} {show(call.result)}", call)
    for call in calls:
        seen = call.f == "read" and call.outcome == "ok"
        written = tried.get(show(call.result)) if seen else None
        if written is not None and written.index not in told:
            told.add(written.index)
            whose = f"{show(call.result)}, which {written.worker}, a stranger, had tried to write"
            yield _effect(call, f"{call.worker} read {whose}", written, call)


def _brought(call: Call) -> list[Any]:
    """What an operation of a stranger was shown, let do or sent; nothing unless it succeeded."""
    if call.outcome != "ok" or call.result is None:
        return []
    return call.result if isinstance(call.result, list) else [call.result]


def _effect(call: Call, what: str, *proof: Call) -> Anomaly:
    return Anomaly(
        name=EFFECT,
        sentence=f"{what}, on {call.key} at {instant(done_ns(call))}.",
        ops=tuple(one.index for one in proof),
        time_ns=done_ns(call),
        key=call.key,
        details={"worker": call.worker, "op": call.index},
    )


def _leak(call: Call) -> Anomaly:
    number = count(len(_brought(call)), "event")
    return Anomaly(
        name=LEAK,
        sentence=(
            f"{call.worker}, a stranger, was sent {number} of {call.key}, until"
            f" {instant(done_ns(call))}: {show(call.result)}."
        ),
        ops=(call.index,),
        time_ns=done_ns(call),
        key=call.key,
        details={"worker": call.worker, "op": call.index},
    )


def _vacuous(calls: Sequence[Call], evidence: Evidence) -> list[Unknown]:
    """Return why a pass would mean nothing, or nothing."""
    done = Counter(call.f for call in calls if call.outcome == "ok")
    answered = Counter(call.f for call in calls if call.outcome in ("ok", "fail"))
    missing = [f"no {f} of a worker succeeded" for f in ("write", "read") if not done[f]]
    if not done["own"]:
        missing.append("no stranger could use what is his own")
    missing += [f"no {f} was answered" for f in _FOREIGN if not answered[f]]
    if evidence.spec is not None and evidence.final_ns is None:
        missing.append("no final read succeeded after the faults")
    if not missing:
        return []
    text = f"Too little happened: {'; '.join(missing)}."
    return [Unknown(reason=Reason.VACUOUS, text=text)]

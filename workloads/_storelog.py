"""The resource's own log of what it accepted and refused, in its own order, beside the clients'.

The log has no clock but the order of the resource itself, so an older owner's write accepted after
a newer one's is proven by it alone.  Where the log and the clients disagree, one of them is wrong:
a write that was acknowledged, that nobody saw and that the log does not know is lost; a write that
was reported as failed and stands in the log was applied.  The rest are notes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.target import Accept
from harness.verdict import Anomaly
from workloads._clusters import Seen
from workloads._result import Result, found
from workloads._trace import Trace, Write
from workloads._words import count, done_ns, instant, show


@dataclass(frozen=True)
class KeyLog:
    """One key's part; `forgot` are values accepted by a resource that had lost its fence."""

    entries: tuple[tuple[Accept, Write | None], ...] = ()
    accepted: frozenset[Any] = frozenset()
    forgot: frozenset[Any] = field(default_factory=frozenset)
    kept: bool = False

    def inversions(self) -> Iterable[tuple[Write, Write]]:
        """Return each write that was accepted after one of a higher level, with the highest."""
        top: Write | None = None
        for entry, write in self.entries:
            if not entry.accepted or write is None or write.call.outcome == "fail":
                continue
            if top is not None and write.level < top.level:
                yield write, top
            elif top is None or write.level > top.level:
                top = write


def split_log(log: Sequence[Accept] | None, traces: Sequence[Trace]) -> Mapping[str, KeyLog]:
    """Return the log key by key; keys that no client used are left out."""
    if log is None:
        return {trace.key: KeyLog() for trace in traces}
    tells = any(entry.highest is not None for entry in log)
    entries: dict[str, list[Accept]] = {trace.key: [] for trace in traces}
    for entry in log:
        if entry.key in entries:
            entries[entry.key].append(entry)
    return {trace.key: _key_log(trace, entries[trace.key], tells=tells) for trace in traces}


def _key_log(trace: Trace, entries: Sequence[Accept], *, tells: bool) -> KeyLog:
    """Return one key's part; `tells`: the log says of entries which highest token was known."""
    writes = {write.call.value: write for write in trace.writes}
    paired = tuple((entry, writes.get(_plain(entry.value))) for entry in entries)
    accepted = frozenset(_plain(entry.value) for entry in entries if entry.accepted)
    forgot = set()
    top: int | None = None
    for entry in entries:
        if not entry.accepted or entry.token is None:
            continue
        known = entry.token if entry.highest is None else max(entry.token, entry.highest)
        if top is not None and tells and known < top:
            forgot.add(_plain(entry.value))
        top = entry.token if top is None else max(top, entry.token)
    return KeyLog(paired, accepted, frozenset(forgot), kept=True)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int) else repr(value)


def log_lost(trace: Trace, seen: Seen, log: KeyLog, *, whole: bool) -> Result:
    """Acknowledged writes that are not in the log of a `whole` run, and that nobody ever saw."""
    acked = [write.call for write in trace.writes if write.call.outcome == "ok"]
    if not log.kept or not whole:
        return found("lost-ack", 0, ())
    shown = {c.write.call.index for c in seen.clusters if c.write and c.sights}
    anomalies = []
    for call in acked:
        if call.value in log.accepted or call.index in shown:
            continue
        anomalies.append(
            Anomaly(
                name="lost-ack",
                sentence=(
                    f"{call.worker}'s write of {show(call.value)} to {trace.key} was acknowledged"
                    f" at {instant(done_ns(call))}, but the resource's own log did not accept it"
                    " and nobody ever read it."
                ),
                ops=(call.index,),
                time_ns=done_ns(call),
                key=trace.key,
                details={"write": call.index, "worker": call.worker, "proof": "store-log"},
            )
        )
    return found("lost-ack", 0, anomalies)  # the cases are counted with the reads


def log_aborted(trace: Trace, log: KeyLog) -> list[Anomaly]:
    """Writes that were reported as failed and that the log accepted."""
    return [
        Anomaly(
            name="aborted-read",
            sentence=(
                f"{write.call.worker} was told that its write of {show(write.call.value)} to"
                f" {trace.key} failed ({write.call.error}), but the resource's own log accepted it."
            ),
            ops=(write.call.index,),
            time_ns=done_ns(write.call),
            key=trace.key,
            details={"write": write.call.index, "worker": write.call.worker, "proof": "store-log"},
        )
        for entry, write in log.entries
        if entry.accepted and write is not None and write.call.outcome == "fail"
    ]


def log_notes(trace: Trace, seen: Seen, log: KeyLog) -> list[str]:
    """Disagreements that are no finding about the target: the log itself is not complete or odd."""
    if not log.kept:
        return []
    values = [_plain(entry.value) for entry, _ in log.entries if entry.accepted]
    strange = sum(write is None for _, write in log.entries)
    other = sum(
        write is not None
        and entry.token is not None
        and write.call.token not in (None, entry.token)
        for entry, write in log.entries
    )
    missing = sum(
        c.write is not None and c.sights > 0 and c.write.call.value not in log.accepted
        for c in seen.clusters
    )
    told = [
        (strange, "has {} of values that no client wrote", "entry", "entries"),
        (
            len(values) - len(set(values)),
            "has {} of a value that it had accepted",
            "entry",
            "entries",
        ),
        (other, "has {} with another token than the client used", "entry", "entries"),
        (missing, "lacks {} that clients saw", "write", "writes"),
    ]
    return [
        f"The resource's own log of {trace.key} {text.format(count(number, one, many))}."
        for number, text, one, many in told
        if number
    ]

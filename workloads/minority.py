"""`minority-grant`: acknowledged by servers that provably could not reach a majority.

From the faults that were proven in force during the *whole* call follows who could talk to whom.  A
paused or dead server talks to nobody; two servers are apart when both directions between them are
cut; an answer comes to a worker only over a link that is whole both ways.  Everybody whom the
worker could reach, and everybody whom those could reach, over any number of steps, counts as
together with it.  Only if these are no majority of the servers, the acknowledgement proves that
the system does not wait for one.

Servers that do not know each other (the client itself collects a majority) are never accused, since
the worker belongs to the group.  Nor is a cluster whose members were changed during the run, or one
of a single server.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.evidence import Evidence
from harness.history import Call
from harness.verdict import Anomaly
from harness.window import Window
from workloads._faults import cut_pairs
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import count, done_ns, instant, with_token

NAME = "minority-grant"
_STOPPING = ("pause", "kill")
_PARTS: Mapping[str, str] = {"acquire": "lock", "write": "store"}


@dataclass(frozen=True)
class Split:
    """What one proven fault keeps apart, from `on_ns` to `heal_ns`."""

    window: Window
    on_ns: int
    heal_ns: int
    silent: frozenset[str]
    cut: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Reach:
    """The proven splits of a run, and the servers of each part."""

    splits: Sequence[Split] = ()
    servers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def _starts(self) -> list[int]:
        return [split.on_ns for split in self.splits]

    def during(self, call: Call) -> list[Split]:
        """The splits that were in force during the whole of a call that has ended."""
        begun = self.splits[: bisect_right(self._starts, call.call_ns)]
        return [split for split in begun if split.heal_ns >= done_ns(call)]


def reach(evidence: Evidence) -> Reach:
    """Return what the windows of a run prove; empty where the servers are not known."""
    if any(window.kind.startswith("membership") for window in evidence.windows):
        return Reach()
    splits = [split for window in evidence.windows if (split := _split(window)) is not None]
    return Reach(sorted(splits, key=lambda split: split.on_ns), evidence.servers)


def _split(window: Window) -> Split | None:
    if window.grade != "installed" or window.on_ns is None or window.heal_ns is None:
        return None
    if window.kind.startswith(_STOPPING):
        silent = frozenset(window.nodes)
        return Split(window, window.on_ns, window.heal_ns, silent, frozenset())
    if window.kind.startswith("partition"):
        cut = frozenset(cut_pairs(window) or ())
        return Split(window, window.on_ns, window.heal_ns, frozenset(), cut)
    return None


def minority_grants(trace: Trace, reached: Reach) -> Result:
    """Return the property; a case is a grant or write acknowledged while a split was in force."""
    checked = 0
    anomalies = []
    for f, part in _PARTS.items():
        servers = reached.servers.get(part, ())
        if len(servers) < 2:
            continue
        for call in trace.of(f):
            splits = reached.during(call) if call.outcome == "ok" else []
            if not splits:
                continue
            checked += 1
            together = _together(call.worker, servers, splits)
            if together and len(together) <= len(servers) // 2:
                anomalies.append(_anomaly(trace, call, part, servers, together, splits))
    return found(NAME, checked, anomalies)


def _together(worker: str, servers: Sequence[str], splits: Iterable[Split]) -> list[str]:
    """The servers that the worker could reach, or that could reach each other from there on."""
    silent = frozenset(name for split in splits for name in split.silent)
    cut = frozenset(pair for split in splits for pair in split.cut)
    left = [name for name in servers if name not in silent]
    near = [s for s in left if (worker, s) not in cut and (s, worker) not in cut]
    together, new = set(near), near
    while new:
        new = [
            b
            for b in left
            if b not in together and any((a, b) not in cut or (b, a) not in cut for a in new)
        ]
        together.update(new)
    return [name for name in servers if name in together]


def _anomaly(
    trace: Trace,
    call: Call,
    part: str,
    servers: Sequence[str],
    together: Sequence[str],
    splits: Sequence[Split],
) -> Anomaly:
    what = f"was granted {trace.key}" if call.f == "acquire" else f"wrote {trace.key}"
    token = f" with token {call.result_token}" if call.result_token is not None else ""
    faults = ", ".join(dict.fromkeys(split.window.kind for split in splits))
    since_ns = max(split.on_ns for split in splits)
    needed = len(servers) // 2 + 1
    return Anomaly(
        name=NAME,
        sentence=(
            f"{call.worker} {what}{token if call.f == 'acquire' else with_token(call)} at"
            f" {instant(done_ns(call))}, although it could reach only {', '.join(together)}, and"
            f" from there no more of the {count(len(servers), f'{part} server')}: a majority is"
            f" {needed} ({faults}, in force since {instant(since_ns)})."
        ),
        ops=(call.index,),
        time_ns=done_ns(call),
        key=trace.key,
        details={
            "call": call.index,
            "worker": call.worker,
            "reached": list(together),
            "servers": list(servers),
            "faults": [split.window.spec for split in splits],
        },
    )

"""What the faults of a run prove about it, and what they leave in doubt.

A worker that was killed holds nothing any more in its own eyes and will never act on what it held:
a service may free a session's lock at once, so a hold is certain only up to the kill.

A fault of the servers may have given every lease its full TTL again (a restart, a new leader), and
nobody else can tell when the servers were themselves again.  Such times are called unrest; they are
given generously, since they only ever excuse.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from harness.evidence import Evidence
from harness.window import Window

KILLING = ("kill", "amnesia")
# These change no lease: a client's clock or message, a token that nobody was granted.  A clock of a
# server does not count either: who ends leases by a clock that can be wrong is to be found out.
_HARMLESS = ("clock", "message", "authority")
SETTLE_NS = 2_000_000_000


@dataclass(frozen=True)
class Unrest:
    """Times in which the servers were not themselves, in order and apart from each other."""

    spans: Sequence[tuple[int, int]] = ()

    def ended_ns(self, by_ns: float) -> float:
        """Return when the last one that had begun by then was over, minus infinity for none."""
        place = bisect_right(self.spans, by_ns, key=lambda span: span[0])
        return self.spans[place - 1][1] if place else -inf


def killed(evidence: Evidence) -> Mapping[str, Sequence[int]]:
    """Return for each worker when its processes were ordered to be killed, in order."""
    times: defaultdict[str, list[int]] = defaultdict(list)
    for window in evidence.windows:
        if window.kind.startswith(KILLING) and _began(window):
            for node in window.nodes:
                times[node].append(window.requested_ns)
    return {node: sorted(listed) for node, listed in times.items()}


def unrest(evidence: Evidence) -> Unrest:
    """Return when faults may have touched the servers, from the order to 2 s after their end."""
    workers = {op.worker for op in evidence.history.ops}
    end_ns = evidence.history.end_ns
    spans: list[tuple[int, int]] = []
    touching = [w for w in evidence.windows if w.nodes and _touches_servers(w, workers)]
    for window in sorted(touching, key=lambda window: window.requested_ns):
        off_ns = (window.off_ns or window.heal_ns or end_ns) + SETTLE_NS
        if spans and window.requested_ns <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(off_ns, spans[-1][1])
        else:
            spans.append((window.requested_ns, off_ns))
    return Unrest(spans)


def cut_pairs(window: Window) -> list[tuple[str, str]] | None:
    """Return the directed pairs that a partition recorded as cut, None where it recorded none."""
    listed = None if window.on is None else window.on.facts.get("cut")
    if not isinstance(listed, list):
        return None
    pairs = [str(pair).split(">") for pair in listed]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _touches_servers(window: Window, workers: set[str | None]) -> bool:
    if window.kind.startswith(_HARMLESS):
        return False
    pairs = cut_pairs(window)
    if pairs is not None:  # servers that hear each other go on as before
        return any(workers.isdisjoint(pair) for pair in pairs)
    return not workers.issuperset(window.nodes) or window.kind.startswith(("partition", "link"))


def _began(window: Window) -> bool:
    """Whether the fault may have been in force at all."""
    return window.grade != "not-effective" or window.on_ns is not None

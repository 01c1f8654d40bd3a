"""The plain register: a read returns the latest written value.

Exact in O(n log n) when each value is written once on a key, unknown outcomes included: a write of
unknown outcome that nobody saw may be left out, one that was seen must have happened.  A history is
legal when no two values of a key must each come before the other (Gibbons and Korach 1997).
"""

from harness.checking.clusters import conflict, gather, reads_of, two_cycle, writes_of
from harness.checking.finding import Finding, Named
from harness.checking.steps import Steps


def judge_register(steps: Steps) -> Named | None:
    """Return what is wrong, None when some order explains everything.

    Raises RepeatedValuesError.
    """
    if not len(steps.call):
        return None
    writes = writes_of(steps)
    clusters = gather(steps, writes, steps.value[writes], reads_of(steps))
    if isinstance(clusters, Finding):
        return clusters
    members = (~clusters.optional).nonzero()[0]
    first, last = clusters.first[members], clusters.last[members]
    if steps.keys > 1:
        base = clusters.key[members] * (steps.never + 2)
        first, last = base + first, base + last
    pair = conflict(first, last)
    if pair is None:
        return None
    return lambda: two_cycle(clusters, *(int(members[at]) for at in pair))
